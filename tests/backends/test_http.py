import json

import httpx
import pytest

from assistant_runner.backends.client import Client
from assistant_runner.backends.http import HttpBackend
from assistant_runner.backends.through_httpx import HttpxTransport
from assistant_runner.errors import (
    ApiGone,
    AuthenticationFailed,
    BackendUnreachable,
    NotFound,
    OutcomeUnknown,
    ProtocolError,
    RateLimited,
    RequestRejected,
    UsageError,
)
from assistant_runner.retries import RetryPolicy
from assistant_runner.wire.assistants import AssistantCreate
from assistant_runner.wire.files import VectorStoreCreate
from assistant_runner.wire.runs import RunCreate, ThreadAndRunCreate, ToolOutput
from assistant_runner.wire.threads import MessageCreate, ThreadCreate
from tests.backends import bodies


class Server:
    """Answers from a list (an exception is raised), the last one for ever; keeps the requests."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.requests = []
        self.waits = []

    def __call__(self, request):
        self.requests.append(request)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer if isinstance(answer, httpx.Response) else httpx.Response(200, json=answer)

    def backend(self, base_url="http://unit.example.com/v1", **options):
        client = Client(HttpxTransport(httpx.AsyncClient(transport=httpx.MockTransport(self))), base_url)

        async def sleep(seconds):
            self.waits.append(seconds)

        return HttpBackend(client, label="unit", sleep=sleep, **options)

    @property
    def paths(self):
        return [f"{request.method} {request.url.raw_path.decode()}" for request in self.requests]


def frames(*pairs, done=True):
    text = "".join(f"event: {name}\ndata: {json.dumps(data, ensure_ascii=False)}\n\n" for name, data in pairs)
    return (text + ("event: done\ndata: [DONE]\n\n" if done else "")).encode()


class Chunks(httpx.AsyncByteStream):
    def __init__(self, *chunks):
        self.chunks = chunks

    async def __aiter__(self):
        for chunk in self.chunks:
            if isinstance(chunk, Exception):
                raise chunk
            yield chunk


def streamed(*chunks):
    return httpx.Response(200, headers={"content-type": "text/event-stream"}, stream=Chunks(*chunks))


async def collect(backend):
    async with backend.stream_run("thread_1", RunCreate(assistant_id="asst_1")) as events:
        return [event async for event in events]


CALLS = {
    "assistants": lambda b: b.create_assistant(AssistantCreate(model="m")),
    "threads": lambda b: b.create_thread(ThreadCreate()),
    "messages": lambda b: b.create_message("thread_1", MessageCreate(role="user", content="hi")),
    "run": lambda b: b.create_run("thread_1", RunCreate(assistant_id="asst_1")),
    "thread and run": lambda b: b.create_thread_and_run(ThreadAndRunCreate(assistant_id="asst_1")),
    "submit": lambda b: b.submit_tool_outputs(
        thread_id="thread_1", run_id="run_1", outputs=[ToolOutput(tool_call_id="c", output="")]
    ),
    "files": lambda b: b.upload_file(filename="a.txt", content=b"a"),
    "vector stores": lambda b: b.create_vector_store(VectorStoreCreate(name="v")),
}


@pytest.mark.parametrize("call", CALLS)
async def test_case_015_the_beta_header_goes_with_every_call_and_every_repetition(call):
    refused = httpx.Response(429, headers={"retry-after": "0"}, json=bodies.error("slow down"))
    server = Server(refused, httpx.Response(400, json=bodies.error("stop here")))

    with pytest.raises(RequestRejected):
        await CALLS[call](server.backend())

    assert [request.headers["openai-beta"] for request in server.requests] == ["assistants=v2"] * 2


async def test_case_015_the_beta_header_goes_with_streams():
    server = Server(streamed(frames(("thread.run.completed", bodies.run()))))

    [event] = await collect(server.backend())

    assert event.data.status == "completed"
    assert server.requests[0].headers["openai-beta"] == "assistants=v2"
    assert json.loads(server.requests[0].content) == {"assistant_id": "asst_1", "stream": True}


async def test_case_048_paths_hold_thread_then_run():
    server = Server(bodies.run())
    backend = server.backend()

    await backend.retrieve_run(thread_id="thread_1", run_id="run_1")
    await backend.submit_tool_outputs(thread_id="thread_1", run_id="run_1", outputs=[])
    await backend.cancel_run(thread_id="thread_1", run_id="run_1")

    assert server.paths == [
        "GET /v1/threads/thread_1/runs/run_1",
        "POST /v1/threads/thread_1/runs/run_1/submit_tool_outputs",
        "POST /v1/threads/thread_1/runs/run_1/cancel",
    ]


@pytest.mark.parametrize(
    ("thread_id", "run_id"),
    [
        pytest.param("run_1", "thread_1", id="swapped"),
        pytest.param("asst_1", "run_1", id="an-assistant"),
        pytest.param("", "run_1", id="empty"),
        pytest.param("thread_1/../x", "run_1", id="a-path"),
    ],
)
async def test_case_048_ids_of_another_kind_are_refused_before_sending(thread_id, run_id):
    server = Server(bodies.run())

    with pytest.raises(UsageError, match="thread_id"):
        await server.backend().retrieve_run(thread_id=thread_id, run_id=run_id)

    assert server.requests == []


async def test_case_048_a_404_says_which_pair_was_used():
    server = Server(httpx.Response(404, json=bodies.error("No run found with id 'run_2'.")))

    with pytest.raises(NotFound, match="threads/thread_1/runs/run_2"):
        await server.backend().retrieve_run(thread_id="thread_1", run_id="run_2")


GONE = {
    "html": httpx.Response(404, html="<html>Not Found</html>"),
    "invalid url": httpx.Response(404, json=bodies.error("Invalid URL (POST /v1/threads)")),
    "framework": httpx.Response(404, json={"detail": "Not Found"}),
    "empty": httpx.Response(404),
    "gone": httpx.Response(410, json=bodies.error("The Assistants API has been shut down.")),
    "not allowed": httpx.Response(405),
}


@pytest.mark.parametrize("answer", GONE.values(), ids=GONE)
@pytest.mark.parametrize("call", ["assistants", "threads", "run"])
async def test_case_014_a_server_without_this_api_is_named_with_both_ways_on(answer, call):
    server = Server(answer)

    with pytest.raises(ApiGone) as caught:
        await CALLS[call](server.backend())

    assert "does not offer the Assistants API" in caught.value.message
    assert "embedded" in caught.value.remedy
    assert "serve" in caught.value.remedy
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("status", "body", "kind", "words"),
    [
        pytest.param(
            401,
            bodies.error("Incorrect API key provided: sk-abcdefgh1234"),
            AuthenticationFailed,
            "***",
            id="401",
        ),
        pytest.param(403, bodies.error("no"), AuthenticationFailed, "refused", id="403"),
        pytest.param(
            400, bodies.error("Unknown parameter: 'x'."), RequestRejected, "Unknown parameter", id="400"
        ),
        pytest.param(
            404,
            {"error": {"code": "404", "message": "No thread found"}},
            NotFound,
            "No thread",
            id="azure-404",
        ),
        pytest.param(429, bodies.error("quota", code="insufficient_quota"), RateLimited, "quota", id="quota"),
        pytest.param(407, "<html>no</html>", BackendUnreachable, "proxy", id="407"),
        pytest.param(402, bodies.error("no credits"), RateLimited, "no credits", id="402"),
        pytest.param(400, "<html>login</html>", ProtocolError, "not Assistants v2", id="html"),
        pytest.param(302, "", ProtocolError, "not Assistants v2", id="redirect"),
    ],
)
async def test_a_refusal_becomes_one_error_of_the_tree(status, body, kind, words):
    answer = httpx.Response(status, **({"html": body} if isinstance(body, str) else {"json": body}))
    server = Server(answer)

    with pytest.raises(kind, match=words.replace("*", r"\*")) as caught:
        await server.backend().retrieve_thread("thread_1")

    assert type(caught.value) is kind
    assert "abcdefgh1234" not in caught.value.message
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(httpx.Response(200, html="<html>hi</html>"), id="html"),
        pytest.param(httpx.Response(200, content=b"{"), id="cut"),
        pytest.param(httpx.Response(200, json=[1]), id="no-object"),
        pytest.param(httpx.Response(200, json={"id": 3}), id="no-thread"),
    ],
)
async def test_an_answer_that_is_not_the_protocol_is_named(answer):
    with pytest.raises(ProtocolError, match="not Assistants v2"):
        await Server(answer).backend().retrieve_thread("thread_1")


async def test_reads_are_repeated_after_broken_connections_and_server_errors():
    server = Server(httpx.ReadError("reset"), httpx.Response(503), bodies.thread())

    thread = await server.backend().retrieve_thread("thread_1")

    assert thread.id == "thread_1"
    assert len(server.waits) == 2


@pytest.mark.parametrize(
    "failure", [httpx.ReadTimeout("late"), httpx.RemoteProtocolError("closed"), httpx.Response(502)]
)
async def test_case_016_a_create_in_doubt_is_not_repeated_blindly(failure):
    server = Server(failure, bodies.run())

    with pytest.raises(OutcomeUnknown):
        await server.backend().create_run("thread_1", RunCreate(assistant_id="asst_1"))

    assert len(server.requests) == 1


async def test_case_016_an_upload_in_doubt_is_repeated_with_its_key_where_keys_are_served_once():
    known = httpx.Response(200, headers={"x-idempotency-key": "supported"}, json=bodies.run())
    file = {
        "id": "file-1",
        "object": "file",
        "bytes": 1,
        "created_at": 1,
        "filename": "a.txt",
        "status": "processed",
    }
    server = Server(known, httpx.RemoteProtocolError("closed"), {**file, "purpose": "assistants"})
    backend = server.backend()
    await backend.create_run("thread_1", RunCreate(assistant_id="asst_1"))

    uploaded = await backend.upload_file(filename="a.txt", content=b"a")

    assert uploaded.id == "file-1"
    first, second = server.requests[1:]
    assert first.headers["idempotency-key"] == second.headers["idempotency-key"]


async def test_case_016_a_create_that_provably_did_not_arrive_is_repeated():
    server = Server(httpx.ConnectError("refused"), httpx.ConnectTimeout("late"), bodies.run())

    run = await server.backend().create_run("thread_1", RunCreate(assistant_id="asst_1"))

    assert (run.id, len(server.requests)) == ("run_1", 3)
    assert len({request.headers["idempotency-key"] for request in server.requests}) == 1


async def test_a_refused_connection_names_the_way_and_is_given_up():
    server = Server(httpx.ConnectError("connection refused"))

    with pytest.raises(BackendUnreachable, match="connection refused") as caught:
        await server.backend(retries=RetryPolicy(attempts=2)).list_assistants()

    assert "doctor" in caught.value.remedy
    assert len(server.requests) == 2


async def test_case_061_the_asked_wait_is_kept_and_one_too_long_is_said_at_once():
    refused = httpx.Response(429, headers={"retry-after": "4"}, json=bodies.error("slow down"))
    server = Server(refused, refused, bodies.run())
    await server.backend().create_run("thread_1", RunCreate(assistant_id="asst_1"))
    assert [4 <= wait < 5 for wait in server.waits] == [True, True]

    server = Server(refused)
    with pytest.raises(RateLimited) as caught:
        await server.backend(retries=RetryPolicy(longest_s=3)).list_assistants()
    assert (caught.value.retry_after_s, server.waits) == (4, [])


async def test_a_repeated_delete_that_finds_nothing_has_done_its_work():
    server = Server(httpx.ReadError("lost"), httpx.Response(404, json=bodies.error("No thread found")))

    assert (await server.backend().delete_thread("thread_1")).deleted


async def test_the_poll_hint_is_given_in_seconds():
    hinted = httpx.Response(200, json=bodies.run(), headers={"openai-poll-after-ms": "250"})

    _, hint_s = await Server(hinted).backend().retrieve_run(thread_id="thread_1", run_id="run_1")

    assert hint_s == 0.25


async def test_a_query_is_encoded_and_leaves_out_what_is_not_asked():
    server = Server(bodies.page())

    await server.backend().list_assistants(limit=3, after="asst_ü &/+")
    await server.backend().list_files()

    assert server.paths == [
        "GET /v1/assistants?limit=3&order=desc&after=asst_%C3%BC+%26%2F%2B",
        "GET /v1/files?limit=1000",
    ]


async def test_an_upload_is_a_form_with_purpose_and_file():
    server = Server(
        {
            "id": "file-1",
            "bytes": 1,
            "created_at": 1,
            "filename": "a",
            "purpose": "assistants",
            "status": "processed",
        }
    )

    file = await server.backend().upload_file(filename="a.txt", content=b"\x00one", content_type="text/plain")

    [request] = server.requests
    assert file.id == "file-1"
    assert request.headers["content-type"].startswith("multipart/form-data; boundary=")
    assert b'name="file"; filename="a.txt"\r\nContent-Type: text/plain\r\n\r\n\x00one\r\n' in request.content
    assert b'name="purpose"\r\n\r\nassistants\r\n' in request.content


# -- streams --------------------------------------------------------------------------------------


async def test_case_049_an_incomplete_run_is_the_last_event():
    ended = bodies.run("incomplete", incomplete_details={"reason": "content_filter"})
    server = Server(
        streamed(frames(("thread.run.created", bodies.run("queued")), ("thread.run.incomplete", ended)))
    )

    events = await collect(server.backend())

    assert events[-1].data.incomplete_details.reason == "content_filter"


@pytest.mark.parametrize(
    ("name", "data"),
    [
        pytest.param(
            "error",
            {"code": "server_error", "message": "backend gone", "param": None, "type": None},
            id="bare",
        ),
        pytest.param("error", bodies.error("backend gone", code="server_error"), id="wrapped"),
        pytest.param(
            "thread.run.failed", bodies.error("backend gone", code="server_error"), id="inside-another"
        ),
        pytest.param("", bodies.error("backend gone", code="server_error"), id="without-a-name"),
    ],
)
async def test_case_050_an_error_event_is_seen_in_every_dress(name, data):
    server = Server(streamed(frames(("thread.run.created", bodies.run("queued")), (name, data))))

    last = (await collect(server.backend()))[-1]

    assert (last.event, last.data.code, last.data.message) == ("error", "server_error", "backend gone")


async def test_case_051_a_dropped_connection_is_an_error_after_the_events_that_came():
    body = frames(("thread.run.created", bodies.run("queued")), done=False)
    server = Server(streamed(body, httpx.ReadError("reset by peer")))
    created = RunCreate(assistant_id="asst_1")

    async with server.backend().stream_run("thread_1", created) as events:
        assert (await anext(events)).event == "thread.run.created"
        with pytest.raises(BackendUnreachable, match="stream broke"):
            await anext(events)


async def test_unknown_events_pass_and_an_end_without_done_is_an_end():
    body = frames(
        ("thread.run.dreaming", bodies.run("dreaming")), ("weather.changed", {"to": "rain"}), done=False
    )

    events = await collect(Server(streamed(body)).backend())

    assert [event.event for event in events] == ["thread.run.dreaming", "weather.changed"]
    assert events[1].data == {"to": "rain"}


async def test_a_server_that_cannot_stream_gives_one_event_with_the_run():
    [event] = await collect(Server(bodies.run("queued")).backend())

    assert (event.event, event.data.status) == ("thread.run.queued", "queued")


async def test_nonsense_in_a_stream_is_a_protocol_error():
    with pytest.raises(ProtocolError, match=r"thread\.run\.created"):
        await collect(Server(streamed(b"event: thread.run.created\ndata: {nonsense\n\n")).backend())


async def test_a_stream_in_an_encoding_that_it_does_not_have_is_a_protocol_error():
    headers = {"content-type": "text/event-stream", "content-encoding": "gzip"}
    server = Server(httpx.Response(200, headers=headers, stream=Chunks(b"data: plain text")))

    with pytest.raises(ProtocolError, match="cannot be read"):
        await collect(server.backend())


async def test_a_refusal_before_the_stream_is_the_ordinary_error():
    locked = httpx.Response(400, json=bodies.error("Thread thread_1 already has an active run run_9."))

    with pytest.raises(RequestRejected, match="already has an active run run_9"):
        await collect(Server(locked).backend())


# -- the other forms ------------------------------------------------------------------------------


async def test_the_azure_form_sends_its_version_and_the_beta_header():
    server = Server(bodies.thread())
    backend = server.backend("http://unit.example.com/openai", form="azure", api_version="2099-01-01")

    await backend.retrieve_thread("thread_1")

    assert server.paths == ["GET /openai/threads/thread_1?api-version=2099-01-01"]
    assert "openai-beta" in server.requests[0].headers


async def test_the_foundry_form_sends_version_v1_and_no_beta_header():
    server = Server(bodies.page())
    backend = server.backend("http://unit.example.com/api/projects/p", form="foundry")

    await backend.list_runs("thread_1", limit=3)

    assert server.paths == ["GET /api/projects/p/threads/thread_1/runs?api-version=v1&limit=3&order=desc"]
    assert "openai-beta" not in server.requests[0].headers


async def test_case_060_a_model_name_where_a_deployment_belongs_is_explained():
    body = {"error": {"code": "DeploymentNotFound", "message": "The API deployment does not exist."}}
    server = Server(httpx.Response(404, json=body))
    backend = server.backend("http://unit.example.com/openai", form="azure")

    with pytest.raises(NotFound) as caught:
        await backend.create_run("thread_1", RunCreate(assistant_id="asst_1", model="big-model-4"))

    assert "name of your deployment" in caught.value.remedy
    assert "big-model-4" in caught.value.remedy
    assert len(server.requests) == 1


async def test_where_a_redirect_leads_is_told_and_nobody_goes_there():
    server = Server(httpx.Response(308, headers={"location": "https://gw.test/v1/threads?code=abc"}))

    with pytest.raises(ProtocolError, match=r"redirects .* to https://gw\.test/v1/threads;"):
        await server.backend().retrieve_thread("thread_1")

    assert len(server.requests) == 1
