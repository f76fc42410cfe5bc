"""The driver: from a request, or from what a journal remembers of one, to the result of its run.

It starts the run (thread and run in one call, or a run on a thread that exists), lets the loop
answer its required actions, and collects what the run wrote. Whatever ends it early (deadline,
limit, interrupt) cancels the run at the backend once, so that no thread stays locked, unless the run
is meant to wait. A run that failed for its rate is tried again on its thread (case-006); one that
expired is, if asked, taken over by a fresh one that is given the finished results (case-003).
"""

import asyncio
import contextlib
import dataclasses
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Coroutine
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from assistant_runner.backends.base import Backend
from assistant_runner.errors import (
    AssistantRunnerError,
    BackendUnreachable,
    HumanNeeded,
    LimitReached,
    NotFound,
    RateLimited,
    RunCancelled,
    RunExpired,
    RunGone,
    RunTimedOut,
)
from assistant_runner.retries import RetryPolicy, hint_in_words
from assistant_runner.run.answer import render_answer
from assistant_runner.run.dispatch import DecideUnknown, Known
from assistant_runner.run.endings import ending_of, quota_is_used_up
from assistant_runner.run.events import (
    CallFinished,
    Listener,
    OutputsSubmitted,
    RunEnded,
    RunEvent,
    RunRequested,
    RunResumed,
    RunStarted,
    TextArrived,
    Warned,
)
from assistant_runner.run.history import carried_words
from assistant_runner.run.loop import RunLoop, Workshop, total_usage, wait_cancelled
from assistant_runner.run.memory import Results, RunMemory
from assistant_runner.run.records import request_document
from assistant_runner.run.request import Limits, Round, RunRequest, RunResult
from assistant_runner.run.results import function_result
from assistant_runner.run.start import IfActive, RunStarter
from assistant_runner.run.watch import RunWatcher, Sleep, asked_ids
from assistant_runner.wire.runs import Run
from assistant_runner.wire.threads import Message

log = logging.getLogger(__name__)

Ended = TypeVar("Ended")

RATE_TRIES = RetryPolicy(attempts=3, base_s=2.0, cap_s=20.0, longest_s=60.0)
CLOCK_AHEAD_S = 30.0
"""A new run that looks older than this was not slow to arrive: our clock is wrong, or the backend's."""


@dataclass(frozen=True, slots=True)
class Policies:
    """What the driver does where there is a choice.

    `if_active`: another run is active on the thread. `restart_expired`: a fresh run takes the place
    of one that expired. `on_interrupt` leave: the run goes on at the backend without us.
    `resumable`: a journal is kept, so a run may be left waiting when the way to the backend breaks.
    `poll_interval_s`: a fixed wait between reads of a run. `again`: see Known.
    """

    if_active: IfActive = "fail"
    restart_expired: bool = False
    on_interrupt: Literal["cancel", "leave"] = "cancel"
    resumable: bool = False
    poll_interval_s: float | None = None
    again: DecideUnknown | None = None


