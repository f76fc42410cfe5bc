"""Files, vector stores and what attachments do (reference, sections 4.8 to 4.12, 8.3)."""

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from assistant_runner.service import stores
from tests.service.conftest import HandClock, Running, running, script, until
from tests.service.protocol import check_error, check_events, check_object

SCRIPT = script(
    plain=[{"text": "Hello there."}],
    search=[{"builtin": "file_search", "query": "wildfires in 2021"}, {"text": "58985", "cite": True}],
    code=[{"builtin": "code_interpreter", "input": "print(open('numbers.csv').read())"}, {"text": "ok"}],
)
TEXT = b"Wildfires in 2020: 58950. Wildfires in 2021: 58985."


async def uploaded(server: Running, name: str = "fires.txt", content: bytes = TEXT, **data: str) -> str:
    answer = await server.http.post(
        "/files", files={"file": (name, content)}, data={"purpose": "assistants", **data}
    )
    assert answer.status_code == 200, answer.text
    return answer.json()["id"]


def kept(folder: Path) -> list[Path]:
    """The files in and below a folder."""
    return [path for path in folder.rglob("*") if path.is_file()]


async def store_with(server: Running, *file_ids: str, **fields: Any) -> str:
    store = (await server.post("/vector_stores", {"file_ids": list(file_ids), **fields})).json()
    await server.service.core.intake.settle("w:", [store["id"]], 10)
    return store["id"]


# ---- files


async def test_an_upload_comes_back_byte_for_byte():
    content = bytes(range(256)) * 5000
    async with running() as server:
        file_id = await uploaded(server, "data.bin", content)

        file = (await server.get(f"/files/{file_id}")).json()
        back = await server.get(f"/files/{file_id}/content")

        check_object("file", file)
        assert (file["bytes"], file["filename"], file["status"]) == (len(content), "data.bin", "processed")
        assert back.content == content


async def test_an_upload_repeated_with_its_idempotency_key_is_kept_once(data_folder: Path):
    async with running(data_folder=data_folder) as server:

        async def upload(content: bytes) -> Any:
            files, data = {"file": ("a.txt", content)}, {"purpose": "assistants"}
            return await server.http.post("/files", files=files, data=data, headers={"Idempotency-Key": "a"})

        answers = await asyncio.gather(*(upload(TEXT) for _ in range(3)))
        other = await upload(b"something else")

        assert len({answer.json()["id"] for answer in answers}) == 1
        assert check_error(other, 400)["param"] == "Idempotency-Key"
        assert len((await server.get("/files")).json()["data"]) == 1
        assert len(kept(data_folder / "files")) == 1


@pytest.mark.parametrize("order", [("purpose", "file"), ("file", "purpose")], ids=["SDK", "other"])
async def test_the_parts_of_an_upload_may_come_in_any_order(order: tuple[str, str]):
    parts = {
        "purpose": b'Content-Disposition: form-data; name="purpose"\r\n\r\nassistants\r\n',
        "file": b'Content-Disposition: form-data; name="file"; filename="a.txt"\r\n\r\nhi\r\n',
    }
    body = b"".join(b"--X\r\n" + parts[name] for name in order) + b"--X--\r\n"
    async with running() as server:
        headers = {"content-type": "multipart/form-data; boundary=X"}
        answer = await server.http.post("/files", content=body, headers=headers)

        assert answer.json()["bytes"] == 2


@pytest.mark.parametrize(
    ("data", "code", "param"),
    [
        ({}, "missing_required_parameter", "purpose"),
        ({"purpose": "fun"}, "invalid_value", "purpose"),
        ({"purpose": "assistants", "colour": "red"}, "unknown_parameter", "colour"),
        (
            {
                "purpose": "assistants",
                "expires_after[anchor]": "created_at",
                "expires_after[seconds]": "60",
            },
            "integer_below_min_value",
            "expires_after[seconds]",
        ),
    ],
    ids=["no purpose", "purpose", "unknown", "expiry"],
)
async def test_a_wrong_upload_is_named(data: dict[str, str], code: str, param: str):
    async with running() as server:
        answer = await server.http.post("/files", files={"file": ("a.txt", b"x")}, data=data)

        error = check_error(answer, 400)
        assert (error["code"], error["param"]) == (code, param)


