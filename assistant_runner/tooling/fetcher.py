"""The guarded HTTP client that tools are handed: strangers' addresses stay out.

Every hop is checked: scheme and port before anything is sent; the addresses after resolution; and the
connection is made to the very address that was checked, so that a second answer of the name server
cannot change it. A host that the user allows by name is exempt. Replies are limited in size after
decompression and in time as a whole; only codings that can be undone within limits are asked for
(cases 090, 092, 099). Environment proxies are not used: they would resolve names for us, unchecked.
"""

import asyncio
import fnmatch
import ipaddress
import logging
import os
import socket
import ssl
import time
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from http.cookiejar import DefaultCookiePolicy
from pathlib import Path
from typing import Any

import httpcore
import httpx

from assistant_runner.errors import ConfigurationError
from assistant_runner.retries import wait_hint
from assistant_runner.tooling.contract import ToolFailure

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""The addresses of a host name as texts."""

OPEN_PORTS = frozenset({80, 443, 8080, 8443})
CODINGS = "gzip, deflate"
MAX_BYTES = 20_000_000
MAX_REDIRECTS = 5
WHOLE_REPLY_S = 60.0
CONNECTIONS_PER_HOST = 4
LONGEST_PAUSE_S = 10.0
PIECE_BYTES = 65_536
GZIP_MARK = b"\x1f\x8b"
CACHE_S = 7 * 86_400.0
CACHED_REPLY_BYTES = 5_000_000
CACHE_BYTES = 200_000_000
HEADERS_FOR_ANYONE = frozenset({"accept", "accept-encoding", "accept-language", "user-agent", "connection"})
NAT64 = (ipaddress.ip_network("64:ff9b::/96"), ipaddress.ip_network("64:ff9b:1::/48"))
SPECIAL = (
    ipaddress.ip_network("168.63.129.16/32"),  # Azure's host agent, a public address that is none
    ipaddress.ip_network("192.0.0.0/24"),  # a cloud's metadata service is at 192.0.0.192
    ipaddress.ip_network("192.88.99.0/24"),
    ipaddress.ip_network("64:ff9b:1::/48"),
    ipaddress.ip_network("2001::/23"),
    ipaddress.ip_network("fec0::/10"),
)


class AddressRefused(ToolFailure):
    """The address is not for tools: private, local, a metadata service, a strange port or scheme."""

    def __init__(self, message: str) -> None:
        super().__init__(
            message,
            hint="only public web addresses are fetched; do not try again; the user can allow a host by name",
        )


def guarded_client(
    *,
    allow_hosts: Iterable[str] = (),
    timeout_s: float = 15.0,
    ca_file: str | None = None,
    max_bytes: int = MAX_BYTES,
    resolve: Resolve | None = None,
    cache: Path | None = None,
) -> httpx.AsyncClient:
    """A client for tools. `allow_hosts`: hosts that may be private and on any port, as names, globs
    or addresses, with `:port` for that port alone. `max_bytes`: of one reply, decompressed. `cache`: the
    SQLite file of an HTTP cache (RFC 9111, private); errors are never kept (case-098), nor are replies
    to requests with headers of their own. `ca_file`: an
    authority that is trusted beside the public ones; ConfigurationError if it cannot be read."""
    if ca_file:
        _check_ca_file(ca_file)
    guard = AddressGuard(allow_hosts, resolve=resolve)
    transport: httpx.AsyncBaseTransport = GuardedTransport(guard, ca_file=ca_file, max_bytes=max_bytes)
    return GuardedClient(
        transport=transport if cache is None else CachedTransport(transport, cache),
        timeout=httpx.Timeout(timeout_s, connect=min(timeout_s, 10.0)),
    )


def _check_ca_file(path: str) -> None:
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cafile=path)
    except (OSError, ssl.SSLError) as error:
        words = getattr(error, "strerror", None) or str(error)
        raise ConfigurationError(
            f"ca_file {path}: {words}", remedy="name a file with certificates in PEM form", path=path
        ) from None


def _cached(transport: httpx.AsyncBaseTransport, path: Path) -> httpx.AsyncBaseTransport:
    from hishel import AsyncSqliteStorage, CacheOptions
    from hishel.httpx import AsyncCacheTransport

    # Where another process holds the file, a reply goes uncached: nothing that a user must see.
    logging.getLogger("hishel").addHandler(logging.NullHandler())
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600))  # what was read is nobody else's business
    path.chmod(0o600)
    storage = AsyncSqliteStorage(
        database_path=path, default_ttl=CACHE_S, max_stream_size=CACHED_REPLY_BYTES, max_size=CACHE_BYTES
    )
    return AsyncCacheTransport(transport, storage=storage, rfc=CacheOptions(shared=False))


class CachedTransport(httpx.AsyncBaseTransport):
    """An HTTP cache over a transport, made at the first request: runs that fetch nothing start sooner.

    Only what anyone could have asked for goes through it. A request with a header of its own may be
    somebody's: its reply is for nobody else, and its secrets do not belong into a file.
    """

    def __init__(self, transport: httpx.AsyncBaseTransport, path: Path) -> None:
        self._plain = transport
        self._path = path
        self._made: httpx.AsyncBaseTransport | None = None

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        if not HEADERS_FOR_ANYONE.issuperset({name.lower() for name in request.headers} - {"host"}):
            return await self._plain.handle_async_request(request)
        if self._made is None:
            self._made = _cached(self._plain, self._path)
        return await self._made.handle_async_request(request)

    async def aclose(self) -> None:
        await (self._made or self._plain).aclose()


class GuardedClient(httpx.AsyncClient):
    """Follows a few redirects, keeps no cookies, and takes no secret along to another origin."""

    def __init__(self, *, transport: httpx.AsyncBaseTransport, timeout: httpx.Timeout) -> None:
        super().__init__(
            transport=transport,
            timeout=timeout,
            follow_redirects=True,
            max_redirects=MAX_REDIRECTS,
            trust_env=False,
            headers={"accept-encoding": CODINGS},
        )
        self.cookies.jar.set_policy(DefaultCookiePolicy(allowed_domains=[]))

    def _redirect_headers(self, request: httpx.Request, url: httpx.URL, method: str) -> httpx.Headers:
        headers = super()._redirect_headers(request, url, method)
        if _origin(url) == _origin(request.url):
            return headers
        kept = [(name, value) for name, value in headers.multi_items() if name.lower() in HEADERS_FOR_ANYONE]
        return httpx.Headers([("host", url.netloc.decode("ascii")), *kept])


class AddressGuard:
    """Says which hosts, ports and addresses may be reached."""

    def __init__(self, allow_hosts: Iterable[str] = (), *, resolve: Resolve | None = None) -> None:
        plain = (entry.strip().casefold().replace("[", "").replace("]", "") for entry in allow_hosts)
        self._allowed = tuple(entry for entry in plain if entry)
        self._resolve = resolve or system_resolve

    def check_url(self, url: httpx.URL) -> None:
        """AddressRefused for a scheme, a port or a form of address that is not for tools."""
        if url.scheme not in ("http", "https"):
            raise AddressRefused(f"{url.scheme or 'no'} is not a scheme that tools may use: {url}")
        if not url.host:
            raise AddressRefused(f"{url} names no host")
        if url.userinfo:
            raise AddressRefused(f"an address with a user name in it is not fetched: {url.host}")
        port = url.port or (443 if url.scheme == "https" else 80)
        if port not in OPEN_PORTS and not self.allows(url.host, port):
            raise AddressRefused(f"port {port} of {url.host} is not open to tools")

    def allows(self, host: str, port: int) -> bool:
        """Whether the user allowed this host by name."""
        plain = host.strip("[]").rstrip(".").casefold()
        return any(
            fnmatch.fnmatchcase(plain, entry) or fnmatch.fnmatchcase(f"{plain}:{port}", entry)
            for entry in self._allowed
        )

    async def addresses(self, host: str, port: int) -> list[str]:
        """The addresses to connect to, all of them checked; AddressRefused if one is not public."""
        plain = host.strip("[]")
        try:
            found = list(dict.fromkeys(await self._resolve(plain, port)))
        except (OSError, UnicodeError) as error:  # a name that no name server could hold
            words = getattr(error, "strerror", None) or error
            raise httpcore.ConnectError(f"{plain}: the name cannot be resolved: {words}") from None
        if not found:
            raise httpcore.ConnectError(f"{plain}: the name has no address")
        if self.allows(plain, port):
            return found
        for text in found:
            if (reason := why_refused(text)) is not None:
                raise AddressRefused(f"{plain} is not fetched: {reason}")
        return found


def why_refused(text: str) -> str | None:
    """Why an address is not for tools, or None for a public one."""
    try:
        address: Address = ipaddress.ip_address(text.split("%", 1)[0])
    except ValueError:
        return "its address cannot be read"
    for inner in (address, *_embedded(address)):
        if inner.is_loopback:
            return "it is this machine"
        if inner.is_link_local:
            return "its address is link-local, where metadata services live"
        if (
            inner.is_multicast
            or inner.is_unspecified
            or any(inner.version == network.version and inner in network for network in SPECIAL)
        ):
            return "its address is reserved"
        if not inner.is_global or (inner.is_reserved and inner not in NAT64[0]):
            return "its address is private or reserved"
    return None


def _embedded(address: Address) -> list[Address]:
    """IPv4 addresses inside an IPv6 one: mapped, compatible, NAT64, 6to4, Teredo."""
    if isinstance(address, ipaddress.IPv4Address):
        return []
    found: list[Address] = []
    if address.ipv4_mapped is not None:
        found.append(address.ipv4_mapped)
    if address.sixtofour is not None:
        found.append(address.sixtofour)
    if address.teredo is not None:
        found.extend(address.teredo)
    if any(address in network for network in NAT64) or int(address) >> 32 == 0:
        found.append(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF))
    return found


async def system_resolve(host: str, port: int) -> list[str]:
    """The system's answer, which also understands odd spellings such as 0x7f.1 and 2130706433."""
    loop = asyncio.get_running_loop()
    answers = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(answer[4][0]) for answer in answers]


