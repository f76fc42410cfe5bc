"""The way in: address families, keys and their worlds, beta header, limits, repeated requests."""

import asyncio
import gzip
from typing import Any

import httpx
import pytest

from assistant_runner.service.store.sqlite import SqliteStore
from tests.service.conftest import BETA, frames_of, running, script
from tests.service.protocol import check_error

ECHO = {"OpenAI-Beta": ""}


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("", "You must provide the 'OpenAI-Beta' header"),
        ("assistants=v1", "speaks v2 only"),
        ("dreams=v3", "Unknown beta requested: 'dreams'."),
        ("v2", "Invalid beta header provided: 'v2'."),
    ],
    ids=["missing", "v1", "unknown", "malformed"],
)
async def test_case_015_a_beta_header_that_is_not_v2_is_refused(value: str, words: str):
    async with running() as server:
        answer = await server.post("/threads", headers={"OpenAI-Beta": value})

        error = check_error(answer, 400)
        assert (error["code"], error["param"]) == ("invalid_beta", None)
        assert words in error["message"]
        assert "assistants=v2" in error["message"] or "Unknown" in error["message"]


async def test_one_beta_among_several_is_enough():
    async with running() as server:
        answer = await server.post("/threads", headers={"openai-beta": "dreams=v3, assistants=v2"})

        assert answer.status_code == 200


@pytest.mark.parametrize("path", ["/v1/files", "/v1/vector_stores", "/v1/models"])
async def test_files_stores_and_models_need_no_beta_header(path: str):
    async with running() as server, httpx.AsyncClient(verify=False, base_url=server.url) as plain:
        assert (await plain.get(path)).status_code == 200


@pytest.mark.parametrize(
    "base",
    [
        "/v1",
        "/openai",
        "/openai/v1",
        "/openai/deployments/gpt-5",
        "/api/projects/demo",
        "/api/projects/demo/openai",
        "/api/projects/demo/openai/v1",
        "/api/projects/demo//openai/",
        "/agents/v1.0/subscriptions/s/resourceGroups/g/providers/Microsoft.MachineLearningServices/workspaces/w",
    ],
)
async def test_row_s1_1_the_address_families_lead_to_the_same_objects(base: str):
    headers = BETA if base == "/v1" else {}
    params = {} if base == "/v1" else {"api-version": "2024-05-01-preview"}
    async with (
        running() as server,
        httpx.AsyncClient(verify=False, base_url=server.url, headers=headers) as plain,
    ):
        made = await server.assistant(name="one")

        answer = await plain.get(f"{base}/assistants/{made['id']}/", params=params)

        assert answer.json() == made


@pytest.mark.parametrize("path", ["/v1//assistants", "//v1/assistants", "/openai//assistants//"])
async def test_a_doubled_slash_counts_as_one(path: str):
    async with running() as server, httpx.AsyncClient(headers=BETA) as plain:
        assert (await plain.get(server.url + path)).json()["object"] == "list"


async def test_a_compressed_body_is_refused_by_name():
    async with running() as server:
        answer = await server.http.post(
            "/threads", content=gzip.compress(b"{}"), headers={"Content-Encoding": "gzip"}
        )

        assert "'gzip'" in check_error(answer, 415)["message"]


async def test_a_byte_order_mark_before_the_body_is_no_harm():
    async with running() as server:
        answer = await server.http.post("/threads", content=b'\xef\xbb\xbf{"metadata": {"a": "b"}}')

        assert answer.json()["metadata"] == {"a": "b"}


async def test_only_the_foundry_form_lists_threads():
    async with running() as server, httpx.AsyncClient(verify=False, base_url=server.url) as plain:
        thread = (await server.post("/threads")).json()

        listed = await plain.get("/api/projects/demo/threads", params={"api-version": "v1"})

        assert [entry["id"] for entry in listed.json()["data"]] == [thread["id"]]
        check_error(await server.get("/threads"), 404)


@pytest.mark.parametrize(
    "headers",
    [{"Authorization": "Bearer key-one"}, {"authorization": "bearer key-one"}, {"api-key": "key-one"}],
    ids=["bearer", "lower case", "azure"],
)
async def test_a_key_may_come_in_either_header(headers: dict[str, str]):
    async with (
        running(api_keys=("key-one",)) as server,
        httpx.AsyncClient(verify=False, base_url=server.url) as plain,
    ):
        assert (await plain.get("/v1/models", headers=headers)).status_code == 200


