"""Which settings answer the rows: one short text in each result row (case-076).

It covers what changes an answer: the assistant's own content, model, instructions, tools, sampling,
engine and backend. What a row says itself is in its content hash; limits and concurrency are in neither.
"""

import hashlib
import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pydantic

from assistant_runner.assembly import Question
from assistant_runner.settings import Settings

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


class Fingerprints:
    """`of(assistant)`: the fingerprint of rows that this assistant answers (None: the batch's own)."""

    def __init__(self, parts: Mapping[str, Any], *, folder: Path) -> None:
        self.parts = dict(parts)
        self._folder = folder
        self._known: dict[str | None, str] = {}

    def of(self, assistant: str | None) -> str:
        if assistant not in self._known:
            parts = self.parts
            if assistant is not None:
                parts = parts | {"assistant": assistant_content(assistant, self._folder)}
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


def settings_parts(settings: Settings, question: Question, *, folder: Path) -> dict[str, Any]:
    """What answers a row, as plain JSON; an assistant that is a file counts by its content."""
    assistant = question.assistant or settings.assistant
    tools = question.tools if question.tools is not None else settings.tools
    return {
        "backend": "embedded" if settings.backend == "embedded" else "http",  # it may have moved
        "engine": settings.engine,
        "engine_base_url": settings.engine_base_url,
        "script": settings.script,
        "offline": settings.offline,
        "model": question.model or settings.model,
        "instructions": question.instructions,
        "tools": list(tools) if tools is not None else None,
        "tool_choice": _plain(question.tool_choice),
        "parallel_tool_calls": question.parallel_tool_calls,
        "response_format": _plain(question.response_format),
        "temperature": question.temperature,
        "top_p": question.top_p,
        "assistant": assistant_content(assistant, folder) if assistant else None,
    }


def remote_assistant_parts(document: Mapping[str, Any]) -> dict[str, Any]:
    """What of an assistant at the backend changes an answer."""
    return {name: document.get(name) for name in _ASSISTANT_FIELDS}


def assistant_content(assistant: str, folder: Path) -> Any:
    """The content of an assistant file, whatever its layout and comments; the word itself otherwise."""
    path = folder / assistant
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, ValueError):
        return assistant
    import ruamel.yaml.error  # only assistant files pay for it

    try:
        if path.suffix == ".toml":
            return tomllib.loads(text)
        return ruamel.yaml.YAML(typ="safe", pure=True).load(text)
    except (ValueError, ruamel.yaml.error.YAMLError):
        return text


def _plain(value: Any) -> Any:
    return value.model_dump(mode="json") if isinstance(value, pydantic.BaseModel) else value
