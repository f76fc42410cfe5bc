"""Start a run: on a new thread, or on one that exists and may be locked.

A thread takes one run at a time. On a thread that exists its runs are read first: what blocks it is
met by a stated policy (case-002), and when the answer to the create is lost, a run that was not there
before is ours and is followed instead of created again (case-016).
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Collection
from typing import Any, Literal

from assistant_runner.backends.base import Backend
from assistant_runner.errors import (
    BackendUnreachable,
    OutcomeUnknown,
    RequestRejected,
    RunError,
)
from assistant_runner.run.events import Listener, Warned
from assistant_runner.run.request import RunRequest
from assistant_runner.run.watch import RunWatcher
from assistant_runner.wire.runs import TERMINAL, Run, RunCreate, ThreadAndRunCreate
from assistant_runner.wire.threads import Message, MessageCreate, ThreadCreate

IfActive = Literal["fail", "wait", "cancel", "takeover"]
LOCKED = re.compile(r"already has an active run|while a run \S+ is active")
LOOKS = 4
LOOK_AGAIN_S = 0.5

Settle = Callable[[Run], Awaitable[Run]]
"""Answers a waiting run's calls with our tools until it is over."""


class ThreadBusy(RunError):
    """Another run is active on the thread and the policy says `fail`."""

    kind = "thread_busy"


