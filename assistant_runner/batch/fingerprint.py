"""Which settings answer the rows: one short text in each result row (case-076).

It covers what changes an answer: the assistant's own content, model, instructions, tools, sampling,
engine and backend; of an assistant file only digests are kept, as it may hold secrets. What a row says
itself is in its content hash; limits and concurrency are in neither.
"""

import contextlib
import dataclasses
import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pydantic

from assistant_runner.assembly import Question
from assistant_runner.errors import ConfigurationError
from assistant_runner.settings import Settings
from assistant_runner.setup.finding import find_spec

_ASSISTANT_FIELDS = (
    "model",
    "instructions",
    "tools",
    "temperature",
    "top_p",
    "response_format",
    "tool_resources",
    "reasoning_effort",
)


_SPEC_FIELDS = (
    "model",
    "instructions",
    "temperature",
    "top_p",
    "reasoning_effort",
    "response_format",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "tool_resources",
    "engine",
    "interpreter_files",
    "search_files",
)

_WHERE = ("place", "key")
"""Fields of an assistant file's entries that say where they stand, not what they are."""


@dataclass(frozen=True, slots=True)
class World:
    """What assistant files are read in."""

    folder: Path
    environ: Mapping[str, str] = field(default_factory=dict)
    profile: str | None = None


class Fingerprints:
    """`of(assistant)`: the fingerprint of rows that this assistant answers (None: the batch's own)."""

    def __init__(self, parts: Mapping[str, Any], world: "World") -> None:
        self.parts = dict(parts)
        self._world = world
        self._known: dict[str | None, str] = {}

    def of(self, assistant: str | None) -> str:
        if assistant not in self._known:
            parts = self.parts
            if assistant is not None:
                with contextlib.suppress(ConfigurationError):  # the row will say it
                    parts = parts | {"assistant": assistant}
                    parts = parts | {"assistant": assistant_content(assistant, self._world)}
            self._known[assistant] = digest(parts)
        return self._known[assistant]


def digest(parts: Mapping[str, Any]) -> str:
    """Sixteen hexadecimal digits."""
    text = json.dumps(parts, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def changed_parts(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """The names of what differs; of an assistant, the names within it."""
    names: list[str] = []
    for name in sorted({*before, *now}):
        old, new = before.get(name), now.get(name)
        if old == new:
            continue
        if isinstance(old, dict) and isinstance(new, dict):
            names += [f"{name}.{inner}" for inner in sorted({*old, *new}) if old.get(inner) != new.get(inner)]
        else:
            names.append(name)
    return names


def settings_parts(settings: Settings, question: Question, world: "World") -> dict[str, Any]:
    """What answers a row, as plain JSON; an assistant that is a file counts by its content."""
    assistant = question.assistant or settings.assistant
    tools = question.tools if question.tools is not None else settings.tools
    return {
        "backend": "embedded" if settings.backend == "embedded" else "http",  # it may have moved
        "engine": settings.engine,
        "engine_base_url": settings.engine_base_url,
        "script": _plain(world.folder / settings.script, world.folder) if settings.script else None,
        "offline": settings.offline,
        "model": question.model or settings.model,
        "instructions": question.instructions,
        "tools": list(tools) if tools is not None else None,
        "tool_choice": _plain(question.tool_choice),
        "parallel_tool_calls": question.parallel_tool_calls,
        "response_format": _plain(question.response_format),
        "temperature": question.temperature,
        "top_p": question.top_p,
        "assistant": assistant_content(assistant, world),
    }


def remote_assistant_parts(document: Mapping[str, Any]) -> dict[str, Any]:
    """What of an assistant at the backend changes an answer."""
    return {name: digest({name: document.get(name)}) for name in _ASSISTANT_FIELDS if document.get(name)}


def assistant_content(assistant: str | None, world: "World") -> dict[str, str] | str | None:
    """Of an assistant file what changes an answer, each key as a digest; the word itself otherwise.

    None: the lone assistant file of the folder, if there is one. ConfigurationError if a file is wrong.
    """
    spec, _ = find_spec(assistant, cwd=world.folder, environ=world.environ, profile=world.profile)
    if spec is None:
        return assistant
    said = {name: _plain(getattr(spec, name), spec.folder) for name in _SPEC_FIELDS}
    return {name: digest({name: value}) for name, value in said.items() if value not in (None, [], {})}


def _plain(value: Any, folder: Path | None = None) -> Any:
    """The value as JSON has it, without where in a file it stands; paths count from `folder`."""
    if isinstance(value, Path) and folder is not None:
        return os.path.relpath(value, folder)
    if isinstance(value, pydantic.BaseModel):
        return value.model_dump(mode="json")
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [item.name for item in dataclasses.fields(value) if item.name not in _WHERE]
        return {name: _plain(getattr(value, name), folder) for name in names}
    if isinstance(value, tuple | list):
        return [_plain(item, folder) for item in value]
    return value
