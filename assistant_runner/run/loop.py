"""The loop: while the run requires action, route its calls, dispatch, append, submit.

A run that asks for nothing passes it by: no router document, no submission (row S1.31). The loop
has limits, because a model has none: rounds, identical calls, rounds of nothing but bad calls.

A submission is made once. When its answer is lost or it is refused, the run is read again: if it
moved on, the outputs arrived or are not wanted any more (cases 045, 046); only a run that still waits
for the same calls is given them again.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from assistant_runner.backends.base import Backend
from assistant_runner.errors import (
    AssistantRunnerError,
    BackendError,
    HumanNeeded,
    LimitReached,
    OutcomeUnknown,
    RequestRejected,
    RunExpired,
    ToolStopped,
)
from assistant_runner.run.appender import append_results
from assistant_runner.run.dispatch import Dispatcher, Known, Repeats
from assistant_runner.run.events import Listener, OutputsSubmitted, RoundCompleted, RoundStarted, Warned
from assistant_runner.run.request import Limits, Round
from assistant_runner.run.results import FunctionResult
from assistant_runner.run.router import route
from assistant_runner.run.start import cancel_and_wait
from assistant_runner.run.watch import RunWatcher, asked_ids, hosted_calls
from assistant_runner.tooling.contract import Gate, Tool, ToolContext
from assistant_runner.wire.runs import Run, Usage

SUBMISSIONS = 3
"""How often one round's outputs are sent while the run still waits for them."""

SPARE_S = 0.5
"""What is kept of a run's life for the submission after the tools."""

ApproveHosted = Callable[[Mapping[str, Any]], Awaitable[bool | None]]
"""Whether a hosted MCP tool may be called; None: a person has to say, and nobody is there."""


@dataclass(frozen=True, slots=True)
class Workshop:
    """What the calls of a run are made with: tools, the gate, and the context for a call.

    `context_for` takes the tool call id, the tool, the seconds it may take, the thread id.
    `approve_hosted` decides on calls of the backend's own MCP tools.
    """

    tools: Mapping[str, Tool]
    gate: Gate
    context_for: Callable[[str, Tool, float, str], ToolContext]
    approve_hosted: ApproveHosted | None = None


