"""What a spec wants to be on a backend, field by field, and whether the backend shows the same.

The rule for fields: what the file says is sent; what it said once and no longer says is reset; what it
never said is left alone (case-085). A list or map of the file replaces the stored one. Metadata always
carry our identity beside the file's own pairs.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assistant_runner.setup.document import FileInvalid, Problem
from assistant_runner.setup.model import IDENTITY_KEY, AssistantSpec, FileUse, ToolUse
from assistant_runner.wire.assistants import Assistant
from assistant_runner.wire.base import WireObject

Definitions = Callable[[AssistantSpec, ToolUse], Sequence[Mapping[str, Any]]]
"""What the model is offered for a tool that is neither hosted nor a bare function: wire tools."""

WIRE_FIELDS = (
    "name",
    "model",
    "description",
    "instructions",
    "temperature",
    "top_p",
    "reasoning_effort",
    "response_format",
    "tools",
    "metadata",
)
RESETS: Mapping[str, Any] = {"tools": []}
MAX_FILE_BYTES = 512 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class LocalFile:
    """A file of the user with its content hash (SHA-256, hex)."""

    path: Path
    name: str
    size: int
    sha256: str

    @property
    def key(self) -> str:
        """How the lock names it: same content under the same name is the same file."""
        return f"sha256:{self.sha256}/{self.name}"


def hash_file(use: FileUse) -> LocalFile:
    """The file with its hash; FileInvalid names the place if it cannot be uploaded."""
    try:
        content = use.path.read_bytes()
    except OSError as error:
        words = f"{use.path} cannot be read: {error.strerror or error}"
        raise FileInvalid([Problem(use.place, "files", words)]) from None
    if not content:
        raise FileInvalid([Problem(use.place, "files", f"{use.path} is empty; backends refuse empty files")])
    if len(content) > MAX_FILE_BYTES:
        raise FileInvalid([Problem(use.place, "files", f"{use.path} is larger than 512 MB")])
    return LocalFile(use.path, use.name, len(content), hashlib.sha256(content).hexdigest())


def wanted_fields(
    spec: AssistantSpec, define: Definitions, *, default_model: str | None, aliases: Mapping[str, str]
) -> dict[str, Any]:
    """The wire fields that the file gives, as JSON data; `tool_resources` is not among them.

    ConfigurationError without a model, or for a tool that cannot be loaded.
    """
    model = spec.model or default_model
    if not model:
        raise FileInvalid(
            [Problem(spec.place("name"), "model", f"{spec.name}: no model")],
            remedy="write model: in the file, or set a default model (--model, assistant-runner.toml)",
        )
    fields: dict[str, Any] = {"name": spec.name, "model": aliases.get(model, model)}
    for name in (
        "description",
        "instructions",
        "temperature",
        "top_p",
        "reasoning_effort",
        "response_format",
    ):
        value = getattr(spec, name)
        if name in spec.given and value is not None:
            fields[name] = value.document() if isinstance(value, WireObject) else value
    if "tools" in spec.given:
        fields["tools"] = [dict(tool) for use in spec.tools for tool in _tools_of(spec, use, define)]
        _check_names(spec, fields["tools"])
    fields["metadata"] = {**spec.metadata, IDENTITY_KEY: spec.identity}
    return fields


def _tools_of(spec: AssistantSpec, use: ToolUse, define: Definitions) -> Sequence[Mapping[str, Any]]:
    if use.kind == "code_interpreter":
        return [{"type": "code_interpreter"}]
    if use.kind == "file_search":
        options = {
            name: value
            for name in ("max_num_results", "ranking_options")
            if (value := getattr(use.entry, name)) is not None
        }
        if "ranking_options" in options:
            options["ranking_options"] = options["ranking_options"].model_dump(exclude_none=True)
        return [{"type": "file_search", "file_search": options}] if options else [{"type": "file_search"}]
    if use.kind == "function":
        return [{"type": "function", "function": use.entry.model_dump(exclude_none=True)}]
    return define(spec, use)


def _check_names(spec: AssistantSpec, tools: Sequence[Mapping[str, Any]]) -> None:
    names = [tool["function"]["name"] for tool in tools if tool.get("type") == "function"]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise FileInvalid(
            [Problem(spec.place("tools"), "tools", f"two tools are named {name!r}") for name in twice]
        )
    if len(tools) > 128:
        raise FileInvalid(
            [Problem(spec.place("tools"), "tools", f"expected at most 128 tools; found {len(tools)}")]
        )


def shown_fields(assistant: Assistant) -> dict[str, Any]:
    """The fields of an assistant as JSON data, as the backend shows them."""
    return assistant.document()


def same(name: str, wanted: Any, shown: Any) -> bool:
    """Whether a backend shows what is wanted, allowing for how backends write the same thing."""
    if name in ("name", "description", "instructions"):
        return (wanted or "") == (shown or "")
    if name == "response_format":
        return _contains(_format(wanted), _format(shown))
    if name == "tools":
        shown = shown or []
        return len(wanted) == len(shown) and all(
            _contains(_tool(one), _tool(other)) for one, other in zip(wanted, shown, strict=True)
        )
    if name == "metadata":
        return bool((wanted or {}) == (shown or {}))
    return bool(wanted == shown)


def _format(value: Any) -> Any:
    value = "auto" if value is None else value
    if isinstance(value, dict) and isinstance(value.get("json_schema"), dict):
        inner = {k: v for k, v in value["json_schema"].items() if v is not None}
        return {**value, "json_schema": inner}
    return value


def _tool(tool: Mapping[str, Any]) -> Any:
    if tool.get("type") == "function":
        function = tool.get("function") or {}
        return {
            "type": "function",
            "function": {
                "name": function.get("name"),
                "description": function.get("description") or "",
                "strict": bool(function.get("strict")),
                "parameters": function.get("parameters") or {"type": "object", "properties": {}},
            },
        }
    return {key: value for key, value in tool.items() if value not in (None, {})}


def _contains(wanted: Any, shown: Any) -> bool:
    """Maps may show more keys than wanted (defaults that a server adds), nothing else may differ."""
    if isinstance(wanted, dict) and isinstance(shown, dict):
        if wanted.get("type") == "function":
            return bool(wanted == shown)
        if "json_schema" in wanted:
            return bool(wanted == shown)
        return all(key in shown and _contains(value, shown[key]) for key, value in wanted.items())
    return bool(wanted == shown)