async def test_an_upload_without_a_file_and_one_that_is_no_upload_are_named():
    async with running() as server:
        empty = await server.http.post("/files", files={"other": (None, "x")}, data={"purpose": "assistants"})
        plain = await server.post("/files", {"purpose": "assistants"})

        assert check_error(empty, 400)["param"] == "file"
        assert "multipart/form-data" in check_error(plain, 400)["message"]


async def test_an_upload_that_is_cut_short_leaves_nothing(data_folder: Path):
    body = b'--X\r\nContent-Disposition: form-data; name="file"; filename="a.txt"\r\n\r\nhalf of it'
    async with running(data_folder=data_folder) as server:
        headers = {"content-type": "multipart/form-data; boundary=X"}
        whole = await server.http.post("/files", content=body, headers=headers)
        assert whole.status_code == 400
        reader, writer = await asyncio.open_connection("127.0.0.1", server.http.base_url.port)
        head = "POST /v1/files HTTP/1.1\r\nHost: x\r\nContent-Type: multipart/form-data; boundary=X\r\n"
        writer.write(f"{head}Content-Length: 9999\r\n\r\n".encode() + body)
        await writer.drain()
        writer.close()
        await writer.wait_closed()

        assert (await server.get("/files")).json()["data"] == []
        reader.feed_eof()
    assert kept(data_folder) == []


async def test_an_upload_over_the_limit_is_a_413():
    async with running(upload_limit=1000) as server:
        answer = await server.http.post(
            "/files", files={"file": ("a.txt", b"x" * 200_000)}, data={"purpose": "assistants"}
        )

        assert check_error(answer, 413)["code"] == "request_too_large"


@pytest.mark.parametrize(
    ("name", "shown", "header"),
    [
        ("..", "file", 'attachment; filename="file"'),
        ("a/b.txt", "b.txt", 'attachment; filename="b.txt"'),
        (
            "Größe.txt",
            "Größe.txt",
            "attachment; filename=\"Gr??e.txt\"; filename*=UTF-8''Gr%C3%B6%C3%9Fe.txt",
        ),
    ],
    ids=["dots", "path", "not ASCII"],
)
async def test_a_file_is_named_by_the_last_part_of_its_name(name: str, shown: str, header: str):
    async with running() as server:
        file_id = await uploaded(server, name)

        assert (await server.get(f"/files/{file_id}")).json()["filename"] == shown
        assert (await server.get(f"/files/{file_id}/content")).headers["content-disposition"] == header


async def test_an_upload_with_a_part_that_is_none_of_ours_is_refused():
    async with running() as server:
        answer = await server.http.post(
            "/files", files={"file": ("a.txt", TEXT)}, data={"purpose": "assistants", "expires_after": "3600"}
        )

        assert check_error(answer, 400)["param"] == "expires_after"


async def test_files_are_listed_by_purpose_ten_thousand_at_a_time():
    async with running() as server:
        first = await uploaded(server)
        second = await uploaded(server, purpose="vision")

        vision = (await server.get("/files", params={"purpose": "vision", "limit": 10_000})).json()
        everything = (await server.get("/files")).json()

        assert [entry["id"] for entry in vision["data"]] == [second]
        assert [entry["id"] for entry in everything["data"]] == [second, first]


async def test_a_file_expires_when_it_was_told_to():
    clock = HandClock()
    async with running(clock=clock) as server:
        expiry = {"expires_after[anchor]": "created_at", "expires_after[seconds]": "3600"}
        file_id = await uploaded(server, **expiry)
        assert (await server.get(f"/files/{file_id}")).json()["expires_at"] == int(clock.now) + 3600

        clock.pass_s(3601)

        assert check_error(await server.get(f"/files/{file_id}"), 404)["message"].startswith("No such File")


