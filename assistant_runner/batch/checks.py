"""Expectations on a finished row: enough to guard an assistant in CI.

`contains`, `not_contains`, `regex`, `equals`, `json_schema`, `called_tool`, `not_called_tool`,
`max_seconds`, `max_tokens`; a list means all of them. They come from `expect` columns or from an
assertions file: JSON or YAML, `{all: {...}, rows: {ID: {...}}}`.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assistant_runner.errors import UsageError


@dataclass(frozen=True, slots=True)
class Check:
    """One expectation and whether it held; `why` is empty when it did."""

    name: str
    expected: Any
    passed: bool
    why: str = ""

    def document(self) -> dict[str, Any]:
        return {"name": self.name, "expected": self.expected, "passed": self.passed, "why": self.why}


@dataclass(frozen=True, slots=True)
class Assertions:
    """Expectations for every row, and for rows by their id."""

    every: Mapping[str, Any]
    rows: Mapping[str, Mapping[str, Any]]

    def of(self, row_id: str | int | None, own: Mapping[str, Any]) -> dict[str, Any]:
        """What is expected of a row: everybody's, the file's for its id, its own columns, in that order."""
        return {**self.every, **self.rows.get(str(row_id), {}), **own}


NO_ASSERTIONS = Assertions({}, {})


def load_assertions(path: Path) -> Assertions:
    """The assertions of a file; UsageError names the file, the row and the unknown word."""
    import ruamel.yaml.error  # only batches with assertions pay for it

    try:
        text = path.read_text(encoding="utf-8-sig")
        yaml = ruamel.yaml.YAML(typ="safe", pure=True)
        document = json.loads(text) if path.suffix == ".json" else yaml.load(text)
    except (OSError, ValueError, ruamel.yaml.error.YAMLError) as error:
        raise UsageError(f"{path}: cannot be read: {error}", remedy="correct the assertions file") from None
    if not isinstance(document, dict):
        raise UsageError(f"{path}: should hold an object", remedy="{all: {...}, rows: {ID: {...}}}")
    if not set(document) <= {"all", "rows"}:
        document = {"rows": document}
    every, rows = document.get("all") or {}, document.get("rows") or {}
    for where, expect in [("all", every), *rows.items()]:
        if not isinstance(expect, dict):
            raise UsageError(f"{path}: {where}: should be an object", remedy="such as {contains: Oslo}")
        if problem := expectation_problem(expect):
            raise UsageError(f"{path}: {where}: {problem}", remedy="correct the assertions file")
    return Assertions(every, {str(row_id): expect for row_id, expect in rows.items()})


def expectation_problem(expect: Mapping[str, Any]) -> str | None:
    """What is wrong with these expectations, before any run; None if nothing is."""
    for name, value in expect.items():
        if name not in _CHECKS:
            return f"unknown expectation {name!r}; there are: {', '.join(_CHECKS)}"
        if value is None and name != "equals":
            return f"{name} says nothing"
        try:
            for one in _each(name, value):
                if name == "regex":
                    re.compile(one)
                elif name == "json_schema":
                    _check_schema(_as_json(one))
                elif name.startswith("max_"):
                    float(one)
        except (re.error, TypeError, ValueError) as error:
            return f"{name} is {value!r}: {str(error).splitlines()[0]}"
    return None


def _check_schema(schema: Any) -> None:
    import jsonschema  # only batches with schemas pay for it

    try:
        jsonschema.Draft202012Validator.check_schema(schema)
    except jsonschema.SchemaError as error:
        raise ValueError(error.message) from None


def run_checks(row: Mapping[str, Any], expect: Mapping[str, Any]) -> list[Check]:
    """One entry per expectation, in their order. A row without an answer fails them all."""
    checks = []
    for name, value in expect.items():
        for one in _each(name, value):
            if row["status"] != "ok":
                checks.append(Check(name, one, False, "the row has no answer"))
                continue
            why = _CHECKS[name](row, one)
            checks.append(Check(name, one, why is None, why or ""))
    return checks


def _each(name: str, value: Any) -> list[Any]:
    return value if isinstance(value, list) and name not in ("equals", "json_schema") else [value]


def _as_json(value: Any) -> Any:
    return json.loads(value) if isinstance(value, str) else value


def _answer(row: Mapping[str, Any]) -> str:
    return str(row.get("answer") or "")


def _contains(row: Mapping[str, Any], wanted: Any) -> str | None:
    return None if str(wanted) in _answer(row) else f"the answer does not contain {str(wanted)!r}"


def _not_contains(row: Mapping[str, Any], unwanted: Any) -> str | None:
    return None if str(unwanted) not in _answer(row) else f"the answer contains {str(unwanted)!r}"


def _regex(row: Mapping[str, Any], pattern: Any) -> str | None:
    return None if re.search(pattern, _answer(row)) else f"the answer does not match {pattern!r}"


def _equals(row: Mapping[str, Any], wanted: Any) -> str | None:
    if isinstance(wanted, str):
        return None if _answer(row).strip() == wanted.strip() else f"the answer is not {wanted!r}"
    try:
        found = json.loads(_answer(row))
    except ValueError:
        return "the answer is not JSON"
    return None if found == wanted else f"the answer is not {json.dumps(wanted)}"


def _json_schema(row: Mapping[str, Any], schema: Any) -> str | None:
    import jsonschema
    import referencing

    try:
        document = json.loads(_answer(row))
    except ValueError as error:
        return f"the answer is not JSON: {error}"
    validator = jsonschema.Draft202012Validator(_as_json(schema), registry=referencing.Registry())
    worst = jsonschema.exceptions.best_match(validator.iter_errors(document))
    return None if worst is None else f"{worst.json_path}: {worst.message}"


def _called(row: Mapping[str, Any]) -> list[str]:
    return [call["name"] for call in row.get("tool_calls") or []]


def _called_tool(row: Mapping[str, Any], name: Any) -> str | None:
    called = _called(row)
    return None if name in called else f"{name} was not called (called: {', '.join(called) or 'none'})"


def _not_called_tool(row: Mapping[str, Any], name: Any) -> str | None:
    return None if name not in _called(row) else f"{name} was called"


def _max_seconds(row: Mapping[str, Any], limit: Any) -> str | None:
    seconds = float(row.get("duration_s") or 0)
    return None if seconds <= float(limit) else f"it took {seconds:.2f} s, the limit is {limit} s"


def _max_tokens(row: Mapping[str, Any], limit: Any) -> str | None:
    tokens = int((row.get("usage") or {}).get("total_tokens") or 0)
    return None if tokens <= float(limit) else f"it took {tokens} tokens, the limit is {limit}"


_CHECKS: dict[str, Callable[[Mapping[str, Any], Any], str | None]] = {
    "contains": _contains,
    "not_contains": _not_contains,
    "regex": _regex,
    "equals": _equals,
    "json_schema": _json_schema,
    "called_tool": _called_tool,
    "not_called_tool": _not_called_tool,
    "max_seconds": _max_seconds,
    "max_tokens": _max_tokens,
}
