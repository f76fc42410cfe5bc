"""A service behind a port: one process, uvicorn, until a signal says stop.

The socket is bound before anything else, so that a port in use is a sentence and not a traceback.
Anybody who can reach the port can use it: an address that is not loopback needs a key.
"""

import asyncio
import contextlib
import dataclasses
import gc
import ipaddress
import signal
import socket
import ssl
import sys
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import uvicorn

from assistant_runner.errors import ConfigurationError
from assistant_runner.service.app import Service
from assistant_runner.service.engines.base import Engine
from assistant_runner.service.settings import ServiceSettings
from assistant_runner.service.store.sqlite import SqliteStore

STORE_FILE = "assistants.sqlite3"  # the embedded backend opens the same


@dataclass(frozen=True, slots=True)
class Address:
    """Where a server listens."""

    host: str
    port: int
    scheme: str = "http"

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"

    @property
    def base_url(self) -> str:
        """What a client of the OpenAI SDK is given."""
        return f"{self.url}/v1"


@dataclass(frozen=True, slots=True)
class Certificate:
    """The files of a TLS certificate: its chain, and its key if that stands in a file of its own."""

    chain: Path
    key: Path | None = None

    def check(self) -> None:
        """ConfigurationError if they cannot be used."""
        try:
            ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(self.chain, self.key)
        except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
            raise ConfigurationError(
                f"the certificate {self.chain} cannot be used: {error}",
                remedy="give --ssl-certfile and --ssl-keyfile as PEM files that belong together",
            ) from None


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address; a name other than localhost counts as no."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def check_exposure(host: str, settings: ServiceSettings) -> None:
    """ConfigurationError for an address that others can reach and a service that asks for no key."""
    if not settings.api_keys and not is_loopback(host):
        raise ConfigurationError(
            f"--host {host} can be reached from other machines, and no key is set",
            remedy="set a key (--api-key-env NAME or --api-key-file FILE), or listen on 127.0.0.1",
            host=host,
        )


def bind(host: str, port: int) -> socket.socket:
    """A listening socket; ConfigurationError if the address cannot be had."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = found[0]
        listener = socket.socket(family, kind, protocol)
        try:
            if sys.platform != "win32":
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            listener.listen(1024)
        except BaseException:
            listener.close()
            raise
    except (OSError, OverflowError) as error:
        words = getattr(error, "strerror", None) or str(error)
        raise ConfigurationError(
            f"cannot listen on {host} port {port}: {words}",
            remedy="choose another --port (0 takes a free one), or stop the program that has it",
            host=host,
            port=port,
        ) from None
    listener.setblocking(False)
    return listener


class _Server(uvicorn.Server):
    """uvicorn without its own handling of signals: it would send them again when it is done."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.listening = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.listening.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def run_server(
    open_engine: Callable[[], Awaitable[Engine]],
    settings: ServiceSettings,
    *,
    host: str,
    port: int,
    data: Path | None,
    announce: Callable[[Address, Engine], None],
    certificate: Certificate | None = None,
) -> None:
    """Serves until SIGINT, SIGTERM or SIGHUP; a second one leaves at once. `data` None keeps all in memory.

    `open_engine` is awaited in the server's own loop, and the engine is closed at the end.
    `announce` is called once the service answers. ConfigurationError.
    """
    check_exposure(host, settings)
    if certificate is not None:
        certificate.check()
    listener = bind(host, port)
    try:
        store = SqliteStore.open(":memory:" if data is None else data / STORE_FILE)
        try:
            with asyncio.Runner(loop_factory=_loop_factory()) as runner:
                runner.run(_serve(open_engine, settings, store, listener, host, announce, certificate))
        finally:
            store.close()
    finally:
        listener.close()


async def _serve(
    open_engine: Callable[[], Awaitable[Engine]],
    settings: ServiceSettings,
    store: SqliteStore,
    listener: socket.socket,
    host: str,
    announce: Callable[[Address, Engine], None],
    certificate: Certificate | None,
) -> None:
    if not settings.api_keys:
        names = ("localhost", "127.0.0.1", "[::1]", f"[{host}]" if ":" in host else host)
        settings = dataclasses.replace(settings, hosts=tuple(dict.fromkeys(names)))
    engine = await open_engine()
    service = Service(store=store, engine=engine, settings=settings)
    config = uvicorn.Config(
        service.app,
        lifespan="off",
        ws="none",
        access_log=False,
        log_config=None,
        log_level="warning",
        server_header=False,
        backlog=1024,
        timeout_keep_alive=75,
        timeout_graceful_shutdown=max(1, int(settings.stop_s)),
        ssl_certfile=certificate.chain if certificate else None,
        ssl_keyfile=certificate.key if certificate else None,
    )
    server = _Server(config)
    stopping: set[asyncio.Task[None]] = set()

    def stop() -> None:
        if server.should_exit:
            server.force_exit = True
            return
        server.should_exit = True
        stopping.add(asyncio.get_running_loop().create_task(service.pause()))

    try:
        async with service:
            _on_signals(stop)
            try:
                async with asyncio.TaskGroup() as group:
                    group.create_task(server.serve(sockets=[listener]))
                    await server.listening.wait()
                    gc.collect()
                    gc.freeze()  # what was imported will live as long as we do: not looked at again
                    gc.set_threshold(10_000, 20, 20)
                    scheme = "https" if certificate else "http"
                    announce(Address(host, listener.getsockname()[1], scheme), engine)
            except ExceptionGroup as group:  # a closed standard output, for one, is told as what it is
                raise group.exceptions[0] from None
            await asyncio.gather(*stopping)
    finally:
        await engine.aclose()


def _on_signals(stop: Callable[[], None]) -> None:
    """SIGINT and SIGTERM stop, and so does a terminal that closes, unless it is ignored (`nohup`)."""
    loop = asyncio.get_running_loop()
    numbers = [signal.SIGINT, signal.SIGTERM]
    if sys.platform != "win32" and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        numbers.append(signal.SIGHUP)
    for number in numbers:
        try:
            loop.add_signal_handler(number, stop)
        except NotImplementedError:  # Windows
            signal.signal(number, lambda *_: loop.call_soon_threadsafe(stop))


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop
