"""Read the keys that have several forms: tools, instructions, formats, backend, engine.

Each function takes a node and gives a value, or adds to the problems and gives None.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from assistant_runner.errors import near_words
from assistant_runner.setup.checking import check, coerce_fields, describe, parse_duration
from assistant_runner.setup.document import (
    KeyPath,
    Leaf,
    Mapped,
    Node,
    Place,
    Problem,
    Sequence,
    Written,
    dotted,
    expand_text,
    place_of,
    plain,
    settle,
)
from assistant_runner.setup.model import (
    BackendEntry,
    CodeInterpreterEntry,
    EngineEntry,
    FileSearchEntry,
    FileUse,
    FunctionEntry,
    InstructionsEntry,
    LocalTool,
    ToolUse,
)
from assistant_runner.setup.strict import check_strict, make_strict, text_enums
from assistant_runner.tooling.entries import ENTRY_MODELS
from assistant_runner.wire.tools import (
    JSONSchemaFormat,
    NamedToolChoice,
    ResponseFormat,
    ResponseFormatObject,
    ToolChoice,
)

HOSTED = ("code_interpreter", "file_search")
CHOICES = ("auto", "none", "required")
FORMATS = ("auto", "text", "json_object")
GLOB_SIGNS = frozenset("*?[")


def read_instructions(
    node: Node, at: KeyPath, environ: Mapping[str, str], problems: list[Problem]
) -> str | None:
    """The text itself, of the file, or expanded where the file asks for it."""
    if isinstance(node, Leaf):
        return _text(node, at, problems)
    entry = check(InstructionsEntry, node, at, problems)
    if entry is None:
        return None
    if entry.text is not None:
        text = entry.text
    else:
        path = node.place.file.parent / str(entry.file)
        try:
            text = path.read_text(encoding="utf-8-sig")
        except (OSError, UnicodeDecodeError) as error:
            problems.append(Problem(node.place, dotted((*at, "file")), f"{path} cannot be read: {error}"))
            return None
    return expand_text(text, environ, problems, node.place, at)[0] if entry.expand else text


def _text(node: Leaf, at: KeyPath, problems: list[Problem]) -> str | None:
    value = node.value
    if isinstance(value, Written):
        return None if value.value is None else str(value)
    if value is None or isinstance(value, str):
        return value
    quote = "; put it in quotes if the text is meant"
    problems.append(Problem(node.place, dotted(at), f"expected text; found {describe(value)}{quote}"))
    return None


def read_tool_choice(node: Node, at: KeyPath, problems: list[Problem]) -> ToolChoice | None:
    """`auto`, `none`, `required`, `{function: name}`, or the wire's own form."""
    value = settle(plain(node))
    if value is None or value in CHOICES:
        return str(value) if value else None
    if value in HOSTED:
        return NamedToolChoice(type=value)
    if isinstance(value, dict):
        name = value.get("function")
        name = name.get("name") if isinstance(name, dict) else name
        if isinstance(name, str) and set(value) <= {"type", "function"}:
            return NamedToolChoice.model_validate({"type": "function", "function": {"name": name}})
        if set(value) == {"type"} and value["type"] in HOSTED:
            return NamedToolChoice(type=value["type"])
    problems.append(
        Problem(
            node.place,
            dotted(at),
            "expected auto, none, required, file_search, code_interpreter or {function: NAME};"
            f" found {describe(value)}",
        )
    )
    return None


def read_response_format(node: Node, at: KeyPath, problems: list[Problem]) -> ResponseFormat | None:
    """`auto`, `text`, `json_object`; a schema: `{name, schema, strict}`, `{file}` or the wire's form."""
    value = settle(plain(node))
    if value is None or value == "auto":
        return "auto" if value else None
    if value in FORMATS:
        return ResponseFormatObject(type=value)
    if isinstance(value, dict):
        if value.get("type") in ("text", "json_object") and len(value) == 1:
            return ResponseFormatObject(type=value["type"])
        inner = value.get("json_schema") if value.get("type") == "json_schema" else value
        if isinstance(inner, dict) and "file" in inner:
            inner = _schema_of_file(inner, node, at, problems)
            if inner is None:
                return None
        if isinstance(inner, dict) and isinstance(inner.get("schema"), dict) and set(inner) <= _FORMAT_KEYS:
            return _json_schema(inner, node, at, problems)
    problems.append(
        Problem(
            node.place,
            dotted(at),
            f"expected auto, text, json_object or {{name, schema, strict}}; found {describe(value)}",
        )
    )
    return None


_FORMAT_KEYS = {"name", "schema", "strict", "description"}


def _json_schema(
    inner: dict[str, Any], node: Node, at: KeyPath, problems: list[Problem]
) -> ResponseFormatObject:
    if inner.get("strict"):
        for one in check_strict(inner["schema"]):
            problems.append(Problem(node.place, dotted((*at, "schema")) + _below(one.path), one.message))
    return ResponseFormatObject(
        type="json_schema",
        json_schema=JSONSchemaFormat.model_validate({"name": "answer", **inner}),
    )


