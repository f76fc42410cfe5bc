"""Run a round's calls side by side, each through the gate; a round costs its slowest call.

Nothing that a tool does ends the run: its error is its output. The same call made again and again
is answered from memory after a few times (case-021), because a model that repeats itself does not
stop by itself and a site should not pay for it.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from assistant_runner.run.events import CallFinished, CallStarted, Listener, Origin
from assistant_runner.run.memory import Doubts, Results, call_key
from assistant_runner.run.results import FunctionResult, render_output
from assistant_runner.run.router import BundledCall, Entry, RejectedCall, RoutedCall
from assistant_runner.tooling.contract import Gate, Tool, ToolContext, ToolOutcome
from assistant_runner.wire.runs import Usage

UNKNOWN_OUTCOME = (
    "the outcome of this call is unknown: the program was stopped while it ran. It was not made again, "
    "because it may have changed something. Find out what is true now before calling it again."
)

ContextFor = Callable[[str, Tool], ToolContext]
"""Makes the context of one call from its id and tool."""


@dataclass
class Repeats:
    """How often each identical call (tool and arguments) was made in a run, and what it last gave."""

    limit: int
    made: Counter[str] = field(default_factory=Counter)
    last: dict[str, ToolOutcome] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)

    def count(self, key: str, tool: str) -> int:
        """One more call; how often it was made."""
        self.made[key] += 1
        self.names[key] = tool
        return self.made[key]

    def exceeded(self) -> str | None:
        """The tool of a call that went on after it had been answered from memory `limit` times."""
        return next((self.names[key] for key, count in self.made.items() if count > 2 * self.limit), None)


DecideUnknown = Callable[[CallStarted], Awaitable[bool]]
"""Whether a call that writes and whose outcome is unknown is to be made again."""


@dataclass
class Known:
    """What a journal knows of a run's calls, so that nothing is done twice.

    `finished` and `unknown` by tool call id; `carried` and `doubtful` by call key: results, and calls
    of unknown outcome, of an earlier run that this one took the place of. `again` None: nobody can be
    asked, a write is not repeated.
    """

    finished: Mapping[str, CallFinished] = field(default_factory=dict)
    unknown: Mapping[str, CallStarted] = field(default_factory=dict)
    carried: Results = field(default_factory=dict)
    doubtful: Doubts = field(default_factory=dict)
    again: DecideUnknown | None = None


@dataclass(frozen=True, slots=True)
class Dispatched:
    """A round's results in call order; what its summaries cost; whether no call reached a handler.

    `waits`: tool call ids whose answer has to come from a person, with the question. `unasked`: tools
    whose call needed an approval that nobody was there to give.
    """

    results: list[FunctionResult]
    usage: list[Usage]
    all_rejected: bool
    waits: dict[str, Any]
    unasked: list[str]


class Dispatcher:
    """Dispatches the rounds of one run."""

    def __init__(
        self,
        gate: Gate,
        context_for: ContextFor,
        emit: Listener,
        *,
        parallelism: int,
        repeats: Repeats,
        output_cap: int,
        known: Known | None = None,
    ) -> None:
        self._gate = gate
        self._context_for = context_for
        self._emit = emit
        self._slots = asyncio.Semaphore(parallelism)
        self._repeats = repeats
        self._output_cap = output_cap
        self._known = known or Known()
        self._under_way: Counter[str] = Counter()

    def cut_off(self) -> list[str]:
        """The tools whose calls have begun and given nothing: after an interrupt, those that it cut."""
        return list((+self._under_way).elements())

    async def dispatch(self, entries: Sequence[Entry]) -> Dispatched:
        """All results, each paired with its own call whatever finishes first (case-036).

        What ends a round early (the journal is full, whoever read the events is gone) is raised as itself.
        """
        tasks: list[asyncio.Task[tuple[FunctionResult, ToolOutcome]]] = []
        try:
            async with asyncio.TaskGroup() as group:
                tasks.extend(group.create_task(self._answer(entry)) for entry in entries)
        except BaseExceptionGroup as failures:
            raise _first_of(failures) from None
        pairs = [task.result() for task in tasks]
        return Dispatched(
            results=[result for result, _ in pairs],
            usage=[outcome.usage for _, outcome in pairs if outcome.usage],
            all_rejected=bool(pairs) and all(outcome.rejected for _, outcome in pairs),
            waits={result.function_id: outcome.waits_for for result, outcome in pairs if outcome.waits_for},
            unasked=[result.name for result, outcome in pairs if outcome.unasked],
        )

    async def _answer(self, entry: Entry) -> tuple[FunctionResult, ToolOutcome]:
        finished = self._known.finished.get(entry.tool_call_id)
        if finished is not None:
            return _remembered(entry, finished)
        started = time.monotonic()
        origin: Origin = "not made"
        key: str | None = None
        if isinstance(entry, BundledCall):
            outcome = await self._call_bundle(entry)
        elif isinstance(entry, RejectedCall):
            outcome = ToolOutcome(entry.reason, is_error=True, rejected=True)
        else:
            key = call_key(entry.tool.name, entry.arguments)
            outcome, origin = await self._call(entry, key)
        duration_s = time.monotonic() - started
        content, output, notes = render_output(
            outcome.content, is_error=outcome.is_error, cap=self._output_cap
        )
        result = FunctionResult(
            entry.tool_call_id,
            entry.name,
            content,
            output,
            is_error=outcome.is_error,
            duration_s=duration_s,
            notes=(*outcome.notes, *notes),
        )
        if not outcome.waits_for:
            await self._emit(
                CallFinished(
                    tool_call_id=result.function_id,
                    tool=result.name,
                    is_error=result.is_error,
                    output=result.output,
                    duration_s=round(duration_s, 4),
                    notes=result.notes,
                    content=content,
                    origin=origin,
                    key=key if origin != "made" else None,
                )
            )
        return result, outcome

    async def _call_bundle(self, bundle: BundledCall) -> ToolOutcome:
        pairs = await asyncio.gather(*(self._answer(part) for part in bundle.parts))
        return ToolOutcome(
            [{"tool": result.name, "output": result.content} for result, _ in pairs],
            is_error=all(outcome.is_error for _, outcome in pairs),
            rejected=all(outcome.rejected for _, outcome in pairs),
        )

    async def _call(self, call: RoutedCall, key: str) -> tuple[ToolOutcome, Origin]:
        if self._repeats.count(key, call.tool.name) > self._repeats.limit and key in self._repeats.last:
            return _from_memory(self._repeats.last[key], self._repeats.limit), "not made"
        unknown = self._known.unknown.get(call.tool_call_id)
        if unknown is None and (carried := self._known.carried.get(key)):
            known = carried.pop(0)
            outcome = ToolOutcome(
                known.content if known.content is not None else known.output,
                is_error=known.is_error,
                notes=("from the run before, not called again",),
            )
            self._repeats.last[key] = outcome
            return outcome, "carried"
        doubtful = self._known.doubtful.get(key) if unknown is None else None
        if doubtful:
            unknown = doubtful.pop(0)
        harmless = is_harmless(call.tool)
        if unknown is not None and not harmless and not await self._may_repeat(unknown):
            return ToolOutcome({"error": UNKNOWN_OUTCOME}, is_error=True), "unknown"
        async with self._slots:
            await self._emit(
                CallStarted(
                    tool_call_id=call.tool_call_id,
                    tool=call.tool.name,
                    arguments=call.arguments,
                    effects=call.tool.effects,
                    harmless=harmless,
                    doubtful=doubtful is not None and unknown is not None,
                )
            )
            self._under_way[call.tool.name] += 1
            outcome = await self._gate.call(
                call.tool, call.arguments, self._context_for(call.tool_call_id, call.tool)
            )
            self._under_way[call.tool.name] -= 1
        self._repeats.last[key] = outcome
        return outcome, _origin_of(outcome)

    async def _may_repeat(self, call: CallStarted) -> bool:
        return self._known.again is not None and await self._known.again(call)


def is_harmless(tool: Tool) -> bool:
    """Whether a call of it may be made twice: it is declared to read, or asks a person. A tool that declares
    nothing may write."""
    return tool.kind == "human" or (tool.effects == "read" and tool.effects_declared)


def _origin_of(outcome: ToolOutcome) -> Origin:
    """Whether the gate let the call reach its tool."""
    if outcome.unasked:
        return "unasked"
    refused = outcome.rejected or not {"refused", "answered from memory"}.isdisjoint(outcome.notes)
    return "not made" if refused else "made"


def _remembered(entry: Entry, finished: CallFinished) -> tuple[FunctionResult, ToolOutcome]:
    """The result of a call that was finished before this process began: nothing is told again."""
    content = finished.content if finished.content is not None else finished.output
    result = FunctionResult(
        entry.tool_call_id,
        entry.name,
        content,
        finished.output,
        is_error=finished.is_error,
        duration_s=finished.duration_s,
        notes=tuple(finished.notes),
    )
    rejected = isinstance(entry, RejectedCall)
    return result, ToolOutcome(content, is_error=finished.is_error, rejected=rejected)


def _from_memory(outcome: ToolOutcome, limit: int) -> ToolOutcome:
    note = (
        f"this exact call was already made {limit} times; this is its last result again, "
        "and repeating the call will not change it"
    )
    return ToolOutcome(
        {"note": note, "result": outcome.content}, is_error=outcome.is_error, rejected=outcome.rejected
    )


def _first_of(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """What failed first; a round's calls fail together only through what is outside of them."""
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