class RunStarter:
    """Starts the run of one request and follows it to its first settled state.

    `blocked_by`: the run that is waited for, while one locks the thread.
    """

    def __init__(
        self,
        backend: Backend,
        watcher: RunWatcher,
        emit: Listener,
        *,
        if_active: IfActive,
        settle: Settle,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._backend = backend
        self._watcher = watcher
        self._emit = emit
        self._if_active = if_active
        self.blocked_by: Run | None = None
        self._settle = settle
        self._sleep = sleep

    async def start(self, request: RunRequest, *, stream: bool = True) -> Run:
        """The settled run; with `stream` False the run as it was created (`--detach`)."""
        prompt = [MessageCreate(role="user", content=request.prompt)] if request.prompt is not None else []
        messages = [*request.messages, *prompt]
        alone = request.separate or request.additional_instructions or request.reasoning_effort
        if request.thread_id is None and not alone:
            thread = ThreadCreate.of(messages=messages or None)
            body = ThreadAndRunCreate.of(thread=thread, **_options(request), stream=stream or None)
            if not stream:
                return await self._adopted(await self._backend.create_thread_and_run(body))
            try:
                return await self._watcher.follow(self._backend.stream_thread_and_run(body))
            except BackendUnreachable:
                thread_id = self._watcher.thread_id
                if thread_id is None or not (found := await self._lost(thread_id, request, set())):
                    raise
                await self._watcher.adopt(found)
                return await self._watcher.poll()
        if request.thread_id is None:
            thread_id = await self._new_thread(ThreadCreate.of(messages=messages or None))
            return await self._on_thread(thread_id, request, [], before=set(), stream=stream)
        before = await self._free(request.thread_id)
        if request.separate:
            for message in messages:
                await add_message(self._backend, request.thread_id, message)
            messages = []
        return await self._on_thread(request.thread_id, request, messages, before=before, stream=stream)

    async def again(self, run: Run, request: RunRequest, *, instructions: str | None = None) -> Run:
        """The settled run of the same request on the thread of `run`, whose messages stand there."""
        before = {known.id for known in (await self._backend.list_runs(run.thread_id)).data}
        return await self._on_thread(
            run.thread_id, request, [], before=before, stream=True, instructions=instructions
        )

    async def find_lost(
        self, thread_id: str, *, assistant_id: str, since: float, taken: Collection[str] = ()
    ) -> Run | None:
        """A run on the thread that was created at or after `since` (Unix seconds): ours, its id lost.

        `taken`: ids of runs that are other questions'.
        """
        for run in (await self._backend.list_runs(thread_id)).data:
            ours = run.assistant_id == assistant_id and run.id not in taken
            if ours and run.created_at >= int(since) - 1:
                return run
        return None

    async def _new_thread(self, body: ThreadCreate) -> str:
        try:
            return (await self._backend.create_thread(body)).id
        except OutcomeUnknown:  # a second thread does nothing: the first one, if it is there, stays unused
            return (await self._backend.create_thread(body)).id

    async def _on_thread(
        self,
        thread_id: str,
        request: RunRequest,
        messages: list[MessageCreate],
        *,
        before: set[str],
        stream: bool,
        instructions: str | None = None,
    ) -> Run:
        added = [text for text in (request.additional_instructions, instructions) if text]
        body = RunCreate.of(
            additional_instructions="\n\n".join(added) or None,
            additional_messages=messages or None,
            reasoning_effort=request.reasoning_effort,
            **_options(request),
            stream=stream or None,
        )
        for attempt in range(1, LOOKS + 1):
            try:
                if stream:
                    return await self._watcher.follow(self._backend.stream_run(thread_id, body))
                return await self._adopted(await self._backend.create_run(thread_id, body))
            except BackendUnreachable as error:
                begun = isinstance(error, OutcomeUnknown) or error.facts.get("stream_broke")
                if not begun or self._watcher.run is not None:
                    raise  # it never arrived, or the watcher has gone on reading it in vain
                if found := await self._lost(thread_id, request, before):
                    await self._emit(Warned(f"the answer to the create was lost; found its run {found.id}"))
                    await self._watcher.adopt(found)
                    return found if not stream else await self._watcher.poll()
                if attempt == LOOKS:
                    raise
            except RequestRejected as error:
                if not LOCKED.search(error.message) or attempt == LOOKS:
                    raise
                before = await self._free(thread_id)
        raise AssertionError("the loop returns or raises")

    async def _adopted(self, run: Run) -> Run:
        await self._watcher.adopt(run)
        return run

    async def _lost(self, thread_id: str, request: RunRequest, before: set[str]) -> Run | None:
        """The run that a create made whose answer was lost; looked for a few times."""
        for _ in range(LOOKS):
            for run in (await self._backend.list_runs(thread_id)).data:
                if run.id not in before and run.assistant_id == request.assistant_id:
                    return run
            await self._sleep(LOOK_AGAIN_S)
        return None

    async def _free(self, thread_id: str) -> set[str]:
        """The ids of the thread's runs, once none of them is active."""
        runs = (await self._backend.list_runs(thread_id)).data
        for run in runs:
            if run.status not in TERMINAL:
                await self._meet(run)
        return {run.id for run in runs}

    async def _meet(self, run: Run) -> None:
        """Apply the policy to the run that blocks the thread, and say what was done."""
        if self._if_active == "fail":
            raise ThreadBusy(
                f"thread {run.thread_id} is locked by run {run.id}, which is {run.status}",
                run_id=run.id,
                thread_id=run.thread_id,
                status=run.status,
                remedy="choose what to do with it: --if-active wait, cancel or takeover",
            )
        self.blocked_by = run
        if self._if_active == "takeover":
            after = await self._settle(run)
            done = "was taken over"
        elif self._if_active == "cancel":
            after = await cancel_and_wait(self._backend, run)
            done = "was cancelled"
        else:
            after = await RunWatcher(self._backend, _nobody, run=run, sleep=self._sleep).poll_terminal()
            done = "was waited for"
        self.blocked_by = None
        await self._emit(Warned(f"run {run.id} locked the thread; it {done} and is {after.status}"))


async def cancel_and_wait(backend: Backend, run: Run) -> Run:
    """The run once it is over, after one cancel (case-005); it may have ended by itself first.

    The caller bounds the wait. BackendError if the backend cannot be asked.
    """
    try:
        run = await backend.cancel_run(thread_id=run.thread_id, run_id=run.id)
    except RequestRejected:  # it is over, or being cancelled already
        run, _ = await backend.retrieve_run(thread_id=run.thread_id, run_id=run.id)
    return run if run.is_terminal else await RunWatcher(backend, _nobody, run=run).poll_terminal()


async def add_message(backend: Backend, thread_id: str, body: MessageCreate) -> Message:
    """The message, added once: after a lost answer the thread is read before it is added again."""
    try:
        return await backend.create_message(thread_id, body)
    except OutcomeUnknown:
        for message in (await backend.list_messages(thread_id, limit=1)).data:
            if message.role == body.role and message.text() == _text(body):
                return message
        return await backend.create_message(thread_id, body)


def _text(body: MessageCreate) -> str:
    if isinstance(body.content, str):
        return body.content
    return "\n".join(part.text for part in body.content if part.type == "text")


def _options(request: RunRequest) -> dict[str, Any]:
    return {
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
    }


async def _nobody(_event: object) -> None:
    return None
