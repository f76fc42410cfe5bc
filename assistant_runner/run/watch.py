"""Follow one run until it is settled: by its stream, else by reading it again and again.

A stream that breaks never costs a second run: the same run is read until it is settled (case-051).
The wait follows the backend's newest hint unless an interval is set (case-008), else grows from 50 ms
to 1 s. What was seen stays seen: a terminal run never goes back, a stale read of a required action
that was answered already is not answered twice. The caller bounds the whole with its deadline.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import AbstractAsyncContextManager

from assistant_runner.backends.base import Backend
from assistant_runner.errors import ApiGone, BackendError, BackendUnreachable, ProtocolError
from assistant_runner.masking import mask
from assistant_runner.run.events import Listener, RunStarted, TextArrived, ToolActivity, Warned
from assistant_runner.wire.failures import ErrorObject
from assistant_runner.wire.runs import ACTIVE, SETTLED, FunctionStepCall, Run, RunStep, ToolCallsDetails
from assistant_runner.wire.stream import MessageDelta, StreamEvent
from assistant_runner.wire.threads import Message, Thread

FIRST_POLL_S = 0.05
LONGEST_POLL_S = 1.0
NULL_ACTION_READS = 5
STALE_READS = 20
OUTAGES = 8
"""Failed reads in a row after which the backend is given up; each has its own retries (some 4 s)."""

Sleep = Callable[[float], Awaitable[None]]
EventStream = AbstractAsyncContextManager[AsyncIterator[StreamEvent]]


class RunWatcher:
    """Watches one run through all its rounds; `messages` are the finished ones it saw, by id.

    `whole` says that no stream broke: then `messages` are all that the run wrote. `before_calls` are
    the ids of those that came before a required action: words on the way, not the answer (row S0.10).
    `thread_id` may be known before the run.
    `poll_interval_s`: a fixed wait between reads instead of hints and growth.
    """

    def __init__(
        self,
        backend: Backend,
        emit: Listener,
        *,
        run: Run | None = None,
        sleep: Sleep = asyncio.sleep,
        poll_interval_s: float | None = None,
    ) -> None:
        self._backend = backend
        self._emit = emit
        self._sleep = sleep
        self._interval_s = poll_interval_s
        self.run: Run | None = run
        self.thread_id: str | None = run.thread_id if run else None
        self.messages: dict[str, Message] = {}
        self.before_calls: set[str] = set()
        self.whole = run is None
        self._strange: set[str] = set()
        self._told: set[str] = set()

    async def adopt(self, run: Run) -> None:
        """Watch this run, which was created by us earlier or just now."""
        first = self.run is None or self.run.id != run.id
        self.run = run
        if first:
            await self._emit(
                RunStarted(
                    run_id=run.id, thread_id=run.thread_id, assistant_id=run.assistant_id, model=run.model
                )
            )

    async def follow(
        self,
        stream: EventStream,
        *,
        opened: Callable[[], Awaitable[None]] | None = None,
        answered: Collection[str] = (),
    ) -> Run:
        """The settled run; BackendError if the stream cannot be opened, or tells of an error.

        `opened` is awaited when the backend has taken the request. `answered`: tool call ids whose
        outputs were submitted; a run that still asks for one of them is a stale read.
        """
        taken = False
        try:
            async with stream as events:
                taken = True
                if opened is not None:
                    await opened()
                async for event in events:
                    await self._see(event)
        except (BackendUnreachable, ProtocolError):
            if self.run is None or not taken:
                raise
            self.whole = False
        if self.run is None:
            raise ProtocolError("the stream ended before it told of a run", remedy="ask the backend's owner")
        if self.run.status == "requires_action":
            self.before_calls.update(self.messages)
        if self.run.is_terminal or (self._asks(self.run) and not self._is_stale(self.run, answered)):
            return self.run
        return await self.poll(answered=answered)

    async def poll(self, *, answered: Collection[str] = ()) -> Run:
        """The settled run, by reading it."""
        assert self.run is not None
        self.whole = False
        wait_s, null_reads, stale_reads = FIRST_POLL_S, 0, 0
        while True:
            run, hint_s = await self.read(self.run)
            self.run = run
            await self._warn_of_strange(run)
            if run.is_terminal:
                return run
            if self._asks(run):
                if not self._is_stale(run, answered):
                    return run
                stale_reads += 1
                if stale_reads >= STALE_READS:
                    return run  # the backend means it: the caller looks again
            elif run.status == "requires_action":
                null_reads += 1
                if null_reads >= NULL_ACTION_READS:
                    return run  # the router names the fault (case-009)
            hint_s = self._interval_s if self._interval_s is not None else hint_s
            await self._sleep(hint_s if hint_s is not None else wait_s)
            wait_s = min(wait_s * 1.6, LONGEST_POLL_S)

    async def poll_terminal(self) -> Run:
        """The run once it is over, by reading it: it asks for nothing that we would answer."""
        assert self.run is not None
        wait_s = FIRST_POLL_S
        while True:
            self.run, hint_s = await self.read(self.run)
            if self.run.is_terminal:
                return self.run
            hint_s = self._interval_s if self._interval_s is not None else hint_s
            await self._sleep(hint_s if hint_s is not None else wait_s)
            wait_s = min(wait_s * 1.6, LONGEST_POLL_S)

    async def read(self, run: Run) -> tuple[Run, float | None]:
        """The run now and the hint; an outage is sat out for a while (a server that starts anew)."""
        for outage in range(1, OUTAGES + 1):
            try:
                return await self._backend.retrieve_run(thread_id=run.thread_id, run_id=run.id)
            except ApiGone:
                raise
            except BackendUnreachable as error:
                if outage == OUTAGES:
                    raise
                if outage == 1:
                    await self._emit(Warned(f"{error.message}; run {run.id} may go on, waiting"))
                await self._sleep(LONGEST_POLL_S)
        raise AssertionError("the loop returns or raises")

    def _asks(self, run: Run) -> bool:
        return run.status == "requires_action" and run.required_action is not None

    def _is_stale(self, run: Run, answered: Collection[str]) -> bool:
        return bool(answered) and not set(asked_ids(run)).isdisjoint(answered)

    async def _see(self, event: StreamEvent) -> None:
        data = event.data
        if isinstance(data, Run):
            if self.run is not None and self.run.id == data.id and self.run.is_terminal:
                return  # terminal states never change again: the event came late or twice
            await self.adopt(data)
            await self._warn_of_strange(data)
        elif isinstance(data, Thread):
            self.thread_id = data.id
        elif isinstance(data, MessageDelta):
            if text := data.text():
                await self._emit(TextArrived(text=text, message_id=data.id))
        elif isinstance(data, Message):
            if event.event in ("thread.message.completed", "thread.message.incomplete"):
                self.messages[data.id] = data
        elif isinstance(data, RunStep):
            if event.event == "thread.run.step.completed" and data.id not in self._told:
                self._told.add(data.id)
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
        words = f"{error.code or error.type or 'error'}: {mask(error.message)}"
        if self.run is not None:
            try:
                run, _ = await self._backend.retrieve_run(thread_id=self.run.thread_id, run_id=self.run.id)
            except BackendError:
                pass
            else:
                self.run = run
                if run.is_terminal:
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


def asked_ids(run: Run) -> list[str]:
    """The ids of the calls that the run waits for; none if it waits for something else."""
    action = run.required_action
    if action is None:
        return []
    if action.submit_tool_outputs is not None:
        return [call.id for call in action.submit_tool_outputs.tool_calls]
    return [str(call["id"]) for call in hosted_calls(run)]


def hosted_calls(run: Run) -> list[dict[str, object]]:
    """The calls of a hosted MCP tool that wait for approval (`submit_tool_approval`, Foundry classic)."""
    action = run.required_action
    inner = (action.model_extra or {}).get("submit_tool_approval") if action else None
    calls = inner.get("tool_calls") if isinstance(inner, dict) else None
    return [call for call in calls or [] if isinstance(call, dict) and call.get("id")]