async def test_an_expired_file_is_in_no_list():
    clock = HandClock()
    async with running(clock=clock) as server:
        kept = await uploaded(server)
        expiry = {"expires_after[anchor]": "created_at", "expires_after[seconds]": "3600"}
        for _ in range(2):
            await uploaded(server, **expiry)

        clock.pass_s(3601)
        listed = (await server.get("/files", params={"limit": 1})).json()

        assert ([file["id"] for file in listed["data"]], listed["has_more"]) == ([kept], False)


async def test_a_deleted_file_leaves_every_store_and_every_list():
    async with running() as server:
        file_id = await uploaded(server)
        store = await store_with(server, file_id)
        resources = {"code_interpreter": {"file_ids": [file_id]}}
        assistant = await server.assistant(tool_resources=resources)

        deleted = await server.http.delete(f"/files/{file_id}")

        assert deleted.json() == {"id": file_id, "object": "file", "deleted": True}
        shown = (await server.get(f"/vector_stores/{store}")).json()
        assert (shown["file_counts"]["total"], shown["usage_bytes"]) == (0, 0)
        again = (await server.get(f"/assistants/{assistant['id']}")).json()
        assert again["tool_resources"] == {"code_interpreter": {"file_ids": []}}
        assert not server.service.core.shelf.place(file_id).exists()


# ---- vector stores


async def test_a_store_counts_its_files_and_shows_the_chunking_it_used():
    async with running() as server:
        good, bad = await uploaded(server), await uploaded(server, "picture.png", b"\x89PNG")
        store = await store_with(server, good, bad, name="facts")

        shown = (await server.get(f"/vector_stores/{store}")).json()
        files = (await server.get(f"/vector_stores/{store}/files")).json()["data"]

        check_object("vector_store", shown)
        assert shown["file_counts"] == {
            "in_progress": 0,
            "completed": 1,
            "failed": 1,
            "cancelled": 0,
            "total": 2,
        }
        assert shown["usage_bytes"] == len(TEXT)
        by_id = {file["id"]: file for file in files}
        assert by_id[bad]["last_error"]["code"] == "unsupported_file"
        sizes = {"max_chunk_size_tokens": 800, "chunk_overlap_tokens": 400}
        assert by_id[good]["chunking_strategy"] == {"type": "static", "static": sizes}


async def test_a_deleted_store_leaves_nothing_of_its_files_and_batches():
    async with running() as server:
        file_id = await uploaded(server)
        store = await store_with(server, file_id)
        batch = (await server.post(f"/vector_stores/{store}/file_batches", {"file_ids": [file_id]})).json()

        await server.http.delete(f"/vector_stores/{store}")

        kept = server.service.core.store
        kinds = [("vector_store.file", store), ("chunks", store), ("batch.file", batch["id"])]
        assert [kept.scan(kind, parent) for kind, parent in kinds] == [[], [], []]


def test_the_end_of_the_service_waits_for_no_file_that_is_being_read(monkeypatch: pytest.MonkeyPatch):
    begun, given_up = threading.Event(), threading.Event()

    def read_for_ever(*_: Any) -> list[str]:
        begun.set()
        given_up.wait()
        return []

    async def serve_and_stop() -> None:
        async with running() as server:
            await server.post("/vector_stores", {"file_ids": [await uploaded(server)]})
            await until(begun.is_set)

    monkeypatch.setattr(stores, "_chunks", read_for_ever)
    timer = threading.Timer(10, given_up.set)
    timer.start()
    asyncio.run(serve_and_stop())

    assert not given_up.is_set()
    given_up.set()
    timer.cancel()


async def test_a_store_without_a_name_has_an_empty_one():
    async with running() as server:
        assert (await server.post("/vector_stores")).json()["name"] == ""


async def test_a_file_taken_out_of_a_store_survives():
    async with running() as server:
        file_id = await uploaded(server)
        store = await store_with(server, file_id)

        answer = await server.http.delete(f"/vector_stores/{store}/files/{file_id}")

        assert answer.json()["object"] == "vector_store.file.deleted"
        assert (await server.get(f"/files/{file_id}")).status_code == 200
        check_error(await server.get(f"/vector_stores/{store}/files/{file_id}"), 404)


