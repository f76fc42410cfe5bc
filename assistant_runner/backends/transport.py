"""The seam between what we ask of a server and what carries it: one request out, one answer back.

A transport knows nothing of Assistants: connections, bytes and time limits are its matter. There are
three: our own pool (`pool.py`), an app in this process (`asgi.py`), and httpx (`through_httpx.py`) for
proxies. Redirects are answers like others, and cookies are not kept: we speak to one API by its key.
"""

import json
import re
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from typing import Any, NamedTuple, Protocol
from urllib.parse import unquote

Field = tuple[bytes, bytes]
Fields = Mapping[bytes, Field]
"""Headers to send: each name and value as they go out, under the name in small letters."""

_INFLATED = frozenset({"gzip", "x-gzip", "deflate"})


class HttpError(Exception):
    """An exchange without an answer that can be read; the text is for people and may be empty."""


class TransportError(HttpError):
    """The way to the server or back broke."""


class TimedOut(TransportError): ...


class ConnectError(TransportError): ...


class ConnectTimeout(TimedOut): ...


class PoolTimeout(TimedOut): ...


class WriteError(TransportError): ...


class WriteTimeout(TimedOut): ...


class ReadError(TransportError): ...


class ReadTimeout(TimedOut): ...


class RemoteProtocolError(TransportError):
    """What came back is not HTTP, or ended too early."""


class ProxyError(TransportError): ...


class UnsupportedProtocol(TransportError):
    """A scheme that is neither http nor https."""


class DecodingError(HttpError):
    """A body is not in the encoding that its header names, or has no end."""


LONGEST_BODY = 600_000_000
"""Bytes, decoded: the longest of the protocol is a file of 512 MiB."""
UNFOLDED_AT_ONCE = 1 << 20
"""Bytes: a few that were compressed may stand for very many."""


class Origin(NamedTuple):
    """Where a connection goes. `host` without the brackets of IPv6."""

    scheme: str
    host: str
    port: int

    @property
    def authority(self) -> str:
        """As in a URL and the Host header: without the port that the scheme means anyway."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        usual = {"http": 80, "https": 443}.get(self.scheme)
        return host if self.port == usual else f"{host}:{self.port}"


class Request(NamedTuple):
    """`target`: path and query, percent-encoded. `headers` are all that go out, Host included."""

    method: str
    origin: Origin
    target: str
    headers: Fields
    body: bytes = b""

    @property
    def url(self) -> str:
        return f"{self.origin.scheme}://{self.origin.authority}{self.target}"

    @property
    def path(self) -> str:
        """Decoded, without the query."""
        return unquote(self.target.partition("?")[0])


class Headers(Mapping[str, str]):
    """An answer's headers, by name in any case; what came more than once is joined by commas."""

    def __init__(self, raw: list[Field]) -> None:
        self.raw = raw
        self._texts: dict[str, str] | None = None

    def _by_name(self) -> dict[str, str]:
        if self._texts is None:
            self._texts = {}
            for field in self.raw:
                name, value = field[0].decode("latin-1").lower(), field[1].decode("latin-1")
                self._texts[name] = f"{self._texts[name]}, {value}" if name in self._texts else value
        return self._texts

    def __getitem__(self, name: str) -> str:
        return self._by_name()[name.lower()]

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name.lower() in self._by_name()

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_name())

    def __len__(self) -> int:
        return len(self._by_name())


class Response:
    """An answer whose head has come. Its body is read once: in pieces (`async for`), or by `read`."""

    def __init__(
        self,
        request: Request,
        status: int,
        headers: list[Field],
        pieces: AsyncIterator[bytes],
        leave: Callable[[], Awaitable[None]],
    ) -> None:
        """`pieces`: the body as it comes over the wire. `leave`: nobody reads any more."""
        self.request = request
        self.status = status
        self.headers = Headers(headers)
        self.content = b""
        """The body, once it was read."""
        self._pieces = pieces
        self._leave = leave

    @property
    def is_success(self) -> bool:
        return 200 <= self.status < 300

    @property
    def text(self) -> str:
        """The body as text, in the charset that the header names, else UTF-8."""
        found = re.search(r"charset=[\"']?([\w.:-]+)", self.headers.get("content-type", ""), re.IGNORECASE)
        try:
            return self.content.decode(found[1] if found else "utf-8", "replace")
        except LookupError:
            return self.content.decode("utf-8", "replace")

    def json(self) -> Any:
        """The body's document; ValueError if it is none."""
        return json.loads(self.content)

    def __aiter__(self) -> AsyncIterator[bytes]:
        """The body's pieces as they come, decoded. TransportError, DecodingError.

        We ask for no compression, but some gateways compress all the same.
        """
        pieces = self._pieces
        for encoding in reversed(self.headers.get("content-encoding", "").lower().split(",")):
            if encoding.strip() in _INFLATED:
                pieces = _inflated(pieces, encoding.strip())
        return pieces

    async def read(self) -> bytes:
        """The whole body, kept in `content`. TransportError, DecodingError."""
        pieces, length = [], 0
        async for piece in self:
            pieces.append(piece)
            length += len(piece)
            if length > LONGEST_BODY:
                raise DecodingError(f"the body is longer than {LONGEST_BODY // 1_000_000} MB")
        self.content = b"".join(pieces)
        return self.content

    async def aclose(self) -> None:
        """Lets go of the connection, which serves again if the body was read to its end."""
        await self._leave()


class Transport(Protocol):
    """Carries requests, many at once. Seconds are None for no limit."""

    async def send(self, request: Request, connect_s: float | None, read_s: float | None) -> Response:
        """The answer, once its head is there; TransportError. `read_s`: without a byte, then too."""
        ...

    async def aclose(self) -> None: ...


async def _inflated(pieces: AsyncIterator[bytes], encoding: str) -> AsyncIterator[bytes]:
    """What gzip or deflate hold; deflate with zlib's frame, as it should be, or bare, as some send it."""
    stream = None if encoding == "deflate" else zlib.decompressobj(zlib.MAX_WBITS | 16)
    start = b""
    try:
        async for piece in pieces:
            if stream is None:
                start = piece = start + piece
                if len(start) < 2:
                    continue
                framed = start[0] & 15 == 8 and int.from_bytes(start[:2]) % 31 == 0  # RFC 1950, section 2.2
                stream = zlib.decompressobj(zlib.MAX_WBITS if framed else -zlib.MAX_WBITS)
            while data := stream.decompress(piece, UNFOLDED_AT_ONCE):
                yield data
                piece = stream.unconsumed_tail
        if stream is not None and (data := stream.flush()):
            yield data
    except zlib.error as error:
        raise DecodingError(f"the body is not {encoding}: {error}") from None
