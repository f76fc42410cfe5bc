"""Fakes that stand at the seams: a backend that answers from a list, tools that count."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import httpx

from assistant_runner.run.driver import Driver
from assistant_runner.run.events import RunEvent
from assistant_runner.run.loop import Workshop
from assistant_runner.run.request import Limits
from assistant_runner.tooling.contract import Tool, ToolContext
from assistant_runner.tooling.gate import ToolGate
from assistant_runner.tooling.registry import Toolbox
from assistant_runner.tooling.schema import tool_from_function
from assistant_runner.wire.runs import Run, ToolOutput
from assistant_runner.wire.stream import StreamEvent
from assistant_runner.wire.threads import Message

_numbers = itertools.count(1)


def call(name: str, arguments: Any = "{}", *, id: str | None = None) -> dict[str, Any]:
    return {
        "id": id or f"call_{next(_numbers)}",
        "type": "function",
        "function": {"name": name, "arguments": arguments},
    }


def run_object(status: str, calls: Sequence[dict[str, Any]] = (), **fields: Any) -> Run:
    """A run in the state, with a required action if there are calls."""
    action = {"type": "submit_tool_outputs", "submit_tool_outputs": {"tool_calls": list(calls)}}
    return Run.model_validate(
        {
            "id": "run_1",
            "object": "thread.run",
            "created_at": 1,
            "thread_id": "thread_1",
            "assistant_id": "asst_1",
            "status": status,
            "model": "m",
            "tools": [],
            "required_action": action if calls else None,
            **fields,
        }
    )


def message_object(text: str, *, run_id: str = "run_1", **fields: Any) -> Message:
    return Message.model_validate(
        {
            "id": f"msg_{next(_numbers)}",
            "created_at": 1,
            "thread_id": "thread_1",
            "role": "assistant",
            "run_id": run_id,
            "status": "completed",
            "content": [{"type": "text", "text": {"value": text, "annotations": []}}],
            **fields,
        }
    )


def asks(*calls: dict[str, Any], **fields: Any) -> list[StreamEvent]:
    """A stream that ends in requires_action."""
    return [StreamEvent("thread.run.requires_action", run_object("requires_action", calls, **fields))]


def answers(text: str) -> list[StreamEvent]:
    """A stream that ends completed with one message."""
    return [
        StreamEvent("thread.message.completed", message_object(text)),
        StreamEvent("thread.run.completed", run_object("completed")),
    ]


class ScriptedBackend:
    """Plays one list of events per stream, then keeps what was submitted, cancelled and read.

    An exception in a list is raised at its place. `polls` are the runs that reads give.
    """

    label = "scripted"

    def __init__(self, *streams: Sequence[StreamEvent | Exception], polls: Sequence[Run] = ()) -> None:
        self.streams = list(streams)
        self.polls = list(polls)
        self.submitted: list[list[ToolOutput]] = []
        self.started: list[Any] = []
        self.cancelled: list[str] = []
        self.reads = 0

    @asynccontextmanager
    async def _play(self) -> AsyncIterator[AsyncIterator[StreamEvent]]:
        events = self.streams.pop(0) if len(self.streams) > 1 else self.streams[0]

        async def play() -> AsyncIterator[StreamEvent]:
            for event in events:
                if isinstance(event, Exception):
                    raise event
                yield event
            await asyncio.sleep(0)

        yield play()

    def stream_thread_and_run(self, body: Any) -> Any:
        self.started.append(body)
        return self._play()

    def stream_run(self, thread_id: str, body: Any) -> Any:
        self.started.append(body)
        return self._play()

    def stream_submit(self, *, thread_id: str, run_id: str, outputs: Sequence[ToolOutput]) -> Any:
        self.submitted.append(list(outputs))
        return self._play()

    async def retrieve_run(self, *, thread_id: str, run_id: str) -> tuple[Run, float | None]:
        self.reads += 1
        return (self.polls.pop(0) if len(self.polls) > 1 else self.polls[0]), 0.0

    async def cancel_run(self, *, thread_id: str, run_id: str) -> Run:
        self.cancelled.append(run_id)
        self.polls = [run_object("cancelled")]
        return run_object("cancelling")

    async def list_messages(self, thread_id: str, **query: Any) -> Any:
        raise AssertionError("the stream was whole: no need to list")

    def outputs(self, round_number: int) -> dict[str, str]:
        """What was submitted in a round (from 1), by tool call id."""
        return {output.tool_call_id: output.output for output in self.submitted[round_number - 1]}


def workshop(*functions: Callable[..., Any] | Tool) -> Workshop:
    """A workshop with these tools and the real gate."""
    toolbox = Toolbox()
    for function in functions:
        toolbox.add(function if isinstance(function, Tool) else tool_from_function(function))

    client = httpx.AsyncClient(transport=httpx.MockTransport(lambda request: httpx.Response(404)))

    def context(call_id: str, tool: Tool, deadline_s: float, thread_id: str) -> ToolContext:
        return ToolContext(tool_call_id=call_id, http=client, environ={}, deadline_s=deadline_s)

    return Workshop(tools=toolbox, gate=ToolGate(), context_for=context)


def driver(backend: ScriptedBackend, *functions: Callable[..., Any] | Tool, **limits: Any) -> Driver:
    return Driver(backend, workshop(*functions), limits=Limits(**limits))  # type: ignore[arg-type]


class Recorder:
    """A listener that keeps all events."""

    def __init__(self) -> None:
        self.events: list[RunEvent] = []

    async def __call__(self, event: RunEvent) -> None:
        self.events.append(event)

    def names(self) -> list[str]:
        return [event.name for event in self.events]
