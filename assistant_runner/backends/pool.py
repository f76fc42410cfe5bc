"""An HTTP/1.1 transport for many requests at once: httptools parses, asyncio moves the bytes.

httpx's pool looks at every connection for every request; with hundreds in flight that costs more than
the rest of a run. This one keeps idle connections on a stack per origin and touches only the one it uses.
It speaks to the origin itself: through a proxy, httpx does it.
"""

import asyncio
import select
import ssl
import time
from collections import deque
from typing import Self

import httptools

from assistant_runner.backends.transport import (
    ConnectError,
    ConnectTimeout,
    Field,
    Origin,
    ReadError,
    ReadTimeout,
    RemoteProtocolError,
    Request,
    Response,
    TransportError,
    UnsupportedProtocol,
    WriteError,
)

KEEP_IDLE_S = 5.0
HIGH_WATER = 256 * 1024
"""Bytes of a body that wait for their reader before the connection is not read any more."""

LONGEST_HEAD = 1 << 20
"""Bytes of an answer before its body."""

WRITTEN_AT_ONCE = 64 * 1024
"""Bytes; a longer body goes out in pieces, each when there is room for it."""


class PooledTransport:
    """Connections are reused newest first, and dropped after `KEEP_IDLE_S` without use."""

    def __init__(self, *, context: ssl.SSLContext | None = None) -> None:
        self._context = context
        self._idle: dict[Origin, list[_Connection]] = {}
        self._open: set[_Connection] = set()

    async def send(self, request: Request, connect_s: float | None, read_s: float | None) -> Response:
        connection = self._take(request.origin) or await self._connect(request.origin, connect_s)
        try:
            await connection.send(request)
            status, headers = await connection.head(read_s)
        except BaseException:
            connection.close()
            raise
        body = _Body(self, connection, request.origin, read_s)
        return Response(request, status, headers, body, body.leave)

    def _take(self, origin: Origin) -> "_Connection | None":
        stack = self._idle.get(origin)
        now = time.monotonic()
        while stack:
            connection = stack.pop()
            fresh = now - connection.idle_since < KEEP_IDLE_S
            if fresh and connection.is_usable and not connection.was_left:
                return connection
            connection.close()
        return None

    def give_back(self, origin: Origin, connection: "_Connection") -> None:
        """A connection that nobody reads any more."""
        if not connection.is_usable:
            connection.close()
            return
        connection.idle_since = time.monotonic()
        stack = self._idle.setdefault(origin, [])
        stack.append(connection)
        if connection.idle_since - stack[0].idle_since > KEEP_IDLE_S:
            stack.pop(0).close()

    async def _connect(self, origin: Origin, within_s: float | None) -> "_Connection":
        if origin.scheme not in ("http", "https"):
            raise UnsupportedProtocol(f"no way to speak {origin.scheme!r}")
        tls = (self._context or True) if origin.scheme == "https" else None
        try:
            async with asyncio.timeout(within_s):
                _, connection = await asyncio.get_running_loop().create_connection(
                    lambda: _Connection(self._open), origin.host, origin.port, ssl=tls
                )
        except TimeoutError:
            raise ConnectTimeout(f"no connection within {within_s} s") from None
        except (OSError, UnicodeError) as error:
            raise ConnectError(str(error) or type(error).__name__) from error
        return connection

    async def aclose(self) -> None:
        for connection in tuple(self._open):
            connection.close()


