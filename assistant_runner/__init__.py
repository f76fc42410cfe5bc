"""assistant-runner: Assistants v2 runs with local tools, and the service that speaks the protocol.

What programs use stands here by name; it is imported when it is asked for (docs/library.md).
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from assistant_runner.assembly import Question as Question
    from assistant_runner.assembly import Runner as Runner
    from assistant_runner.assembly import open_runner as open_runner
    from assistant_runner.errors import AssistantRunnerError as AssistantRunnerError
    from assistant_runner.run.events import RunEvent as RunEvent
    from assistant_runner.run.request import Limits as Limits
    from assistant_runner.run.request import RunResult as RunResult
    from assistant_runner.settings import load_settings as load_settings
    from assistant_runner.tooling.contract import HttpReply as HttpReply
    from assistant_runner.tooling.contract import ToolContext as ToolContext
    from assistant_runner.tooling.contract import ToolFailure as ToolFailure
    from assistant_runner.tooling.dynamic import dynamic_tool as dynamic_tool
    from assistant_runner.tooling.gate import ApprovalQuestion as ApprovalQuestion
    from assistant_runner.tooling.gate import Decision as Decision
    from assistant_runner.tooling.registry import Toolbox as Toolbox
    from assistant_runner.tooling.schema import tool as tool
    from assistant_runner.tooling.schema import tool_from as tool_from

__version__ = "0.1.0"

_HOMES = {
    "ApprovalQuestion": "tooling.gate",
    "AssistantRunnerError": "errors",
    "Decision": "tooling.gate",
    "HttpReply": "tooling.contract",
    "Limits": "run.request",
    "Question": "assembly",
    "RunEvent": "run.events",
    "RunResult": "run.request",
    "Runner": "assembly",
    "ToolContext": "tooling.contract",
    "ToolFailure": "tooling.contract",
    "Toolbox": "tooling.registry",
    "dynamic_tool": "tooling.dynamic",
    "load_settings": "settings",
    "open_runner": "assembly",
    "tool": "tooling.schema",
    "tool_from": "tooling.schema",
}

__all__ = ["__version__", *_HOMES]  # noqa: PLE0604


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
