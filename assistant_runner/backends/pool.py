"""An HTTP/1.1 transport for many requests at once: httptools parses, asyncio moves the bytes.

httpx's own pool looks at every connection for every request; with hundreds in flight that costs more
than the rest of a run. This one keeps idle connections on a stack per origin and touches only the one it
uses. It speaks to the origin itself: through a proxy, httpx's pool does it. What goes wrong leaves as
httpx's own errors, so that nothing above sees a difference.
"""

import asyncio
import ssl
import time
from collections import deque
from collections.abc import AsyncIterator
from typing import Any

import httptools
import httpx

KEEP_IDLE_S = 5.0
HIGH_WATER = 256 * 1024
"""Bytes of a body that wait for their reader before the connection is not read any more."""

Origin = tuple[str, str, int]


class PooledTransport(httpx.AsyncBaseTransport):
    """Connections are reused newest first, and dropped after `KEEP_IDLE_S` without use."""

    def __init__(self, *, context: ssl.SSLContext | None = None) -> None:
        self._context = context
        self._idle: dict[Origin, list[_Connection]] = {}
        self._open: set[_Connection] = set()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        timeout: dict[str, float | None] = request.extensions.get("timeout", {})
        url = request.url
        origin = (url.scheme, url.host, url.port or (443 if url.scheme == "https" else 80))
        connection = self._take(origin) or await self._connect(origin, request, timeout.get("connect"))
        try:
            await connection.send(request)
            status, headers, version = await connection.head(request, timeout.get("read"))
        except BaseException:
            connection.close()
            raise
        body = _Body(connection, request, timeout.get("read"), lambda: self._give_back(origin, connection))
        return httpx.Response(status, headers=headers, stream=body, extensions={"http_version": version})

    def _take(self, origin: Origin) -> "_Connection | None":
        stack = self._idle.get(origin)
        now = time.monotonic()
        while stack:
            connection = stack.pop()
            if connection.is_usable and now - connection.idle_since < KEEP_IDLE_S:
                return connection
            connection.close()
        return None

    def _give_back(self, origin: Origin, connection: "_Connection") -> None:
        if not connection.is_usable:
            connection.close()
            return
        connection.idle_since = time.monotonic()
        stack = self._idle.setdefault(origin, [])
        stack.append(connection)
        if connection.idle_since - stack[0].idle_since > KEEP_IDLE_S:
            stack.pop(0).close()

    async def _connect(self, origin: Origin, request: httpx.Request, within_s: float | None) -> "_Connection":
        scheme, host, port = origin
        if scheme not in ("http", "https"):
            raise httpx.UnsupportedProtocol(f"no way to speak {scheme!r}", request=request)
        tls = (self._context or True) if scheme == "https" else None
        try:
            async with asyncio.timeout(within_s):
                _, connection = await asyncio.get_running_loop().create_connection(
                    lambda: _Connection(self._open), host, port, ssl=tls
                )
        except TimeoutError:
            raise httpx.ConnectTimeout(f"no connection within {within_s} s", request=request) from None
        except (OSError, UnicodeError) as error:
            raise httpx.ConnectError(str(error) or type(error).__name__, request=request) from error
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
        self._parser = httptools.HttpResponseParser(self)
        self._headers: list[tuple[bytes, bytes]] = []
        self._head: tuple[int, list[tuple[bytes, bytes]], bytes] | None = None
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
        version = b"HTTP/" + self._parser.get_http_version().encode()
        self._head = (status, self._headers, version)
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
        return self.complete and self._keep and self._transport is not None and self._error is None

    async def send(self, request: httpx.Request) -> None:
        self._begin()
        self.complete = False
        lines = [b"%s %s HTTP/1.1" % (request.method.encode(), request.url.raw_path)]
        lines += [b"%s: %s" % header for header in request.headers.raw]
        head: bytes | None = b"\r\n".join(lines) + b"\r\n\r\n"
        chunked = b"transfer-encoding" in {name.lower() for name, _ in request.headers.raw}
        async for part in request.stream:  # type: ignore[union-attr]
            data = b"%x\r\n%s\r\n" % (len(part), part) if chunked and part else part
            await self._write((head or b"") + data, request)
            head = None
        if head is not None or chunked:
            await self._write((head or b"") + (b"0\r\n\r\n" if chunked else b""), request)

    async def _write(self, data: bytes, request: httpx.Request) -> None:
        if self._transport is None:
            raise httpx.WriteError(f"the connection was lost: {self._why()}", request=request)
        self._transport.write(data)
        if self._writable is not None:
            await self._writable

    async def head(
        self, request: httpx.Request, within_s: float | None
    ) -> tuple[int, list[tuple[bytes, bytes]], bytes]:
        while self._head is None:
            if self._error is not None:
                if isinstance(self._error, EOFError):
                    raise httpx.RemoteProtocolError(
                        "Server disconnected without sending a response.", request=request
                    )
                raise self._failure(request)
            await self._wait(request, within_s)
        return self._head

    async def chunk(self, request: httpx.Request, within_s: float | None) -> bytes:
        """The next piece of the body; b"" at its end."""
        while not self._body:
            if self.complete:
                return b""
            if self._error is not None:
                raise self._failure(request)
            await self._wait(request, within_s)
        data = self._body.popleft() if len(self._body) == 1 else b"".join(self._body)
        self._body.clear()
        self._waiting_bytes = 0
        if self._paused and self._transport is not None:
            self._paused = False
            self._transport.resume_reading()
        return data

    def _failure(self, request: httpx.Request) -> httpx.TransportError:
        if isinstance(self._error, httptools.HttpParserError):
            return httpx.RemoteProtocolError(f"this is not HTTP: {self._error}", request=request)
        if isinstance(self._error, EOFError):
            return httpx.RemoteProtocolError(
                "peer closed connection without sending complete message body", request=request
            )
        return httpx.ReadError(f"the connection was lost: {self._why()}", request=request)

    def _why(self) -> str:
        return str(self._error or "") or type(self._error).__name__

    async def _wait(self, request: httpx.Request, within_s: float | None) -> None:
        loop = asyncio.get_running_loop()
        changed = self._changed = loop.create_future()
        timer = loop.call_later(within_s, _expire, changed) if within_s is not None else None
        try:
            await changed
        except TimeoutError:
            raise httpx.ReadTimeout(f"no bytes within {within_s} s", request=request) from None
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


class _Body(httpx.AsyncByteStream):
    """A response's body; at its end the connection goes back."""

    def __init__(
        self, connection: _Connection, request: httpx.Request, read_s: float | None, done: Any
    ) -> None:
        self._connection: _Connection | None = connection
        self._request = request
        self._read_s = read_s
        self._done = done

    async def __aiter__(self) -> AsyncIterator[bytes]:
        connection = self._connection
        while connection is not None and (data := await connection.chunk(self._request, self._read_s)):
            yield data

    async def aclose(self) -> None:
        if self._connection is not None:
            self._connection = None
            self._done()
