"""How a result row lies in a file: JSONL that the strictest reader can read by lines, or CSV.

Both are read back on resume, so both carry the whole row. U+2028, U+2029 and U+0085 are escaped in
JSONL: some readers end a line there (case-071).
"""

import csv
import io
import json
import re
from collections.abc import Iterator
from pathlib import Path, PurePath
from typing import Any, Literal, Protocol

from assistant_runner.wire.jsons import record_text

OutputFormat = Literal["jsonl", "csv"]
CHUNK_BYTES = 1 << 20
CELL_LIMIT = (1 << 31) - 1
_UNSAFE = re.compile("[\x85\u2028\u2029]")


class Codec(Protocol):
    """Rows to bytes and back; every encoded row ends with a line end."""

    header: bytes

    def encode(self, row: dict[str, Any]) -> bytes: ...
    def decode(self, data: bytes) -> dict[str, Any]:
        """The row; ValueError if these bytes are none."""
        ...

    def split(self, stream: io.BufferedReader) -> Iterator[tuple[int, bytes]]:
        """(offset, bytes) of each whole row; what follows the last whole row is torn and left out."""
        ...


def codec_for(form: OutputFormat | None, name: str) -> Codec:
    """The codec that was asked for, else the one of the file's suffix, else JSONL."""
    if form == "csv" or (form is None and PurePath(name).suffix.lower() == ".csv"):
        return CsvCodec()
    return JsonlCodec()


def codec_of(path: Path) -> Codec:
    """The codec that an output was written with: its first bytes show it, whatever its name."""
    header = CsvCodec().header
    with path.open("rb") as stream:
        return CsvCodec() if stream.read(len(header)) == header else JsonlCodec()


class JsonlCodec:
    header = b""

    def encode(self, row: dict[str, Any]) -> bytes:
        text = record_text(row)
        if _UNSAFE.search(text):
            text = _UNSAFE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)
        return text.encode() + b"\n"

    def decode(self, data: bytes) -> dict[str, Any]:
        row = json.loads(data)
        if not isinstance(row, dict):
            raise ValueError("not an object")
        return row

    def split(self, stream: io.BufferedReader) -> Iterator[tuple[int, bytes]]:
        offset = 0
        for line in stream:
            if line.endswith(b"\n"):
                yield offset, line
            offset += len(line)


class CsvCodec:
    """One column per plain field; nested values are JSON in their cell."""

    columns = (
        "index",
        "line",
        "id",
        "status",
        "answer",
        "error",
        "passed",
        "checks",
        "thread_id",
        "run_id",
        "run_status",
        "assistant_id",
        "model",
        "rounds",
        "tool_calls",
        "prompt_tokens",
        "completion_tokens",
        "total_tokens",
        "cost",
        "duration_s",
        "started_at",
        "attempts",
        "warnings",
        "key",
        "content_hash",
        "fingerprint",
        "more",
    )
    nested = frozenset({"id", "error", "passed", "checks", "tool_calls", "warnings", "more"})
    whole = frozenset({"index", "line", "rounds", "attempts"})
    tokens = ("prompt_tokens", "completion_tokens", "total_tokens")

    def __init__(self) -> None:
        self.header = self._line(self.columns)
        csv.field_size_limit(CELL_LIMIT)  # of the module: an answer may be longer than its 128 kB

    @staticmethod
    def _line(cells: Any) -> bytes:
        buffer = io.StringIO()
        csv.writer(buffer, lineterminator="\r\n").writerow(cells)  # so that it puts quotes around a CR
        return buffer.getvalue().removesuffix("\r\n").encode("utf-8", "backslashreplace") + b"\n"

    def encode(self, row: dict[str, Any]) -> bytes:
        usage = row.get("usage") or {}
        flat = row | {name: usage.get(name) for name in self.tokens}
        more = {name: value for name, value in row.items() if name not in self.columns and name != "usage"}
        if not isinstance(row.get("id"), str | None):  # the cell has its text, as people join by it
            more["id"] = row["id"]
        flat["more"] = more or None
        return self._line(self._cell(name, flat.get(name)) for name in self.columns)

    def _cell(self, name: str, value: Any) -> Any:
        if value is None:
            return ""
        if name == "id" and isinstance(value, str):
            return value
        return record_text(value) if name in self.nested else value

    def decode(self, data: bytes) -> dict[str, Any]:
        try:
            [cells] = csv.reader(io.StringIO(data.decode(), newline=""), strict=True)
        except csv.Error as error:
            raise ValueError(str(error)) from None
        if len(cells) != len(self.columns):
            raise ValueError(f"{len(cells)} cells instead of {len(self.columns)}")
        row: dict[str, Any] = {}
        for name, cell in zip(self.columns, cells, strict=True):
            row[name] = self._value(name, cell)
        row["answer"] = cells[self.columns.index("answer")] if row["status"] == "ok" else row["answer"]
        counts = {name: row.pop(name) for name in self.tokens}
        row["usage"] = counts if any(value is not None for value in counts.values()) else None
        return row | (row.pop("more") or {})

    def _value(self, name: str, cell: str) -> Any:
        if cell == "":
            return None
        if name in self.whole or name in self.tokens:
            return int(cell)
        if name in ("cost", "duration_s", "started_at"):
            return float(cell)
        return json.loads(cell) if name in self.nested and name != "id" else cell

    def split(self, stream: io.BufferedReader) -> Iterator[tuple[int, bytes]]:
        offset, parts, quotes = 0, b"", 0
        for line in stream:
            parts += line
            quotes += line.count(b'"')
            if quotes % 2 == 0 and line.endswith(b"\n"):
                if parts != self.header:
                    yield offset, parts
                offset, parts, quotes = offset + len(parts), b"", 0
