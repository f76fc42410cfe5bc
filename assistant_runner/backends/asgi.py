"""An ASGI app behind an HTTP client, in this process, streaming: no port, no server.

The transports that come with the clients collect the whole body before they answer; ours hands over
the response when its start arrives and each piece of the body as the app sends it. A client that
leaves early is seen by the app as `http.disconnect`, as behind a real server: the app goes on or
stops as it likes, and `aclose` ends what is still running. Contract: ASGI 3, HTTP scope 2.3.

One core, `AppCalls`, serves two: `AppTransport`, which our own client speaks through, and
`httpx2_transport` for the official SDK, which rides on httpx2.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, MutableMapping
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from assistant_runner.backends.transport import Field, Origin, ReadTimeout, Request, Response

if TYPE_CHECKING:
    import httpx2

Scope = MutableMapping[str, Any]
Event = MutableMapping[str, Any]
App = Callable[[Scope, Callable[[], Awaitable[Event]], Callable[[Event], Awaitable[None]]], Awaitable[None]]

QUEUED_PIECES = 16
"""How many pieces of a body wait for a slow reader before the app has to wait: the backpressure."""

GRACE_S = 2.0
"""How long `aclose` lets apps finish that a client has left."""


class AppStopped(Exception):
    """The app ended without finishing its response: a bug in the app."""


class Exchange:
    """One request in the app's hands. `status` and `headers` are set once `started` returned."""

    def __init__(self, body: bytes) -> None:
        self.status = 0
        self.headers: list[tuple[bytes, bytes]] = []
        self._body: bytes | None = body
        self._started = asyncio.Event()
        self._pieces: deque[bytes] = deque()
        self._readable = asyncio.Event()
        self._writable = asyncio.Event()
        self._ended = False
        self._error: Exception | None = None
        self._left = False
        self._gone = asyncio.Event()  # nobody reads any more: left, or the response is whole

    async def run(self, app: App, scope: Scope) -> None:
        """The app's task: whatever it raises surfaces where the client waits."""
        try:
            await app(scope, self._receive, self._send)
        except asyncio.CancelledError:
            self._end(AppStopped("the app was stopped before its response was whole"))
            raise
        except Exception as error:
            self._end(error)
        else:
            self._end(AppStopped("the app ended before its response was whole"))

    def _end(self, error: Exception | None) -> None:
        if not self._ended:
            self._ended, self._error = True, error
            self._started.set()
            self._readable.set()

    async def _receive(self) -> Event:
        if self._body is not None:
            body, self._body = self._body, None
            return {"type": "http.request", "body": body, "more_body": False}
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, event: Event) -> None:
        if event["type"] == "http.response.start":
            self.status = event["status"]
            self.headers = [(bytes(name), bytes(value)) for name, value in event.get("headers", ())]
            self._started.set()
        elif event["type"] == "http.response.body":
            await self._put(bytes(event.get("body", b"")))
            if not event.get("more_body", False):
                self._end(None)
                self._gone.set()

    async def _put(self, piece: bytes) -> None:
        while len(self._pieces) >= QUEUED_PIECES and not self._left:
            self._writable.clear()
            await self._writable.wait()
        if piece and not self._left:
            self._pieces.append(piece)
            self._readable.set()

    async def started(self, timeout_s: float | None) -> None:
        """Returns at the response's start; raises what the app raised before it, or ReadTimeout."""
        await _wait(self._started, timeout_s)
        if not self.status:
            raise self._error or AppStopped("the app sent a body without a response start")

    async def pieces(self, timeout_s: float | None) -> AsyncIterator[bytes]:
        """The body as it is sent; raises what the app raised in the middle of it, or ReadTimeout."""
        while True:
            while self._pieces:
                piece = self._pieces.popleft()
                self._writable.set()
                yield piece
            if self._ended:
                if self._error:
                    raise self._error
                return
            self._readable.clear()
            await _wait(self._readable, timeout_s)

    def leave(self) -> None:
        """The client is gone: the app sees `http.disconnect`, and what it sends goes nowhere."""
        self._left = True
        self._pieces.clear()
        self._writable.set()
        self._gone.set()


