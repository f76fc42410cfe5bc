"""What the protocol's machine-readable reference demands of answers, events and their order."""

import functools
import json
import re
from typing import Any

import jsonschema

from tests.conftest import FIXTURES
from tests.service.conftest import Frame

REFERENCE = json.loads((FIXTURES / "protocol" / "assistants-v2.schema.json").read_text())
OPERATIONS = REFERENCE["operations"]
TERMINAL_EVENTS = ("completed", "failed", "cancelled", "expired", "incomplete")


@functools.cache
def _object_check(name: str) -> jsonschema.Draft202012Validator:
    return jsonschema.Draft202012Validator(REFERENCE["objects"][name]["schema"])


@functools.cache
def _event_check(name: str) -> jsonschema.Draft202012Validator:
    return jsonschema.Draft202012Validator(REFERENCE["stream_events"][name]["envelope_schema"])


def check_object(name: str, document: Any) -> None:
    """Fails unless the document is this object, with every key that is always present."""
    _object_check(name).validate(document)
    missing = set(REFERENCE["objects"][name]["always_present"]) - set(document)
    assert not missing, f"{name} lacks {sorted(missing)}"
    if name.startswith("list:"):
        for entry in document["data"]:
            check_object(name.removeprefix("list:"), entry)


def check_error(answer: Any, status: int) -> dict[str, Any]:
    """The error object of an answer that must be one."""
    assert answer.status_code == status, answer.text
    error = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert answer.headers["x-request-id"].startswith("req_")
    return error


def check_events(frames: list[Frame]) -> None:
    """Fails unless every frame holds what its name says."""
    for frame in frames:
        if frame.event == "done":
            assert frame.data == "[DONE]"
            continue
        _event_check(frame.event).validate({"event": frame.event, "data": frame.data})
        if frame.event.endswith(".delta"):
            continue
        event = REFERENCE["stream_events"][frame.event]
        if event["data_status"]:
            assert frame.data["status"] == event["data_status"], frame.event
        if event["data_object"]:
            check_object(event["data_object"], frame.data)


_LETTERS = {
    "thread.created": "T",
    "thread.run.created": "R",
    "thread.run.queued": "q",
    "thread.run.in_progress": "p",
    "thread.run.requires_action": "A",
    "thread.run.completed": "C",
    "thread.run.incomplete": "I",
    "thread.run.failed": "F",
    "thread.run.cancelling": "x",
    "thread.run.cancelled": "X",
    "thread.run.expired": "E",
    "thread.run.step.created": "s",
    "thread.run.step.in_progress": "i",
    "thread.run.step.delta": "d",
    "thread.run.step.completed": "c",
    "thread.run.step.failed": "f",
    "thread.run.step.cancelled": "k",
    "thread.run.step.expired": "e",
    "thread.message.created": "m",
    "thread.message.in_progress": "n",
    "thread.message.delta": "t",
    "thread.message.completed": "M",
    "thread.message.incomplete": "N",
    "done": ".",
}
_MESSAGE = "simnt*Mc"
_TOOL = "sid*c"
_CUT = "(?:simnt*N[cfke]|sid*[cfke]?)?"
_GRAMMAR = re.compile(
    rf"(?:T?R|c)?qp(?:{_MESSAGE}|{_TOOL})*(?:sid*A|x?(?:{_CUT})[CIFXE])\.|(?:T?Rq|cq)p?x?X\."
)


def check_order(frames: list[Frame]) -> None:
    """Fails unless the events come in an order that the grammar allows (streaming reference, 4)."""
    word = "".join(_LETTERS[frame.event] for frame in frames)
    assert _GRAMMAR.fullmatch(_cancel_moved(word)), word
    seen: set[str] = set()
    final: set[str] = set()
    for frame in frames[:-1]:
        identifier = frame.data["id"]
        last = frame.event.rsplit(".", 1)[1]
        assert identifier not in final, f"{frame.event} after the end of {identifier}"
        if last == "created":
            assert identifier not in seen
        seen.add(identifier)
        if last in TERMINAL_EVENTS:
            final.add(identifier)


def _cancel_moved(word: str) -> str:
    """`cancelling` may come at any point of the work; it is put where the grammar has it."""
    if "x" not in word:
        return word
    before, _, after = word.partition("x")
    tail = re.search(rf"{_CUT}$", before)
    assert tail is not None
    return f"{before[: tail.start()]}x{tail.group()}{after}"


def accumulated(frames: list[Frame]) -> dict[str, str]:
    """The text of each message as its deltas add up."""
    texts: dict[str, str] = {}
    for frame in frames:
        if frame.event == "thread.message.delta":
            for part in frame.data["delta"]["content"]:
                value = (part.get("text") or {}).get("value") or ""
                texts[frame.data["id"]] = texts.get(frame.data["id"], "") + value
    return texts