async def test_a_file_that_is_in_the_store_takes_the_attributes_of_a_second_request():
    async with running() as server:
        file_id = await uploaded(server)
        store = await store_with(server, file_id)
        path = f"/vector_stores/{store}/files"

        added = await server.post(path, {"file_id": file_id, "attributes": {"year": 2020}})
        await server.post(path, {"file_id": file_id})

        assert added.json()["attributes"] == {"year": 2020}
        assert (await server.get(f"{path}/{file_id}")).json()["attributes"] == {"year": 2020}


async def test_an_attribute_beyond_all_numbers_is_refused():
    async with running() as server:
        file_id = await uploaded(server)
        store = await store_with(server, file_id)

        body = b'{"attributes": {"a": 1e999}}'
        answer = await server.http.post(f"/vector_stores/{store}/files/{file_id}", content=body)

        assert check_error(answer, 400)["param"] == "attributes.a"


@pytest.mark.parametrize(
    ("filters", "found"),
    [
        ({"type": "eq", "key": "year", "value": 2020}, True),
        ({"type": "gt", "key": "year", "value": 2020}, False),
        ({"type": "in", "key": "year", "value": [2019, 2020]}, True),
        ({"type": "ne", "key": "kind", "value": "fire"}, True),
        ({"type": "gt", "key": "kind", "value": "fire"}, False),
        (
            {
                "type": "or",
                "filters": [
                    {"type": "lt", "key": "year", "value": 2000},
                    {"type": "gte", "key": "year", "value": 2020},
                ],
            },
            True,
        ),
    ],
    ids=["eq", "gt", "in", "ne", "missing key", "or"],
)
async def test_a_search_is_narrowed_by_attributes(filters: dict[str, Any], found: bool):
    async with running() as server:
        file_id, store = await uploaded(server), await store_with(server)
        await server.post(f"/vector_stores/{store}/files", {"file_id": file_id, "attributes": {"year": 2020}})
        await server.service.core.intake.settle("w:", [store], 5)

        body = {"query": "wildfires", "filters": filters}
        page = (await server.post(f"/vector_stores/{store}/search", body)).json()

        check_object("vector_store.search_results.page", page)
        assert [result["file_id"] for result in page["data"]] == ([file_id] if found else [])
        assert page["search_query"] == ["wildfires"]


async def test_an_expired_store_fails_the_runs_that_would_search_it():
    clock = HandClock()
    async with running(SCRIPT, clock=clock, tick_s=60) as server:
        expiry = {"anchor": "last_active_at", "days": 1}
        store = await store_with(server, await uploaded(server), expires_after=expiry)
        clock.pass_s(86_401)
        assert (await server.get(f"/vector_stores/{store}")).json()["status"] == "expired"

        resources = {"file_search": {"vector_store_ids": [store]}}
        run = await server.ask("search", assistant_tools=[{"type": "file_search"}], tool_resources=resources)

        assert "has expired" in (await server.settled(run))["last_error"]["message"]


# ---- resources and attachments


async def test_an_attachment_for_file_search_gives_the_thread_its_own_store():
    async with running(SCRIPT) as server:
        file_id = await uploaded(server)
        attachment = {"file_id": file_id, "tools": [{"type": "file_search"}]}
        message = {"role": "user", "content": "How many?", "attachments": [attachment]}
        assistant = await server.assistant(model="search", tools=[{"type": "file_search"}])

        body = {"assistant_id": assistant["id"], "thread": {"messages": [message]}}
        run = await server.settled((await server.post("/threads/runs", body)).json())

        thread = (await server.get(f"/threads/{run['thread_id']}")).json()
        [store] = thread["tool_resources"]["file_search"]["vector_store_ids"]
        shown = (await server.get(f"/vector_stores/{store}")).json()
        assert shown["expires_after"] == {"anchor": "last_active_at", "days": 7}
        [answer] = await server.messages(run, run_id=run["id"])
        text = answer["content"][0]["text"]
        [note] = text["annotations"]
        assert note["text"] == "【0:0†fires.txt】"
        assert text["value"][note["start_index"] : note["end_index"]] == note["text"]
        assert note["file_citation"] == {"file_id": file_id}


