"""From a record to a row: what is asked, under which key, and what is wrong with it.

A row is known by its `id`, or, without one, by the hash of what it asks and how often that came before
(case-074, case-075): never by its place. A row with a problem never reaches the backend (case-072).
"""

import hashlib
import json
import math
import os
import re
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assistant_runner.batch.reader import Record
from assistant_runner.errors import UsageError
from assistant_runner.run.request import Limits

if TYPE_CHECKING:
    import jinja2

THREAD_COLUMNS = ("thread", "thread_id")
LIMIT_COLUMNS = {
    "rounds": int,
    "timeout_s": float,
    "tool_timeout_s": float,
    "repeats": int,
    "total_tokens": int,
}
_NUMBERS = {"temperature": float, "top_p": float, "max_prompt_tokens": int, "max_completion_tokens": int}
_TEXTS = ("assistant", "model", "instructions", "tool_choice")
_CONTROL = re.compile("\x00")
_TOOL_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


class RowProblem(ValueError):
    """Why a record cannot be asked, in words for the person who wrote it."""


@dataclass(frozen=True, slots=True)
class Row:
    """One input row. `index` counts from 0, blank lines left out; `line` from 1 in the source.

    `key` is what it is known by on resume; `content_hash` covers what is asked, not what is expected.
    `asks` holds the row's own settings of the question (assistant, tools, thread_id, metadata, …).
    """

    index: int
    line: int
    id: str | int | None
    key: str
    content_hash: str
    prompt: str
    asks: Mapping[str, Any] = field(default_factory=dict)
    limits: Mapping[str, Any] = field(default_factory=dict)
    expect: Mapping[str, Any] = field(default_factory=dict)
    original: Any = None
    problem: str | None = None

    @property
    def name(self) -> str:
        """For people: the id, or the line."""
        return f"row {self.id!r} (line {self.line})" if self.id is not None else f"line {self.line}"


@dataclass(frozen=True, slots=True)
class RowShape:
    """How records become rows: which column is the prompt, which the id, or a template over all columns."""

    prompt_column: str = "prompt"
    id_column: str = "id"
    template: str | None = None
    prompt_prefix: str = ""


class Occurrences:
    """How often each text has been seen; on disk when many, so memory stays flat."""

    def __init__(self) -> None:
        self._database = sqlite3.connect("", isolation_level=None, check_same_thread=False)
        self._database.execute("PRAGMA journal_mode=OFF")
        self._database.execute("PRAGMA cache_size=-8192")
        self._database.execute("CREATE TABLE seen (text TEXT PRIMARY KEY, n INTEGER) WITHOUT ROWID")
        self._database.execute("BEGIN")

    def count(self, text: str) -> int:
        """The number of times this text has come, this time included."""
        [(count,)] = self._database.execute(
            "INSERT INTO seen VALUES (?, 1) ON CONFLICT DO UPDATE SET n = n + 1 RETURNING n", (text,)
        )
        return int(count)

    def seen(self, text: str) -> int:
        """The number of times this text has come so far."""
        found = self._database.execute("SELECT n FROM seen WHERE text = ?", (text,)).fetchone()
        return int(found[0]) if found else 0

    def close(self) -> None:
        self._database.close()


def build_rows(records: Iterable[Record], shape: RowShape) -> Iterator[Row]:
    """One row per record, in order; bad ones carry their problem. UsageError for a bad template."""
    render = compile_template(shape.template) if shape.template is not None else None
    seen = Occurrences()
    try:
        for index, record in enumerate(records):
            yield _build_row(index, record, shape, render, seen)
    finally:
        seen.close()


def compile_template(text: str) -> "jinja2.Template":
    """A template whose unknown columns are errors; UsageError names the line of a mistake."""
    import jinja2.sandbox  # only batches with a template pay for it

    environment = jinja2.sandbox.SandboxedEnvironment(
        undefined=jinja2.StrictUndefined, keep_trailing_newline=False
    )
    try:
        return environment.from_string(text)
    except jinja2.TemplateSyntaxError as error:
        raise UsageError(
            f"the template, line {error.lineno}: {error.message}", remedy="correct the template"
        ) from None