def _schema_of_file(
    inner: dict[str, Any], node: Node, at: KeyPath, problems: list[Problem]
) -> dict[str, Any] | None:
    path = node.place.file.parent / str(inner["file"])
    try:
        schema = json.loads(path.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError) as error:
        problems.append(Problem(node.place, dotted((*at, "file")), f"{path}: no JSON schema: {error}"))
        return None
    return {**{k: v for k, v in inner.items() if k != "file"}, "schema": schema}


def _below(path: str) -> str:
    return f".{path}" if path else ""


def read_backend(node: Node, at: KeyPath, problems: list[Problem]) -> str | BackendEntry | None:
    """`embedded`, a URL, or a map with `url`, `foundry` or `azure`."""
    if isinstance(node, Mapped):
        return check(BackendEntry, node, at, problems)
    text = _text(node, at, problems) if isinstance(node, Leaf) else None
    if not text or text == "embedded" or "://" in text:
        return text or None
    problems.append(Problem(node.place, dotted(at), f"expected embedded or a URL; found the text {text!r}"))
    return None


def read_engine(node: Node, raw: Node, at: KeyPath, problems: list[Problem]) -> EngineEntry | None:
    """A name such as `responses`, or a map. `raw` is the node before variables were put in."""
    if isinstance(node, Mapped):
        entry = check(EngineEntry, node, at, problems)
        key = raw.get("api_key") if isinstance(raw, Mapped) else None
        if isinstance(key, Leaf) and "${" not in str(key.value):
            problems.append(
                Problem(
                    key.place,
                    dotted((*at, "api_key")),
                    "keys are not read from config text: write ${NAME}, or key_env: NAME",
                )
            )
        return entry
    text = _text(node, at, problems) if isinstance(node, Leaf) else None
    return EngineEntry(api=text) if text else None


# --- tools -----------------------------------------------------------------------------------------


def read_tools(
    node: Sequence, at: KeyPath, problems: list[Problem], *, fix_schemas: bool
) -> tuple[ToolUse, ...]:
    """The entries in order; the same tool twice is a problem."""
    uses = []
    seen: dict[str, Place] = {}
    for index, item in enumerate(node.items):
        use = _read_tool(item, (*at, index), problems, fix_schemas=fix_schemas)
        if use is None:
            continue
        name = use.kind if use.kind in HOSTED else _tool_name(use)
        if name in seen:
            problems.append(
                Problem(use.place, use.key, f"{name} is there twice (first in line {seen[name].line})")
            )
        seen.setdefault(name, use.place)
        uses.append(use)
    return tuple(uses)


def _tool_name(use: ToolUse) -> str:
    entry = use.entry
    return str(getattr(entry, "name", None) or getattr(entry, "tool", None) or use.key)


def _read_tool(node: Node, at: KeyPath, problems: list[Problem], *, fix_schemas: bool) -> ToolUse | None:
    if isinstance(node, Leaf):
        name = _text(node, at, problems)
        if not name:
            problems.append(Problem(node.place, dotted(at), "expected a tool; found nothing"))
            return None
        if name in HOSTED:
            return ToolUse(name, _HOSTED_MODELS[name](), node.place, dotted(at))
        return ToolUse("local", LocalTool(tool=name), node.place, dotted(at))
    if isinstance(node, Sequence) or not node.entries:
        problems.append(Problem(node.place, dotted(at), f"expected a tool; found {describe(plain(node))}"))
        return None
    if "type" in node.entries:
        return _read_wire_tool(node, at, problems, fix_schemas=fix_schemas)
    if "tool" in node.entries or "name" in node.entries:
        return _read_local(node, at, problems)
    if len(node.entries) == 1:
        [(key, (place, inner))] = node.entries.items()
        return _read_keyed(key, inner, place, (*at, key), problems, fix_schemas=fix_schemas)
    keys = ", ".join(node.entries)
    problems.append(
        Problem(
            node.place,
            dotted(at),
            f"expected a tool: a name, or a map with the key tool; found the keys {keys}",
        )
    )
    return None


_HOSTED_MODELS: dict[str, Any] = {"code_interpreter": CodeInterpreterEntry, "file_search": FileSearchEntry}


def _read_keyed(
    key: str, inner: Node, place: Place, at: KeyPath, problems: list[Problem], *, fix_schemas: bool
) -> ToolUse | None:
    """`{file_search: {...}}`, `{function: {...}}`, `{get_weather: {...}}`."""
    if key in HOSTED:
        entry = check(_HOSTED_MODELS[key], inner, at, problems, data=_map_or_empty(inner))
        return ToolUse(key, entry, place, dotted(at)) if entry else None
    if key == "function":
        return _function(inner, at, problems, fix_schemas=fix_schemas)
    if key in ENTRY_MODELS:
        return _entry(key, inner, place, at, problems)
    describes = isinstance(inner, Mapped) and "name" in inner.entries  # no change of a tool of ours
    kinds = [*HOSTED, *ENTRY_MODELS, "function"]
    near = near_words(key, kinds, cutoff=0.6 if describes else 0.8)
    if near:
        problems.append(Problem(place, dotted(at), f"no such tool; did you mean {near[0]!r}?"))
        return None
    changes = _map_or_empty(inner)
    if not isinstance(changes, dict):
        words = f"expected a map of what is changed of this tool; found {describe(changes)}"
        problems.append(Problem(place, dotted(at), words))
        return None
    entry = check(LocalTool, inner, at, problems, data={**changes, "tool": key})
    return ToolUse("local", entry, place, dotted(at)) if entry else None