async def test_an_attachment_after_the_threads_store_was_deleted_gives_it_a_new_one():
    async with running() as server:
        file_id = await uploaded(server)
        first = await store_with(server, file_id)
        resources = {"file_search": {"vector_store_ids": [first]}}
        thread = (await server.post("/threads", {"tool_resources": resources})).json()
        await server.http.delete(f"/vector_stores/{first}")

        attachment = {"file_id": file_id, "tools": [{"type": "file_search"}]}
        message = {"role": "user", "content": "look", "attachments": [attachment]}
        await server.post(f"/threads/{thread['id']}/messages", message)

        shown = (await server.get(f"/threads/{thread['id']}")).json()
        [second] = shown["tool_resources"]["file_search"]["vector_store_ids"]
        assert (await server.get(f"/vector_stores/{second}")).json()["file_counts"]["total"] == 1


async def test_an_attachment_for_code_interpreter_is_there_when_the_code_runs():
    async with running(SCRIPT) as server:
        file_id = await uploaded(server, "numbers.csv", b"1,2,3")
        attachment = {"file_id": file_id, "tools": [{"type": "code_interpreter"}]}
        message = {"role": "user", "content": "Sum?", "attachments": [attachment]}
        assistant = await server.assistant(model="code", tools=[{"type": "code_interpreter"}])

        body = {"assistant_id": assistant["id"], "thread": {"messages": [message]}}
        run = await server.settled((await server.post("/threads/runs", body)).json())

        [step, _] = await server.steps(run)
        [call] = step["step_details"]["tool_calls"]
        assert call["code_interpreter"]["outputs"] == [{"type": "logs", "logs": "1,2,3\n"}]
        thread = (await server.get(f"/threads/{run['thread_id']}")).json()
        assert thread["tool_resources"] == {"code_interpreter": {"file_ids": [file_id]}}


async def test_the_store_shortcut_makes_a_store_on_the_way():
    async with running() as server:
        file_id = await uploaded(server)
        resources = {"file_search": {"vector_stores": [{"file_ids": [file_id], "metadata": {"a": "b"}}]}}

        assistant = await server.assistant(tool_resources=resources)

        [store] = assistant["tool_resources"]["file_search"]["vector_store_ids"]
        assert (await server.get(f"/vector_stores/{store}")).json()["metadata"] == {"a": "b"}


@pytest.mark.parametrize(
    ("resources", "words"),
    [
        ({"code_interpreter": {"file_ids": ["file-none"]}}, "No such File object: file-none"),
        ({"file_search": {"vector_store_ids": ["vs_none"]}}, "No vector store found with id 'vs_none'."),
    ],
    ids=["file", "store"],
)
async def test_resources_that_do_not_exist_are_a_404(resources: dict[str, Any], words: str):
    async with running() as server:
        answer = await server.post("/threads", {"tool_resources": resources})

        assert check_error(answer, 404)["message"] == words


async def test_search_results_carry_content_only_when_asked():
    async with running(SCRIPT) as server:
        store = await store_with(server, await uploaded(server))
        resources = {"file_search": {"vector_store_ids": [store]}}
        run = await server.settled(
            await server.ask("search", assistant_tools=[{"type": "file_search"}], tool_resources=resources)
        )

        [plain, _] = await server.steps(run)
        wanted = "step_details.tool_calls[*].file_search.results[*].content"
        [full, _] = await server.steps(run, **{"include[]": wanted})

        assert set(plain["step_details"]["tool_calls"][0]["file_search"]["results"][0]) == {
            "file_id",
            "file_name",
            "score",
        }
        result = full["step_details"]["tool_calls"][0]["file_search"]["results"][0]
        assert result["content"] == [{"type": "text", "text": TEXT.decode()}]
        check_object("thread.run.step", full)


async def test_an_image_file_reaches_the_engine_as_a_data_url():
    async with running(script(echo=[{"echo": True}])) as server:
        file_id = await uploaded(server, "dot.png", b"\x89PNG", purpose="vision")
        content = [
            {"type": "text", "text": "What is this?"},
            {"type": "image_file", "image_file": {"file_id": file_id}},
        ]
        assistant = await server.assistant(model="echo")
        body = {
            "assistant_id": assistant["id"],
            "thread": {"messages": [{"role": "user", "content": content}]},
        }

        run = await server.settled((await server.post("/threads/runs", body)).json())

        [asked, answer] = await server.messages(run)
        assert asked["content"][1] == {
            "type": "image_file",
            "image_file": {"detail": "auto", "file_id": file_id},
        }
        assert "data:image/png;base64,iVBORw==" in answer["content"][0]["text"]["value"]