class Driver:
    """Runs requests on one backend with one workshop; safe to use from many tasks at once."""

    def __init__(
        self,
        backend: Backend,
        workshop: Workshop,
        *,
        limits: Limits,
        policies: Policies | None = None,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self.backend = backend
        self.workshop = workshop
        self.limits = limits
        self.policies = policies or Policies()
        self._clock = clock
        self._monotonic = monotonic
        self._sleep = sleep

    async def run(
        self,
        request: RunRequest,
        *,
        listener: Listener | None = None,
        limits: Limits | None = None,
        pause_after: int | None = None,
        whole_thread: bool = False,
        carried: Results | None = None,
    ) -> RunResult:
        """The completed run; RunError or BackendError otherwise.

        `pause_after` rounds the run is left waiting and LimitReached says how to go on (row S0.23).
        `whole_thread` also reads the thread's messages, newest first. `carried`: results of an earlier
        run by call key, given again instead of calling again.
        """
        work = _Work(
            self, listener, limits or self.limits, pause_after, memory=RunMemory(carried=carried or {})
        )
        await work.emit(RunRequested(request=request_document(request), backend=self.backend.label))
        return await work.finish(request, lambda: work.starter.start(request), whole_thread=whole_thread)

    async def start(self, request: RunRequest, *, listener: Listener | None = None) -> Run:
        """The run as it was created; nobody follows it (`--detach`)."""
        work = _Work(self, listener, self.limits, None)
        await work.emit(RunRequested(request=request_document(request), backend=self.backend.label))
        try:
            async with asyncio.timeout(self.limits.timeout_s):
                return await work.starter.start(request, stream=False)
        except TimeoutError:
            error = await work.time_out()
            await work.tell_end(error)
            raise error from None
        except AssistantRunnerError as failure:
            await work.tell_end(failure)
            raise

    async def resume(
        self,
        memory: RunMemory,
        request: RunRequest,
        *,
        listener: Listener | None = None,
        limits: Limits | None = None,
        pause_after: int | None = None,
        whole_thread: bool = False,
        answers: dict[str, CallFinished] | None = None,
        taken: Collection[str] = (),
    ) -> RunResult:
        """The completed run of a journal: no finished call is made again, none that was submitted is
        submitted again. `answers`: what people said, by tool call id. `taken`: ids of runs on the thread that
        are other questions', and not this one's whose id was lost. RunError classes as `run`.
        """
        work = _Work(self, listener, limits or self.limits, pause_after, memory=memory, answers=answers)
        work.taken = taken
        return await work.finish(request, lambda: work.take_up(request), whole_thread=whole_thread)


class _Work:
    """One run in the driver's hands, from its start to its result."""

    def __init__(
        self,
        driver: Driver,
        listener: Listener | None,
        limits: Limits,
        pause_after: int | None,
        *,
        memory: RunMemory | None = None,
        answers: dict[str, CallFinished] | None = None,
    ) -> None:
        self._driver = driver
        self._backend = driver.backend
        self._policies = driver.policies
        self._listener = listener
        self._limits = limits
        self._pause_after = pause_after
        self._memory = memory or RunMemory()
        self._taken_up = False
        self.taken: Collection[str] = ()
        self._started = driver._monotonic()
        self._warnings: list[str] = []
        for answer in (answers or {}).values():
            self._memory.note(answer, driver._clock())
        self.watcher = self._new_watcher()
        self.loop = self._new_loop(self._known())
        self.loop.rounds.extend(_rounds_of(self._memory))
        self.starter = self._new_starter()

    async def emit(self, event: RunEvent) -> None:
        if not isinstance(event, TextArrived) and log.isEnabledFor(logging.INFO):
            log.info("%s", event.document())
        if isinstance(event, Warned):
            self._warnings.append(event.message)
        elif isinstance(event, RunStarted) and self.watcher.run is not None:
            ahead_s = self._driver._clock() - self.watcher.run.created_at  # it was created just now
            self.loop.ahead_s = ahead_s if ahead_s > CLOCK_AHEAD_S else 0.0
        self._memory.note(event, self._driver._clock())
        if self._listener is not None:
            await self._listener(event)

    def _known(self) -> Known:
        return Known(
            finished=self._memory.finished(),
            unknown=self._memory.unknown(),
            carried=self._memory.carried_left(),
            doubtful=self._memory.doubts_left(),
            again=self._policies.again,
        )

    def _new_watcher(self) -> RunWatcher:
        return RunWatcher(
            self._backend,
            self.emit,
            sleep=self._driver._sleep,
            poll_interval_s=self._policies.poll_interval_s,
        )

    def _new_loop(self, known: Known) -> RunLoop:
        return RunLoop(
            backend=self._backend,
            workshop=self._driver.workshop,
            watcher=self.watcher,
            emit=self.emit,
            limits=self._limits,
            deadline=self._started + self._limits.timeout_s,
            clock=self._driver._clock,
            monotonic=self._driver._monotonic,
            pause_after=self._pause_after,
            known=known,
        )

    def _new_starter(self) -> RunStarter:
        return RunStarter(
            self._backend,
            self.watcher,
            self.emit,
            if_active=self._policies.if_active,
            settle=self._take_over,
            sleep=self._driver._sleep,
        )

    async def _take_over(self, run: Run) -> Run:
        """Finish a run that somebody left waiting: its calls are answered with our tools."""
        watcher = RunWatcher(self._backend, _nobody, run=run, sleep=self._driver._sleep)
        known = dataclasses.replace(self.loop.known, carried={}, doubtful={})  # those are not its calls
        loop = dataclasses.replace(
            self.loop, watcher=watcher, rounds=[], tool_usage=[], pause_after=None, known=known
        )
        run, _ = await self._backend.retrieve_run(thread_id=run.thread_id, run_id=run.id)
        watcher.run = run
        return await loop.settle(run if run.is_settled else await watcher.poll())

    # -- the way to the result ------------------------------------------------------------------

    async def finish(
        self, request: RunRequest, begin: Callable[[], Awaitable[Run]], *, whole_thread: bool
    ) -> RunResult:
        """The result; whatever ends the run early is told, and the thread freed or the run kept."""
        try:
            async with asyncio.timeout(self._limits.timeout_s):
                run = await self._settle(request, begin)
                messages = await self._messages(run)
                thread_messages = await self._thread(run) if whole_thread else []
        except TimeoutError:
            raise await _to_its_end(self._timed_out()) from None
        except AssistantRunnerError as error:
            await _to_its_end(self._given_up(error))
            raise
        except GeneratorExit:  # the loop is being taken down: nothing can be awaited any more
            raise
        except BaseException as error:  # an interrupt, a closed pipe, a bug: the run is not forgotten
            with contextlib.suppress(Exception):  # the reason itself is what has to be told
                await asyncio.shield(asyncio.ensure_future(self._interrupted(error)))
            raise

        last = [message for message in messages if message.id not in self.watcher.before_calls]
        text, notes = render_answer(last or messages)
        self._warnings.extend(notes)
        details = last[-1].incomplete_details if last else None
        ending = ending_of(run, partial=text, cut=details.reason if details else None)
        usage = total_usage([usage for usage in (run.usage, *self.loop.tool_usage) if usage])
        if ending is not None:
            if usage is not None:  # a run that brought no answer was paid for, too
                ending.facts |= {"model": run.model, "usage": usage.document()}
            await self.tell_end(ending)
            raise ending
        await self.emit(RunEnded(run_id=run.id, thread_id=run.thread_id, status=run.status))
        return RunResult(
            run=run,
            messages=messages,
            thread_messages=thread_messages,
            rounds=self.loop.rounds,
            text=text,
            usage=usage,
            duration_s=self._driver._monotonic() - self._started,
            warnings=self._warnings,
        )

    async def _settle(self, request: RunRequest, begin: Callable[[], Awaitable[Run]]) -> Run:
        """The terminal run; after a refusal for its rate, or an expiry if asked, that of a fresh one."""
        attempt, restarted = 0, False
        run = await begin()
        while True:
            try:
                run = await self.loop.settle(run)
            except RunExpired:
                if not self._policies.restart_expired or restarted:
                    raise
                run = await self._see_expired(run)
            if run.status == "expired" and self._policies.restart_expired and not restarted:
                restarted = True
                await self.emit(Warned(f"run {run.id} expired; a fresh run takes its place"))
                run = await self._fresh(run, request)
                continue
            wait_s = self._rate_wait(run, attempt + 1)
            if wait_s is None:
                return run
            attempt += 1
            await self.emit(Warned(f"run {run.id} failed for its rate; trying again in {wait_s:.1f} s"))
            await self._driver._sleep(wait_s)
            run = await self._fresh(run, request)

    def _rate_wait(self, run: Run, attempt: int) -> float | None:
        """Seconds before a run that failed for its rate is tried again; None if it is not (case-006)."""
        error = run.last_error
        if run.status != "failed" or error is None or error.code != "rate_limit_exceeded":
            return None
        if quota_is_used_up(run):
            return None
        wait_s = RATE_TRIES.wait_s(attempt, hint_in_words(error.message))
        left_s = self._started + self._limits.timeout_s - self._driver._monotonic()
        return wait_s if wait_s is not None and wait_s < left_s else None

    async def _see_expired(self, run: Run) -> Run:
        """The run once the backend too has seen that its time is over."""
        watcher = RunWatcher(self._backend, _nobody, run=run, sleep=self._driver._sleep)
        return await watcher.poll_terminal()

    async def _fresh(self, run: Run, request: RunRequest) -> Run:
        """A new run on the same thread in the place of `run`, given the results that are finished."""
        rounds, usage, memory = self.loop.rounds, self.loop.tool_usage, self._memory
        results = memory.results()
        words = carried_words(results)
        self.watcher = self._new_watcher()
        self.loop = self._new_loop(
            Known(carried=results, doubtful=memory.doubts(), again=self._policies.again)
        )
        self.loop.rounds.extend(rounds)
        self.loop.tool_usage.extend(usage)
        self.starter = self._new_starter()
        if self._taken_up and (lost := await self._lost_fresh(run, request, words)):
            return await self._follow_lost(lost)
        return await self.starter.again(run, request, instructions=words)

    async def _lost_fresh(self, run: Run, request: RunRequest, words: str | None) -> Run | None:
        """The fresh run that a process created in the place of `run` before it was killed: no question's
        that is known, and told what is known of this one."""
        self._taken_up = False
        for found in (await self._backend.list_runs(run.thread_id)).data:
            if found.id in (*self._memory.run_ids, *self.taken) or found.assistant_id != request.assistant_id:
                continue
            if found.created_at >= run.created_at and (words or "") in (found.instructions or ""):
                return found
        return None

    async def _follow_lost(self, lost: Run) -> Run:
        await self.watcher.adopt(lost)
        self.watcher.whole = False
        return lost if lost.is_settled else await self.watcher.poll()

    async def take_up(self, request: RunRequest) -> Run:
        """The settled run that the journal remembers; a new one if none ever began."""
        memory = self._memory
        if memory.run_id is None or memory.thread_id is None:
            lost = None
            if request.thread_id is not None:
                lost = await self.starter.find_lost(
                    request.thread_id,
                    assistant_id=request.assistant_id,
                    since=memory.requested_at,
                    taken=self.taken,
                )
            if lost is None:
                return await self.starter.start(request)
            return await self._follow_lost(lost)
        self._taken_up = True
        try:
            run, _ = await self._backend.retrieve_run(thread_id=memory.thread_id, run_id=memory.run_id)
        except NotFound as error:
            raise RunGone(
                f"run {memory.run_id} is not on {self._backend.label} any more: {error.message}",
                run_id=memory.run_id,
                thread_id=memory.thread_id,
                remedy="start over from the journal: assistant-runner run fork " + memory.run_id,
            ) from error
        self.watcher.run = run
        self.watcher.whole = False
        ended_by = (memory.ended.error or {}).get("kind") if memory.ended is not None else None
        if memory.ended is None and memory.left_alone:
            ended_by = RunCancelled.kind
        await self.emit(
            RunResumed(
                run_id=run.id,
                thread_id=run.thread_id,
                status=run.status,
                finished_calls=len(memory.finished()),
            )
        )
        await self._see_lost_submission(run)
        if run.status == "cancelled" and ended_by != RunCancelled.kind:  # we did it, perhaps killed at it
            return await self._fresh(run, request)
        if run.is_settled and not (run.status == "requires_action" and run.required_action is None):
            return run
        return await self.watcher.poll()

    async def _see_lost_submission(self, run: Run) -> None:
        """The last round was submitted if the run does not wait for its calls any more, even if the
        journal does not say so: killed between the two."""
        rounds = self._memory.rounds
        if not rounds or rounds[-1].submitted or rounds[-1].open_calls():
            return
        last = rounds[-1]
        waits = set(asked_ids(run)) == {call["id"] for call in last.calls}
        if not waits and run.status not in ("expired", "cancelled"):
            last.submitted = True
            self.loop.rounds[:] = _rounds_of(self._memory)
            await self.emit(OutputsSubmitted(run_id=run.id, number=last.number))

    # -- what the run wrote ---------------------------------------------------------------------

    async def _messages(self, run: Run) -> list[Message]:
        """What this run wrote, in creation order (case-011, case-012)."""
        if self.watcher.whole and self.watcher.messages:
            return [message for message in self.watcher.messages.values() if message.role == "assistant"]
        found: list[Message] = []
        after: str | None = None
        while True:
            page = await self._backend.list_messages(run.thread_id, run_id=run.id, order="asc", after=after)
            found.extend(m for m in page.data if m.run_id == run.id and m.role == "assistant")
            if not page.has_more or not page.data:
                return found
            after = page.data[-1].id

    async def _thread(self, run: Run) -> list[Message]:
        found: list[Message] = []
        after: str | None = None
        while True:
            page = await self._backend.list_messages(run.thread_id, after=after)
            found.extend(page.data)
            if not page.has_more or not page.data:
                return found
            after = page.data[-1].id

    # -- early ends -----------------------------------------------------------------------------

    async def time_out(self) -> RunTimedOut:
        """Cancel once, then say what was left and in what state (case-001)."""
        limit_s, run = self._limits.timeout_s, self.watcher.run
        if run is None:
            lock = self.starter.blocked_by
            why = (
                f": thread {lock.thread_id} is locked by run {lock.id}, which was {lock.status}"
                if lock
                else ""
            )
            return RunTimedOut(
                f"no run began within {limit_s:g} s{why}",
                remedy="raise --timeout, or look at the backend",
            )
        after = run if run.is_terminal else await wait_cancelled(self._backend, run)
        state = after.status if after else f"{run.status} (the cancel was not confirmed)"
        self.watcher.run = after or run
        return RunTimedOut(
            f"run {run.id} on thread {run.thread_id} did not end within {limit_s:g} s; it was left {state}",
            run_id=run.id,
            thread_id=run.thread_id,
            remedy=f"go on with more time: assistant-runner run resume {run.id} --timeout {limit_s * 2:g}"
            if self._policies.resumable
            else "raise --timeout, or look at the backend",
            status=state,
        )

    async def _timed_out(self) -> RunTimedOut:
        error = await self.time_out()
        await self.tell_end(error)
        return error

    async def _given_up(self, error: AssistantRunnerError) -> None:
        await self._give_up(error)
        await self.tell_end(error)

    async def _give_up(self, error: AssistantRunnerError) -> None:
        """Free the thread, unless the run is over or meant to wait: for a person, for its resumption."""
        run = self.watcher.run
        if run is None or run.is_terminal or isinstance(error, HumanNeeded | RunExpired):
            return
        if isinstance(error, LimitReached) and error.facts.get("paused"):
            return
        if self._policies.resumable and isinstance(error, BackendUnreachable | RateLimited):
            error.remedy = f"{error.remedy or 'try again later'}; then: assistant-runner run resume {run.id}"
            return
        after = await wait_cancelled(self._backend, run)
        self.watcher.run = after or run

    async def _interrupted(self, reason: BaseException) -> None:
        """Read the run before cancelling it (case-115), cancel once, say where things stand."""
        run = self.watcher.run
        if run is None:
            await self._tell("not started", "interrupted before the backend told of a run", "ask again")
            return
        with contextlib.suppress(TimeoutError, AssistantRunnerError):
            async with asyncio.timeout(2.0):
                run, _ = await self._backend.retrieve_run(thread_id=run.thread_id, run_id=run.id)
        leave = self._policies.on_interrupt == "leave" and isinstance(reason, asyncio.CancelledError)
        if not run.is_terminal and not leave:
            run = await wait_cancelled(self._backend, run) or run
        self.watcher.run = run
        where = f"run {run.id} on thread {run.thread_id}"
        if run.status == "completed":
            words, remedy = f"interrupted, but {where} had completed", f"assistant-runner run resume {run.id}"
        elif leave and not run.is_terminal:
            words, remedy = f"left {where} running", f"assistant-runner run wait {run.id}"
        else:
            cut = self.loop.cut_off()
            during = f" during {', '.join(cut)}" if cut else ""
            words = f"interrupted{during}; {where} is {run.status}"
            remedy = f"assistant-runner run resume {run.id}"
        await self._tell(run.status, words, f"go on with: {remedy}")

    async def _tell(self, status: str, message: str, remedy: str) -> None:
        run = self.watcher.run
        try:
            await self.emit(
                RunEnded(
                    run_id=run.id if run else "",
                    thread_id=run.thread_id if run else "",
                    status=status,
                    error={"kind": "interrupted", "message": message, "remedy": remedy},
                )
            )
        except Exception:  # the listener may be what broke (a closed pipe)
            return

    async def tell_end(self, error: AssistantRunnerError) -> None:
        run = self.watcher.run
        document: Any = error.document()["error"]
        status = run.status if run else "not started"
        if isinstance(error, RunExpired):  # by the clock it is, the backend may say so a moment later
            status = "expired"
        await self.emit(
            RunEnded(
                run_id=run.id if run else "",
                thread_id=run.thread_id if run else "",
                status=status,
                error=document,
            )
        )


async def _to_its_end(ending: Coroutine[Any, Any, Ended]) -> Ended:
    """An ending that has begun is written down though an interrupt comes meanwhile; a second one leaves."""
    task = asyncio.ensure_future(ending)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        with contextlib.suppress(Exception):
            await asyncio.shield(task)
        raise


def _rounds_of(memory: RunMemory) -> list[Round]:
    """The rounds that were made before, by this run and those that it took the place of; the one that was
    not submitted is made again from its results."""
    rounds: list[Round] = []
    for known in memory.every_round:
        done = known.submitted if known.run_id == memory.run_id else known.completed
        if known.run_id not in memory.run_ids or not done or known.open_calls():
            continue
        outputs = [
            function_result(call_id, finished.content, is_error=finished.is_error)
            for call_id in (call["id"] for call in known.calls)
            if (finished := known.finished.get(call_id))
        ]
        rounds.append(Round(len(rounds) + 1, known.run, known.calls, outputs))
    return rounds


async def _nobody(_event: object) -> None:
    return None