def _entry(key: str, inner: Node, place: Place, at: KeyPath, problems: list[Problem]) -> ToolUse | None:
    """A tool without Python, as the tool kit describes it; `timeout` is a duration here."""
    model = ENTRY_MODELS[key]
    data = _map_or_empty(inner)
    if isinstance(data, dict):
        if isinstance(data.get("parameters"), dict):
            data["parameters"] = text_enums(data["parameters"])
        if "timeout" in data and "timeout_s" not in data:
            try:
                data["timeout_s"] = parse_duration(settle(data.pop("timeout")))
            except ValueError as error:
                problems.append(Problem(place_of(inner, ("timeout",)), dotted((*at, "timeout")), str(error)))
        data = coerce_fields(model, data)
    entry = check(model, inner, at, problems, data=data)
    return ToolUse(key, entry, place, dotted(at)) if entry else None


def _map_or_empty(node: Node) -> Any:
    data = plain(node)
    return {} if settle(data) is None else data


def _read_local(node: Mapped, at: KeyPath, problems: list[Problem]) -> ToolUse | None:
    data = plain(node)
    if "name" in data and "tool" not in data:
        data["tool"] = data.pop("name")
    entry = check(LocalTool, node, at, problems, data=data)
    return ToolUse("local", entry, node.place, dotted(at)) if entry else None


def _read_wire_tool(
    node: Mapped, at: KeyPath, problems: list[Problem], *, fix_schemas: bool
) -> ToolUse | None:
    """The protocol's own form, as `import` writes it or an old program has it."""
    kind = settle(plain(node)["type"])
    if kind == "function":
        inner = node.get("function")
        if inner is None:  # the flat form of the Responses API
            entries = {k: v for k, v in node.entries.items() if k != "type"}
            return _function(Mapped(entries, node.place), at, problems, fix_schemas=fix_schemas)
        return _function(inner, (*at, "function"), problems, fix_schemas=fix_schemas)
    if kind in HOSTED:
        inner = node.get(kind)
        rest = {k: v for k, v in node.entries.items() if k not in ("type", kind)}
        merged = {**(plain(inner) if inner else {}), **plain(Mapped(rest, node.place))}
        entry = check(_HOSTED_MODELS[kind], inner or node, at, problems, data=merged)
        return ToolUse(kind, entry, node.place, dotted(at)) if entry else None
    problems.append(
        Problem(
            node.place,
            dotted((*at, "type")),
            f"expected function, code_interpreter or file_search; found {describe(kind)}",
        )
    )
    return None


def _function(node: Node, at: KeyPath, problems: list[Problem], *, fix_schemas: bool) -> ToolUse | None:
    data = plain(node)
    if isinstance(data, dict) and isinstance(data.get("parameters"), dict):
        data["parameters"] = text_enums(data["parameters"])
    entry = check(FunctionEntry, node, at, problems, data=data)
    if entry is None:
        return None
    if entry.strict and entry.parameters is not None:
        if fix_schemas:
            entry = entry.model_copy(update={"parameters": make_strict(entry.parameters)})
        for one in check_strict(entry.parameters or {}):
            where: KeyPath = ("parameters", *one.parts)
            place = place_of(node, where)
            problems.append(Problem(place, dotted((*at, *where)), f"function {entry.name}: {one.message}"))
    return ToolUse("function", entry, node.place, dotted(at))


# --- files -----------------------------------------------------------------------------------------


def find_files(patterns: list[str], place: Place, key: str, problems: list[Problem]) -> tuple[FileUse, ...]:
    """The files of paths and globs, each once, in the order of the patterns and then by name.

    A pattern that finds nothing is a problem; so is a folder.
    """
    folder = place.file.parent
    found: dict[Path, FileUse] = {}
    for index, pattern in enumerate(patterns):
        where = f"{key}.files[{index}]"
        paths = [p for p in _matches(folder, pattern) if p.is_file()]
        if not paths:
            words = (
                "is a folder; write a glob such as folder/*"
                if (folder / pattern).is_dir()
                else "finds no file"
            )
            problems.append(Problem(place, where, f"{pattern!r} {words} (looked in {folder})"))
        for path in paths:
            found.setdefault(path.resolve(), FileUse(path, path.name, place))
    return tuple(found.values())


def _matches(folder: Path, pattern: str) -> list[Path]:
    if not GLOB_SIGNS & set(pattern) or (folder / pattern).is_file():
        return [folder / pattern]
    base = Path(pattern)
    if base.is_absolute():
        return sorted(Path(base.anchor).glob(str(base.relative_to(base.anchor))))
    return sorted(folder.glob(pattern))
