"""Checks of request bodies that answer with the protocol's own error words.

A client reads `code` and `param` and matches on the message (reference, section 14), so a body is not
merely valid or not: the first thing wrong with it has a name, a path (`tool_outputs[0].output`) and a
sentence. The checks are small functions put together into one per body (`wire/bodies.py`); they read
plain JSON, change nothing, and raise `Flaw`.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

Check = Callable[[Any, str], None]
"""Called with a JSON value and its path; returns nothing, raises Flaw."""


class Flaw(ValueError):
    """What is wrong with a body: the protocol's message, code and param."""

    def __init__(self, message: str, *, code: str | None, param: str | None) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.param = param


def kind_of(value: Any) -> str:
    """The JSON type of a value in the words of the error texts: `an object`, `a string`..."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, int):
        return "an integer"
    if isinstance(value, float):
        return "a decimal"
    if isinstance(value, str):
        return "a string"
    return "an array" if isinstance(value, list) else "an object"


def wrong_type(path: str, expected: str, value: Any) -> Flaw:
    got = "null" if value is None else f"{kind_of(value)} instead"
    subject = f"Invalid type for '{path}'" if path else "Invalid type for the request body"
    return Flaw(f"{subject}: expected {expected}, but got {got}.", code="invalid_type", param=path or None)


def wrong_value(path: str, words: str) -> Flaw:
    return Flaw(f"Invalid '{path}': {words}", code="invalid_value", param=path)


def listing(words: tuple[str, ...]) -> str:
    """`'a'`, `'a' and 'b'`, `'a', 'b', and 'c'`."""
    quoted = [f"'{word}'" for word in words]
    if len(quoted) < 3:
        return " and ".join(quoted)
    return f"{', '.join(quoted[:-1])}, and {quoted[-1]}"


def anything(value: Any, path: str) -> None:
    """No check."""


def boolean(value: Any, path: str) -> None:
    if not isinstance(value, bool):
        raise wrong_type(path, "a boolean", value)


def string(*, longest: int | None = None, shortest: int = 0, pattern: str | None = None) -> Check:
    """A string; lengths count Unicode code points."""
    compiled = re.compile(pattern) if pattern else None

    def check(value: Any, path: str) -> None:
        if not isinstance(value, str):
            raise wrong_type(path, "a string", value)
        size = len(value)
        if longest is not None and size > longest:
            raise Flaw(
                f"Invalid '{path}': string too long. Expected a string with maximum length {longest}, "
                f"but got a string with length {size} instead.",
                code="string_above_max_length",
                param=path,
            )
        if size < shortest:
            raise Flaw(
                f"Invalid '{path}': string too short. Expected a string with minimum length {shortest}, "
                f"but got {'an empty string' if not size else f'a string with length {size}'} instead.",
                code="string_below_min_length",
                param=path,
            )
        if compiled and not compiled.fullmatch(value):
            raise wrong_value(
                path,
                f"string does not match pattern. Expected a string that matches the pattern '^{pattern}$'.",
            )

    return check


def one_of(*words: str) -> Check:
    """One of a few words."""
    known = frozenset(words)

    def check(value: Any, path: str) -> None:
        if not isinstance(value, str):
            raise wrong_type(path, f"one of {listing(words)}", value)
        if value not in known:
            raise wrong_value(path, f"'{value[:80]}'. Supported values are: {listing(words)}.")

    return check


def integer(*, least: int | None = None, most: int | None = None) -> Check:
    def check(value: Any, path: str) -> None:
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int):
            raise wrong_type(path, "an integer", value)
        _bounds(value, path, "integer", least, most)

    return check


def number(*, least: float | None = None, most: float | None = None) -> Check:
    def check(value: Any, path: str) -> None:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise wrong_type(path, "a decimal", value)
        _bounds(value, path, "decimal", least, most)

    return check


def _bounds(value: float, path: str, word: str, least: float | None, most: float | None) -> None:
    if most is not None and value > most:
        side, code, expected = "above maximum", f"{word}_above_max_value", f"<= {most}"
    elif least is not None and value < least:
        side, code, expected = "below minimum", f"{word}_below_min_value", f">= {least}"
    else:
        return
    raise Flaw(
        f"Invalid '{path}': {word} {side} value. Expected a value {expected}, but got {value} instead.",
        code=code,
        param=path,
    )


def array(item: Check, *, longest: int | None = None, shortest: int = 0) -> Check:
    def check(value: Any, path: str) -> None:
        if not isinstance(value, list):
            raise wrong_type(path, "an array", value)
        size = len(value)
        if longest is not None and size > longest:
            raise Flaw(
                f"Invalid '{path}': array too long. Expected an array with maximum length {longest}, "
                f"but got an array with length {size} instead.",
                code="array_above_max_length",
                param=path,
            )
        if size < shortest:
            empty = size == 0
            raise Flaw(
                f"Invalid '{path}': {'empty array' if empty else 'array too short'}. Expected an array with "
                f"minimum length {shortest}, but got an "
                f"{'empty array' if empty else f'array with length {size}'} instead.",
                code="empty_array" if empty else "array_below_min_length",
                param=path,
            )
        for index, entry in enumerate(value):
            item(entry, f"{path}[{index}]")

    return check


def mapping(value_check: Check, *, most: int, longest_key: int = 64) -> Check:
    """A free map: at most so many pairs, keys of limited length."""

    def check(value: Any, path: str) -> None:
        if not isinstance(value, dict):
            raise wrong_type(path, "an object", value)
        if len(value) > most:
            raise Flaw(
                f"Invalid '{path}': too many properties. Expected an object with at most {most} properties, "
                f"but got an object with {len(value)} properties instead.",
                code="object_above_max_properties",
                param=path,
            )
        for key, entry in value.items():
            if len(key) > longest_key:
                raise Flaw(
                    f"Invalid '{path}': property name too long. Expected a name with maximum length "
                    f"{longest_key}, but got a name with length {len(key)} instead.",
                    code="string_above_max_length",
                    param=path,
                )
            value_check(entry, f"{path}.{key}")

    return check


def fields(checks: Mapping[str, Check], *, required: tuple[str, ...] = (), closed: bool = True) -> Check:
    """An object with these fields; `closed`: an unknown key is an error."""

    def check(value: Any, path: str) -> None:
        if not isinstance(value, dict):
            raise wrong_type(path, "an object", value)
        prefix = f"{path}." if path else ""
        if closed:
            for key in value:
                if key not in checks:
                    name = f"{prefix}{key[:80]}"
                    raise Flaw(f"Unknown parameter: '{name}'.", code="unknown_parameter", param=name)
        for key in required:
            if key not in value:
                name = f"{prefix}{key}"
                raise Flaw(
                    f"Missing required parameter: '{name}'.", code="missing_required_parameter", param=name
                )
        for key, entry in value.items():
            found = checks.get(key)
            if found is not None:
                found(entry, f"{prefix}{key}")

    return check


def optional(check: Check) -> Check:
    """The value or null: the SDK sends null for an argument of None, and it means `not set`."""

    def check_or_null(value: Any, path: str) -> None:
        if value is not None:
            check(value, path)

    return check_or_null


def tagged(checks: Mapping[str, Check]) -> Check:
    """An object whose `type` says which check it must pass."""
    words = tuple(checks)

    def check(value: Any, path: str) -> None:
        if not isinstance(value, dict):
            raise wrong_type(path, "an object", value)
        if "type" not in value:
            raise Flaw(
                f"Missing required parameter: '{path}.type'.",
                code="missing_required_parameter",
                param=f"{path}.type",
            )
        one_of(*words)(value["type"], f"{path}.type")
        checks[value["type"]](value, path)

    return check


def string_or(string_check: Check, other_type: type, other: Check, expected: str) -> Check:
    """A string that passes one check, or a value of another JSON type that passes another."""

    def check(value: Any, path: str) -> None:
        if isinstance(value, str):
            string_check(value, path)
        elif isinstance(value, other_type):
            other(value, path)
        else:
            raise wrong_type(path, expected, value)

    return check
