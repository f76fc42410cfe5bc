"""The loop: while the run requires action, route its calls, dispatch, append, submit.

A run that asks for nothing passes it by: no router document, no submission (row S1.31). The loop
has limits, because a model has none: rounds, identical calls, rounds of nothing but bad calls.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from assistant_runner.backends.base import Backend
from assistant_runner.errors import AssistantRunnerError, HumanNeeded, LimitReached, RunExpired
from assistant_runner.run.appender import append_results
from assistant_runner.run.dispatch import Dispatcher, Repeats
from assistant_runner.run.events import Listener, OutputsSubmitted, RoundCompleted, RoundStarted
from assistant_runner.run.request import Limits, Round
from assistant_runner.run.results import FunctionResult
from assistant_runner.run.router import route
from assistant_runner.run.watch import RunWatcher
from assistant_runner.tooling.contract import Gate, Tool, ToolContext
from assistant_runner.wire.runs import Run, Usage

SUBMIT_MARGIN_S = 0.5
"""Tools must end this long before the run expires, so that their outputs can still be submitted."""


@dataclass(frozen=True, slots=True)
class Workshop:
    """What the calls of a run are made with: tools, the gate, and the context for a call.

    `context_for` takes the tool call id, the tool, the seconds it may take, the thread id.
    """

    tools: Mapping[str, Tool]
    gate: Gate
    context_for: Callable[[str, Tool, float, str], ToolContext]


@dataclass
class RunLoop:
    """The rounds of one run."""

    backend: Backend
    workshop: Workshop
    watcher: RunWatcher
    emit: Listener
    limits: Limits
    deadline: float
    clock: Callable[[], float] = time.time
    monotonic: Callable[[], float] = time.monotonic
    rounds: list[Round] = field(default_factory=list)
    tool_usage: list[Usage] = field(default_factory=list)
    calls_made: Counter[str] = field(default_factory=Counter)
    pause_after: int | None = None
    _bad_rounds: int = 0

    def __post_init__(self) -> None:
        self._repeats = Repeats(self.limits.repeats)
        self._dispatcher = Dispatcher(
            self.workshop.gate,
            self._context,
            self.emit,
            parallelism=self.limits.parallelism,
            repeats=self._repeats,
            output_cap=self.limits.output_cap,
        )
        self._run: Run | None = None

    async def settle(self, run: Run) -> Run:
        """The terminal run; RunError classes when a limit or a person stands in the way."""
        while run.status == "requires_action":
            self._check_limits(run)
            run = await self._round(run)
        return run

    async def _round(self, run: Run) -> Run:
        self._run = run
        number = len(self.rounds) + 1
        routing = route(run, self.workshop.tools)
        await self.emit(RoundStarted(run_id=run.id, number=number, calls=routing.view_2))
        dispatched = await self._dispatcher.dispatch(routing.entries)
        if dispatched.waits:
            raise HumanNeeded(
                f"run {run.id} waits for a person: {len(dispatched.waits)} question(s) are open",
                run_id=run.id,
                thread_id=run.thread_id,
                remedy=f"answer, then: assistant-runner run resume {run.id}",
                questions=dispatched.waits,
            )
        results = dispatched.results
        document = append_results(routing.view_1, [result.document() for result in results])
        self.tool_usage.extend(dispatched.usage)
        self.calls_made.update(result.name for result in results)
        self._bad_rounds = self._bad_rounds + 1 if dispatched.all_rejected else 0
        self.rounds.append(Round(number, document["run"], routing.view_2, document["tool_outputs"]))
        await self.emit(
            RoundCompleted(
                run_id=run.id, number=number, tool_call_ids=[result.function_id for result in results]
            )
        )
        return await self._submit(run, number, results)

    async def _submit(self, run: Run, number: int, results: list[FunctionResult]) -> Run:
        if run.expires_at is not None and self.clock() >= run.expires_at:
            late = ", ".join(result.name for result in results)
            raise RunExpired(
                f"run {run.id} expired while its tools were working; late: {late}",
                run_id=run.id,
                thread_id=run.thread_id,
                remedy="ask again on the same thread, or give the tools a shorter --tool-timeout",
            )
        stream = self.backend.stream_submit(
            thread_id=run.thread_id, run_id=run.id, outputs=[result.tool_output() for result in results]
        )
        settled = await self.watcher.follow(stream)
        await self.emit(OutputsSubmitted(run_id=run.id, number=number))
        return settled

    def _check_limits(self, run: Run) -> None:
        counts = ", ".join(f"{name} {count}" for name, count in self.calls_made.most_common())
        facts: dict[str, Any] = {
            "run_id": run.id,
            "thread_id": run.thread_id,
            "rounds": len(self.rounds),
            "calls": dict(self.calls_made),
        }
        if self.pause_after is not None and len(self.rounds) >= self.pause_after:
            raise LimitReached(
                f"run {run.id} is paused after {len(self.rounds)} round(s), as asked",
                remedy=f"go on with: assistant-runner run resume {run.id}",
                paused=True,
                **facts,
            )
        if len(self.rounds) >= self.limits.rounds:
            raise LimitReached(
                f"run {run.id} still asks for tools after {len(self.rounds)} rounds ({counts})",
                remedy="raise the limit with --rounds",
                **facts,
            )
        if self._bad_rounds >= self.limits.bad_rounds:
            last = self.rounds[-1]
            raise LimitReached(
                f"run {run.id}: in {self._bad_rounds} rounds in a row no call could be made ({counts}); "
                f"last error: {last.tool_outputs[-1].get('content')}",
                remedy="raise the limit with --bad-rounds, or correct the assistant's tools",
                **facts,
            )
        if tool := self._repeats.exceeded():
            raise LimitReached(
                f"run {run.id} repeats the same call of {tool} without end ({counts})",
                remedy="raise the limit with --repeats",
                **facts,
            )

    def _context(self, call_id: str, tool: Tool) -> ToolContext:
        """The context of one call, its time bounded by the tool, the run's expiry and our deadline."""
        allowed_s = tool.timeout_s or self.limits.tool_timeout_s
        left_s = self.deadline - self.monotonic()
        thread_id = self._run.thread_id if self._run else ""
        if self._run is not None and self._run.expires_at is not None:
            left_s = min(left_s, self._run.expires_at - self.clock() - SUBMIT_MARGIN_S)
        return self.workshop.context_for(call_id, tool, max(0.05, min(allowed_s, left_s)), thread_id)


def total_usage(usages: list[Usage]) -> Usage | None:
    """The sum, None of nothing."""
    if not usages:
        return None
    return Usage(
        prompt_tokens=sum(usage.prompt_tokens for usage in usages),
        completion_tokens=sum(usage.completion_tokens for usage in usages),
        total_tokens=sum(usage.total_tokens for usage in usages),
    )


async def wait_cancelled(backend: Backend, run: Run, *, timeout_s: float = 5.0) -> Run | None:
    """Cancel the run once and wait until it is over; None if that cannot be seen in time (case-005)."""
    try:
        async with asyncio.timeout(timeout_s):
            await backend.cancel_run(thread_id=run.thread_id, run_id=run.id)
            watcher = RunWatcher(backend, _nobody, run=run)
            return await watcher.poll()
    except (TimeoutError, AssistantRunnerError):
        return None


async def _nobody(_event: object) -> None:
    return None