class GuardedBackend(httpcore.AsyncNetworkBackend):
    """Connects to addresses that the guard has checked; TLS still verifies the name that was asked."""

    def __init__(self, guard: AddressGuard) -> None:
        self._guard = guard
        self._inner = httpcore.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """A connection to the first checked address that answers."""
        try:
            async with asyncio.timeout(timeout):
                addresses = await self._guard.addresses(host, port)
        except TimeoutError:
            raise httpcore.ConnectTimeout(f"{host}: the name was not resolved in time") from None
        failure: Exception | None = None
        for address in addresses:
            try:
                return await self._inner.connect_tcp(address, port, timeout, local_address, socket_options)
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                failure = error
        assert failure is not None
        raise failure

    async def connect_unix_socket(
        self, path: str, timeout: float | None = None, socket_options: Iterable[Any] | None = None
    ) -> httpcore.AsyncNetworkStream:
        raise AddressRefused("tools do not connect to sockets of this machine")

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class GuardedTransport(httpx.AsyncBaseTransport):
    """httpx's own transport over a guarded network, with replies limited while they are read."""

    def __init__(
        self, guard: AddressGuard, *, ca_file: str | None = None, max_bytes: int = MAX_BYTES
    ) -> None:
        self._guard = guard
        self._max_bytes = max_bytes
        self._ca_file = ca_file
        self._opened: httpx.AsyncHTTPTransport | None = None
        self._turns: dict[str, asyncio.Semaphore] = {}
        self._open_at: dict[str, float] = {}

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """The reply with its body decompressed and limited; AddressRefused before anything is sent."""
        self._guard.check_url(request.url)
        await self._wait_for(request.url.host)
        deadline = time.monotonic() + WHOLE_REPLY_S
        turn = self._turns.setdefault(request.url.host, asyncio.Semaphore(CONNECTIONS_PER_HOST))
        async with turn:
            response = await self._open().handle_async_request(request)
        self._note_pause(request.url.host, response)
        coding = response.headers.get("content-encoding", "identity").strip().lower()
        if coding not in ("", "identity", "gzip", "x-gzip", "deflate"):
            await response.aclose()
            raise ToolFailure(
                f"{request.url.host} sent its reply in the coding {coding[:40]!r}, which cannot be undone",
                hint="trying again will not help",
            )
        headers = [
            (name, value)
            for name, value in response.headers.raw
            if name.lower() not in (b"content-encoding", b"content-length")
        ]
        if response.status_code >= 400:  # an error of now says nothing of later
            headers = [pair for pair in headers if pair[0].lower() not in (b"cache-control", b"expires")]
            headers.append((b"cache-control", b"no-store"))
        assert isinstance(response.stream, httpx.AsyncByteStream)
        body = LimitedStream(response.stream, coding=coding, max_bytes=self._max_bytes, deadline=deadline)
        return httpx.Response(
            response.status_code, headers=headers, stream=body, extensions=response.extensions
        )

    async def _wait_for(self, host: str) -> None:
        """Wait where the host asked for a short pause; ToolFailure for a long one."""
        pause_s = self._open_at.get(host, 0.0) - time.monotonic()
        if pause_s > LONGEST_PAUSE_S:
            raise ToolFailure(
                f"{host} asked to be left alone for {pause_s:.0f} s more", hint="try again then"
            )
        if pause_s > 0:
            await asyncio.sleep(pause_s)

    def _note_pause(self, host: str, response: httpx.Response) -> None:
        hint_s = wait_hint(response.headers, "") if response.status_code in (429, 503) else None
        if hint_s:
            self._open_at[host] = time.monotonic() + hint_s

    def _open(self) -> httpx.AsyncHTTPTransport:
        """httpx's transport over our network, made when first needed: certificates take a while to load."""
        if self._opened is None:
            context = httpx.create_ssl_context()
            if self._ca_file:
                context.load_verify_locations(cafile=self._ca_file)
            self._opened = httpx.AsyncHTTPTransport(verify=context, trust_env=False)
            self._opened._pool = httpcore.AsyncConnectionPool(
                ssl_context=context,
                max_connections=50,
                max_keepalive_connections=10,
                keepalive_expiry=10.0,
                network_backend=GuardedBackend(self._guard),
            )
        return self._opened

    async def aclose(self) -> None:
        if self._opened is not None:
            await self._opened.aclose()


