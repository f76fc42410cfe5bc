"""From settings to something that answers questions: backend, engine, tools and driver put together.

The one place that chooses. `cli/` and `batch/` call it and decide nothing; a library user may too.
It stands between `setup/` and `batch/` in the order of imports.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Protocol

from assistant_runner.backends.base import Backend
from assistant_runner.run.events import Listener
from assistant_runner.run.request import Limits, RunResult
from assistant_runner.settings import LoadedSettings
from assistant_runner.wire.base import Metadata
from assistant_runner.wire.tools import ResponseFormat, ToolChoice


@dataclass(frozen=True, slots=True)
class Question:
    """One question as a user puts it. None means: as the settings or the assistant have it.

    `assistant`: an id, a name, or the path of an assistant file. `tools`: names or addresses of
    local tools (`get_weather`, `./my_tools.py:book_table`).
    """

    prompt: str
    assistant: str | None = None
    tools: tuple[str, ...] | None = None
    thread_id: str | None = None
    model: str | None = None
    instructions: str | None = None
    tool_choice: ToolChoice | None = None
    parallel_tool_calls: bool | None = None
    response_format: ResponseFormat | None = None
    temperature: float | None = None
    top_p: float | None = None
    max_prompt_tokens: int | None = None
    max_completion_tokens: int | None = None
    metadata: Metadata | None = None
    limits: Limits | None = None


class Runner(Protocol):
    """Answers questions, concurrently if asked; one backend, one set of tools, one engine."""

    @property
    def backend(self) -> Backend: ...

    @property
    def engine_label(self) -> str:
        """For people: which engine and model; `planner (no language model)`."""
        ...

    async def ask(self, question: Question, *, listener: Listener | None = None) -> RunResult:
        """The completed run; a RunError, BackendError or ConfigurationError otherwise."""
        ...


@asynccontextmanager
async def open_runner(loaded: LoadedSettings) -> AsyncIterator[Runner]:
    """A runner as the settings say; closes what it opened."""
    raise NotImplementedError
    yield
