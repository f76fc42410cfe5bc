"""From settings to a runner: backend, engine, tools, journal and driver put together.

The service, its engines, assistant files and telemetry are imported where they are used: a question that
needs none of them starts sooner.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assistant_runner.assembly.runner import AssembledRunner, Runner
from assistant_runner.assembly.shelf import Shelf, output_spill, tool_gate, tools_folder, with_reader
from assistant_runner.backends.base import Backend
from assistant_runner.errors import ConfigurationError, RunTimedOut, UsageError
from assistant_runner.run.journal import FILE as JOURNAL_FILE
from assistant_runner.run.journal import Journal
from assistant_runner.settings import LoadedSettings, lay_assistant_file
from assistant_runner.setup.finding import find_spec
from assistant_runner.tooling.gate import Approve
from assistant_runner.tooling.registry import Toolbox, default_tools, load_tools
from assistant_runner.tooling.schema import tool_from
from assistant_runner.tooling.spill import FULL_OUTPUT

if TYPE_CHECKING:
    from assistant_runner.service.engines.base import Engine
    from assistant_runner.service.settings import ServiceSettings


RECORDED_NOTICE = "offline: the replies of the tools are recorded, not live"


@asynccontextmanager
async def open_runner(
    loaded: LoadedSettings,
    *,
    tools: Iterable[Any] | Toolbox | None = None,
    approve: Approve | None = None,
) -> AsyncIterator[Runner]:
    """A runner as the settings say; closes what it opened.

    `tools`: functions, classes with a `run` method and Tool values, in the place of those that the settings
    name; a Toolbox is used itself, so what is added to it or replaced in it later is offered from the next
    run on. `approve` asks a person whether a call may run; None: nobody is there.

    UsageError or ConfigurationError for settings that do not fit together, before any request.
    """
    cwd = Path.cwd()
    notices: list[str] = []
    named, profile = loaded.settings.assistant, loaded.settings.profile
    spec, note = find_spec(named, cwd=cwd, environ=loaded.environ, profile=profile)
    if spec is not None:
        loaded = lay_assistant_file(loaded, str(spec.source), spec.settings_layer(), secrets=spec.secrets())
        notices += [note] if note else []
    settings = loaded.settings
    async with AsyncExitStack() as stack:
        if tools is not None:
            handed = tools if isinstance(tools, Toolbox) else Toolbox(map(tool_from, tools))
            toolbox = with_reader(handed, growing=handed is tools)
        elif settings.tools is not None:
            toolbox = with_reader(load_tools(settings.tools, folder=tools_folder(loaded), cwd=cwd))
        elif spec is not None:
            from assistant_runner.setup.tools import open_spec_tools

            opening = open_spec_tools(spec, environ=loaded.environ, folder=tools_folder(loaded))
            toolbox = with_reader(await stack.enter_async_context(opening))
        else:
            toolbox = default_tools()
        backend, engine = await stack.enter_async_context(open_backend(loaded))
        written = spec.model if spec else None
        if engine is None:
            label, model = backend.label, settings.model or written
        else:
            from assistant_runner.service.engines.choose import default_model

            label, model = engine.label, settings.model or written
            if not model:
                try:
                    async with asyncio.timeout(settings.timeout_s):
                        model = await default_model(engine)
                except TimeoutError:
                    raise RunTimedOut(
                        f"no run began within {settings.timeout_s:g} s: {label} does not say its models",
                        remedy="raise --timeout, name a model with --model, or look at the server",
                    ) from None
            if not engine.uses_model:
                notices.append(_no_model_notice(engine))
        if settings.offline:
            notices.append(RECORDED_NOTICE)
        journal = _open_journal(loaded, notices)
        if journal is not None:
            stack.callback(journal.close)
        telemetry = None
        if settings.telemetry and not settings.offline:
            from assistant_runner.telemetry import open_telemetry

            telemetry = open_telemetry(loaded.environ)
            stack.callback(telemetry.close)
        yield AssembledRunner(
            loaded,
            backend=backend,
            shelf=Shelf(toolbox, tool_gate(loaded, toolbox, spec, approve), spec),
            tools_named=tools is not None or settings.tools is not None,
            approve=approve,
            stack=stack,
            engine_label=label,
            engine=engine,
            model=model,
            notices=tuple(notices),
            journal=journal,
            telemetry=telemetry,
        )


@asynccontextmanager
async def open_backend(loaded: LoadedSettings) -> "AsyncIterator[tuple[Backend, Engine | None]]":
    """The backend that the settings name, and the engine behind it if it is the embedded one.

    For commands that ask no question; UsageError or ConfigurationError before any request.
    """
    settings = loaded.settings
    async with AsyncExitStack() as stack:
        if settings.backend != "embedded":
            if settings.offline:
                raise UsageError(
                    f"--offline and the backend {settings.backend!r} exclude each other",
                    remedy="leave out one of them",
                )
            from assistant_runner.backends.connect import open_http

            yield await stack.enter_async_context(open_http(loaded)), None
            return
        engine = await open_engine(loaded)
        stack.push_async_callback(engine.aclose)
        path = loaded.folders.data / "assistants.sqlite3"
        from assistant_runner.backends.embedded import open_embedded

        yield await stack.enter_async_context(open_embedded(path, engine, service_settings(loaded))), engine


async def open_engine(loaded: LoadedSettings) -> "Engine":
    settings = loaded.settings
    from assistant_runner.service.engines.choose import choose_engine

    return await choose_engine(
        settings.engine,
        environ=loaded.environ,
        model=settings.model,
        base_url=settings.engine_base_url,
        script=settings.script,
        offline=settings.offline,
        aliases=settings.model_aliases,
        key_env=settings.engine_key_env,
        api_version=settings.engine_api_version,
        scope=settings.engine_scope,
        ca_file=settings.ca_file,
        proxy=settings.proxy,
        store=settings.engine_store,
        hosted=frozenset(settings.engine_hosted),
    )


def service_settings(loaded: LoadedSettings) -> "ServiceSettings":
    """The embedded service's settings."""
    from assistant_runner.service.settings import ServiceSettings

    return ServiceSettings(run_expires_s=loaded.settings.run_expires_s, data_folder=loaded.folders.data)


def _open_journal(loaded: LoadedSettings, notices: list[str]) -> Journal | None:
    """The journal; without one a run still works, and a notice says that it cannot be resumed."""
    spill = output_spill(loaded)
    if not loaded.settings.journal:
        if not (loaded.folders.state / JOURNAL_FILE).exists():
            spill.tidy(lambda: ())
        return None
    try:
        journal = Journal(loaded.folders.state)
        journal.tidy()
        spill.tidy(lambda: journal.unended_calls(FULL_OUTPUT))
        return journal
    except ConfigurationError as error:
        notices.append(f"no journal is kept, so runs cannot be resumed: {error.message}")
        return None


def _no_model_notice(engine: "Engine") -> str:
    return (
        f"{engine.name}: no language model is used. To use one, set OPENAI_API_KEY or "
        "AZURE_OPENAI_ENDPOINT, start a local model server, or name one with --engine."
    )
