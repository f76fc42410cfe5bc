"""Schemas as the wire's strict mode wants them, and the way back from its nulls.

Strict (reference, section 7.1; the vendor's guide to structured outputs) means: every object is closed
and requires all its properties, every value has a type, and no keyword stands there that a model cannot
be held to. Such a schema has no absent property: a null stands for it (`tighten`), and goes again before
the values meet the types that they are for (`without_absent`).
"""

import json
from collections.abc import Mapping
from typing import Any

from assistant_runner.errors import ConfigurationError

STRICT_WORDS = frozenset(
    {"type", "properties", "required", "additionalProperties", "items", "enum", "const", "anyOf", "$ref"}
    | {"$defs", "title", "description", "pattern", "format", "minimum", "maximum", "exclusiveMinimum"}
    | {"exclusiveMaximum", "multipleOf", "minItems", "maxItems"}
)
TYPE_WORDS = frozenset({"type", "anyOf", "$ref", "enum", "const"})
STRICT_FORMATS = frozenset(
    {"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"}
)


MOST_REFERENCES = 5_000
"""Followed for one schema: a few that each lead twice to the next would unfold for ever."""


class _Definitions(dict[str, Any]):
    """Schemas by name, and how often one was looked up."""

    looked_up = 0


def is_strict(schema: Any) -> bool:
    """Whether strict mode takes the schema: closed, all required, typed, no other keywords."""
    if not isinstance(schema, Mapping) or not TYPE_WORDS & set(schema) or not set(schema) <= STRICT_WORDS:
        return False
    kinds = schema.get("type")
    kinds = kinds if isinstance(kinds, list) else [kinds]
    properties = schema.get("properties", {})
    is_open = schema.get("additionalProperties") is not False
    if ("object" in kinds or "properties" in schema) and (
        is_open or set(properties) != set(schema.get("required", ()))
    ):
        return False
    if "array" in kinds and "items" not in schema:
        return False
    if _is_loose_text(schema):
        return False
    inner = [*properties.values(), *schema.get("$defs", {}).values(), *schema.get("anyOf", ())]
    inner += [schema["items"]] if "items" in schema else []
    return all(is_strict(entry) for entry in inner)


def _is_loose_text(schema: Mapping[str, Any]) -> bool:
    """Whether a text is described by a format or a pattern that strict mode does not know."""
    return schema.get("format", "date") not in STRICT_FORMATS or "(?" in str(schema.get("pattern", ""))


def checked_later(schema: Mapping[str, Any]) -> dict[str, Any]:
    """A tightened schema without what strict mode refuses, for values that pydantic checks anyway.

    A tuple becomes a list of its length whose items are of any of its types.
    """
    result = dict(schema)
    for word in ("uniqueItems", "minLength", "maxLength"):
        result.pop(word, None)
    for word in ("format", "pattern"):
        if word in result and _is_loose_text({word: result[word]}):
            del result[word]
    if "prefixItems" in result:
        kinds = [checked_later(entry) for entry in result.pop("prefixItems")]
        rest = result.pop("items", None)
        kinds += [checked_later(rest)] if isinstance(rest, Mapping) else []
        different = [entry for index, entry in enumerate(kinds) if entry not in kinds[:index]]
        result["items"] = different[0] if len(different) == 1 else {"anyOf": different}
    for word in ("properties", "$defs"):
        if word in result:
            result[word] = {name: checked_later(entry) for name, entry in result[word].items()}
    for word in ("items", "additionalProperties"):
        if isinstance(result.get(word), Mapping):
            result[word] = checked_later(result[word])
    if "anyOf" in result:
        result["anyOf"] = [checked_later(entry) for entry in result["anyOf"]]
    return result


