"""The embedded backend: our own service in this process, spoken to over HTTP without a port.

The same requests and the same bytes flow as to any other server: what works here works there.
"""

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Protocol, Self

from assistant_runner.backends.asgi import App, AppTransport
from assistant_runner.backends.client import Client
from assistant_runner.backends.http import HttpBackend
from assistant_runner.service.app import Service
from assistant_runner.service.engines.base import Engine
from assistant_runner.service.settings import ServiceSettings
from assistant_runner.service.store.base import Store
from assistant_runner.service.store.sqlite import SqliteStore

LABEL = "embedded"
BASE_URL = "http://embedded/v1"
READ_S = 600.0
"""For turns of slow models; the run's own deadline is shorter."""


class InProcessService(Protocol):
    """What the backend needs of the service: its ASGI app, alive between enter and exit."""

    @property
    def app(self) -> App: ...
    async def __aenter__(self) -> Self: ...
    async def __aexit__(self, *exc: Any) -> object: ...


@asynccontextmanager
async def over_service(service: InProcessService) -> AsyncIterator[HttpBackend]:
    """A backend on this service; the service is entered first and left last."""
    async with service:
        client = Client(AppTransport(service.app), BASE_URL, read_s=READ_S)
        async with HttpBackend(client, label=LABEL, create_keys=False) as backend:
            yield backend


@asynccontextmanager
async def open_embedded(
    store: Path | Store,
    engine: Engine,
    settings: ServiceSettings | None = None,
    *,
    clock: Callable[[], float] = time.time,
) -> AsyncIterator[HttpBackend]:
    """The embedded backend over the service's store (a path, or an open store) and this engine.

    A store opened here is closed at the end; a store handed in and the engine stay the caller's.
    """
    opened = SqliteStore.open(store) if isinstance(store, Path) else None
    try:
        service = Service(
            store=opened or store,  # type: ignore[arg-type]
            engine=engine,
            settings=settings,
            clock=clock,
        )
        async with over_service(service) as backend:
            yield backend
    finally:
        if opened is not None:
            opened.close()
