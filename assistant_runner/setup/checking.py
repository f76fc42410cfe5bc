"""Check a part of a file against a pydantic model and say what is wrong in the words of the file.

Every message names file, line, column, key, what was expected and what was found. Unknown keys come
with the nearest known one. All problems of a part are found at once.
"""

import re
import types
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError, model_validator

from assistant_runner.errors import near_words
from assistant_runner.setup.document import (
    KeyPath,
    Node,
    Problem,
    Written,
    dotted,
    place_of,
    plain,
    settle,
)

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_EXPECTED = {
    "string_type": "text",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "list_type": "a list",
    "dict_type": "a map",
    "model_type": "a map",
    "finite_number": "a finite number",
}


def parse_duration(value: Any) -> float:
    """Seconds from `90`, `90s`, `1m30s`, `250ms`; ValueError otherwise."""
    if isinstance(value, bool):
        raise ValueError("expected a duration such as 60s or 10m")
    if isinstance(value, int | float):
        seconds = float(value)
    else:
        text = str(value).replace(" ", "")
        parts = _DURATION.findall(text)
        if not parts or "".join(number + unit for number, unit in parts) != text:
            raise ValueError("expected a duration such as 60s or 10m")
        seconds = sum(float(number) * _UNITS[unit] for number, unit in parts)
    if not 0 < seconds < 1e9:
        raise ValueError("expected a duration longer than nothing, such as 60s or 10m")
    return seconds


Duration = Annotated[float, BeforeValidator(parse_duration)]
"""Seconds; in a file a number or text such as `10m`."""


class Entry(BaseModel):
    """A part of a file. Types are never converted; scalars of open type take the type that is wanted."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, allow_inf_nan=False, protected_namespaces=()
    )

    @model_validator(mode="before")
    @classmethod
    def _settle_types(cls, data: Any) -> Any:
        return coerce_fields(cls, data) if isinstance(data, Mapping) else data


def coerce_fields(model: type[BaseModel], data: Mapping[str, Any]) -> dict[str, Any]:
    """The data of a model with the open types of each field decided by its annotation."""
    wanted = {field.alias or name: field.annotation for name, field in model.model_fields.items()}
    return {key: coerce(wanted.get(key, Any), value) for key, value in data.items()}


def coerce(annotation: Any, value: Any) -> Any:
    """`value` with open types decided by what the annotation wants (case-080)."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return coerce(arguments[0], value)
    if isinstance(value, Written):
        return _decide(annotation, value)
    if isinstance(value, dict):
        inner = _inner(annotation, dict)
        if inner is Any or annotation is Any:
            return settle(value) if annotation is Any else {k: settle(v) for k, v in value.items()}
        return {key: coerce(inner, item) for key, item in value.items()} if inner else value
    if isinstance(value, list):
        inner = _inner(annotation, list)
        if inner:
            return [coerce(inner, item) for item in value]
        return settle(value) if annotation is Any else value
    return value


def _inner(annotation: Any, kind: type) -> Any:
    """What a list or map of this annotation holds; None if it holds none."""
    for option in _options(annotation):
        if get_origin(option) is kind:
            return get_args(option)[-1]
    return None


def _options(annotation: Any) -> tuple[Any, ...]:
    if get_origin(annotation) is Annotated:
        return _options(get_args(annotation)[0])
    if get_origin(annotation) in (Union, types.UnionType):
        return tuple(one for part in get_args(annotation) for one in _options(part))
    return (annotation,)


def _decide(annotation: Any, value: Written) -> Any:
    options = _options(annotation)
    if value.value is None:
        return None
    for option in options:
        if get_origin(option) is Literal and str(value) in get_args(option):
            return str(value)
    wanted: tuple[type, ...] = tuple(one for one in options if one in (int, float, bool))
    if isinstance(value.value, bool):
        fits = bool in wanted
    else:
        fits = float in wanted or (int in wanted and isinstance(value.value, int))
    if fits or str not in options:
        return value.value
    return str(value)


EntryT = TypeVar("EntryT", bound=BaseModel)