@pytest.mark.parametrize("headers", [{}, {"Authorization": "Bearer sk-wrong-key-99"}], ids=["none", "wrong"])
async def test_without_a_right_key_nothing_is_shown(headers: dict[str, str]):
    async with (
        running(api_keys=("key-one",)) as server,
        httpx.AsyncClient(verify=False, base_url=server.url) as plain,
    ):
        error = check_error(await plain.get("/v1/models", headers=headers), 401)

        assert error["type"] == "invalid_request_error"
        assert "wrong-key" not in error["message"]
        assert error["code"] == "invalid_api_key"


async def test_keys_are_separate_worlds():
    async with running(api_keys=("key-one", "key-two"), key="key-one") as server:
        thread = (await server.post("/threads")).json()["id"]
        upload = {"files": {"file": ("a.txt", b"x")}, "data": {"purpose": "assistants"}}
        file_id = (await server.http.post("/files", **upload)).json()["id"]
        assistant = await server.assistant()
        other = {**BETA, "Authorization": "Bearer key-two"}

        for path in (f"/threads/{thread}", f"/files/{file_id}", f"/assistants/{assistant['id']}"):
            check_error(await server.get(path, headers=other), 404)
            assert (await server.get(path)).status_code == 200
        assert (await server.get("/assistants", headers=other)).json()["data"] == []
        body = {"assistant_id": assistant["id"]}
        check_error(await server.post("/threads/runs", body, headers=other), 404)


@pytest.mark.parametrize("path", ["/health", "/ready"])
async def test_health_and_readiness_need_no_key(path: str):
    async with (
        running(api_keys=("key-one",)) as server,
        httpx.AsyncClient(verify=False, base_url=server.url) as plain,
    ):
        answer = await plain.get(path)

        assert answer.json() == {"status": "ok", "engine": "script"}
        await server.service.pause()
        assert (await plain.get(path)).status_code == (200 if path == "/health" else 503)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"{bad", "line 1 column 2"),
        (b'{"a": NaN}', "NaN is not JSON"),
        (b"\xff\xfe", "can't decode byte 0xff"),
        (b'{"a": ' + b"9" * 5000 + b"}", "limit (4300 digits)"),
        (b"[" * 100_000, "nested too deeply"),
    ],
    ids=["broken", "NaN", "no UTF-8", "endless number", "nested"],
)
async def test_a_body_that_is_no_json_is_a_400(body: bytes, words: str):
    async with running() as server:
        answer = await server.http.post("/threads", content=body)

        message = check_error(answer, 400)["message"]
        assert "could not parse" in message
        assert words in message


@pytest.mark.parametrize("body", [b"[]", b'"x"', b"null", b"1"], ids=["array", "string", "null", "number"])
async def test_a_body_that_is_no_object_is_a_400(body: bytes):
    async with running() as server:
        error = check_error(await server.http.post("/threads", content=body), 400)

        assert error["code"] == "invalid_type"


async def test_a_body_over_the_limit_is_a_413():
    async with running(body_limit=2000) as server:
        answer = await server.post("/threads", {"metadata": {"a": "x" * 4000}})

        assert check_error(answer, 413)["code"] == "request_too_large"


async def test_odd_text_comes_back_as_it_was_sent():
    odd = "nul \x00 lone \ud800 sep \u2028 face 🌧"
    async with running() as server:
        body = b'{"role": "user", "content": "nul \\u0000 lone \\ud800 sep \\u2028 face \\ud83c\\udf27"}'
        thread = (await server.post("/threads")).json()["id"]
        made = await server.http.post(f"/threads/{thread}/messages", content=body)

        again = await server.get(f"/threads/{thread}/messages/{made.json()['id']}")

        assert again.json()["content"][0]["text"]["value"] == odd


@pytest.mark.parametrize(
    "value", ["\ud800", "thread_\x00", "thread_" + "x" * 5000, "thread_%2F..", "thread_é"]
)
async def test_strange_ids_are_not_found(value: str):
    async with running() as server:
        path = "/v1/threads/" + value.encode("utf-8", "surrogatepass").hex("%")
        quoted = "".join(f"%{byte:02x}" for byte in value.encode("utf-8", "surrogatepass"))
        answer = await server.get(f"/threads/{quoted}")

        assert answer.status_code in (400, 404), path
        assert set(answer.json()["error"]) == {"message", "type", "param", "code"}


