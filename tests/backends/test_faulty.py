"""The HTTP backend against real sockets that fail."""

import asyncio
import json

import pytest

from assistant_runner.backends.client import Client
from assistant_runner.backends.connect import direct_transport
from assistant_runner.backends.http import HttpBackend
from assistant_runner.errors import BackendUnreachable, OutcomeUnknown
from assistant_runner.retries import NO_RETRIES
from assistant_runner.wire.runs import RunCreate
from tests.backends import bodies
from tests.backends.faulty import Answer, Bytewise, Cut, Edit, FaultyServer, Hang, Reset, once

TEXT = "Łódź 🌧 北 a\u2028b"
STREAM = [
    ("thread.run.created", bodies.run("queued")),
    (
        "thread.message.delta",
        {"id": "msg_1", "delta": {"content": [{"type": "text", "text": {"value": TEXT}}]}},
    ),
    ("thread.run.completed", bodies.run()),
]


async def app(scope, receive, send):
    """A thread for every GET, a streamed run for every POST."""
    await receive()
    if scope["method"] == "GET":
        headers, pieces = [(b"content-type", b"application/json")], [json.dumps(bodies.thread()).encode()]
    else:
        headers = [(b"content-type", b"text/event-stream")]
        pieces = [
            f"event: {name}\ndata: {json.dumps(data, ensure_ascii=False)}\n\n".encode()
            for name, data in STREAM
        ] + [b"event: done\ndata: [DONE]\n\n"]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    for piece in pieces:
        await send({"type": "http.response.body", "body": piece, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


def backend_of(server, *, read_s=5.0, headers=None, **options):
    client = Client(direct_transport(), server.url, read_s=read_s, headers=headers)
    return HttpBackend(client, label="faulty", **options)


async def collect(backend, seen=None):
    found = []
    async with backend.stream_run("thread_1", RunCreate(assistant_id="asst_1")) as events:
        async for event in events:
            found.append(event)
            if seen is not None:
                seen.append(event.event)
    return found


@pytest.mark.parametrize("fault", [None, Bytewise(), Edit(lambda _, frame: [b": ping\n\n", frame])])
async def test_a_stream_is_whole_however_it_is_cut_into_chunks(fault):
    plan = once("POST", ".*", *([fault] if fault else []))
    async with FaultyServer(app, plan) as server, backend_of(server) as backend:
        events = await collect(backend)

    assert [event.event for event in events] == [name for name, _ in STREAM]
    assert events[1].data.text() == TEXT


@pytest.mark.parametrize("fault", [Reset(), Answer(503), Answer(429, headers={"retry-after-ms": "1"})])
async def test_a_read_survives_a_fault(fault):
    async with FaultyServer(app, once("GET", ".*", fault)) as server, backend_of(server) as backend:
        assert (await backend.retrieve_thread("thread_1")).id == "thread_1"
        assert len(server.seen) == 2


@pytest.mark.parametrize("fault", [Reset(), Reset(handled=True), Hang(), Answer(502)])
async def test_case_016_a_create_is_sent_once_when_its_outcome_is_unknown(fault):
    async with (
        FaultyServer(app, once("POST", ".*", fault)) as server,
        backend_of(server, read_s=0.2) as backend,
    ):
        with pytest.raises(OutcomeUnknown):
            await collect(backend)

    assert len(server.seen) == 1


@pytest.mark.parametrize("after", range(4))
@pytest.mark.parametrize("reset", [False, True], ids=["closed", "reset"])
async def test_case_051_a_stream_cut_at_any_event_gives_what_came_and_then_the_break(after, reset):
    seen = []
    plan = once("POST", ".*", Cut(after, reset=reset))
    async with FaultyServer(app, plan) as server, backend_of(server) as backend:
        with pytest.raises(BackendUnreachable):
            await collect(backend, seen)

    assert seen == [name for name, _ in STREAM][: len(seen)]
    assert reset or len(seen) == min(after, len(STREAM))


async def test_a_refused_connection_is_unreachable_at_once():
    async with FaultyServer(app) as server:
        pass
    async with backend_of(server, retries=NO_RETRIES) as backend:
        with pytest.raises(BackendUnreachable):
            async with asyncio.timeout(5):
                await backend.retrieve_thread("thread_1")


async def test_leaving_a_stream_early_closes_it():
    async with FaultyServer(app) as server, backend_of(server) as backend:
        async with backend.stream_run("thread_1", RunCreate(assistant_id="asst_1")) as events:
            assert (await anext(events)).event == "thread.run.created"
        assert (await backend.retrieve_thread("thread_1")).id == "thread_1"