def tighten(schema: Mapping[str, Any], definitions: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """A schema as the wire wants it: closed, all required, no titles, references inlined.

    A reference that leads back to itself stays a reference under `$defs`. A default becomes words of the
    description. ConfigurationError for a reference that leads nowhere, and for references without an end.
    """
    known = _Definitions(definitions if definitions is not None else schema.get("$defs", {}))
    kept: dict[str, Any] = {}
    result = _tighten(schema, known, (), kept)
    if kept:
        result["$defs"] = kept
    return result


def without_absent(value: Any, schema: Mapping[str, Any], root: Mapping[str, Any] | None = None) -> Any:
    """The value without the nulls that stand for absent properties. `schema`: as it was before `tighten`."""
    root = schema if root is None else root
    while "$ref" in schema:
        schema = _named(schema, root["$defs"])
    for word in ("anyOf", "oneOf"):
        if word in schema:
            meant = next((entry for entry in schema[word] if _describes(entry, value, root)), None)
            return value if meant is None else without_absent(value, meant, root)
    if isinstance(value, Mapping):
        properties, rest = schema.get("properties", {}), schema.get("additionalProperties")
        rest = rest if isinstance(rest, Mapping) else {}
        required = schema.get("required", ())
        return {
            name: without_absent(entry, properties.get(name, rest), root)
            for name, entry in value.items()
            if entry is not None or name in required or name not in properties
        }
    if isinstance(value, list):
        kinds = schema.get("prefixItems", ())
        rest = schema.get("items")
        rest = rest if isinstance(rest, Mapping) else {}
        return [
            without_absent(entry, kinds[index] if index < len(kinds) else rest, root)
            for index, entry in enumerate(value)
        ]
    return value


def _describes(schema: Mapping[str, Any], value: Any, root: Mapping[str, Any]) -> bool:
    """Whether this choice of several is the one that an object or a list was made for."""
    while "$ref" in schema:
        schema = _named(schema, root["$defs"])
    if isinstance(value, Mapping):
        properties = schema.get("properties", {})
        if not set(value) <= set(properties) and not schema.get("additionalProperties"):
            return False
        required = schema.get("required", ())
        fixed = [name for name in value if "const" in properties.get(name, {})]
        return schema.get("type") == "object" and all(
            value[name] == properties[name]["const"] or (value[name] is None and name not in required)
            for name in fixed
        )
    return isinstance(value, list) and schema.get("type") == "array"


def _tighten(
    schema: Mapping[str, Any], known: Mapping[str, Any], above: tuple[str, ...], kept: dict[str, Any]
) -> dict[str, Any]:
    result: dict[str, Any] = {}
    if "$ref" in schema:
        key, target = _key(schema), _named(schema, known)
        if key in above or key in kept:
            if key not in kept:
                kept[key] = {}
                kept[key] = _tighten(target, known, (*above, key), kept)
            return {"$ref": f"#/$defs/{key}"}
        result = _tighten(target, known, (*above, key), kept)
        result.update({word: value for word, value in schema.items() if word == "description"})
        return result
    if "allOf" in schema:
        names = [_key(part) for part in schema["allOf"] if "$ref" in part]
        if again := [name for name in names if name in above]:
            return _tighten({"$ref": f"#/$defs/{again[0]}"}, known, above, kept)
        schema, above = _merged(schema, known), (*above, *names)
    for word, value in schema.items():
        match word:
            case "title" | "default" | "$defs" | "discriminator":
                continue
            case "properties":
                result[word] = {name: _tighten(entry, known, above, kept) for name, entry in value.items()}
            case "items" | "additionalProperties" if isinstance(value, Mapping):
                result[word] = _tighten(value, known, above, kept)
            case "anyOf" | "oneOf" | "prefixItems":
                result["anyOf" if word == "oneOf" else word] = [
                    _tighten(entry, known, above, kept) for entry in value
                ]
            case _:
                result[word] = value
    if result.get("type") == "object" and "properties" in result:
        required = set(schema.get("required", ()))
        result["properties"] = {
            name: entry if name in required else _optional(entry, schema["properties"][name])
            for name, entry in result["properties"].items()
        }
        result["required"] = list(result["properties"])
        result["additionalProperties"] = False
    return _flat_choice(result)


def _key(schema: Mapping[str, Any]) -> str:
    return str(schema["$ref"]).rsplit("/", 1)[-1]


def _named(schema: Mapping[str, Any], known: Mapping[str, Any]) -> Mapping[str, Any]:
    """What a reference stands for; ConfigurationError if there is no such thing."""
    if _key(schema) not in known:
        raise ConfigurationError(f"{schema['$ref']} leads nowhere", remedy="correct the schema")
    if isinstance(known, _Definitions):
        known.looked_up += 1
        if known.looked_up > MOST_REFERENCES:
            raise ConfigurationError("its references have no end in sight", remedy="correct the schema")
    target: Mapping[str, Any] = known[_key(schema)]
    return target


def _merged(schema: Mapping[str, Any], known: Mapping[str, Any]) -> dict[str, Any]:
    """One schema of those that must all fit: closed one by one, nothing would fit them all."""
    result: dict[str, Any] = {}
    for part in (*schema["allOf"], {word: value for word, value in schema.items() if word != "allOf"}):
        while "$ref" in part:
            part = _named(part, known)
        if "allOf" in part:
            part = _merged(part, known)
        for word, value in part.items():
            match word:
                case "properties":
                    result[word] = {**result.get(word, {}), **value}
                case "required":
                    result[word] = list(dict.fromkeys([*result.get(word, ()), *value]))
                case _:
                    result[word] = value
    return result


def _optional(schema: Mapping[str, Any], raw: Mapping[str, Any]) -> dict[str, Any]:
    """A property that may be null, with its default in words."""
    result = nullable(schema)
    if raw.get("default") is not None:
        words = f"(default: {json.dumps(raw['default'], ensure_ascii=False)})"
        result["description"] = f"{result.get('description', '')} {words}".strip()
    return result


def nullable(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The schema with null allowed as well."""
    result = dict(schema)
    kinds = result.get("type")
    if isinstance(kinds, str) and "enum" not in result and "const" not in result:
        result["type"] = [kinds, "null"] if kinds != "null" else kinds
    elif isinstance(kinds, list):
        result["type"] = kinds if "null" in kinds else [*kinds, "null"]
    elif "anyOf" in result:
        if {"type": "null"} not in result["anyOf"]:
            result["anyOf"] = [*result["anyOf"], {"type": "null"}]
    elif result:
        words = {word: result.pop(word) for word in ("description",) if word in result}
        return {**words, "anyOf": [result, {"type": "null"}]}
    return result


def _flat_choice(schema: dict[str, Any]) -> dict[str, Any]:
    """`anyOf: [{type: string}, {type: null}]` as `type: [string, null]`: shorter for the model."""
    choices = schema.get("anyOf")
    if not choices or len(choices) != 2 or choices[1] != {"type": "null"}:
        return schema
    first = choices[0]
    if not isinstance(first.get("type"), str) or "enum" in first or "const" in first:
        return schema
    rest = {word: value for word, value in schema.items() if word != "anyOf"}
    return {**first, "type": [first["type"], "null"], **rest}
