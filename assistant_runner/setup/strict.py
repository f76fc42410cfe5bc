"""Function schemas as strict mode wants them: checked before any request, or put right when told to.

The rules (structured outputs of the Responses and Assistants APIs): the root is an object; every object
says `additionalProperties: false` and lists all its properties in `required`; an optional property is
one that may be null; a few keywords are not known; at most 10 levels deep. Cases 083 and 084.
"""

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from assistant_runner.setup.document import KeyPath, Written, dotted, settle

MAX_DEPTH = 10
REFUSED = (
    "allOf",
    "not",
    "dependentRequired",
    "dependentSchemas",
    "if",
    "then",
    "else",
    "patternProperties",
    "oneOf",
)


@dataclass(frozen=True, slots=True)
class StrictProblem:
    """`parts`: the keys and indexes from the schema down to the place; none at the root."""

    parts: KeyPath
    message: str

    @property
    def path(self) -> str:
        """Dotted: `properties.place.properties.geo`; "" is the root."""
        return dotted(self.parts)


def check_strict(schema: Mapping[str, Any]) -> list[StrictProblem]:
    """Every place where the schema is not strict; empty if the API would take it."""
    problems: list[StrictProblem] = []
    if not _is_object(schema) or "anyOf" in schema:
        problems.append(StrictProblem((), "the root must be an object (type: object, no anyOf)"))
    for path, depth, node in _nodes(schema):
        problems += [
            StrictProblem(path, f"strict mode does not know {word!r}") for word in REFUSED if word in node
        ]
        if depth > MAX_DEPTH:
            problems.append(StrictProblem(path, f"nested deeper than {MAX_DEPTH} levels"))
        if _is_object(node):
            problems += _object_problems(path, node)
    return problems


def _object_problems(path: KeyPath, node: Mapping[str, Any]) -> Iterator[StrictProblem]:
    if node.get("additionalProperties") is not False:
        yield StrictProblem(path, "an object needs additionalProperties: false")
    properties = node.get("properties") or {}
    required = node.get("required") or []
    for name in properties:
        if name not in required:
            yield StrictProblem(
                (*path, "properties", name),
                f"{name} is optional, which strict mode does not know: either list it in required"
                f" and let it be null (type: [..., 'null']), or set strict: false",
            )
    for name in required:
        if name not in properties:
            yield StrictProblem(path, f"required names {name!r}, which is no property")


def make_strict(schema: Mapping[str, Any]) -> dict[str, Any]:
    """A copy that strict mode takes: objects closed, optional properties nullable and required.

    A tool called through it gets null where an argument was not given. Keywords that strict mode does
    not know stay and are still found by `check_strict`.
    """
    fixed = copy.deepcopy(dict(schema))
    for _, _, node in list(_nodes(fixed)):
        if not _is_object(node):
            continue
        node["additionalProperties"] = False
        properties = node.setdefault("properties", {})
        required = node.get("required") or []
        for name, one in properties.items():
            if name not in required and isinstance(one, dict):
                properties[name] = _nullable(one)
        node["required"] = list(properties)
    return fixed


def _nullable(schema: dict[str, Any]) -> dict[str, Any]:
    kind = schema.get("type")
    if isinstance(kind, str | list):
        kinds = [kind] if isinstance(kind, str) else list(kind)
        if "null" not in kinds:
            schema["type"] = [*kinds, "null"]
        if "enum" in schema and None not in schema["enum"]:
            schema["enum"] = [*schema["enum"], None]
        return schema
    if "anyOf" in schema:
        if {"type": "null"} not in schema["anyOf"]:
            schema["anyOf"] = [*schema["anyOf"], {"type": "null"}]
        return schema
    if "$ref" in schema or "const" in schema:
        return {"anyOf": [schema, {"type": "null"}]}
    if "enum" in schema and None not in schema["enum"]:
        schema["enum"] = [*schema["enum"], None]
    return schema


def text_enums(schema: Any) -> Any:
    """`Written` scalars of a schema decided: text where the schema says string, else by YAML 1.2.

    `enum: [SE, NO, 1.10]` below `type: string` holds three texts (case-080).
    """
    if isinstance(schema, list):
        return [text_enums(one) for one in schema]
    if not isinstance(schema, dict):
        return settle(schema)
    kinds = schema.get("type")
    wants_text = kinds == "string" or (isinstance(kinds, list) and set(map(str, kinds)) <= {"string", "null"})
    done: dict[str, Any] = {}
    for key, value in schema.items():
        if key in ("enum", "examples") and isinstance(value, list) and wants_text:
            done[key] = [
                str(one) if isinstance(one, Written) and one.value is not None else settle(one)
                for one in value
            ]
        elif key in ("const", "default") and isinstance(value, Written) and wants_text:
            done[key] = str(value) if value.value is not None else None
        elif key in ("required",) and isinstance(value, list):
            done[key] = [str(one) if isinstance(one, Written) else one for one in value]
        elif key in ("description", "title", "pattern", "$ref", "format") and isinstance(value, Written):
            done[key] = str(value)
        elif key == "type" and value is not None and isinstance(value, list):
            done[key] = [
                "null" if isinstance(one, Written) and one.value is None else settle(one) for one in value
            ]
        elif key == "type" and isinstance(value, Written) and value.value is None:
            done[key] = "null"
        else:
            done[key] = text_enums(value)
    return done


def _is_object(node: Mapping[str, Any]) -> bool:
    kind = node.get("type")
    return (
        kind == "object"
        or (isinstance(kind, list) and "object" in kind)
        or (kind is None and "properties" in node)
    )


def _nodes(schema: Any, path: KeyPath = (), depth: int = 1) -> Iterator[tuple[KeyPath, int, dict[str, Any]]]:
    """Every schema below (and with) this one: path, level of nesting, the node itself."""
    if not isinstance(schema, dict) or depth > MAX_DEPTH + 5:
        return
    yield path, depth, schema
    for word in ("properties", "$defs", "definitions", "patternProperties"):
        group = schema.get(word)
        if isinstance(group, dict):
            for name, one in group.items():
                yield from _nodes(one, (*path, word, name), depth + 1)
    for word in ("items", "additionalProperties", "not", "if", "then", "else"):
        yield from _nodes(schema.get(word), (*path, word), depth + (word == "items"))
    for word in ("anyOf", "allOf", "oneOf", "prefixItems"):
        group = schema.get(word)
        if isinstance(group, list):
            for index, one in enumerate(group):
                yield from _nodes(one, (*path, word, index), depth)