class _Connection(asyncio.Protocol):
    """One connection, one request at a time; also httptools' listener."""

    def __init__(self, register: "set[_Connection]") -> None:
        self._register = register
        self._transport: asyncio.Transport | None = None
        self._changed: asyncio.Future[None] | None = None
        self._writable: asyncio.Future[None] | None = None
        self._error: Exception | None = None
        self.idle_since = 0.0
        self._begin()

    def _begin(self) -> None:
        self._head_bytes = 0
        self._parser = httptools.HttpResponseParser(self)
        self._headers: list[Field] = []
        self._head: tuple[int, list[Field]] | None = None
        self._body: deque[bytes] = deque()
        self._waiting_bytes = 0
        self._paused = False
        self.complete = True
        self._keep = True
        self._to_the_end = False

    # -- asyncio's side ------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]
        self._register.add(self)

    def data_received(self, data: bytes) -> None:
        if self.complete:  # nobody asked: this connection is of no use
            self.close()
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._error = error
            self._keep = False
        if self._head is None:
            self._head_bytes += len(data)
            if self._head_bytes > LONGEST_HEAD:
                self._error = httptools.HttpParserError("its head has no end")
                self.close()
        self._wake()

    def connection_lost(self, error: Exception | None) -> None:
        self._register.discard(self)
        self._transport = None
        if not self.complete:
            if error is None and self._to_the_end and self._head is not None:
                self.complete = True
            else:
                self._error = self._error or error or EOFError()
        self._wake()
        if self._writable is not None and not self._writable.done():
            self._writable.set_result(None)

    def pause_writing(self) -> None:
        self._writable = asyncio.get_running_loop().create_future()

    def resume_writing(self) -> None:
        if self._writable is not None and not self._writable.done():
            self._writable.set_result(None)
        self._writable = None

    # -- httptools' side -----------------------------------------------------------------------------

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if status < 200:  # 100 Continue and its like come before the answer
            self._headers = []
            return
        self._head = (status, self._headers)
        self._keep = self._parser.should_keep_alive()
        names = {name.lower() for name, _ in self._headers}
        self._to_the_end = not names & {b"content-length", b"transfer-encoding"}

    def on_body(self, data: bytes) -> None:
        self._body.append(data)
        self._waiting_bytes += len(data)
        if self._waiting_bytes > HIGH_WATER and not self._paused and self._transport is not None:
            self._paused = True
            self._transport.pause_reading()

    def on_message_complete(self) -> None:
        if self._head is not None:
            self.complete = True

    # -- our side ------------------------------------------------------------------------------------

    @property
    def is_usable(self) -> bool:
        """Whether another request may go out on it."""
        is_open = self._transport is not None and self._error is None
        return is_open and self.complete and self._keep and not self._paused

    @property
    def was_left(self) -> bool:
        """Whether the server closed an idle connection, and the event loop had no turn to hear of it.

        What is there to read where nothing was asked for can only be the end; without this look, a create
        would go out to nobody and its outcome would be in doubt.
        """
        wire = self._transport.get_extra_info("socket") if self._transport is not None else None
        if wire is None or wire.fileno() < 0:
            return True
        poll = getattr(select, "poll", None)
        if poll is None:
            return bool(select.select([wire], [], [], 0)[0])
        looking = poll()
        looking.register(wire.fileno(), select.POLLIN)
        return bool(looking.poll(0))

    async def send(self, request: Request) -> None:
        self._begin()
        self.complete = False
        lines = [f"{request.method} {request.target} HTTP/1.1".encode()]
        lines += [b"%s: %s" % field for field in request.headers.values()]
        head, body = b"\r\n".join([*lines, b"", b""]), request.body
        if len(body) <= WRITTEN_AT_ONCE:
            await self._write(head + body)
            return
        await self._write(head)
        for start in range(0, len(body), WRITTEN_AT_ONCE):
            await self._write(body[start : start + WRITTEN_AT_ONCE])

    async def _write(self, data: bytes) -> None:
        if self._transport is None:
            raise WriteError(f"the connection was lost: {self._why()}")
        self._transport.write(data)
        if self._writable is not None:
            await self._writable

    async def head(self, within_s: float | None) -> tuple[int, list[Field]]:
        """Status and headers of the answer."""
        while self._head is None:
            if isinstance(self._error, EOFError):
                raise RemoteProtocolError("Server disconnected without sending a response.")
            if self._error is not None:
                raise self._failure()
            await self._wait(within_s)
        return self._head

    async def chunk(self, within_s: float | None) -> bytes:
        """The next piece of the body; b"" at its end."""
        while not self._body:
            if self.complete:
                return b""
            if self._error is not None:
                raise self._failure()
            await self._wait(within_s)
        data = self._body.popleft() if len(self._body) == 1 else b"".join(self._body)
        self._body.clear()
        self._waiting_bytes = 0
        if self._paused and self._transport is not None:
            self._paused = False
            self._transport.resume_reading()
        return data

    def _failure(self) -> TransportError:
        if isinstance(self._error, httptools.HttpParserError):
            return RemoteProtocolError(f"this is not HTTP: {self._error}")
        if isinstance(self._error, EOFError):
            return RemoteProtocolError("peer closed connection without sending complete message body")
        return ReadError(f"the connection was lost: {self._why()}")

    def _why(self) -> str:
        return str(self._error or "") or type(self._error).__name__

    async def _wait(self, within_s: float | None) -> None:
        loop = asyncio.get_running_loop()
        changed = self._changed = loop.create_future()
        timer = loop.call_later(within_s, _expire, changed) if within_s is not None else None
        try:
            await changed
        except TimeoutError:
            raise ReadTimeout(f"no bytes within {within_s} s") from None
        finally:
            self._changed = None
            if timer is not None:
                timer.cancel()

    def _wake(self) -> None:
        if self._changed is not None and not self._changed.done():
            self._changed.set_result(None)

    def close(self) -> None:
        self._register.discard(self)
        self._keep = False
        if self._transport is not None:
            self._transport.abort() if not self.complete else self._transport.close()


def _expire(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_exception(TimeoutError())


class _Body:
    """The pieces of an answer's body; when nobody reads any more, the connection goes back."""

    def __init__(
        self, pool: PooledTransport, connection: _Connection, origin: Origin, read_s: float | None
    ) -> None:
        self._pool = pool
        self._connection: _Connection | None = connection
        self._origin = origin
        self._read_s = read_s

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        if self._connection is None or not (data := await self._connection.chunk(self._read_s)):
            raise StopAsyncIteration
        return data

    async def leave(self) -> None:
        if self._connection is not None:
            connection, self._connection = self._connection, None
            self._pool.give_back(self._origin, connection)