async def test_files_that_code_made_are_images_of_the_step_and_paths_of_the_text():
    code = "open('plot.png', 'wb').write(b'PNG'); open('/mnt/data/table.csv', 'w').write('a,b')"
    turns = [{"builtin": "code_interpreter", "input": code}, {"text": "Here: sandbox:/mnt/data/table.csv."}]
    async with running(script(made=turns)) as server:
        assistant = await server.assistant(model="made", tools=[{"type": "code_interpreter"}])
        frames = await server.stream("/threads/runs", {"assistant_id": assistant["id"]})
        run = frames[-2].data

        check_events(frames)
        [image] = (await server.steps(run))[0]["step_details"]["tool_calls"][0]["code_interpreter"][
            "outputs"
        ][1:]
        assert (await server.get(f"/files/{image['image']['file_id']}/content")).content == b"PNG"
        [message] = await server.messages(run, run_id=run["id"])
        text = message["content"][0]["text"]
        [note] = text["annotations"]
        assert text["value"][note["start_index"] : note["end_index"]] == "sandbox:/mnt/data/table.csv"
        file = (await server.get(f"/files/{note['file_path']['file_id']}")).json()
        assert (file["purpose"], file["filename"]) == ("assistants_output", "table.csv")


@pytest.mark.parametrize("query", [{}, {"filter": "completed"}], ids=["all", "in one state"])
@pytest.mark.parametrize("order", ["asc", "desc"])
async def test_the_files_of_a_batch_can_be_paged_through(order: str, query: dict[str, str]):
    async with running(SCRIPT) as server:
        files = [await uploaded(server, f"{number}.txt", b"x") for number in range(5)]
        pictures = [await uploaded(server, f"{number}.png", b"\x89PNG") for number in range(2)]
        store = (await server.post("/vector_stores")).json()["id"]
        body = {"file_ids": [files[0], pictures[0], *files[1:], pictures[1]]}
        batch = (await server.post(f"/vector_stores/{store}/file_batches", body)).json()["id"]
        path = f"/vector_stores/{store}/file_batches/{batch}"
        await server.service.core.intake.settle("w:", [store], 10)

        seen: list[str] = []
        page = {"has_more": True}
        while page["has_more"]:
            after = {"after": seen[-1]} if seen else {}
            params = {"limit": 2, "order": order, **after, **query}
            page = (await server.get(f"{path}/files", params=params)).json()
            check_object("list:vector_store.file", page)
            seen += [entry["id"] for entry in page["data"]]

        expected = files if query else body["file_ids"]
        assert seen == (expected if order == "asc" else expected[::-1])


async def test_row_s1_9_the_three_kinds_of_tools_come_in_order_and_only_the_function_is_asked_for():
    turns = [
        {"builtin": "file_search", "query": "wildfires"},
        {"builtin": "code_interpreter", "input": "print(sorted([58985, 58950]))"},
        {"tool_calls": [{"name": "get_weather", "arguments": {"city": "Oslo"}}]},
        {"text": "Done."},
    ]
    async with running(script(mixed=turns)) as server:
        store = await store_with(server, await uploaded(server))
        function = {"type": "function", "function": {"name": "get_weather"}}
        run = await server.settled(
            await server.ask(
                "mixed",
                assistant_tools=[{"type": "file_search"}, {"type": "code_interpreter"}, function],
                tool_resources={"file_search": {"vector_store_ids": [store]}},
            )
        )

        [call] = run["required_action"]["submit_tool_outputs"]["tool_calls"]
        kinds = [step["step_details"]["tool_calls"][0]["type"] for step in await server.steps(run)]
        assert call["function"]["name"] == "get_weather"
        assert kinds == ["file_search", "code_interpreter", "function"]
