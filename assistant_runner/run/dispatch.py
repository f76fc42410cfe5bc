"""Run a round's calls side by side, each through the gate; a round costs its slowest call.

Nothing that a tool does ends the run: its error is its output. The same call made again and again
is answered from memory after a few times (case-021), because a model that repeats itself does not
stop by itself and a site should not pay for it.
"""

import asyncio
import json
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from assistant_runner.run.events import CallFinished, CallStarted, Listener
from assistant_runner.run.results import FunctionResult, render_output
from assistant_runner.run.router import BundledCall, Entry, RejectedCall, RoutedCall
from assistant_runner.tooling.contract import Gate, Tool, ToolContext, ToolOutcome
from assistant_runner.wire.runs import Usage

ContextFor = Callable[[str, Tool], ToolContext]
"""Makes the context of one call from its id and tool."""


@dataclass
class Repeats:
    """How often each identical call (tool and arguments) was made in a run, and what it last gave."""

    limit: int
    made: Counter[str] = field(default_factory=Counter)
    last: dict[str, ToolOutcome] = field(default_factory=dict)

    @staticmethod
    def key(tool: str, arguments: Any) -> str:
        return json.dumps([tool, arguments], sort_keys=True, default=str)

    def exceeded(self) -> str | None:
        """The tool of a call that went on after it had been answered from memory `limit` times."""
        for key, count in self.made.items():
            if count > 2 * self.limit:
                return str(json.loads(key)[0])
        return None


@dataclass(frozen=True, slots=True)
class Dispatched:
    """A round's results in call order; what its summaries cost; whether no call reached a handler.

    `waits`: tool call ids whose answer has to come from a person, with the question.
    """

    results: list[FunctionResult]
    usage: list[Usage]
    all_rejected: bool
    waits: dict[str, Any]


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
    ) -> None:
        self._gate = gate
        self._context_for = context_for
        self._emit = emit
        self._slots = asyncio.Semaphore(parallelism)
        self._repeats = repeats
        self._output_cap = output_cap

    async def dispatch(self, entries: Sequence[Entry]) -> Dispatched:
        """All results, each paired with its own call whatever finishes first (case-036)."""
        tasks: list[asyncio.Task[tuple[FunctionResult, ToolOutcome]]] = []
        async with asyncio.TaskGroup() as group:
            tasks.extend(group.create_task(self._answer(entry)) for entry in entries)
        pairs = [task.result() for task in tasks]
        return Dispatched(
            results=[result for result, _ in pairs],
            usage=[outcome.usage for _, outcome in pairs if outcome.usage],
            all_rejected=bool(pairs) and all(outcome.rejected for _, outcome in pairs),
            waits={result.function_id: outcome.waits_for for result, outcome in pairs if outcome.waits_for},
        )

    async def _answer(self, entry: Entry) -> tuple[FunctionResult, ToolOutcome]:
        started = time.monotonic()
        if isinstance(entry, BundledCall):
            outcome = await self._call_bundle(entry)
        elif isinstance(entry, RejectedCall):
            outcome = ToolOutcome(entry.reason, is_error=True, rejected=True)
        else:
            outcome = await self._call(entry)
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
                )
            )
        return result, outcome

    async def _call_bundle(self, bundle: BundledCall) -> ToolOutcome:
        calls: list[Awaitable[ToolOutcome]] = [
            self._call(part)
            if isinstance(part, RoutedCall)
            else _resolved(ToolOutcome({"error": part.reason}, is_error=True, rejected=True))
            for part in bundle.parts
        ]
        outcomes = await asyncio.gather(*calls)
        content = [
            {"tool": part.name, "output": outcome.content}
            for part, outcome in zip(bundle.parts, outcomes, strict=True)
        ]
        return ToolOutcome(
            content,
            is_error=all(outcome.is_error for outcome in outcomes),
            rejected=all(outcome.rejected for outcome in outcomes),
        )

    async def _call(self, call: RoutedCall) -> ToolOutcome:
        key = Repeats.key(call.tool.name, call.arguments)
        self._repeats.made[key] += 1
        if self._repeats.made[key] > self._repeats.limit and key in self._repeats.last:
            return _from_memory(self._repeats.last[key], self._repeats.limit)
        async with self._slots:
            await self._emit(
                CallStarted(
                    tool_call_id=call.tool_call_id,
                    tool=call.tool.name,
                    arguments=call.arguments,
                    effects=call.tool.effects,
                )
            )
            outcome = await self._gate.call(
                call.tool, call.arguments, self._context_for(call.tool_call_id, call.tool)
            )
        self._repeats.last[key] = outcome
        return outcome


def _from_memory(outcome: ToolOutcome, limit: int) -> ToolOutcome:
    note = (
        f"this exact call was already made {limit} times; this is its last result again, "
        "and repeating the call will not change it"
    )
    return ToolOutcome(
        {"note": note, "result": outcome.content}, is_error=outcome.is_error, rejected=outcome.rejected
    )


async def _resolved(outcome: ToolOutcome) -> ToolOutcome:
    return outcome
