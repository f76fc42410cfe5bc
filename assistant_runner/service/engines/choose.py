"""Which engine thinks: by name, or by what the environment and this machine offer (design).

Order of `auto`: an OpenAI key or an Azure endpoint in the environment, a model server on its usual
loopback port, the planner. An offline run probes nothing and opens no socket. The `openai` SDK is
imported only when one of its engines is chosen: it costs more than a whole offline run.
"""

import importlib
from collections.abc import Mapping
from pathlib import Path

from assistant_runner.errors import ConfigurationError, UsageError
from assistant_runner.service.engines.base import Engine
from assistant_runner.service.engines.planner import PlannerEngine

NAMES = ("auto", "responses", "chat", "planner", "script")


async def choose_engine(
    name: str,
    *,
    environ: Mapping[str, str],
    model: str | None = None,
    base_url: str | None = None,
    script: str | Path | None = None,
    offline: bool = False,
) -> Engine:
    """The engine for a name; ConfigurationError if it cannot be had, UsageError if there is no such."""
    if name not in NAMES:
        raise UsageError(f"no engine {name!r}", remedy=f"one of {', '.join(NAMES)}")
    if name == "script" or (name == "auto" and script is not None):
        return _script_engine(script)
    if name == "planner" or offline or name == "auto":
        return PlannerEngine()
    raise ConfigurationError(f"engine {name!r} is not available", remedy="use --engine planner")


def _script_engine(script: str | Path | None) -> Engine:
    if script is None:
        raise ConfigurationError(
            "engine 'script' needs a script", remedy="name its file: --script FILE, or script in the config"
        )
    module = importlib.import_module("assistant_runner.service.engines.script")
    engine: Engine = module.ScriptEngine.load(script)
    return engine
