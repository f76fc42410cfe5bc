"""Which engine thinks: by name, or by what the environment and this machine offer (design).

Order of `auto`: an OpenAI key or an Azure endpoint in the environment, a model server on its usual
loopback port, the planner. An offline run probes nothing and opens no socket. The `openai` SDK is
imported only when one of its engines is chosen: it costs more than a whole offline run.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from assistant_runner.endpoints import Endpoint, normalise_endpoint
from assistant_runner.errors import (
    AssistantRunnerError,
    AuthenticationFailed,
    BackendUnreachable,
    ConfigurationError,
    RateLimited,
    UsageError,
)
from assistant_runner.service.engines.base import Engine, EngineError
from assistant_runner.service.engines.catalog import DEFAULT_MODEL
from assistant_runner.service.engines.discovery import (
    USUAL_PORTS,
    LocalServer,
    describe_server,
    find_local_server,
)
from assistant_runner.service.engines.planner import PlannerEngine
from assistant_runner.service.engines.providers import Provider, find_provider
from assistant_runner.service.engines.script import ScriptEngine
from assistant_runner.wire.tools import AssistantTool, FunctionTool

NAMES = ("auto", "responses", "chat", "planner", "script")
DEPLOYMENT_VARIABLES = ("AZURE_OPENAI_DEPLOYMENT", "AZURE_OPENAI_DEPLOYMENT_NAME")
AZURE_RESPONSES_SINCE = "2025-03-01"
HOW_TO = "set OPENAI_API_KEY or AZURE_OPENAI_ENDPOINT, start a local model server, or use --engine planner"


async def choose_engine(
    name: str,
    *,
    environ: Mapping[str, str],
    model: str | None = None,
    base_url: str | None = None,
    script: str | Path | None = None,
    offline: bool = False,
    aliases: Mapping[str, str] | None = None,
    key_env: str | None = None,
    api_version: str | None = None,
    scope: str | None = None,
    ca_file: str | None = None,
    proxy: str | None = None,
    store: bool = False,
    hosted: frozenset[str] = frozenset(),
    ports: Mapping[int, str] = USUAL_PORTS,
) -> Engine:
    """The engine for a name; ConfigurationError if it cannot be had, UsageError if there is no such.

    `model`: the one that settings name, the default of runs that name none. `aliases`: names of the
    config for models. `store`, `hosted`: see ResponsesEngine. `ports`: where local servers are looked for.
    """
    if name not in NAMES:
        raise UsageError(f"no engine {name!r}", remedy=f"one of {', '.join(NAMES)}")
    if name == "script" or (name == "auto" and script is not None):
        return _script_engine(script)
    if name == "planner":
        return PlannerEngine()
    if offline:
        if name != "auto":
            raise UsageError(
                f"engine {name!r} needs a network, and this run is offline",
                remedy="leave out --offline, or use --engine planner",
            )
        return PlannerEngine()
    provider = None
    if name != "auto" or base_url or has_provider(environ):
        provider = find_provider(
            environ,
            base_url=base_url,
            key_env=key_env,
            api_version=api_version,
            scope=scope,
            ca_file=ca_file,
            proxy=proxy,
        )
    server: LocalServer | None = None
    if provider is None and name in {"auto", "chat"}:
        server = await find_local_server(ports)
        if server is not None:
            provider = Provider(normalise_endpoint(server.base_url))
    elif provider is not None and name != "responses" and provider.endpoint.is_local:
        server = await describe_server(provider.endpoint.base_url)
    if provider is None:
        if name == "auto":
            return PlannerEngine()
        raise ConfigurationError(f"engine {name!r} finds no model to ask", remedy=HOW_TO)
    by_api = name
    if name == "auto":
        by_api = "responses" if _has_responses(provider.endpoint) else "chat"
    return _sdk_engine(by_api, provider, server, environ, model, aliases or {}, store, hosted)


async def default_model(engine: Engine) -> str:
    """The model of an assistant that names none: the engine's default, else the first that it lists.

    ConfigurationError on Azure (only its owner knows the deployments) and where nothing is listed;
    BackendUnreachable or AuthenticationFailed if the list cannot be had.
    """
    if not engine.uses_model:
        return engine.name
    chosen: str | None = getattr(engine, "default_model", None)
    if chosen:
        return chosen
    if engine.label.endswith("(Azure)"):
        raise ConfigurationError(
            f"{engine.label}: no model named; on Azure it is the name of your deployment",
            remedy="--model DEPLOYMENT, or model in the config",
        )
    try:
        listed = await engine.models()
    except EngineError as error:
        raise unreachable(error) from error
    usable = [model for model in listed if (model.get("supports") or {}).get("tools") is not False]
    if not listed:
        raise ConfigurationError(f"{engine.label} lists no models", remedy="name one: --model NAME")
    return str((usable or listed)[0]["id"])


def require_abilities(engine: Engine, model: str, tools: Sequence[AssistantTool]) -> None:
    """ConfigurationError before any request if the model cannot call the functions it is offered."""
    if any(isinstance(tool, FunctionTool) for tool in tools) and not engine.abilities(model).tools:
        raise ConfigurationError(
            f"the model {model!r} cannot call tools ({engine.label})",
            remedy="choose one that can (assistant-runner models), or ask without tools: --no-tools",
            model=model,
        )


def unreachable(error: EngineError) -> AssistantRunnerError:
    """An engine's error outside a run, in the error tree."""
    if error.kind == "authentication":
        return AuthenticationFailed(error.message, status_code=401, remedy="check the key and where it goes")
    if error.kind in {"rate_limit", "quota"}:
        return RateLimited(error.message, retry_after_s=error.retry_after_s)
    return BackendUnreachable(error.message, remedy="check the base URL and that the server runs")


def has_provider(environ: Mapping[str, str]) -> bool:
    """True if the environment names a provider: a key that is not empty, an endpoint, a base URL."""
    return any(
        environ.get(name, "").strip()
        for name in ("OPENAI_API_KEY", "AZURE_OPENAI_ENDPOINT", "OPENAI_BASE_URL")
    )


def _has_responses(endpoint: Endpoint) -> bool:
    """Whether a host that is known by name speaks the Responses API: Azure's dated form does since then."""
    if endpoint.kind == "compatible":
        return False
    return endpoint.api_version is None or endpoint.api_version >= AZURE_RESPONSES_SINCE


def _sdk_engine(
    name: str,
    provider: Provider,
    server: LocalServer | None,
    environ: Mapping[str, str],
    model: str | None,
    aliases: Mapping[str, str],
    store: bool,
    hosted: frozenset[str],
) -> Engine:
    from assistant_runner.service.engines.chat import ChatEngine
    from assistant_runner.service.engines.naming import ModelNames
    from assistant_runner.service.engines.responses import ResponsesEngine

    default = model or provider.endpoint.deployment or (server.best_model if server else None)
    if default is None and provider.endpoint.kind == "azure":
        default = next((environ[name] for name in DEPLOYMENT_VARIABLES if environ.get(name)), None)
    if default is None and provider.endpoint.kind == "openai":
        default = DEFAULT_MODEL
    names = ModelNames(provider.endpoint, aliases=aliases, default=default)
    if name == "responses":
        return ResponsesEngine(provider, names=names, store=store, hosted=hosted)
    return ChatEngine(provider, names=names, supports=server.supports if server else None)


def _script_engine(script: str | Path | None) -> Engine:
    if script is None:
        raise ConfigurationError(
            "engine 'script' needs a script", remedy="name its file: --script FILE, or script in the config"
        )
    return ScriptEngine.load(script)
