"""The driver: from a request to the result of its run.

It starts the run (thread and run in one call, or a run on a thread that exists), lets the loop
answer its required actions, and collects what the run wrote. Whatever ends it early (deadline,
limit, interrupt) cancels the run at the backend once, so that no thread stays locked.
"""

import asyncio
import dataclasses
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager

from assistant_runner.backends.base import Backend
from assistant_runner.errors import AssistantRunnerError, HumanNeeded, LimitReached, RunExpired, RunTimedOut
from assistant_runner.run.answer import render_answer
from assistant_runner.run.endings import ending_of
from assistant_runner.run.events import Listener, RunEnded, RunEvent, RunRequested, Warned
from assistant_runner.run.loop import RunLoop, Workshop, total_usage, wait_cancelled
from assistant_runner.run.request import Limits, RunRequest, RunResult
from assistant_runner.run.watch import RunWatcher
from assistant_runner.wire.base import WireObject
from assistant_runner.wire.runs import Run, RunCreate, ThreadAndRunCreate
from assistant_runner.wire.stream import StreamEvent
from assistant_runner.wire.threads import Message, MessageCreate, ThreadCreate

EventStream = AbstractAsyncContextManager[AsyncIterator[StreamEvent]]


class Driver:
    """Runs requests on one backend with one workshop; safe to use from many tasks at once."""

    def __init__(
        self,
        backend: Backend,
        workshop: Workshop,
        *,
        limits: Limits,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.backend = backend
        self.workshop = workshop
        self.limits = limits
        self._clock = clock
        self._monotonic = monotonic

    async def run(
        self,
        request: RunRequest,
        *,
        listener: Listener | None = None,
        limits: Limits | None = None,
        pause_after: int | None = None,
        whole_thread: bool = False,
    ) -> RunResult:
        """The completed run; RunError or BackendError otherwise.

        `pause_after` rounds the run is left waiting and LimitReached says how to go on (row S0.23).
        `whole_thread` also reads the thread's messages, newest first.
        """
        limits = limits or self.limits
        started = self._monotonic()
        warnings: list[str] = []

        async def emit(event: RunEvent) -> None:
            if isinstance(event, Warned):
                warnings.append(event.message)
            if listener is not None:
                await listener(event)

        watcher = RunWatcher(self.backend, emit)
        loop = RunLoop(
            backend=self.backend,
            workshop=self.workshop,
            watcher=watcher,
            emit=emit,
            limits=limits,
            deadline=started + limits.timeout_s,
            clock=self._clock,
            monotonic=self._monotonic,
            pause_after=pause_after,
        )
        await emit(RunRequested(request=_request_document(request), backend=self.backend.label))
        try:
            async with asyncio.timeout(limits.timeout_s):
                run = await loop.settle(await watcher.follow(await self._start(request)))
                messages = await self._messages(watcher, run)
                thread_messages = await self._thread(run) if whole_thread else []
        except TimeoutError:
            error = await self._time_out(watcher, limits)
            await self._tell_end(emit, watcher, error)
            raise error from None
        except asyncio.CancelledError:
            if watcher.run is not None and not watcher.run.is_terminal:
                await asyncio.shield(wait_cancelled(self.backend, watcher.run))
            raise
        except BaseExceptionGroup as group:
            raise _first(group) from None
        except AssistantRunnerError as error:
            await self._give_up(watcher, error)
            await self._tell_end(emit, watcher, error)
            raise

        text, notes = render_answer(messages)
        warnings.extend(notes)
        ending = ending_of(run, partial=text)
        if ending is not None:
            await self._tell_end(emit, watcher, ending)
            raise ending
        await emit(RunEnded(run_id=run.id, thread_id=run.thread_id, status=run.status))
        return RunResult(
            run=run,
            messages=messages,
            thread_messages=thread_messages,
            rounds=loop.rounds,
            text=text,
            usage=total_usage([usage for usage in (run.usage, *loop.tool_usage) if usage]),
            duration_s=self._monotonic() - started,
            warnings=warnings,
        )

    async def _start(self, request: RunRequest) -> EventStream:
        """The stream of the new run."""
        prompt = [MessageCreate(role="user", content=request.prompt)] if request.prompt is not None else []
        messages = [*request.messages, *prompt]
        options = {
            "assistant_id": request.assistant_id,
            "model": request.model,
            "instructions": request.instructions,
            "tools": list(request.tools) if request.tools is not None else None,
            "metadata": request.metadata,
            "temperature": request.temperature,
            "top_p": request.top_p,
            "max_prompt_tokens": request.max_prompt_tokens,
            "max_completion_tokens": request.max_completion_tokens,
            "truncation_strategy": request.truncation_strategy,
            "tool_choice": request.tool_choice,
            "parallel_tool_calls": request.parallel_tool_calls,
            "response_format": request.response_format,
            "stream": True,
        }
        alone = request.additional_instructions or request.reasoning_effort
        if request.thread_id is None and not request.separate and not alone:
            body = ThreadAndRunCreate.of(thread=ThreadCreate.of(messages=messages or None), **options)
            return self.backend.stream_thread_and_run(body)
        thread_id = request.thread_id
        if thread_id is None:
            thread = await self.backend.create_thread(ThreadCreate.of(messages=messages or None))
            thread_id, messages = thread.id, []
        run = RunCreate.of(
            additional_instructions=request.additional_instructions,
            additional_messages=messages or None,
            reasoning_effort=request.reasoning_effort,
            **options,
        )
        return self.backend.stream_run(thread_id, run)

    async def _messages(self, watcher: RunWatcher, run: Run) -> list[Message]:
        """What this run wrote, in creation order (case-011, case-012)."""
        if watcher.whole and watcher.messages:
            return [message for message in watcher.messages.values() if message.role == "assistant"]
        found: list[Message] = []
        after: str | None = None
        while True:
            page = await self.backend.list_messages(run.thread_id, run_id=run.id, order="asc", after=after)
            found.extend(m for m in page.data if m.run_id == run.id and m.role == "assistant")
            if not page.has_more or not page.data:
                return found
            after = page.data[-1].id

    async def _thread(self, run: Run) -> list[Message]:
        found: list[Message] = []
        after: str | None = None
        while True:
            page = await self.backend.list_messages(run.thread_id, after=after)
            found.extend(page.data)
            if not page.has_more or not page.data:
                return found
            after = page.data[-1].id

    async def _time_out(self, watcher: RunWatcher, limits: Limits) -> RunTimedOut:
        """Cancel once, then say what was left and in what state (case-001)."""
        run = watcher.run
        if run is None:
            return RunTimedOut(
                f"no run began within {limits.timeout_s:g} s",
                remedy="raise --timeout, or look at the backend",
            )
        after = run if run.is_terminal else await wait_cancelled(self.backend, run)
        state = after.status if after else f"{run.status} (the cancel was not confirmed)"
        return RunTimedOut(
            f"run {run.id} on thread {run.thread_id} did not end within {limits.timeout_s:g} s; "
            f"it was left {state}",
            run_id=run.id,
            thread_id=run.thread_id,
            remedy="raise --timeout, or look at the backend",
            status=state,
        )

    async def _give_up(self, watcher: RunWatcher, error: AssistantRunnerError) -> None:
        """Free the thread, unless the run is meant to wait (paused, a person is asked) or is over."""
        run = watcher.run
        if run is None or run.is_terminal or isinstance(error, HumanNeeded | RunExpired):
            return
        if isinstance(error, LimitReached) and error.facts.get("paused"):
            return
        after = await wait_cancelled(self.backend, run)
        watcher.run = after or run

    async def _tell_end(self, emit: Listener, watcher: RunWatcher, error: AssistantRunnerError) -> None:
        run = watcher.run
        await emit(
            RunEnded(
                run_id=run.id if run else "",
                thread_id=run.thread_id if run else "",
                status=run.status if run else "not started",
                error=error.document()["error"],  # type: ignore[arg-type]
            )
        )


def _request_document(request: RunRequest) -> dict[str, object]:
    def plain(value: object) -> object:
        if isinstance(value, WireObject | MessageCreate):
            return value.document()
        if isinstance(value, tuple | list):
            return [plain(item) for item in value]
        return value

    return {
        field.name: plain(getattr(request, field.name))
        for field in dataclasses.fields(request)
        if getattr(request, field.name) is not None
    }


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The first error of a task group: a round's calls fail together only through us or the journal."""
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
