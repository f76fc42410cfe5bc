import asyncio

import httpx2
import pytest

from assistant_runner.backends import transport
from assistant_runner.backends.asgi import QUEUED_PIECES, AppStopped, AppTransport, httpx2_transport
from tests.backends.caller import Caller


async def start(send, status=200):
    await send({"type": "http.response.start", "status": status, "headers": [(b"x-app", b"yes")]})


async def piece(send, body, more=True):
    await send({"type": "http.response.body", "body": body, "more_body": more})


def client_of(app, library=transport, timeout=5.0):
    if library is transport:
        return Caller(AppTransport(app), "http://embedded", timeout)
    return httpx2.AsyncClient(transport=httpx2_transport(app), base_url="http://embedded", timeout=timeout)


def pieces_of(response):
    return aiter(response) if isinstance(response, transport.Response) else response.aiter_raw()


def status_of(response):
    return response.status if isinstance(response, transport.Response) else response.status_code


both = pytest.mark.parametrize(
    "library", [pytest.param(transport, id="ours"), pytest.param(httpx2, id="httpx2")]
)


@both
async def test_the_first_piece_arrives_before_the_last_is_produced(library):
    release = asyncio.Event()

    async def app(scope, receive, send):
        await start(send)
        await piece(send, b"first")
        await release.wait()
        await piece(send, b"last", more=False)

    async with client_of(app, library) as client, client.stream("GET", "/x") as response:
        pieces = pieces_of(response)
        assert await anext(pieces) == b"first"
        release.set()
        assert [one async for one in pieces] == [b"last"]


@both
async def test_the_app_sees_the_request_as_a_server_would_show_it(library):
    seen = {}

    async def app(scope, receive, send):
        seen.update(scope, request=await receive())
        await start(send, 201)
        await piece(send, b"ok", more=False)

    async with client_of(app, library) as client:
        answer = await client.post("/v1/a%20b?limit=2", content=b"body", headers={"X-Thing": "1"})

    assert (status_of(answer), answer.text, answer.headers["x-app"]) == (201, "ok", "yes")
    assert (seen["path"], seen["raw_path"], seen["query_string"]) == ("/v1/a b", b"/v1/a%20b", b"limit=2")
    assert (b"x-thing", b"1") in seen["headers"]
    assert seen["request"] == {"type": "http.request", "body": b"body", "more_body": False}


@both
async def test_a_client_that_leaves_mid_stream_is_a_disconnect_to_the_app(library):
    left = asyncio.Event()

    async def app(scope, receive, send):
        await receive()
        await start(send)
        await piece(send, b"first")
        assert (await receive())["type"] == "http.disconnect"
        await piece(send, b"nobody reads this")
        left.set()

    async with client_of(app, library) as client:
        async with client.stream("GET", "/x") as response:
            await anext(pieces_of(response))
        async with asyncio.timeout(5):
            await left.wait()


@pytest.mark.parametrize("when", ["before", "middle"])
async def test_what_the_app_raises_surfaces_at_the_client(when):
    async def app(scope, receive, send):
        if when == "middle":
            await start(send)
            await piece(send, b"first")
        raise LookupError("broken app")

    async with client_of(app) as client:
        with pytest.raises(LookupError, match="broken app"):
            await client.get("/x")


async def test_an_app_that_forgets_the_end_of_its_response_is_an_error():
    async def app(scope, receive, send):
        await start(send)
        await piece(send, b"first")

    async with client_of(app) as client:
        with pytest.raises(AppStopped):
            await client.get("/x")


async def test_a_slow_reader_makes_the_app_wait():
    sent = 0

    async def app(scope, receive, send):
        nonlocal sent
        await start(send)
        for _ in range(100):
            await piece(send, b"x")
            sent += 1
        await piece(send, b"", more=False)

    async with client_of(app) as client, client.stream("GET", "/x") as response:
        for _ in range(50):
            await asyncio.sleep(0)
        assert sent <= QUEUED_PIECES
        assert len(await response.read()) == 100
    assert sent == 100


async def test_cancelling_the_client_lets_the_app_know_and_closing_ends_what_hangs(monkeypatch):
    monkeypatch.setattr("assistant_runner.backends.asgi.GRACE_S", 0.01)
    entered, ended = asyncio.Event(), []

    async def app(scope, receive, send):
        entered.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise

    async with client_of(app) as client:
        waiting = asyncio.create_task(client.get("/x"))
        await entered.wait()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
    assert ended == ["cancelled"]


@both
async def test_the_read_timeout_of_the_request_holds(library):
    async def app(scope, receive, send):
        await receive()
        await receive()

    async with client_of(app, library, timeout=0.02) as client:
        with pytest.raises(library.ReadTimeout):
            await client.get("/x")