async def _wait(event: asyncio.Event, timeout_s: float | None) -> None:
    if event.is_set():
        return
    try:
        async with asyncio.timeout(timeout_s):
            await event.wait()
    except TimeoutError:
        raise ReadTimeout(f"no answer within {timeout_s} s") from None


class AppCalls:
    """The core: opens exchanges and keeps their tasks until the app is done with them."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._running: dict[asyncio.Task[None], Exchange] = {}

    async def open(
        self,
        *,
        method: str,
        origin: Origin,
        target: str,
        headers: Iterable[Field],
        body: bytes,
        timeout_s: float | None,
    ) -> Exchange:
        """An exchange whose response has started. `target`: path and query, percent-encoded."""
        exchange = Exchange(body)
        task = asyncio.create_task(exchange.run(self._app, _scope(method, origin, target, headers)))
        self._running[task] = exchange
        task.add_done_callback(self._forget)
        try:
            await exchange.started(timeout_s)
        except BaseException:
            exchange.leave()
            raise
        return exchange

    def _forget(self, task: asyncio.Task[None]) -> None:
        self._running.pop(task, None)

    async def aclose(self) -> None:
        """Leaves every open exchange, gives the app a moment, then cancels what still runs."""
        tasks = list(self._running)
        for exchange in list(self._running.values()):
            exchange.leave()
        if not tasks:
            return
        _, pending = await asyncio.wait(tasks, timeout=GRACE_S)
        for task in pending:
            task.cancel()
        if pending:
            await asyncio.wait(pending, timeout=GRACE_S)


def _scope(method: str, origin: Origin, target: str, headers: Iterable[Field]) -> Scope:
    path, _, query = target.partition("?")
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": method,
        "scheme": origin.scheme,
        "path": unquote(path),
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "headers": [(name.lower(), value) for name, value in headers],
        "client": ("127.0.0.1", 0),
        "server": (origin.host, origin.port),
    }


class AppTransport:
    """The seam over an app. The app's exceptions reach the caller as they are."""

    def __init__(self, app: App) -> None:
        self._calls = AppCalls(app)

    async def send(self, request: Request, connect_s: float | None, read_s: float | None) -> Response:
        exchange = await self._calls.open(
            method=request.method,
            origin=request.origin,
            target=request.target,
            headers=request.headers.values(),
            body=request.body,
            timeout_s=read_s,
        )

        async def leave() -> None:
            exchange.leave()

        return Response(request, exchange.status, exchange.headers, exchange.pieces(read_s), leave)

    async def aclose(self) -> None:
        await self._calls.aclose()


def httpx2_transport(app: App) -> "httpx2.AsyncBaseTransport":
    """The same for httpx2: `openai.AsyncOpenAI(http_client=httpx2.AsyncClient(transport=...))`."""
    import httpx2

    calls = AppCalls(app)

    def _read_timeout(request: httpx2.Request) -> float | None:
        timeout: float | None = (request.extensions.get("timeout") or {}).get("read")
        return timeout

    class Body2(httpx2.AsyncByteStream):
        def __init__(self, exchange: Exchange, request: httpx2.Request) -> None:
            self._exchange = exchange
            self._request = request

        async def __aiter__(self) -> AsyncIterator[bytes]:
            try:
                async for piece in self._exchange.pieces(_read_timeout(self._request)):
                    yield piece
            except ReadTimeout as error:
                raise httpx2.ReadTimeout(str(error), request=self._request) from None

        async def aclose(self) -> None:
            self._exchange.leave()

    class AsgiTransport2(httpx2.AsyncBaseTransport):
        async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
            url = request.url
            try:
                exchange = await calls.open(
                    method=request.method,
                    origin=Origin(url.scheme, url.host, url.port or (443 if url.scheme == "https" else 80)),
                    target=url.raw_path.decode(),
                    headers=request.headers.raw,
                    body=await request.aread(),
                    timeout_s=_read_timeout(request),
                )
            except ReadTimeout as error:
                raise httpx2.ReadTimeout(str(error), request=request) from None
            return httpx2.Response(exchange.status, headers=exchange.headers, stream=Body2(exchange, request))

        async def aclose(self) -> None:
            await calls.aclose()

    return AsgiTransport2()