async def test_an_idempotency_key_makes_one_object_of_two_requests():
    async with running() as server:
        headers = {"Idempotency-Key": "once"}
        first = await server.post("/threads", {"metadata": {"a": "b"}}, headers=headers)

        second = await server.post("/threads", {"metadata": {"a": "b"}}, headers=headers)
        other = await server.post("/threads", {"metadata": {"a": "c"}}, headers=headers)

        assert second.json() == first.json()
        assert check_error(other, 400)["param"] == "Idempotency-Key"


async def test_case_016_a_repeated_run_with_its_key_is_answered_and_not_refused():
    async with running(script(slow=[{"text": "late", "delay_s": 30}])) as server:
        assistant = await server.assistant(model="slow")
        thread = (await server.post("/threads")).json()["id"]
        body = {"assistant_id": assistant["id"]}

        answers = await asyncio.gather(
            *(
                server.post(f"/threads/{thread}/runs", body, headers={"Idempotency-Key": "a"})
                for _ in range(4)
            )
        )

        assert len({answer.json()["id"] for answer in answers}) == 1


async def test_a_repeated_stream_with_its_key_joins_the_run_that_there_is():
    async with running() as server:
        assistant = await server.assistant()
        body = {"assistant_id": assistant["id"], "stream": True}
        headers = {"Idempotency-Key": "once"}

        first = frames_of((await server.post("/threads/runs", body, headers=headers)).text)
        second = frames_of((await server.post("/threads/runs", body, headers=headers)).text)

        assert [frame.event for frame in second] == ["thread.run.completed", "done"]
        assert second[0].data == first[-2].data


async def test_a_body_that_stops_coming_is_a_408(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("assistant_runner.service.web.BODY_WAIT_S", 0.05)
    async with running() as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.http.base_url.port)
        head = "POST /v1/threads HTTP/1.1\r\nHost: x\r\nOpenAI-Beta: assistants=v2\r\n"
        writer.write(f"{head}Content-Length: 99\r\n\r\n{{".encode())

        assert b" 408 " in await reader.readline()
        writer.close()
        await writer.wait_closed()


async def test_cors_is_off_unless_an_origin_is_named():
    origin = {"Origin": "https://app.example"}
    async with running(api_keys=("k",), key="k") as server:
        answer = await server.get("/models", headers=origin)
        assert answer.status_code == 200
        assert "access-control-allow-origin" not in answer.headers
    async with running(cors_origins=("https://app.example",), api_keys=("k",)) as server:
        asked = {**origin, "Access-Control-Request-Headers": "authorization"}
        flight = await server.http.request("OPTIONS", "/threads", headers=asked)
        assert flight.headers["access-control-allow-origin"] == "https://app.example"
        assert flight.headers["access-control-allow-headers"] == "authorization"
        other = await server.http.request("OPTIONS", "/threads", headers={"Origin": "https://evil.example"})
        assert "access-control-allow-origin" not in other.headers


async def test_a_web_page_cannot_use_a_server_without_keys():
    async with running(hosts=("127.0.0.1", "localhost")) as server:
        page = await server.post("/threads", headers={"Origin": "https://evil.example"})
        rebound = await server.post("/threads", headers={"Host": "evil.example:8000"})
        names = ("LOCALHOST:8000", "127.0.0.1", "host.docker.internal:8000", "x", "[::1]:8000")
        local = [await server.post("/threads", headers={"Host": name}) for name in names]

        assert check_error(page, 403)["param"] == "Origin"
        assert check_error(rebound, 403)["param"] == "Host"
        assert [answer.status_code for answer in local] == [200] * len(names)


async def test_the_access_log_has_no_content(caplog: pytest.LogCaptureFixture):
    caplog.set_level("INFO", logger="assistant_runner")
    async with running(api_keys=("key-one",), key="key-one") as server:
        await server.post("/threads", {"metadata": {"secret": "words"}}, params={"q": "hidden"})

    text = "\n".join(
        record.getMessage() for record in caplog.records if record.name == "assistant_runner.access"
    )
    assert "POST /v1/threads 200" in text
    assert not any(word in text for word in ("words", "key-one", "hidden"))


async def test_a_fault_of_ours_is_a_500_in_json_without_a_traceback(monkeypatch: pytest.MonkeyPatch):
    async with running() as server:

        def broken(*_: Any, **__: Any) -> None:
            raise RuntimeError("secret detail")

        monkeypatch.setattr(server.service.core.store, "page", broken)
        error = check_error(await server.get("/assistants"), 500)

        assert error["type"] == "server_error"
        assert "secret" not in error["message"]


