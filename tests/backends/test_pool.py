import asyncio
import contextlib
import socket
import ssl
import threading

import pytest
import trustme

from assistant_runner.backends.pool import PooledTransport
from assistant_runner.backends.transport import ConnectError, ReadTimeout, RemoteProtocolError
from tests.backends.caller import Caller

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"


@contextlib.asynccontextmanager
async def served(answer, *, close=False, tls=None, context=None, host="127.0.0.1", timeout=5.0):
    """A raw server: each request's head and body go to `answer`, whose bytes are written."""
    seen = {"connections": 0, "requests": []}
    tasks = []

    async def serve(reader, writer):
        seen["connections"] += 1
        tasks.append(asyncio.current_task())
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = [
                    int(line.split(b":")[1])
                    for line in head.split(b"\r\n")
                    if line.lower().startswith(b"content-length")
                ]
                body = await reader.readexactly(length[0]) if length else b""
                seen["requests"].append((head, body))
                reply = answer(len(seen["requests"]))
                for piece in reply if isinstance(reply, list) else [reply]:
                    writer.write(piece)
                    await writer.drain()
                    await asyncio.sleep(0)
                if close:
                    break
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls)
    port = server.sockets[0].getsockname()[1]
    base_url = f"{'https' if tls else 'http'}://{host}:{port}"
    async with Caller(PooledTransport(context=context), base_url, timeout) as client:
        yield client, seen
    server.close()
    await asyncio.gather(*tasks)


async def test_a_head_without_an_end_is_left():
    endless = [b"HTTP/1.1 200 OK\r\n", *[b"x-%d: " % n + b"a" * 60_000 + b"\r\n" for n in range(20)]]
    async with served(lambda number: endless, close=True) as (client, _):
        with pytest.raises(RemoteProtocolError, match="its head has no end"):
            await client.get("/")


async def test_one_connection_serves_one_request_after_the_other():
    async with served(lambda number: OK) as (client, seen):
        answers = [await client.post("/x?y=1", content=b'{"n":%d}' % number) for number in range(5)]

        assert [answer.text for answer in answers] == ["ok"] * 5
        assert seen["connections"] == 1
        assert seen["requests"][0][0].startswith(b"POST /x?y=1 HTTP/1.1\r\n")
        assert seen["requests"][4][1] == b'{"n":4}'


async def test_many_at_once_use_a_connection_each_and_then_share_them():
    async with served(lambda number: OK) as (client, seen):
        for _ in range(3):
            await asyncio.gather(*(client.get("/") for _ in range(8)))

        assert seen["connections"] <= 8


async def test_a_connection_that_the_server_closed_is_not_used_again():
    async with served(lambda number: OK, close=True) as (client, seen):
        for _ in range(3):
            assert (await client.get("/")).text == "ok"
            await asyncio.sleep(0.01)

        assert seen["connections"] == 3


@pytest.mark.parametrize(
    ("pieces", "text"),
    [
        pytest.param(
            [
                b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n",
                b"3\r\nabc\r\n",
                b"2\r\nde\r\n0\r\n\r\n",
            ],
            "abcde",
            id="chunked",
        ),
        pytest.param(
            [b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n", b"to the", b" end"], "to the end", id="eof"
        ),
        pytest.param([b"HTTP/1.1 100 Continue\r\n\r\n", OK], "ok", id="continue"),
        pytest.param([b"HTTP/1.1 204 No Content\r\n\r\n"], "", id="no-content"),
        pytest.param([OK[:9], OK[9:30], OK[30:]], "ok", id="in-pieces"),
    ],
)
async def test_bodies_end_where_http_says(pieces, text):
    async with served(lambda number: pieces, close=True) as (client, _):
        assert (await client.get("/")).text == text


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        pytest.param(b"", RemoteProtocolError, id="nothing"),
        pytest.param(b"SSH-2.0-OpenSSH\r\n\r\n", RemoteProtocolError, id="no-http"),
        pytest.param(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\ncut", RemoteProtocolError, id="cut-body"),
    ],
)
async def test_what_goes_wrong_is_named(reply, error):
    async with served(lambda number: reply, close=True) as (client, _):
        with pytest.raises(error):
            await client.get("/")


async def test_silence_is_a_read_timeout_and_no_listener_a_connect_error():
    async with served(lambda number: b"HTTP/1.1 200 OK\r\n", timeout=0.05) as (client, _):
        with pytest.raises(ReadTimeout):
            await client.get("/")
    async with Caller(PooledTransport(), "http://127.0.0.1:9") as client:
        with pytest.raises(ConnectError):
            await client.get("/")


async def test_a_certificate_is_checked_against_the_authority_and_the_name():
    authority, tls = trustme.CA(), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(tls)
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)

    async with served(lambda number: OK, tls=tls, context=trusting) as (client, seen):
        assert [(await client.get("/")).text for _ in range(2)] == ["ok", "ok"]
        assert seen["connections"] == 1
    async with served(lambda number: OK, tls=tls) as (client, _):
        with pytest.raises(ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
            await client.get("/")
    async with served(lambda number: OK, tls=tls, context=trusting, host="localhost") as (client, _):
        with pytest.raises(ConnectError, match="localhost"):
            await client.get("/")


async def test_a_large_body_is_read_at_the_readers_pace():
    size = 4 * 1024 * 1024
    reply = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % size + b"x" * size

    async with served(lambda number: reply) as (client, _), client.stream("GET", "/") as response:
        await asyncio.sleep(0.05)
        waiting = response._pieces._connection._waiting_bytes
        total = sum([len(piece) async for piece in response])

    assert waiting < 2 * 1024 * 1024
    assert total == size


async def test_a_response_left_in_the_middle_closes_its_connection():
    reply = b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf"

    async with served(lambda number: reply if number == 1 else OK) as (client, seen):
        async with client.stream("GET", "/"):
            pass
        assert (await client.get("/")).text == "ok"

        assert seen["connections"] == 2


async def test_a_large_body_that_was_left_unread_does_not_hold_up_the_next_request():
    size = 300 * 1024
    reply = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % size + b"x" * size

    async with served(lambda number: reply if number == 1 else OK, timeout=1) as (client, _):
        async with client.stream("GET", "/"):
            await asyncio.sleep(0.05)
        assert (await client.get("/")).text == "ok"


async def test_a_connection_that_was_closed_behind_our_back_takes_no_create():
    closed = threading.Event()

    def serve(listener):
        for _ in range(2):
            connection, _ = listener.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(OK)
            closed.set()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, args=(listener,), daemon=True)
        thread.start()
        async with Caller(PooledTransport(), f"http://127.0.0.1:{listener.getsockname()[1]}", 5.0) as client:
            await client.get("/")
            assert closed.wait(5)  # blocks the event loop, which so hears nothing of the end
            answer = await client.post("/", content=b"{}")
        thread.join(5)

    assert answer.text == "ok"
