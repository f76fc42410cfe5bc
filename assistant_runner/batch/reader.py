"""Records out of an input: JSONL, a JSON array or documents, CSV, TSV, plain lines (row S0.28).

Streamed: a record leaves before the next is read. A record that cannot be read carries its problem
and its line and the rest goes on; what spoils the whole file (encoding, header, a broken array) is a
UsageError that names file and line.
"""

import csv
import io
import itertools
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, Literal

from assistant_runner.batch.decoding import read_text, split_lines
from assistant_runner.errors import UsageError

InputFormat = Literal["auto", "jsonl", "json", "csv", "tsv", "lines"]
ELEMENT_LIMIT = 64 * 1024 * 1024
"""Characters of one JSON document; more means that a bracket is missing somewhere."""

_SUFFIXES: dict[str, InputFormat] = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "json",
    ".csv": "csv",
    ".tsv": "tsv",
    ".tab": "tsv",
    ".txt": "lines",
}
_BLANK = re.compile(r"[ \t\r\n]*")
_SEPARATOR_LINE = re.compile(r"sep=([^\w\s\"]|\t)\s*$", re.IGNORECASE)
_QUOTED = re.compile(r'"[^"]*"')
_ARRAY = re.compile(r"\s*\[\s*([{\[\"\]\d-]|$)")


@dataclass(frozen=True, slots=True)
class Record:
    """One input record: `line` counts from 1 in the source; `problem` says why `value` is no record."""

    line: int
    value: Any
    problem: str | None = None


def read_records(
    source: io.BufferedReader,
    *,
    name: str,
    form: InputFormat = "auto",
    encoding: str | None = None,
    comment: str | None = None,
) -> Iterator[Record]:
    """The records of an input in order. `comment`: lines that begin with it are left out (none is)."""
    texts = read_text(source, name=name, encoding=encoding)
    chosen = _SUFFIXES.get(PurePath(name).suffix.lower(), "auto") if form == "auto" else form
    if chosen == "auto":
        head = _first_visible(texts)
        texts = itertools.chain(head, texts)
        chosen = _sniff("".join(head))
    if chosen == "json":
        return _read_json(_without_comments(texts, comment) if comment else texts, name)
    lines = split_lines(texts)
    if chosen == "csv" or chosen == "tsv":
        return _read_table(lines, name, comment, delimiter=None if chosen == "csv" else "\t")
    numbered = _numbered(lines, comment)
    if chosen == "jsonl":
        return _read_jsonl(numbered)
    return (Record(number, text) for number, text in numbered if not _is_blank(text))


def _first_visible(texts: Iterator[str]) -> list[str]:
    """The pieces up to the end of the first line that holds anything."""
    head: list[str] = []
    seen = False
    for text in texts:
        head.append(text)
        seen = seen or not _is_blank(text)
        if seen and "\n" in "".join(head).lstrip():
            break
    return head


def _sniff(head: str) -> InputFormat:
    if _ARRAY.match(head):
        return "json"
    stripped = head.lstrip()
    if not stripped.startswith("{"):
        return "lines"
    first = stripped.split("\n", 1)[0]
    try:
        json.loads(first)
    except ValueError:
        return "json" if first.strip() == "{" or not first.rstrip().endswith("}") else "jsonl"
    return "jsonl"


def _numbered(lines: Iterator[str], comment: str | None) -> Iterator[tuple[int, str]]:
    for number, text in enumerate(lines, start=1):
        if comment is None or not text.startswith(comment):
            yield number, text


def _without_comments(texts: Iterator[str], comment: str) -> Iterator[str]:
    """JSON whose comment lines, indented or not, are blank: no text of JSON goes over a line's end."""
    for text in split_lines(texts):
        yield ("" if text.lstrip().startswith(comment) else text) + "\n"


def _is_blank(text: str) -> bool:
    match = _BLANK.match(text)
    return match is not None and match.end() == len(text)


def _read_jsonl(numbered: Iterator[tuple[int, str]]) -> Iterator[Record]:
    for number, text in numbered:
        if _is_blank(text):
            continue
        try:
            yield Record(number, json.loads(text))
        except (ValueError, RecursionError) as error:
            why = f"{error.msg}, column {error.colno}" if isinstance(error, json.JSONDecodeError) else error
            yield Record(number, text, f"line {number} is not JSON: {why}")


