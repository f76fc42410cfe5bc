"""Follow one run until it is settled: by its stream, else by reading it again and again.

A stream that breaks never costs a second run: the same run is read until it is settled (case-051).
The wait follows the backend's newest hint (case-008), else grows from 50 ms to 1 s. The caller
bounds the whole with its deadline.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager

from assistant_runner.backends.base import Backend
from assistant_runner.errors import BackendError, BackendUnreachable, ProtocolError, RequestRejected
from assistant_runner.run.events import Listener, RunStarted, TextArrived, ToolActivity, Warned
from assistant_runner.wire.failures import ErrorObject
from assistant_runner.wire.runs import ACTIVE, SETTLED, FunctionStepCall, Run, RunStep, ToolCallsDetails
from assistant_runner.wire.stream import MessageDelta, StreamEvent
from assistant_runner.wire.threads import Message

FIRST_POLL_S = 0.05
LONGEST_POLL_S = 1.0
NULL_ACTION_READS = 5

Sleep = Callable[[float], Awaitable[None]]


class RunWatcher:
    """Watches one run through all its rounds; `messages` are the finished ones it saw, by id.

    `whole` says that no stream broke: then `messages` are all that the run wrote.
    """

    def __init__(
        self, backend: Backend, emit: Listener, *, run: Run | None = None, sleep: Sleep = asyncio.sleep
    ) -> None:
        self._backend = backend
        self._emit = emit
        self._sleep = sleep
        self.run: Run | None = run
        self.messages: dict[str, Message] = {}
        self.whole = True
        self._strange: set[str] = set()

    async def follow(self, stream: AbstractAsyncContextManager[AsyncIterator[StreamEvent]]) -> Run:
        """The settled run; BackendError if the stream cannot be opened, or tells of an error."""
        try:
            async with stream as events:
                async for event in events:
                    await self._see(event)
        except (BackendUnreachable, ProtocolError):
            if self.run is None:
                raise
            self.whole = False
        if self.run is None:
            raise ProtocolError("the stream ended before it told of a run", remedy="ask the backend's owner")
        if self.run.is_terminal or (self.run.status == "requires_action" and self.run.required_action):
            return self.run
        return await self.poll()

    async def poll(self) -> Run:
        """The settled run, by reading it."""
        assert self.run is not None
        self.whole = False
        wait_s, null_reads = FIRST_POLL_S, 0
        while True:
            run, hint_s = await self._backend.retrieve_run(thread_id=self.run.thread_id, run_id=self.run.id)
            self.run = run
            await self._warn_of_strange(run)
            if run.is_terminal:
                return run
            if run.status == "requires_action":
                if run.required_action is not None:
                    return run
                null_reads += 1
                if null_reads >= NULL_ACTION_READS:
                    return run  # the router names the fault (case-009)
            await self._sleep(hint_s if hint_s is not None else wait_s)
            wait_s = min(wait_s * 1.6, LONGEST_POLL_S)

    async def _see(self, event: StreamEvent) -> None:
        data = event.data
        if isinstance(data, Run):
            first = self.run is None
            self.run = data
            if first:
                await self._emit(
                    RunStarted(
                        run_id=data.id,
                        thread_id=data.thread_id,
                        assistant_id=data.assistant_id,
                        model=data.model,
                    )
                )
            await self._warn_of_strange(data)
        elif isinstance(data, MessageDelta):
            if text := data.text():
                await self._emit(TextArrived(text=text, message_id=data.id))
        elif isinstance(data, Message):
            if event.event in ("thread.message.completed", "thread.message.incomplete"):
                self.messages[data.id] = data
        elif isinstance(data, RunStep):
            if event.event == "thread.run.step.completed":
                await self._tell_hosted(data)
        elif isinstance(data, ErrorObject):
            await self._meet_error(data)

    async def _tell_hosted(self, step: RunStep) -> None:
        if isinstance(step.step_details, ToolCallsDetails):
            for call in step.step_details.tool_calls:
                if not isinstance(call, FunctionStepCall):
                    document = call.document()
                    await self._emit(
                        ToolActivity(
                            kind=str(call.type), tool_call_id=str(document.get("id", "")), detail=document
                        )
                    )

    async def _meet_error(self, error: ErrorObject) -> None:
        """An error inside a stream (case-050): the run may have ended or not, so it is read once."""
        words = f"{error.code or error.type or 'error'}: {error.message}"
        if self.run is not None:
            try:
                self.run, _ = await self._backend.retrieve_run(
                    thread_id=self.run.thread_id, run_id=self.run.id
                )
            except (BackendError, RequestRejected):
                pass
            else:
                if self.run.is_terminal:
                    return
        raise BackendError(
            f"the backend reported an error in the stream: {words}",
            remedy="see the backend's log; the run may still be active there",
            run_id=self.run.id if self.run else None,
            thread_id=self.run.thread_id if self.run else None,
        )

    async def _warn_of_strange(self, run: Run) -> None:
        if run.status not in SETTLED | ACTIVE and run.status not in self._strange:
            self._strange.add(run.status)
            await self._emit(
                Warned(f"run {run.id} has the status {run.status!r}, unknown to this version; waiting")
            )
