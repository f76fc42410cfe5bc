"""Requests to one API: base URL, default headers, signature and time limits over any transport.

Everything that is the same for each request is worked out once, here: in a batch a request costs
little more than the bytes that go out.
"""

from collections.abc import Mapping
from typing import Protocol, Self
from urllib.parse import quote, urlsplit

from assistant_runner.backends.transport import Field, Fields, Origin, Request, Response, Transport
from assistant_runner.errors import ConfigurationError

_IN_PATHS = "/%:@!$&'()*+,;=~"
_WITH_BODY = frozenset({"POST", "PUT", "PATCH"})


class Signer(Protocol):
    """Says who asks."""

    async def field(self) -> Field:
        """The header that signs the next request."""
        ...

    def renew(self) -> bool:
        """Whether a refused request is worth another try: the signature is a new one now."""
        ...

    async def aclose(self) -> None: ...


def fields_of(headers: Mapping[str, str]) -> Fields:
    """Headers as they are sent; ConfigurationError for one that HTTP cannot carry."""
    fields = {}
    for name, value in headers.items():
        if not (name + value).isascii() or any(sign in name + value for sign in "\r\n\0"):
            raise ConfigurationError(
                f"the header {name!r} has a name or value that no header may hold",
                remedy="write it in one line of ASCII",
            )
        fields[name.lower().encode()] = (name.encode(), value.encode())
    return fields


def origin_of(url: str) -> Origin:
    """Where a URL leads; ValueError if its port or host is none. Any scheme passes: sending tells."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    if not host.isascii():
        import idna  # Python's own codec knows the older standard, which leads to other hosts

        host = idna.encode(host).decode()
    return Origin(parts.scheme, host, parts.port or (443 if parts.scheme == "https" else 80))


class Client:
    """Owns its transport and signer. `connect_s`, `read_s`: the limits of every request."""

    def __init__(
        self,
        transport: Transport,
        base_url: str,
        *,
        headers: Mapping[str, str] | None = None,
        signer: Signer | None = None,
        connect_s: float | None = 5.0,
        read_s: float | None = 5.0,
    ) -> None:
        self.transport = transport
        self.connect_s = connect_s
        self.read_s = read_s
        self._signer = signer
        self._origin = origin_of(base_url)
        self._base = quote(urlsplit(base_url).path.rstrip("/"), safe=_IN_PATHS)
        own = {"Host": self._origin.authority, "Accept": "*/*", "Connection": "keep-alive"}
        self._fields = {**fields_of(own), **fields_of(headers or {})}

    def request(
        self, method: str, path: str, *, query: str = "", headers: Fields | None = None, body: bytes = b""
    ) -> Request:
        """`path`: below the base URL, percent-encoded as `query` is. `headers` replace the defaults."""
        fields = {**self._fields, **headers} if headers else dict(self._fields)
        if body or method in _WITH_BODY:
            fields[b"content-length"] = (b"Content-Length", b"%d" % len(body))
        target = f"{self._base}/{path}?{query}" if query else f"{self._base}/{path}"
        return Request(method, self._origin, target, fields, body)

    async def send(self, request: Request) -> Response:
        """The answer, once its head is there, whatever its status; TransportError.

        A request that is refused for its key goes once more if there is another key by then.
        """
        response = await self._send_signed(request)
        if response.status == 401 and self._signer is not None and self._signer.renew():
            try:
                await response.read()
            finally:
                await response.aclose()
            response = await self._send_signed(request)
        return response

    async def _send_signed(self, request: Request) -> Response:
        if self._signer is not None:
            field = await self._signer.field()
            request = request._replace(headers={**request.headers, field[0].lower(): field})
        return await self.transport.send(request, self.connect_s, self.read_s)

    async def fetch(self, request: Request) -> Response:
        """The answer with its whole body; TransportError, DecodingError."""
        response = await self.send(request)
        try:
            await response.read()
        finally:
            await response.aclose()
        return response

    async def aclose(self) -> None:
        await self.transport.aclose()
        if self._signer is not None:
            await self._signer.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.aclose()
