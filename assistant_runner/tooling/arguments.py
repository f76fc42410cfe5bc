"""Arguments as models really send them: repaired where that is certain, else words for the model.

Three pure steps, each usable alone:
- `repair_arguments(raw)`: JSON level, for the router. Text (or null, or a ready object) to a dict.
- `fit_arguments(arguments, tool)`: schema level, for the gate. Certain conversions only, then the schema.
- `parse_arguments(raw, tool)`: both, for whoever calls a tool alone (`tools call`).
A repair never changes a value that is valid already. Source: cases 024 to 033.
"""

import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from assistant_runner.errors import near_words
from assistant_runner.schemas import fits, flaw_in
from assistant_runner.tooling.contract import Tool

if TYPE_CHECKING:
    import jsonschema

PARALLEL_NAMES = ("multi_tool_use.parallel", "multi_tool_use_parallel", "parallel")
EXCERPT_CHARACTERS = 80
SHAPE_DEPTH = 2
MAX_DEPTH = 60
PYTHON_WORDS = {"True": "true", "False": "false", "None": "null"}
LONE_SURROGATE = re.compile("[\ud800-\udfff]")
FENCED = re.compile(r"\s*```(?:json)?\s*\n(.*)\n\s*```\s*", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Rejection:
    """Why a call is not made, in words that the model can act on."""

    reason: str


@dataclass(frozen=True, slots=True)
class ParallelUse:
    """One call of a bundle: the tool's name and its arguments as they stood there."""

    name: str
    arguments: Any


def repair_arguments(raw: Any) -> dict[str, Any] | Rejection:
    """The arguments as an object; null, absent (None) and blank text are the empty object.

    Accepts a ready object, text encoded twice, raw control characters inside strings, a whole text in
    a code fence. Lone surrogates become U+FFFD.
    """
    if raw is None:
        return {}
    if isinstance(raw, Mapping):
        try:
            return _clean(dict(raw))  # type: ignore[no-any-return]
        except RecursionError:
            return Rejection("arguments are nested too deeply")
    if not isinstance(raw, str):
        return Rejection(f"arguments must be a JSON object, not {_kind(raw)}")
    if not raw.strip():
        return {}
    value = _decode(raw)
    if isinstance(value, Rejection) and (fenced := FENCED.fullmatch(raw)):
        value = _decode(fenced[1])
    if isinstance(value, str) and value.lstrip().startswith("{"):
        value = _decode(value)
    if isinstance(value, Rejection):
        return value
    if value is None:
        return {}
    if not isinstance(value, dict):
        return Rejection(f"arguments must be a JSON object, not {_kind(value)}: {_excerpt(raw)}")
    return value


def fit_arguments(arguments: Mapping[str, Any], tool: Tool) -> dict[str, Any] | Rejection:
    """The arguments as the tool's schema wants them, or what is wrong: name, wanted, got, the shape.

    Certain repairs: a number, a boolean or null written as text (as in Python, too), a list or object
    written as JSON text where text is not allowed, 3.0 for an integer, a missing nullable property, a null
    for an optional property that takes none or for an unknown one.
    """
    schema = tool.parameters
    properties: Mapping[str, Any] = schema.get("properties", {})
    closed = schema.get("additionalProperties") is False
    try:
        fitted = _fit_object(arguments, schema, schema)
    except RecursionError:
        return Rejection(f"the schema of {tool.name} refers to itself without end")
    missing = [name for name in schema.get("required", ()) if name not in fitted]
    if missing:
        extra = [name for name in arguments if name not in properties]
        got = f"; got {', '.join(sorted(arguments))}" if extra else ""
        return Rejection(f"{tool.name}: missing {', '.join(missing)}{got}. {shape_of(tool)}")
    if closed and (unknown := sorted(set(fitted) - set(properties))):
        takes = ", ".join(properties) or "no arguments"
        return Rejection(f"{tool.name} has no argument {', '.join(unknown)}; it takes: {takes}")
    error = flaw_in(fitted, schema)
    if error is None:
        return fitted
    return Rejection(f"{tool.name}: {_say(error)}. {shape_of(tool)}")


def parse_arguments(raw: Any, tool: Tool) -> dict[str, Any] | Rejection:
    """`repair_arguments` and `fit_arguments` in one; a bare value is wrapped for a scalar tool (S4.9)."""
    arguments = repair_call(raw, tool)
    return arguments if isinstance(arguments, Rejection) else fit_arguments(arguments, tool)


def repair_call(raw: Any, tool: Tool) -> dict[str, Any] | Rejection:
    """`repair_arguments`, but a bare value for a scalar tool is wrapped in its one property."""
    repaired = repair_arguments(raw)
    if not isinstance(repaired, Rejection) or tool.scalar is None or raw is None:
        return repaired
    value = _decode(raw) if isinstance(raw, str) else raw
    if isinstance(value, Rejection | list | dict) or value is None:
        return repaired
    return {tool.scalar: _clean(value)}


def unpack_parallel(name: str, arguments: Any) -> list[ParallelUse] | Rejection | None:
    """The calls of a made-up bundle in order; None if the name is not one (case-033).

    `arguments`: `{"tool_uses": [{"recipient_name": "functions.get_weather", "parameters": {...}}]}`.
    """
    if name not in PARALLEL_NAMES:
        return None
    uses = arguments.get("tool_uses") if isinstance(arguments, Mapping) else None
    if not isinstance(uses, list) or not uses:
        return Rejection(f"{name} is no tool; call each tool by its own name (no list tool_uses was found)")
    found: list[ParallelUse] = []
    for use in uses:
        word = use.get("recipient_name") or use.get("name") if isinstance(use, Mapping) else None
        if not isinstance(word, str):
            return Rejection(
                f"{name}: an entry of tool_uses has no recipient_name; call each tool by its own name"
            )
        found.append(ParallelUse(plain_name(word), use.get("parameters", use.get("arguments"))))
    return found


def plain_name(name: str) -> str:
    """The name without the namespace that some models put before it: `functions.get_weather`."""
    return name.removeprefix("functions.")


def nearest_name(name: str, known: Iterable[str]) -> str | None:
    """The known name that was probably meant, or None."""
    found = near_words(name, known, cutoff=0.5)
    return found[0] if found else None


def unknown_tool(name: str, known: Iterable[str]) -> Rejection:
    """Words for a call of a tool that does not exist: the valid names, the nearest one (case-032)."""
    names = list(known)
    near = nearest_name(name, names)
    hint = f"; did you mean {near}?" if near else ""
    return Rejection(f"there is no tool {_excerpt(name)}{hint}; there are: {', '.join(names) or 'none'}")


def shape_of(tool: Tool) -> str:
    """The expected shape in a line: `Expected: {"city": string}`."""
    return f"Expected: {_shape(tool.parameters.get('properties', {}))}"


def _decode(text: str) -> Any:
    """The JSON value without lone surrogates, or a Rejection with position and excerpt.

    Control characters may stand in strings.
    """
    try:
        return _clean(json.loads(text, strict=False, parse_constant=_refuse_constant, parse_float=_finite))
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        return Rejection(
            f"arguments are not valid JSON ({error.msg} at {where}): {_excerpt(text)}; send it whole"
        )
    except (ValueError, RecursionError) as error:
        words = "nested too deeply" if isinstance(error, RecursionError) else str(error).split(";")[0]
        return Rejection(f"arguments are not valid JSON ({words}): {_excerpt(text)}; send them again")


def _refuse_constant(word: str) -> Any:
    raise ValueError(f"{word} is not a JSON number")


def _finite(word: str) -> float:
    if not math.isfinite(number := float(word)):
        raise ValueError(f"{word} is too large")
    return number


def _clean(value: Any, depth: int = 0) -> Any:
    """Lone surrogates as U+FFFD, in keys too: they can be neither stored nor sent (case-029).

    RecursionError beyond a depth at which others who read the value would fail.
    """
    if depth > MAX_DEPTH:
        raise RecursionError
    if isinstance(value, str):
        return LONE_SURROGATE.sub("\ufffd", value)
    if isinstance(value, dict):
        return {_clean(str(name)): _clean(entry, depth + 1) for name, entry in value.items()}
    if isinstance(value, list):
        return [_clean(entry, depth + 1) for entry in value]
    return value


def _fit(value: Any, schema: Mapping[str, Any], root: Mapping[str, Any]) -> Any:
    """The value converted where the schema leaves one meaning only; a valid value as it is."""
    if fits(value, schema, root):
        kinds = _kinds(schema)
        if isinstance(value, float) and "integer" in kinds and "number" not in kinds:
            return int(value)
        return value
    if "$ref" in schema:
        named = str(schema["$ref"]).removeprefix("#/$defs/")
        return _fit(value, root.get("$defs", {}).get(named, {}), root)
    if isinstance(value, str) and "string" not in _kinds(schema):
        word = value.strip()
        decoded = _decode(PYTHON_WORDS.get(word, word)) if word else Rejection("")
        if not isinstance(decoded, Rejection | str):
            decoded = _fit(decoded, schema, root)
            if fits(decoded, schema, root):
                return decoded
    if isinstance(value, Mapping | list) and "anyOf" in schema:
        tried = [(_fit(value, choice, root), choice) for choice in schema["anyOf"]]
        good = [fitted for fitted, choice in tried if fits(fitted, choice, root)]
        return good[0] if len(good) == 1 else value
    if isinstance(value, Mapping) and "properties" in schema:
        return _fit_object(value, schema, root)
    if isinstance(value, list) and isinstance(schema.get("items"), Mapping):
        return [_fit(entry, schema["items"], root) for entry in value]
    return value


def _fit_object(
    value: Mapping[str, Any], schema: Mapping[str, Any], root: Mapping[str, Any]
) -> dict[str, Any]:
    """An object whose properties fit as far as that is certain."""
    properties: Mapping[str, Any] = schema.get("properties", {})
    required = schema.get("required", ())
    closed = schema.get("additionalProperties") is False
    nullable = {name for name, entry in properties.items() if fits(None, entry, root)}
    optional = set(properties) - set(required) - nullable
    fitted = {
        name: _fit(entry, properties[name], root) if name in properties else entry
        for name, entry in value.items()
        if entry is not None or not (name in optional or (closed and name not in properties))
    }
    return {**fitted, **{name: None for name in required if name in nullable and name not in fitted}}


def _kinds(schema: Mapping[str, Any]) -> list[str]:
    """The type words that the schema allows; for one without type words, those of its enum."""
    kinds = schema.get("type")
    if isinstance(kinds, str):
        return [kinds]
    if isinstance(kinds, list):
        return [str(kind) for kind in kinds]
    if "anyOf" in schema:
        return [kind for entry in schema["anyOf"] for kind in _kinds(entry)]
    if "enum" in schema:
        return [_kind(value) for value in schema["enum"]]
    return ["string"]  # unknown: leave texts alone


def _say(error: "jsonschema.ValidationError") -> str:
    where = ".".join(str(part) for part in error.absolute_path) or "arguments"
    got = _clip(json.dumps(error.instance, ensure_ascii=False))
    if error.validator == "type":
        wanted = error.validator_value
        words = " or ".join(wanted) if isinstance(wanted, list) else wanted
        kind = "" if error.instance is None else f"{_kind(error.instance)} "
        return f"{where} must be {words}, got {kind}{got}"
    if error.validator == "enum":
        allowed: Any = error.validator_value
        choices = ", ".join(json.dumps(choice, ensure_ascii=False) for choice in allowed)
        return f"{where} must be one of {choices}, got {got}"
    return f"{where}: {_clip(error.message, 200)}"


def _type_words(schema: Mapping[str, Any], depth: int = 0) -> str:
    if "enum" in schema:
        return " | ".join(json.dumps(choice, ensure_ascii=False) for choice in schema["enum"])
    if "const" in schema:
        return json.dumps(schema["const"], ensure_ascii=False)
    if "anyOf" in schema:
        return " | ".join(dict.fromkeys(_type_words(choice, depth) for choice in schema["anyOf"]))
    if not schema:
        return "any"
    words = dict.fromkeys(_kinds(schema))
    if "array" in words and isinstance(schema.get("items"), Mapping):
        words = dict.fromkeys(
            f"[{_type_words(schema['items'], depth)}]" if kind == "array" else kind for kind in words
        )
    if schema.get("properties") and depth < SHAPE_DEPTH:
        inner = _shape(schema["properties"], depth + 1)
        words = dict.fromkeys(inner if kind == "object" else kind for kind in words)
    return " | ".join(words)


def _shape(properties: Mapping[str, Any], depth: int = 0) -> str:
    entries = (f'"{name}": {_type_words(entry, depth)}' for name, entry in properties.items())
    return f"{{{', '.join(entries)}}}"


def _kind(value: Any) -> str:
    """JSON's word for the value's type."""
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "number" if math.isfinite(value) else str(value)
        case str():
            return "string"
        case list() | tuple():
            return "array"
        case Mapping():
            return "object"
        case _:
            return type(value).__name__


def _excerpt(text: str, characters: int = EXCERPT_CHARACTERS) -> str:
    text = LONE_SURROGATE.sub("\ufffd", text)
    return repr(text) if len(text) <= characters else f"{text[:characters]!r}… ({len(text)} characters)"


def _clip(text: str, characters: int = EXCERPT_CHARACTERS) -> str:
    text = LONE_SURROGATE.sub("\ufffd", text)
    return text if len(text) <= characters else f"{text[:characters]}… ({len(text)} characters)"