def _read_table(
    lines: Iterator[str], name: str, comment: str | None, *, delimiter: str | None
) -> Iterator[Record]:
    """Rows by the header's names; columns without a name are left out.

    A quoted cell may hold line ends; its row counts from its first line.
    `delimiter` None: as the header shows it, see `_delimiter`. Inside of a cell nothing is a comment.
    """
    at = 0
    start = 0

    def feed() -> Iterator[str]:
        nonlocal at, start
        for text in lines:
            at += 1
            if start or comment is None or not text.startswith(comment):
                start = start or at
                yield text + "\n"

    csv.field_size_limit(ELEMENT_LIMIT)
    fed = feed()
    if delimiter is None:
        head = list(itertools.islice((text for text in fed if not _is_blank(text)), 1))
        delimiter = _delimiter(head[0]) if head else ","
        start = at
        if head and _SEPARATOR_LINE.match(head[0]):
            head, start = [], 0
        fed = itertools.chain(head, fed)
    rows = csv.reader(fed, delimiter=delimiter, strict=True)
    header: list[str] | None = None
    while True:
        try:
            cells = next(rows)
        except StopIteration:
            return
        except csv.Error as error:
            why = "a carriage return outside of quotes" if "new-line character" in str(error) else error
            raise UsageError(
                f"{name}, line {start or at}: the table is broken: {why}",
                remedy="correct the quotes there, or name another --format",
                file=name,
                line=start or at,
            ) from None
        line, start = start, 0
        if not cells or (len(cells) == 1 and _is_blank(cells[0])):
            continue
        if header is None:
            header = _read_header(cells, name, line)
        elif len(cells) > len(header):
            yield Record(
                line, cells, f"line {line} has {len(cells)} cells, the header has {len(header)} columns"
            )
        else:
            named = itertools.zip_longest(header, cells)
            yield Record(line, {name: cell for name, cell in named if name})


def _delimiter(head: str) -> str:
    """What parts the cells of a CSV: a comma, or what spreadsheets write where the comma is decimal.

    `head` is the first line; `sep=;` says it outright, as Excel does. Quoted names may hold any of them.
    """
    if said := _SEPARATOR_LINE.match(head):
        return said[1]
    bare = _QUOTED.sub("", head)
    return "," if "," in bare else next((mark for mark in ";\t" if mark in bare), ",")


def _read_header(cells: list[str], name: str, line: int) -> list[str]:
    header = [cell.strip() for cell in cells]
    doubled = sorted({cell for cell in header if cell and header.count(cell) > 1})
    if doubled:
        raise UsageError(
            f"{name}, line {line}: the header names {doubled[0]!r} more than once",
            remedy="give every column its own name",
            file=name,
            line=line,
        )
    return header


def _read_json(texts: Iterator[str], name: str) -> Iterator[Record]:
    """The elements of one array, or documents one after the other, each decoded when it is complete."""
    decoder = json.JSONDecoder()
    buffer, at, line, ended, inside = "", 0, 1, False, False
    want = 1

    def skip(characters: str) -> None:
        nonlocal at, line
        while True:
            while at < len(buffer) and buffer[at] in characters:
                line += buffer[at] == "\n"
                at += 1
            if at < len(buffer) or ended:
                return
            refill(1)

    def refill(size: int) -> None:
        nonlocal buffer, at, ended
        pieces = [buffer[at:]]
        got = 0
        while got < size and not ended:
            piece = next(texts, None)
            if piece is None:
                ended = True
            else:
                pieces.append(piece)
                got += len(piece)
        buffer, at = "".join(pieces), 0

    def broken(why: str, below: int = 0) -> UsageError:
        return UsageError(
            f"{name}, line {line + below}: the JSON is broken: {why}",
            remedy="correct it, or say what it is: --format jsonl (a document a line), lines; comments "
            "are left out by --comments '//'",
            file=name,
            line=line + below,
        )

    skip(" \t\r\n")
    if at < len(buffer) and buffer[at] == "[":
        inside = True
        at += 1
    separator_due = False
    while True:
        skip(" \t\r\n")
        if at >= len(buffer):
            if inside:
                raise broken("the array is not closed")
            return
        if inside and buffer[at] == "]":
            at += 1
            skip(" \t\r\n")
            if at < len(buffer):
                raise broken("there is text after the array")
            return
        if inside and separator_due:
            if buffer[at] != ",":
                raise broken(f"expected ',' and found {buffer[at]!r}")
            at += 1
            separator_due = False
            continue
        try:
            value, end = decoder.raw_decode(buffer, at)
            complete = ended or end < len(buffer) or buffer[end - 1] in '}]"'
            why, flaw = "it is cut short", end
        except (ValueError, RecursionError) as error:
            value, end, complete = None, at, False
            why, flaw = getattr(error, "msg", str(error)), getattr(error, "pos", at)
        if not complete:
            if ended or len(buffer) - at > ELEMENT_LIMIT:
                raise broken(why, buffer.count("\n", at, flaw))
            want = max(want, len(buffer) - at, 1)
            refill(want)
            continue
        yield Record(line, value)
        line += buffer.count("\n", at, end)
        at, separator_due, want = end, inside, 1