class LimitedStream(httpx.AsyncByteStream):
    """A body that is decompressed piece by piece and stops at the limits of size and time."""

    def __init__(self, inner: httpx.AsyncByteStream, *, coding: str, max_bytes: int, deadline: float) -> None:
        self._inner = inner
        self._coding = coding
        self._max_bytes = max_bytes
        self._deadline = deadline

    async def __aiter__(self) -> AsyncIterator[bytes]:
        undo = _Decompressor(self._coding)
        size = 0
        async for raw in self._inner:
            for piece in undo.pieces(raw):
                size += len(piece)
                if size > self._max_bytes:
                    raise ToolFailure(
                        f"the reply is larger than {self._max_bytes / 1e6:g} MB",
                        hint="trying again will not help",
                    )
                yield piece
            if time.monotonic() > self._deadline:
                raise ToolFailure(f"the reply took longer than {WHOLE_REPLY_S:g} s")

    async def aclose(self) -> None:
        await self._inner.aclose()


class _Decompressor:
    """gzip and deflate in pieces of bounded size, whatever a bomb would like."""

    def __init__(self, coding: str) -> None:
        self._coding = coding
        self._engine: Any = (
            zlib.decompressobj(zlib.MAX_WBITS | 32) if coding not in ("", "identity") else None
        )
        self._fresh = True

    def pieces(self, raw: bytes) -> Iterable[bytes]:
        if self._engine is None:
            yield raw
            return
        while raw:
            if self._engine.eof:
                if not raw.startswith(GZIP_MARK):
                    return  # what stands after the end is nothing
                self._engine = zlib.decompressobj(zlib.MAX_WBITS | 32)  # a file of several members
            try:
                piece = self._engine.decompress(raw, PIECE_BYTES)
            except zlib.error:
                if not (self._fresh and self._coding == "deflate"):
                    raise ToolFailure(f"the reply is not the {self._coding} that it says it is") from None
                self._engine = zlib.decompressobj(-zlib.MAX_WBITS)
                self._fresh = False
                continue
            self._fresh = False
            if piece:
                yield piece
            raw = self._engine.unused_data if self._engine.eof else self._engine.unconsumed_tail


def _origin(url: httpx.URL) -> tuple[str, str, int | None]:
    return (url.scheme, url.host, url.port)
