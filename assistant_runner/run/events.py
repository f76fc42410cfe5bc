"""What happens in a run, in the order it happens: the log, the progress line, the journal's records.

Order of a round (row S0.22): run → router → calls → results → append → submit. Every event has
`name` (what `--jsonl` prints under "event") and plain JSON fields.
"""

import dataclasses
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

FOR_THE_JOURNAL: Mapping[str, bool] = {"journal_only": True}
"""Marks a field that the journal needs and that `--jsonl` does not print."""

Origin = Literal["made", "carried", "unknown", "unasked", "not made"]
"""Of a result: the tool was asked; an earlier run had it; nobody knows whether the call was made, and it is
not made again; it waits for an approval; anything else that reached no handler."""


@dataclass(frozen=True, slots=True)
class RunEvent:
    name: ClassVar[str] = "event"

    def document(self) -> dict[str, Any]:
        """`{"event": name, ...fields}`, plain JSON."""
        shown = (item.name for item in dataclasses.fields(self) if not item.metadata.get("journal_only"))
        return {"event": self.name, **{name: getattr(self, name) for name in shown}}


@dataclass(frozen=True, slots=True)
class RunRequested(RunEvent):
    """Before the first request: what is about to be asked. `request` is RunRequest as JSON."""

    name: ClassVar[str] = "run.requested"
    request: dict[str, Any]
    backend: str


@dataclass(frozen=True, slots=True)
class RunStarted(RunEvent):
    name: ClassVar[str] = "run.started"
    run_id: str
    thread_id: str
    assistant_id: str
    model: str


@dataclass(frozen=True, slots=True)
class RunResumed(RunEvent):
    """A run of the journal is taken up again; `status` as the backend has it now."""

    name: ClassVar[str] = "run.resumed"
    run_id: str
    thread_id: str
    status: str
    finished_calls: int


@dataclass(frozen=True, slots=True)
class TextArrived(RunEvent):
    """A piece of the assistant's text, as it streams."""

    name: ClassVar[str] = "text.delta"
    text: str
    message_id: str


@dataclass(frozen=True, slots=True)
class ToolActivity(RunEvent):
    """A hosted tool's finished call; `kind` is file_search, code_interpreter, or a later word (S1.10)."""

    name: ClassVar[str] = "tool.activity"
    kind: str
    tool_call_id: str
    detail: dict[str, Any]


@dataclass(frozen=True, slots=True)
class RoundStarted(RunEvent):
    """A required action was read; `calls` is the router's view 2, `number` counts from 1.

    `run` is the run as it asked.
    """

    name: ClassVar[str] = "round.started"
    run_id: str
    number: int
    calls: list[dict[str, Any]]
    run: dict[str, Any] = field(default_factory=dict, metadata=FOR_THE_JOURNAL)


@dataclass(frozen=True, slots=True)
class CallStarted(RunEvent):
    """`kind` is always function here; `effects` is read or write (a crash may leave it unknown).

    `harmless`: whether the call may be made twice, see `dispatch.is_harmless`. `doubtful`: it is made in the
    place of one whose outcome an earlier run left unknown.
    """

    name: ClassVar[str] = "call.started"
    tool_call_id: str
    tool: str
    arguments: Any
    effects: str
    kind: str = "function"
    harmless: bool = field(default=False, metadata=FOR_THE_JOURNAL)
    doubtful: bool = field(default=False, metadata=FOR_THE_JOURNAL)


@dataclass(frozen=True, slots=True)
class CallFinished(RunEvent):
    """In completion order. `output` is what will be submitted, `content` the plain data behind it.

    `origin`: where the result comes from; with `key`, the call's `call_key`, for what was not made here.
    """

    name: ClassVar[str] = "call.finished"
    tool_call_id: str
    tool: str
    is_error: bool
    output: str
    duration_s: float
    notes: tuple[str, ...] = ()
    kind: str = "function"
    content: Any = field(default=None, metadata=FOR_THE_JOURNAL)
    origin: Origin = field(default="made", metadata=FOR_THE_JOURNAL)
    key: str | None = field(default=None, metadata=FOR_THE_JOURNAL)


@dataclass(frozen=True, slots=True)
class RoundCompleted(RunEvent):
    """All results of the round are there and appended, in call order (row S0.18)."""

    name: ClassVar[str] = "round.completed"
    run_id: str
    number: int
    tool_call_ids: list[str]


@dataclass(frozen=True, slots=True)
class OutputsSubmitted(RunEvent):
    """The backend has taken the outputs of the round."""

    name: ClassVar[str] = "outputs.submitted"
    run_id: str
    number: int


@dataclass(frozen=True, slots=True)
class Warned(RunEvent):
    """Something that the user should know and that ends nothing."""

    name: ClassVar[str] = "warning"
    message: str


@dataclass(frozen=True, slots=True)
class RunEnded(RunEvent):
    """The run is settled for us: terminal, paused or given up. `error` is the error document."""

    name: ClassVar[str] = "run.ended"
    run_id: str
    thread_id: str
    status: str
    error: dict[str, Any] | None = None


Listener = Callable[[RunEvent], Awaitable[None]]
"""Called in order, awaited before the run goes on: a journal may be one."""
