"""Write assistant files: from what a backend shows, or from what was rescued.

The text loads back to the same assistant: dollars are doubled where they would begin a variable, and
what YAML could misread is quoted.
"""

import io
from collections.abc import Mapping, Sequence
from typing import Any

from assistant_runner.setup.desired import WIRE_FIELDS, same
from assistant_runner.setup.model import IDENTITY_KEY
from assistant_runner.wire.assistants import Assistant

_DEFAULTS: Mapping[str, Any] = {"temperature": 1, "top_p": 1, "response_format": "auto"}


def file_document(assistant: Assistant, *, local: Sequence[Mapping[str, Any]] = ()) -> dict[str, Any]:
    """The assistant in the words of an assistant file.

    `local`: definitions of the tools of this machine; a function that is the same as one of them is
    written by its name alone. What is at its default is left out.
    """
    shown = assistant.document()
    document: dict[str, Any] = {"name": shown.get("name") or assistant.id, "model": assistant.model}
    for name in WIRE_FIELDS[2:-2]:
        value = shown.get(name)
        if value not in (None, "", {}) and value != _DEFAULTS.get(name):
            document[name] = _format(value) if name == "response_format" else value
    tools = [_tool(tool, shown.get("tool_resources") or {}, local) for tool in shown.get("tools") or []]
    if tools:
        document["tools"] = tools
    resources = _loose_resources(shown)
    if resources:
        document["tool_resources"] = resources
    metadata = {k: v for k, v in (shown.get("metadata") or {}).items() if k != IDENTITY_KEY}
    if metadata:
        document["metadata"] = metadata
    return document


def _format(value: Any) -> Any:
    if isinstance(value, dict) and set(value) == {"type"}:
        return value["type"]
    if isinstance(value, dict) and value.get("type") == "json_schema":
        return {k: v for k, v in (value.get("json_schema") or {}).items() if v is not None}
    return value


def _tool(tool: Mapping[str, Any], resources: Mapping[str, Any], local: Sequence[Mapping[str, Any]]) -> Any:
    kind = tool.get("type")
    if kind == "function":
        for one in local:
            if same("tools", [one], [tool]):
                return one["function"]["name"]
        function = {k: v for k, v in (tool.get("function") or {}).items() if v is not None}
        return {"type": "function", "function": function}
    if kind == "code_interpreter":
        ids = (resources.get("code_interpreter") or {}).get("file_ids") or []
        return {"code_interpreter": {"file_ids": list(ids)}} if ids else "code_interpreter"
    if kind == "file_search":
        options = {k: v for k, v in (tool.get("file_search") or {}).items() if v is not None}
        ids = (resources.get("file_search") or {}).get("vector_store_ids") or []
        if ids:
            options["vector_store_ids"] = list(ids)
        return {"file_search": options} if options else "file_search"
    return dict(tool)


def _loose_resources(shown: Mapping[str, Any]) -> dict[str, Any]:
    """Resources of hosted tools that the assistant does not have at the moment."""
    kinds = {tool.get("type") for tool in shown.get("tools") or []}
    found = {}
    for kind, key in (("code_interpreter", "file_ids"), ("file_search", "vector_store_ids")):
        ids = ((shown.get("tool_resources") or {}).get(kind) or {}).get(key) or []
        if ids and kind not in kinds:
            found[kind] = {key: list(ids)}
    return found


def to_yaml(document: Any, *, head: str = "") -> str:
    """YAML 1.2 text of a file; `head`: a comment that stands above, line by line."""
    from ruamel.yaml import YAML
    from ruamel.yaml.scalarstring import LiteralScalarString

    def ready(value: Any, key: str = "") -> Any:
        if isinstance(value, Mapping):
            return {str(name): ready(item, str(name)) for name, item in value.items()}
        if isinstance(value, list | tuple):
            return [ready(item) for item in value]
        if isinstance(value, str):
            text = value if key == "instructions" else escape(value)
            if "\n" in text and _fits_block(text):
                return LiteralScalarString(text)
            return text
        return value

    writer = YAML(typ="rt", pure=True)
    writer.width = 100
    writer.indent(mapping=2, sequence=4, offset=2)
    writer.allow_unicode = True
    stream = io.StringIO()
    writer.dump(ready(document), stream)
    comment = "".join(f"# {line}".rstrip() + "\n" for line in head.splitlines())
    return comment + stream.getvalue()


def _fits_block(text: str) -> bool:
    """Whether a literal block can hold the text as it is."""
    if text != text.rstrip("\n") + "\n" and text.endswith("\n"):
        return False
    first = text.split("\n", 1)[0]
    return (
        not first.startswith((" ", "\t"))
        and first != ""
        and all(c.isprintable() or c in "\n\t" for c in text)
    )


def escape(text: str) -> str:
    """The text so that the loader's variables leave it as it is."""
    return text.replace("$", "$$") if "${" in text or "$$" in text else text