def _build_row(
    index: int, record: Record, shape: RowShape, render: "jinja2.Template | None", seen: Occurrences
) -> Row:
    columns = record.value if isinstance(record.value, dict) else {shape.prompt_column: record.value}
    row_id: str | int | None = None
    try:
        if record.problem is not None:
            raise RowProblem(record.problem)
        row_id = _read_id(columns, shape.id_column)
        prompt = _read_prompt(columns, shape, render)
        asks, limits, expect = _read_asks(columns), _read_limits(columns), _read_expect(columns)
        content_hash = _hash({"prompt": prompt, **asks, **({"limits": limits} if limits else {})})
    except RowProblem as problem:
        content_hash = _hash(record.value)
        base = f"bad:{content_hash}"
        return Row(
            index,
            record.line,
            row_id,
            f"{base}#{seen.count(base)}",
            content_hash,
            "",
            original=record.value,
            problem=str(problem),
        )
    base = f"id:{row_id}" if row_id is not None else f"sha:{content_hash}"
    count = seen.count(base)
    doubled = row_id is not None and count > 1
    return Row(
        index,
        record.line,
        row_id,
        base if count == 1 else f"{base}#{count}",
        content_hash,
        prompt,
        asks,
        limits,
        expect,
        record.value,
        f"the id {row_id!r} was already used by an earlier row" if doubled else None,
    )


def _hash(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, default=str)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def _read_id(columns: Mapping[str, Any], name: str) -> str | int | None:
    value = columns.get(name)
    if value is None or value == "":
        return None
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise RowProblem(f"{name!r} is {_show(value)}; an id is text or a whole number")
    _check_text(name, value)
    return value


def _read_prompt(columns: Mapping[str, Any], shape: RowShape, render: "jinja2.Template | None") -> str:
    if render is not None:
        try:
            value: Any = render.render(
                {"row": columns} | {name: text for name, text in columns.items() if name}
            )
        except Exception as error:  # of jinja2, or of what a row's own values do in it
            raise RowProblem(f"the template cannot be filled: {error or type(error).__name__}") from None
    else:
        if shape.prompt_column not in columns:
            there = ", ".join(sorted(str(name) for name in columns)[:8]) or "none"
            raise RowProblem(f"there is no {shape.prompt_column!r} (columns: {there})")
        value = columns[shape.prompt_column]
    if not isinstance(value, str):
        raise RowProblem(f"{shape.prompt_column!r} is {_show(value)}; a prompt is text")
    if not value.strip():
        raise RowProblem("the prompt is empty")
    if _CONTROL.search(value):
        raise RowProblem("the prompt holds a NUL character: the input's encoding was read wrongly")
    _check_text(shape.prompt_column, value)
    return shape.prompt_prefix + value


def _check_text(name: str, value: Any) -> None:
    """RowProblem if a text in this value cannot be written as UTF-8."""
    try:
        json.dumps(value, ensure_ascii=False, default=str).encode()
    except UnicodeEncodeError:
        raise RowProblem(f"{name!r} holds half of a surrogate pair, which no text may") from None


def _show(value: Any) -> str:
    names = {type(None): "null", bool: "a boolean", int: "a number", float: "a number"}
    names |= {list: "a list", dict: "an object", str: "text"}
    return names.get(type(value), type(value).__name__)


