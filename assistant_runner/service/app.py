"""The service: Assistants v2 as an ASGI application, with the workers behind it.

The same object stands in process behind our driver and behind `assistant-runner serve`.
"""

import time
from collections.abc import Callable
from typing import Self

from starlette.types import ASGIApp

from assistant_runner.service.core import Core
from assistant_runner.service.engines.base import Engine
from assistant_runner.service.gateway import Gateway
from assistant_runner.service.routes.table import build_router
from assistant_runner.service.settings import ServiceSettings
from assistant_runner.service.shelf import Shelf
from assistant_runner.service.store.base import Store
from assistant_runner.service.stores import Intake
from assistant_runner.service.workers import Workers


class Service:
    """`async with service:` takes up the runs that were under way and, at the end, keeps those that
    are. `app` is the ASGI application; it answers only inside. The store and the engine belong to
    the caller and stay open."""

    app: ASGIApp

    def __init__(
        self,
        *,
        store: Store,
        engine: Engine,
        settings: ServiceSettings | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        settings = settings or ServiceSettings()
        shelf = Shelf(settings.data_folder)
        self.core = Core(store=store, engine=engine, settings=settings, shelf=shelf, clock=clock)
        self.core.workers = Workers(self.core)
        self.core.intake = Intake(self.core)
        self.app = Gateway(self.core, build_router(self.core))

    async def __aenter__(self) -> Self:
        await self.core.workers.open()
        self.core.ready = True
        return self

    async def pause(self) -> None:
        """Stops all work and ends the open streams; what was under way is kept for the next start."""
        self.core.ready = False
        await self.core.workers.close()

    async def __aexit__(self, *exc: object) -> None:
        await self.pause()
        await self.core.intake.close()
        self.core.shelf.close()
