"""A backend on loopback that fails on purpose: real sockets, any ASGI app behind them.

`plan` looks at each request and says what goes wrong with it: nothing (None), or one of the faults
below. What the app did before a fault stays done, as on a real server. Connections are closed after
each answer, so that no fault meets another request.
"""

import asyncio
import json
import re
import ssl
import struct
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from assistant_runner.backends.asgi import App, Exchange


@dataclass(frozen=True)
class Hang:
    """The request is taken and never answered; `handled` lets the app do its work first."""

    handled: bool = False


@dataclass(frozen=True)
class Reset:
    """The connection is reset: before the app saw the request, or after it did its work."""

    handled: bool = False


@dataclass(frozen=True)
class Answer:
    """This answer instead of the app's; `handled` lets the app do its work first."""

    status: int
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)
    handled: bool = False


@dataclass(frozen=True)
class Cut:
    """A stream ends after so many events, without a word, or by a reset."""

    after: int
    reset: bool = False


@dataclass(frozen=True)
class Edit:
    """Each event's frame (number from 0, bytes with the blank line) becomes these frames."""

    frames: Callable[[int, bytes], list[bytes]]


@dataclass(frozen=True)
class Bytewise:
    """The body is sent byte by byte."""


Fault = Hang | Reset | Answer | Cut | Edit | Bytewise


@dataclass(frozen=True)
class Seen:
    """A request as it arrived; `nth` counts requests of the same method and path pattern from 1."""

    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    body: bytes
    nth: int

    @property
    def json(self) -> Any:
        return json.loads(self.body) if self.body else None

    def matches(self, method: str, pattern: str) -> bool:
        return self.method == method and re.fullmatch(pattern, self.path) is not None


Plan = Callable[[Seen], Fault | None]


def nothing(_seen: Seen) -> None:
    return None


def once(method: str, pattern: str, *faults: Fault) -> Plan:
    """The faults for the first requests that match, one each, then nothing."""
    left = list(faults)

    def plan(seen: Seen) -> Fault | None:
        return left.pop(0) if left and seen.matches(method, pattern) else None

    return plan


class FaultyServer:
    """`async with FaultyServer(app, plan) as server: ... server.url`."""

    def __init__(self, app: App, plan: Plan = nothing, *, tls: ssl.SSLContext | None = None) -> None:
        self._tls = tls
        self.plan = plan
        self.seen: list[Seen] = []
        self.hanging = asyncio.Event()
        self._app = app
        self._tasks: set[asyncio.Task[Any]] = set()
        self._counts: dict[tuple[str, str], int] = {}

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self._tls)
        port = self._server.sockets[0].getsockname()[1]
        self.url = f"{'https' if self._tls else 'http'}://127.0.0.1:{port}/v1"
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def paths(self, method: str | None = None) -> list[str]:
        return [f"{seen.method} {seen.path}" for seen in self.seen if method in (None, seen.method)]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            seen = await self._read(reader)
            if seen is not None:
                await self._answer(seen, reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        except asyncio.CancelledError:
            writer.transport.abort()
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _read(self, reader: asyncio.StreamReader) -> Seen | None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        except asyncio.IncompleteReadError:
            return None
        line, *lines = head.split("\r\n")
        method, target, _ = line.split(" ")
        headers = {name.lower(): value for name, _, value in (one.partition(": ") for one in lines if one)}
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        path, _, query = target.partition("?")
        kind = (method, re.sub(r"(?<=_)[A-Za-z0-9]+", "*", path))
        self._counts[kind] = self._counts.get(kind, 0) + 1
        seen = Seen(method, path, query, headers, body, self._counts[kind])
        self.seen.append(seen)
        return seen

    async def _answer(self, seen: Seen, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        fault = self.plan(seen)
        if isinstance(fault, Hang | Reset | Answer):
            if fault.handled:
                exchange = await self._open(seen)
                async for _ in exchange.pieces(None):
                    pass
            if isinstance(fault, Hang):
                self.hanging.set()
                await reader.read()
            elif isinstance(fault, Reset):
                _reset(writer)
            else:
                body = fault.body if isinstance(fault.body, bytes) else json.dumps(fault.body).encode()
                headers = {"content-type": "application/json", **fault.headers}
                _write_head(writer, fault.status, list(headers.items()), length=len(body))
                writer.write(body)
                await writer.drain()
            return
        exchange = await self._open(seen)
        headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in exchange.headers]
        _write_head(
            writer, exchange.status, [pair for pair in headers if pair[0].lower() != "content-length"]
        )
        if isinstance(fault, Cut | Edit):
            number = 0
            async for frame in _frames(exchange):
                if isinstance(fault, Cut) and number >= fault.after:
                    exchange.leave()
                    if fault.reset:
                        await writer.drain()
                        _reset(writer)
                    return  # no last chunk: the body is cut
                for one in fault.frames(number, frame) if isinstance(fault, Edit) else [frame]:
                    _write_chunk(writer, one)
                await writer.drain()
                number += 1
        else:
            async for piece in exchange.pieces(None):
                parts = [piece[at : at + 1] for at in range(len(piece))] if fault else [piece]
                for part in parts:
                    _write_chunk(writer, part)
                    if fault:
                        await writer.drain()
                        await asyncio.sleep(0)
                await writer.drain()
        writer.write(b"0\r\n\r\n")
        await writer.drain()

    async def _open(self, seen: Seen) -> Exchange:
        exchange = Exchange(seen.body)
        scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": seen.method,
            "scheme": "http",
            "path": seen.path,
            "raw_path": seen.path.encode(),
            "query_string": seen.query.encode(),
            "root_path": "",
            "headers": [(n.encode("latin-1"), v.encode("latin-1")) for n, v in seen.headers.items()],
            "client": ("127.0.0.1", 0),
            "server": ("127.0.0.1", 80),
        }
        task = asyncio.create_task(exchange.run(self._app, scope))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        await exchange.started(None)
        return exchange


async def _frames(exchange: Exchange) -> AsyncIterator[bytes]:
    left = b""
    async for piece in exchange.pieces(None):
        *frames, left = (left + piece).split(b"\n\n")
        for frame in frames:
            yield frame + b"\n\n"
    if left:
        yield left


def _write_head(
    writer: asyncio.StreamWriter, status: int, headers: list[tuple[str, str]], *, length: int | None = None
) -> None:
    framing = ("transfer-encoding", "chunked") if length is None else ("content-length", str(length))
    lines = [f"HTTP/1.1 {status} X", *(f"{name}: {value}" for name, value in [*headers, framing])]
    writer.write(("\r\n".join([*lines, "connection: close"]) + "\r\n\r\n").encode("latin-1"))


def _write_chunk(writer: asyncio.StreamWriter, piece: bytes) -> None:
    if piece:
        writer.write(b"%x\r\n%b\r\n" % (len(piece), piece))


def _reset(writer: asyncio.StreamWriter) -> None:
    import socket

    sock = writer.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