def _read_asks(columns: Mapping[str, Any]) -> dict[str, Any]:
    """The row's own settings, by the names of Question; empty cells mean: not given."""
    asks: dict[str, Any] = {}
    for name in _TEXTS:
        if (value := columns.get(name)) not in (None, ""):
            if (name == "tool_choice" and isinstance(value, dict)) or isinstance(value, str):
                asks[name] = value
                if name == "assistant":
                    _check_near(str(value))
            else:
                raise RowProblem(f"{name!r} is {_show(value)}; it should be text")
    for name in THREAD_COLUMNS:
        if (value := columns.get(name)) not in (None, ""):
            if not isinstance(value, str):
                raise RowProblem(f"{name!r} is {_show(value)}; a thread is named by its id")
            asks["thread_id"] = value
    for name, kind in _NUMBERS.items():
        if (value := columns.get(name)) not in (None, ""):
            asks[name] = _to_number(name, value, kind)
    if (tools := columns.get("tools")) not in (None, ""):
        names = re.split(r"[,\s]+", tools.strip()) if isinstance(tools, str) else tools
        if not isinstance(names, list) or not all(isinstance(tool, str) for tool in names):
            raise RowProblem("'tools' should be a list of tool names")
        asks["tools"] = [tool for tool in names if tool]
        if strange := [tool for tool in asks["tools"] if not _TOOL_NAME.fullmatch(tool)]:
            raise RowProblem(
                f"'tools' holds {strange[0]!r}, which is no name: rows load no code; "
                "name files and modules by --tool, and the function in the row"
            )
    if (metadata := columns.get("metadata")) not in (None, ""):
        document = _to_json("metadata", metadata)
        if not isinstance(document, dict) or not all(isinstance(value, str) for value in document.values()):
            raise RowProblem("'metadata' should be an object of texts")
        asks["metadata"] = document
    if (response_format := columns.get("response_format")) not in (None, ""):
        asks["response_format"] = (
            response_format if response_format == "auto" else _to_json("response_format", response_format)
        )
    for name, value in asks.items():
        _check_text(name, value)
    return asks


def _check_near(assistant: str) -> None:
    """RowProblem for an assistant file of another folder: it may name commands and modules.

    A file of the folder we run in is trusted already: it is taken without being named, too.
    """
    here = os.path.realpath(".")
    if not Path(os.path.realpath(assistant.partition("#")[0])).is_relative_to(here):
        raise RowProblem(
            f"'assistant' is {assistant!r}; a row may name a file of {here} or below it, an id or a name"
        )


def _read_limits(columns: Mapping[str, Any]) -> dict[str, Any]:
    document = columns.get("limits")
    if document in (None, ""):
        return {}
    limits = _to_json("limits", document)
    if not isinstance(limits, dict):
        raise RowProblem("'limits' should be an object")
    for name in limits:
        if name not in LIMIT_COLUMNS:
            raise RowProblem(f"'limits' has no {name!r}; there are: {', '.join(LIMIT_COLUMNS)}")
    numbers = {name: _to_number(name, value, LIMIT_COLUMNS[name]) for name, value in limits.items()}
    for name, number in numbers.items():
        if number <= 0:
            raise RowProblem(f"'limits' has {name} {number}; it should be above 0")
    return numbers


def _read_expect(columns: Mapping[str, Any]) -> dict[str, Any]:
    """`expect` (an object, or text that the answer should contain) and `expect_NAME` columns."""
    expect: dict[str, Any] = {}
    if (value := columns.get("expect")) not in (None, ""):
        if isinstance(value, str) and value.lstrip().startswith("{"):
            value = _to_json("expect", value)
        expect |= value if isinstance(value, dict) else {"contains": value}
    for name, value in columns.items():
        if isinstance(name, str) and name.startswith("expect_") and value not in (None, ""):
            expect[name.removeprefix("expect_")] = value
    return expect


def _to_number(name: str, value: Any, kind: type[int] | type[float]) -> int | float:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise RowProblem(f"{name!r} is {_show(value)}; it should be a number")
    try:
        number = kind(value)
    except (ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        raise RowProblem(f"{name!r} is {value!r}; it should be a number")
    return number


def _to_json(name: str, value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except ValueError as error:
        raise RowProblem(f"{name!r} is not JSON: {error}") from None


def row_limits(row: Row, base: Limits | None) -> Limits | None:
    """The row's limits over the batch's; None if neither says anything."""
    if not row.limits:
        return base
    start = base or Limits()
    values = {name: getattr(start, name) for name in Limits.__slots__} | dict(row.limits)
    return Limits(**values)