@pytest.mark.parametrize(
    ("params", "code", "param"),
    [
        ({"limit": "0"}, "integer_below_min_value", "limit"),
        ({"limit": "101"}, "integer_above_max_value", "limit"),
        ({"limit": "many"}, "invalid_type", "limit"),
        ({"order": "newest"}, "invalid_value", "order"),
        ({"after": "thread_x"}, "invalid_value", "after"),
        ({"after": "asst_unknown"}, "invalid_value", "after"),
        ({"before": "asst_unknown"}, "invalid_value", "before"),
    ],
    ids=["0", "101", "no number", "order", "wrong prefix", "unknown after", "unknown before"],
)
async def test_a_wrong_list_parameter_is_named(params: dict[str, str], code: str, param: str):
    async with running() as server:
        error = check_error(await server.get("/assistants", params=params), 400)

        assert (error["code"], error["param"]) == (code, param)


async def test_pages_neither_lose_nor_repeat_what_was_made_in_one_second():
    async with running() as server:
        made = [(await server.assistant(name=str(n)))["id"] for n in range(7)]
        for order, expected in (("desc", made[::-1]), ("asc", made)):
            seen: list[str] = []
            params: dict[str, Any] = {"limit": 3, "order": order}
            while True:
                page = (await server.get("/assistants", params=params)).json()
                seen += [entry["id"] for entry in page["data"]]
                assert (page["first_id"], page["last_id"]) == (page["data"][0]["id"], page["data"][-1]["id"])
                if not page["has_more"]:
                    break
                params["after"] = page["data"][-1]["id"]
            assert seen == expected


async def test_before_gives_the_nearest_in_the_order_asked():
    async with running() as server:
        made = [(await server.assistant(name=str(n)))["id"] for n in range(6)]

        page = (await server.get("/assistants", params={"limit": 2, "before": made[1]})).json()

        assert [entry["id"] for entry in page["data"]] == [made[3], made[2]]
        assert page["has_more"] is True


async def test_a_deleted_object_is_still_good_as_a_cursor():
    async with running() as server:
        made = [(await server.assistant(name=str(n)))["id"] for n in range(4)]
        await server.http.delete(f"/assistants/{made[2]}")

        page = (await server.get("/assistants", params={"after": made[2]})).json()

        assert [entry["id"] for entry in page["data"]] == [made[1], made[0]]


async def test_an_empty_page_has_null_ids():
    async with running() as server:
        page = (await server.get("/assistants")).json()

        assert page == {"object": "list", "data": [], "first_id": None, "last_id": None, "has_more": False}


async def test_a_request_that_the_end_of_the_service_cuts_short_is_a_503():
    sent: list[dict[str, Any]] = []

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    async with running() as server:
        headers = [(b"openai-beta", b"assistants=v2")]
        scope = {
            "type": "http",
            "method": "POST",
            "path": "/v1/threads",
            "headers": headers,
            "query_string": b"",
        }
        request = asyncio.create_task(server.service.app(scope, asyncio.Event().wait, send))  # type: ignore[arg-type]
        await asyncio.sleep(0)
        await server.service.pause()
        request.cancel()
        await request

    assert sent[0]["status"] == 503
    assert b"The service stops" in sent[1]["body"]


async def test_a_request_that_comes_while_the_service_stops_is_a_503_and_begins_nothing():
    async with running() as server:
        assistant = await server.assistant()
        await server.service.pause()

        answer = await server.post("/threads/runs", {"assistant_id": assistant["id"], "stream": True})

        assert "The service stops" in check_error(answer, 503)["message"]
        assert server.service.core.store.active_runs(owner=server.service.core.workers.owner) == []


async def test_a_full_disk_is_named_and_leaves_no_traceback(tmp_path, caplog):
    store = SqliteStore.open(tmp_path / "store.sqlite3")
    pages = store._connection.execute("PRAGMA page_count").fetchone()[0]
    store._connection.execute(f"PRAGMA max_page_count = {pages + 1}")
    async with running(store=store) as server:
        answer = await server.post("/assistants", {"model": "m", "instructions": "x" * 50_000})

    assert "cannot write its data: database or disk is full" in check_error(answer, 500)["message"]
    assert "Traceback" not in caplog.text
