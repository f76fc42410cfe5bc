"""Every endpoint of the reference is there and answers in its shape (issue: inventory; case-019)."""

import re
from typing import Any

import httpx
import pytest

from tests.service.conftest import Running, functions, running, script
from tests.service.protocol import OPERATIONS, check_error, check_object

SCRIPT = script(
    plain=[{"text": "Hello there."}],
    round=[{"tool_calls": [{"name": "f", "arguments": {}}]}, {"text": "Done."}],
)
NAMES = [f"{operation['method']} {operation['path']}" for operation in OPERATIONS]
BODIES: dict[str, Any] = {
    "POST /assistants": {"model": "plain"},
    "POST /threads/runs": {"assistant_id": "{assistant_id}"},
    "POST /threads/{thread_id}/messages": {"role": "user", "content": "hi"},
    "POST /threads/{thread_id}/runs": {"assistant_id": "{assistant_id}"},
    "POST /threads/{thread_id}/runs/{run_id}/submit_tool_outputs": {
        "tool_outputs": [{"tool_call_id": "{call_id}", "output": "42"}]
    },
    "POST /vector_stores/{vector_store_id}/search": {"query": "fires"},
    "POST /vector_stores/{vector_store_id}/files": {"file_id": "{file_id}"},
    "POST /vector_stores/{vector_store_id}/files/{file_id}": {"attributes": {"year": 2020}},
    "POST /vector_stores/{vector_store_id}/file_batches": {"file_ids": ["{file_id}"]},
}
NOT_GIVEN = {"DELETE /models/{model}": 400}
UNKNOWN = {
    "assistant_id": "asst_unknown",
    "thread_id": "thread_unknown",
    "message_id": "msg_unknown",
    "run_id": "run_unknown",
    "step_id": "step_unknown",
    "vector_store_id": "vs_unknown",
    "file_id": "file-unknown",
    "batch_id": "vsfb_unknown",
    "model": "unknown",
    "call_id": "call_unknown",
}


async def furnished(server: Running) -> dict[str, str]:
    """One object of every kind; their ids by the names of path parameters."""
    run = await server.settled(await server.ask("round", assistant_tools=functions("f")))
    upload = await server.http.post(
        "/files", data={"purpose": "assistants"}, files={"file": ("fires.txt", b"Many fires.")}
    )
    store = (await server.post("/vector_stores", {"file_ids": [upload.json()["id"]]})).json()
    body = {"file_ids": [upload.json()["id"]]}
    batch = (await server.post(f"/vector_stores/{store['id']}/file_batches", body)).json()
    [step] = await server.steps(run)
    [message] = await server.messages(run)
    return {
        "assistant_id": run["assistant_id"],
        "thread_id": run["thread_id"],
        "message_id": message["id"],
        "run_id": run["id"],
        "step_id": step["id"],
        "vector_store_id": store["id"],
        "file_id": upload.json()["id"],
        "batch_id": batch["id"],
        "model": "plain",
        "call_id": run["required_action"]["submit_tool_outputs"]["tool_calls"][0]["id"],
    }


def filled(value: Any, ids: dict[str, str]) -> Any:
    if isinstance(value, dict):
        return {key: filled(entry, ids) for key, entry in value.items()}
    if isinstance(value, list):
        return [filled(entry, ids) for entry in value]
    return re.sub(r"\{(\w+)\}", lambda match: ids[match[1]], value) if isinstance(value, str) else value


async def requested(server: Running, name: str, ids: dict[str, str]) -> httpx.Response:
    method, path = name.split(" ")
    if name == "POST /files":
        return await server.http.post(
            "/files", files={"file": ("a.txt", b"x")}, data={"purpose": "assistants"}
        )
    body = filled(BODIES.get(name, {}), ids)
    options = {"json": body} if method == "POST" else {}
    return await server.http.request(method, filled(path, ids), **options)


@pytest.mark.parametrize("operation", OPERATIONS, ids=NAMES)
async def test_an_endpoint_answers_with_its_object(operation: dict[str, Any]):
    name = f"{operation['method']} {operation['path']}"
    async with running(SCRIPT) as server:
        ids = await furnished(server)
        if name in ("POST /threads/{thread_id}/messages", "POST /threads/{thread_id}/runs"):
            await server.post(f"/threads/{ids['thread_id']}/runs/{ids['run_id']}/cancel")
            await server.settled({"thread_id": ids["thread_id"], "id": ids["run_id"]})
        if name == "DELETE /threads/{thread_id}/messages/{message_id}":
            await server.post(f"/threads/{ids['thread_id']}/runs/{ids['run_id']}/cancel")
            await server.settled({"thread_id": ids["thread_id"], "id": ids["run_id"]})

        answer = await requested(server, name, ids)

        if name in NOT_GIVEN:
            check_error(answer, NOT_GIVEN[name])
            return
        assert answer.status_code == 200, answer.text
        if name == "GET /files/{file_id}/content":
            assert answer.content == b"Many fires."
            return
        check_object(operation["response"], answer.json())


WITH_IDS = [name for name in NAMES if "{" in name]


@pytest.mark.parametrize("name", WITH_IDS)
async def test_case_019_an_unknown_id_gives_a_404_that_names_it(name: str):
    async with running(SCRIPT) as server:
        answer = await requested(server, name, UNKNOWN)

        error = check_error(answer, 404)
        assert "unknown" in error["message"]


WITH_PREFIX = [name for name in WITH_IDS if "{model}" not in name]


@pytest.mark.parametrize("name", WITH_PREFIX)
async def test_an_id_of_another_kind_gives_a_400_that_names_the_parameter(name: str):
    first = re.search(r"\{(\w+)\}", name)[1]
    async with running(SCRIPT) as server:
        answer = await requested(server, name, {**UNKNOWN, first: "wrong_x"})

        error = check_error(answer, 400)
        assert (error["code"], error["param"]) == ("invalid_value", first)
        assert error["message"].startswith(f"Invalid '{first}': 'wrong_x'. Expected an ID that begins with '")


@pytest.mark.parametrize("path", ["/nothing", "/threads/x/y", "/chat/completions", "/responses"])
async def test_what_is_not_offered_is_a_404_that_names_it(path: str):
    async with running() as server:
        answer = await server.post(path)

        error = check_error(answer, 404)
        assert f"POST /v1{path}" in error["message"]


async def test_a_wrong_method_is_a_405_in_json():
    async with running() as server:
        answer = await server.http.patch("/threads/thread_x")

        assert check_error(answer, 405)["code"] == "method_not_allowed"
        assert answer.headers["allow"] == "DELETE, GET, HEAD, POST"
