"""Stream events: the name of an SSE frame and the object in its data (streaming reference).

`[DONE]` ends a stream and is not an event here. The name decides what the data is; a name that
this version does not know keeps its data as plain JSON and must be ignored, not refused.
"""

from dataclasses import dataclass
from typing import Any

from assistant_runner.wire.base import WireObject
from assistant_runner.wire.failures import ErrorBody, ErrorObject
from assistant_runner.wire.runs import Run, RunStep
from assistant_runner.wire.threads import Message, Thread


class MessageDelta(WireObject):
    """`delta`: `{role?, content: [{index, type, text: {value, annotations?}}]}`."""

    id: str
    object: str = "thread.message.delta"
    delta: dict[str, Any]

    def text(self) -> str:
        """The text that this delta adds, refusals included."""
        pieces = []
        for part in self.delta.get("content") or []:
            pieces.append((part.get("text") or {}).get("value") or part.get("refusal") or "")
        return "".join(pieces)


class RunStepDelta(WireObject):
    id: str
    object: str = "thread.run.step.delta"
    delta: dict[str, Any]


EventData = Thread | Run | RunStep | RunStepDelta | Message | MessageDelta | ErrorObject | dict[str, Any]


@dataclass(frozen=True, slots=True)
class StreamEvent:
    """One frame: `event` is the name on the wire, `data` the parsed object."""

    event: str
    data: EventData


def parse_event(name: str, document: dict[str, Any]) -> StreamEvent:
    """The event of a frame; pydantic.ValidationError if a known name carries something else.

    Errors come bare or wrapped in `{"error": ...}`, under the name `error` or inside another
    event's data (case-050): all become the event `error` with an ErrorObject.
    """
    wrapped = document.get("error")
    if isinstance(wrapped, dict) and "object" not in document:
        return StreamEvent("error", ErrorBody.model_validate(document).error)
    if name == "error":
        return StreamEvent(name, ErrorObject.model_validate(document))
    if name == "thread.created":
        return StreamEvent(name, Thread.model_validate(document))
    if name == "thread.run.step.delta":
        return StreamEvent(name, RunStepDelta.model_validate(document))
    if name.startswith("thread.run.step."):
        return StreamEvent(name, RunStep.model_validate(document))
    if name.startswith("thread.run."):
        return StreamEvent(name, Run.model_validate(document))
    if name == "thread.message.delta":
        return StreamEvent(name, MessageDelta.model_validate(document))
    if name.startswith("thread.message."):
        return StreamEvent(name, Message.model_validate(document))
    return StreamEvent(name, document)
