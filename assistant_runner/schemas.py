"""Values against JSON Schemas (draft 2020-12; formats are not judged), by the library `jsonschema`.

It is loaded when the first value is checked: a run without tool calls does not pay for it. Schemas are
often a stranger's (an MCP server's, a client's of `serve`), so three things differ from the library's
ways. A reference never leaves its schema: left to itself, the library would fetch what it points to.
Patterns are judged in linear time (pydantic's engine); one that needs backtracking is not judged, nor is
`unevaluatedProperties`, for which the library matches patterns by itself. And references are followed
only so often: a few that each lead twice to the next would take for ever.
"""

from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

if TYPE_CHECKING:
    import jsonschema

MOST_REFERENCES = 20_000
"""Followed for one value: about a second's work."""
DATA_WORDS = ("enum", "const", "default", "examples")

_followed: ContextVar[list[int]] = ContextVar("_followed")


class _TooHard(Exception):
    """A schema whose references have no end in sight."""


def flaw_in(value: Any, schema: Mapping[str, Any]) -> "jsonschema.ValidationError | None":
    """What fits worst, or None if the value fits."""
    import jsonschema

    _followed.set([0])
    try:
        worst: jsonschema.ValidationError | None = jsonschema.exceptions.best_match(
            _validator(schema).iter_errors(value)
        )
    except (_TooHard, RecursionError):
        return jsonschema.ValidationError("the schema's references have no end in sight", instance=value)
    return worst


def fits(value: Any, schema: Mapping[str, Any], root: Mapping[str, Any]) -> bool:
    """Whether the value fits; references of the schema are into `root`, of which it is a part."""
    _followed.set([0])
    try:
        fitting: bool = _validator(root).evolve(schema=_undated(schema)).is_valid(value)
    except (_TooHard, RecursionError):
        return False
    return fitting


def fault_of(schema: Any) -> str | None:
    """Why this is no JSON Schema that can be used, or None if it is one."""
    import jsonschema

    try:
        jsonschema.Draft202012Validator.check_schema(schema)
        lost = (reference for reference in _references(schema) if not _leads_somewhere(reference, schema))
        return next((f"{reference!r} leads nowhere" for reference in lost), None)
    except jsonschema.SchemaError as error:
        return str(error.message)
    except RecursionError:
        return "it is nested too deeply"


def _validator(schema: Mapping[str, Any]) -> Any:
    from referencing import Registry

    return _judge()(_undated(schema), registry=Registry())


@cache
def _judge() -> Any:
    """The library's validator with our words in the place of those that can take for ever."""
    from jsonschema import Draft202012Validator
    from jsonschema.validators import extend

    def counted(word: str) -> Any:
        follow = Draft202012Validator.VALIDATORS[word]

        def judge(validator: Any, reference: str, instance: Any, schema: Mapping[str, Any]) -> Any:
            count = _followed.get()
            count[0] += 1
            if count[0] > MOST_REFERENCES:
                raise _TooHard
            return follow(validator, reference, instance, schema)

        return judge

    words = {word: counted(word) for word in ("$ref", "$dynamicRef")}
    return extend(  # type: ignore[no-untyped-call]
        Draft202012Validator,
        {
            **words,
            "pattern": _judge_pattern,
            "patternProperties": _judge_pattern_properties,
            "additionalProperties": _judge_additional_properties,
            "unevaluatedProperties": lambda validator, inner, instance, schema: (),
        },
    )


def _judge_pattern(validator: Any, pattern: str, instance: Any, schema: Mapping[str, Any]) -> Iterator[Any]:
    from jsonschema import ValidationError

    if isinstance(instance, str) and not _matches(pattern, instance, unsure=True):
        yield ValidationError(f"{instance!r} does not match {pattern!r}")


def _judge_pattern_properties(
    validator: Any, patterns: Mapping[str, Any], instance: Any, schema: Mapping[str, Any]
) -> Iterator[Any]:
    if isinstance(instance, Mapping):
        for pattern, inner in patterns.items():
            for name, value in instance.items():
                if _matches(pattern, name, unsure=False):
                    yield from validator.descend(value, inner, path=name, schema_path=pattern)


def _judge_additional_properties(
    validator: Any, inner: Any, instance: Any, schema: Mapping[str, Any]
) -> Iterator[Any]:
    """The library's own, which matches the names with `patternProperties` too, is given those left over."""
    from jsonschema import Draft202012Validator

    if isinstance(instance, Mapping) and (patterns := schema.get("patternProperties")):
        instance = {
            name: value
            for name, value in instance.items()
            if not any(_matches(pattern, name, unsure=True) for pattern in patterns)
        }
        schema = {word: value for word, value in schema.items() if word != "patternProperties"}
    yield from Draft202012Validator.VALIDATORS["additionalProperties"](validator, inner, instance, schema)


def _matches(pattern: str, text: str, *, unsure: bool) -> bool:
    """Whether the pattern is found in the text; `unsure` where it is none that can be judged."""
    matcher = _matcher(pattern)
    return unsure if matcher is None else bool(matcher.isinstance_python(text))


@lru_cache(maxsize=64)
def _matcher(pattern: str) -> Any:
    from pydantic_core import SchemaError, SchemaValidator, core_schema

    try:
        return SchemaValidator(core_schema.str_schema(pattern=pattern))
    except SchemaError:  # it needs backtracking, is too large, or is none
        return None


def _undated(schema: Any) -> Any:
    """The schema without `$schema`: the library would go on with its own class for that draft."""
    if isinstance(schema, Mapping):
        return {
            word: value if word in DATA_WORDS else _undated(value)
            for word, value in schema.items()
            if not (word == "$schema" and isinstance(value, str))
        }
    return [_undated(entry) for entry in schema] if isinstance(schema, list) else schema


def _references(schema: Any) -> Iterator[str]:
    if isinstance(schema, Mapping):
        for word, value in schema.items():
            if word in ("$ref", "$dynamicRef") and isinstance(value, str):
                yield value
            elif word not in DATA_WORDS:
                yield from _references(value)
    elif isinstance(schema, list):
        for entry in schema:
            yield from _references(entry)


def _leads_somewhere(reference: str, schema: Mapping[str, Any]) -> bool:
    """Whether a JSON pointer finds something in the schema; an anchor is not looked for."""
    if not reference.startswith("#/"):
        return reference.startswith("#")
    target: Any = schema
    for word in unquote(reference).split("/")[1:]:
        word = word.replace("~1", "/").replace("~0", "~")
        if isinstance(target, list) and word.isdigit() and int(word) < len(target):
            target = target[int(word)]
        elif isinstance(target, Mapping) and word in target:
            target = target[word]
        else:
            return False
    return True