@dataclass
class RunLoop:
    """The rounds of one run. `known` is what a journal remembers of it. `ahead_s`: how far our clock is
    ahead of the backend's, by which the run's expiry is told."""

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
    known: Known = field(default_factory=Known)
    ahead_s: float = 0.0
    _bad_rounds: int = 0
    _rounds_here: int = 0

    def __post_init__(self) -> None:
        self._repeats = Repeats(self.limits.repeats)
        self._dispatcher = Dispatcher(
            self.workshop.gate,
            self._context,
            self.emit,
            parallelism=self.limits.parallelism,
            repeats=self._repeats,
            output_cap=self.limits.output_cap,
            known=self.known,
        )
        self._run: Run | None = None

    def cut_off(self) -> list[str]:
        """The tools that an interrupt cut in the middle of a call (case-044)."""
        return self._dispatcher.cut_off()

    async def settle(self, run: Run) -> Run:
        """The terminal run; RunError classes when a limit or a person stands in the way."""
        while run.status == "requires_action":
            self._check_limits(run)
            run = await (self._approve(run) if hosted_calls(run) else self._round(run))
        return run

    async def _round(self, run: Run) -> Run:
        self._run = run
        number = len(self.rounds) + 1
        routing = route(run, self.workshop.tools)
        await self.emit(
            RoundStarted(run_id=run.id, number=number, calls=routing.view_2, run=routing.view_1["run"])
        )
        dispatched = await self._dispatcher.dispatch(routing.entries)
        if dispatched.unasked:
            names = list(dict.fromkeys(dispatched.unasked))
            raise ToolStopped(
                f"run {run.id}: {', '.join(names)} needs an approval, and nobody is here to give it",
                run_id=run.id,
                thread_id=run.thread_id,
                remedy=f"allow it: assistant-runner run resume {run.id} --approve {names[0]}; or for good, "
                "by a rule in the assistant file's policy",
                tools=names,
            )
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
        self._rounds_here += 1
        await self.emit(
            RoundCompleted(
                run_id=run.id, number=number, tool_call_ids=[result.function_id for result in results]
            )
        )
        return await self._submit(run, number, results)

    async def _submit(self, run: Run, number: int, results: list[FunctionResult]) -> Run:
        """The run, settled again. RunExpired before anything is sent if it is too late (row S1.32)."""
        late = ", ".join(result.name for result in results)
        if run.expires_at is not None and self.clock() - self.ahead_s >= run.expires_at:
            raise _expired(run, late)
        outputs = [result.tool_output() for result in results]
        answered = [output.tool_call_id for output in outputs]

        async def submitted() -> None:
            await self.emit(OutputsSubmitted(run_id=run.id, number=number))

        for attempt in range(1, SUBMISSIONS + 1):
            stream = self.backend.stream_submit(thread_id=run.thread_id, run_id=run.id, outputs=outputs)
            try:
                return await self.watcher.follow(stream, opened=submitted, answered=answered)
            except (OutcomeUnknown, RequestRejected) as error:
                after, _ = await self.watcher.read(run)
                self.watcher.run = after
                if after.status == "expired":
                    raise _expired(run, late) from error
                waits = after.status == "requires_action" and set(asked_ids(after)) == set(answered)
                if waits and (attempt == SUBMISSIONS or not isinstance(error, OutcomeUnknown)):
                    raise
                if not waits:
                    return await self._moved_on(after, error, submitted, answered)
        raise AssertionError("the loop returns or raises")

    async def _moved_on(
        self, run: Run, error: BackendError, submitted: Callable[[], Awaitable[None]], answered: list[str]
    ) -> Run:
        """The run went on without the answer to our submission: follow it."""
        if isinstance(error, OutcomeUnknown):
            await submitted()
            await self.emit(Warned(f"the answer to the submission was lost; run {run.id} is {run.status}"))
        else:
            await self.emit(
                Warned(
                    f"run {run.id} is {run.status}: it did not wait for the outputs any more; dropped them"
                )
            )
        if run.is_terminal:
            self.watcher.whole = False
            return run
        return await self.watcher.poll(answered=answered)

    async def _approve(self, run: Run) -> Run:
        """Answer a hosted MCP tool's calls (`submit_tool_approval`): each by the policy, all at once."""
        calls = hosted_calls(run)
        approvals: list[dict[str, object]] = []
        for call in calls:
            approved = await self.workshop.approve_hosted(call) if self.workshop.approve_hosted else None
            if approved is None:
                raise HumanNeeded(
                    f"run {run.id} asks to call {call.get('name')!r} of the MCP server "
                    f"{call.get('server_label')!r}",
                    run_id=run.id,
                    thread_id=run.thread_id,
                    remedy="allow or forbid it in the policy, then: assistant-runner run resume " + run.id,
                    questions={str(call["id"]): {"kind": "mcp_approval", **call}},
                )
            approvals.append({"tool_call_id": call["id"], "approve": approved})
        self._rounds_here += 1
        after = await self.backend.submit_tool_approvals(
            thread_id=run.thread_id, run_id=run.id, approvals=approvals
        )
        await self.watcher.adopt(after)
        answered = [str(call["id"]) for call in calls]
        return after if after.is_terminal else await self.watcher.poll(answered=answered)

    def _check_limits(self, run: Run) -> None:
        counts = ", ".join(f"{name} {count}" for name, count in self.calls_made.most_common())
        facts: dict[str, Any] = {
            "run_id": run.id,
            "thread_id": run.thread_id,
            "rounds": len(self.rounds),
            "calls": dict(self.calls_made),
        }
        if self.pause_after is not None and self._rounds_here >= self.pause_after:
            raise LimitReached(
                f"run {run.id} is paused after {self._rounds_here} round(s), as asked",
                remedy=f"go on with: assistant-runner run resume {run.id}",
                paused=True,
                **facts,
            )
        if len(self.rounds) >= self.limits.rounds:
            raise LimitReached(
                f"run {run.id} still asks for tools after {len(self.rounds)} rounds ({counts})",
                remedy=f"raise the limit with --rounds; go on with: assistant-runner run resume {run.id}",
                **facts,
            )
        if self._bad_rounds >= self.limits.bad_rounds:
            last = self.rounds[-1]
            raise LimitReached(
                f"run {run.id}: in {self._bad_rounds} rounds in a row no call could be made ({counts}); "
                f"last error: {last.tool_outputs[-1].get('content')}",
                remedy=f"correct the assistant's tools, then: assistant-runner run resume {run.id}; "
                "--bad-rounds raises the limit",
                **facts,
            )
        if tool := self._repeats.exceeded():
            raise LimitReached(
                f"run {run.id} repeats the same call of {tool} without end ({counts})",
                remedy=f"raise the limit with --repeats; go on with: assistant-runner run resume {run.id}",
                **facts,
            )

    def _context(self, call_id: str, tool: Tool) -> ToolContext:
        """The context of one call, its time bounded by the tool, the run's expiry and our deadline."""
        allowed_s = tool.timeout_s or self.limits.tool_timeout_s
        left_s = self.deadline - self.monotonic()
        if self._run is not None and self._run.expires_at is not None:
            left_s = min(left_s, self._run.expires_at + self.ahead_s - self.clock() - SPARE_S)
        thread_id = self._run.thread_id if self._run is not None else ""
        return self.workshop.context_for(call_id, tool, max(0.05, min(allowed_s, left_s)), thread_id)


def _expired(run: Run, late: str) -> RunExpired:
    return RunExpired(
        f"run {run.id} expired while its tools were working; late: {late}. Their results are kept",
        run_id=run.id,
        thread_id=run.thread_id,
        status="expired",
        late=late,
        remedy="start over with these results: assistant-runner run resume --restart-expired "
        f"{run.id}; or give the tools a shorter --tool-timeout",
    )


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
            return await cancel_and_wait(backend, run)
    except (TimeoutError, AssistantRunnerError):
        return None
