"""A driver over the embedded service and a script, perhaps through a server that fails on purpose."""

import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assistant_runner.backends.client import Client
from assistant_runner.backends.connect import direct_transport
from assistant_runner.backends.embedded import over_service
from assistant_runner.backends.http import HttpBackend
from assistant_runner.run.driver import Driver, Policies
from assistant_runner.run.request import Limits, RunRequest
from assistant_runner.service.app import Service
from assistant_runner.service.engines.script import ScriptEngine
from assistant_runner.service.settings import ServiceSettings
from assistant_runner.service.store.sqlite import SqliteStore
from assistant_runner.wire.assistants import AssistantCreate
from tests.backends.faulty import FaultyServer, Plan
from tests.fakes import Recorder, workshop


class HandClock:
    """A clock that moves only when it is told to."""

    def __init__(self, now: float = 1_750_000_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


@dataclass
class World:
    """`server` is None without a plan of faults."""

    backend: HttpBackend
    heard: Recorder
    functions: tuple[Callable[..., Any], ...]
    assistant_id: str
    server: FaultyServer | None
    clock: Callable[[], float]

    def driver(self, limits: Limits | None = None, **policies: Any) -> Driver:
        return Driver(
            self.backend,
            workshop(*self.functions),
            limits=limits or Limits(timeout_s=20),
            policies=Policies(**policies),
            clock=self.clock,
        )

    async def ask(self, prompt: str = "hello", *, thread_id: str | None = None, **policies: Any) -> str:
        limits = policies.pop("limits", None)
        request = RunRequest(self.assistant_id, prompt=prompt, thread_id=thread_id)
        return (await self.driver(limits, **policies).run(request, listener=self.heard)).text


@asynccontextmanager
async def open_world(
    turns: list[dict[str, Any]],
    *functions: Callable[..., Any],
    plan: Plan | None = None,
    run_expires_s: float = 600,
    clock: Callable[[], float] = time.time,
    foreign: bool = True,
    **scripts: list[dict[str, Any]],
) -> AsyncIterator[World]:
    """A world whose model plays `turns`, or those of a script named at the end of the prompt.

    `foreign`: the server is spoken to as one that does not know idempotency keys.
    """
    named = {"main": turns, **scripts}
    document = {"format": 1, "scripts": {name: {"turns": played} for name, played in named.items()}}
    async with AsyncExitStack() as stack:
        store = SqliteStore.open(Path(":memory:"))
        stack.callback(store.close)
        settings = ServiceSettings(run_expires_s=run_expires_s, tick_s=0.02)
        service = Service(
            store=store, engine=ScriptEngine.from_document(document), settings=settings, clock=clock
        )
        backend = await stack.enter_async_context(over_service(service))
        server = None
        if plan is not None:
            server = await stack.enter_async_context(FaultyServer(service.app, plan))
            client = Client(direct_transport(), server.url)
            backend = await stack.enter_async_context(
                HttpBackend(client, label="faulty", create_keys=not foreign)
            )
        tools = list(workshop(*functions).tools.definitions())
        assistant = await backend.create_assistant(AssistantCreate(model="m-main", tools=tools))
        yield World(backend, Recorder(), functions, assistant.id, server, clock)
