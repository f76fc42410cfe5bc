"""Requests and results as plain JSON, and back: what the journal keeps of a run besides its events."""

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any

from pydantic import TypeAdapter, ValidationError

from assistant_runner.errors import ConfigurationError
from assistant_runner.run.request import Round, RunRequest, RunResult
from assistant_runner.wire.base import RequestBody, WireObject
from assistant_runner.wire.runs import Run, Usage
from assistant_runner.wire.threads import Message


def request_document(request: RunRequest) -> dict[str, Any]:
    """The request as plain JSON, fields that are None left out."""
    return dataclass_document(request)


def dataclass_document(value: Any) -> dict[str, Any]:
    """A frozen dataclass as plain JSON, fields that are None left out, wire objects as documents."""
    values = ((name, getattr(value, name)) for name in field_names(type(value)))
    return {name: _plain(item) for name, item in values if item is not None}


def _field_names(kind: Any) -> tuple[str, ...]:
    return tuple(field.name for field in dataclasses.fields(kind))


field_names: Callable[[Any], tuple[str, ...]] = functools.cache(_field_names)
"""The fields of a dataclass; asked for with every record."""


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, str | int | float | dict):
        return value
    if isinstance(value, WireObject | RequestBody):
        return value.document()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclass_document(value)
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    return value


def request_of(document: Mapping[str, Any]) -> RunRequest:
    """The request of its document; ConfigurationError if it is of another version."""
    try:
        return _request_form().validate_python(dict(document))
    except ValidationError as error:
        raise ConfigurationError(
            f"the journal's request cannot be read: {error.errors()[0]['msg']}",
            remedy="it was written by another version: ask again",
        ) from None


@functools.cache
def _request_form() -> TypeAdapter[RunRequest]:
    """Made once: it takes some milliseconds."""
    return TypeAdapter(RunRequest)


def result_record(result: RunResult) -> dict[str, Any]:
    """The result as plain JSON, whole: `result_of` gives it back."""
    return {
        "run": result.run.document(),
        "messages": [message.document() for message in result.messages],
        "thread_messages": [message.document() for message in result.thread_messages],
        "rounds": [dataclass_document(round_) for round_ in result.rounds],
        "text": result.text,
        "usage": result.usage.document() if result.usage else None,
        "duration_s": result.duration_s,
        "warnings": result.warnings,
    }


def result_of(record: Mapping[str, Any]) -> RunResult:
    """The result of its record."""
    return RunResult(
        run=Run.model_validate(record["run"]),
        messages=[Message.model_validate(message) for message in record["messages"]],
        thread_messages=[Message.model_validate(message) for message in record["thread_messages"]],
        rounds=[Round(**round_) for round_ in record["rounds"]],
        text=record["text"],
        usage=Usage.model_validate(record["usage"]) if record["usage"] else None,
        duration_s=record["duration_s"],
        warnings=record["warnings"],
    )