def check(
    model: type[EntryT], node: Node, at: KeyPath, problems: list[Problem], *, data: Any = None
) -> EntryT | None:
    """The part as a model, or None and its problems added. `at` is where the part stands in the file."""
    given = plain(node) if data is None else data
    try:
        return model.model_validate(given)
    except ValidationError as error:
        found: dict[KeyPath, Problem] = {}
        for one in error.errors(include_url=False):
            where = _path_in(given, one["loc"])
            # `int | float` says both what it is as one and as the other: the last, wider, is enough
            number = where if one["loc"][-1:] in (("int",), ("float",)) else (*where, len(found))
            found[number] = _problem(model, node, at, dict(one), given)
        problems.extend(found.values())
        return None


def _problem(model: type[BaseModel], node: Node, at: KeyPath, error: Mapping[str, Any], data: Any) -> Problem:
    where = _path_in(data, error["loc"])
    kind, found = error["type"], error["input"]
    key = dotted((*at, *where))
    if kind == "extra_forbidden":
        message = unknown_key(str(where[-1]), known_keys(model, where[:-1]))
    elif kind == "missing":
        message = f"required, but missing; there are: {', '.join(map(str, found)) or 'no keys'}"
    elif kind == "literal_error":
        expected = str(error["ctx"]["expected"])
        message = f"expected {expected}; found {describe(found)}{_near_word(found, expected)}"
    elif kind in _EXPECTED:
        quote = "; put it in quotes if the text is meant" if kind == "string_type" and _scalar(found) else ""
        message = f"expected {_EXPECTED[kind]}; found {describe(found)}{quote}"
    elif kind == "value_error":
        message = f"{error['ctx']['error']}; found {describe(found)}"
    else:
        words = re.sub(r"^(Input|String|List|Dictionary|Value) should ", "expected to ", str(error["msg"]))
        message = f"{words}; found {describe(found)}"
    return Problem(place_of(node, where), key, message)


def _path_in(data: Any, loc: tuple[Any, ...]) -> KeyPath:
    """The keys of `loc` as the file has them: pydantic puts names of union members between them."""
    path: list[str | int] = []
    for part in loc:
        inside = data if isinstance(data, Mapping) else {}
        if part in inside:
            data = inside[part]
        elif isinstance(data, list) and isinstance(part, int) and part < len(data):
            data = data[part]
        elif not (isinstance(data, Mapping) and part == loc[-1]):
            continue
        path.append(part)
    return tuple(path)


def _scalar(value: Any) -> bool:
    return isinstance(value, bool | int | float)


def _near_word(found: Any, expected: str) -> str:
    words = re.findall(r"'([^']+)'", expected)
    near = near_words(str(found), words) if isinstance(found, str) else []
    return f"; did you mean {near[0]!r}?" if near else ""


def unknown_key(key: str, known: Iterable[str]) -> str:
    """What to say of a key that nobody knows."""
    names = sorted(known)
    near = near_words(key.lower(), names, cutoff=0.55)
    return f"unknown key; did you mean {near[0]!r}?" if near else f"unknown key; known are {', '.join(names)}"


def known_keys(model: type[BaseModel], where: KeyPath) -> list[str]:
    """The keys of the model that stands at `where` below `model`."""
    current: Any = model
    for part in where:
        if isinstance(part, str) and isinstance(current, type) and issubclass(current, BaseModel):
            by_key = {field.alias or name: field.annotation for name, field in current.model_fields.items()}
            current = _model_in(by_key.get(part))
        else:
            current = _model_in(current)
    if not (isinstance(current, type) and issubclass(current, BaseModel)):
        return []
    return [field.alias or name for name, field in current.model_fields.items()]


def _model_in(annotation: Any) -> Any:
    """The model that an annotation is, or holds."""
    for option in _options(annotation):
        if isinstance(option, type) and issubclass(option, BaseModel):
            return option
        if get_origin(option) in (list, dict):
            return _model_in(get_args(option)[-1])
    return None


def describe(value: Any) -> str:
    """What was found, for messages: `the text 'x'`, `the number 1`, `a list`, `nothing`."""
    if isinstance(value, Written):
        value = value.value
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return f"the number {value}"
    if isinstance(value, str):
        short = value if len(value) <= 60 else value[:57] + "..."
        return f"the text {short!r}"
    return (
        "a list"
        if isinstance(value, list | tuple)
        else "a map"
        if isinstance(value, Mapping)
        else repr(value)
    )
