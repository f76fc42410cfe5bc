"""The input of a batch: a file, or standard input; read twice if it can be, streamed in any case.

The first pass finds every problem before the first request and tells how many rows there are; the
second asks. Standard input is copied to a file for that, unless it should be streamed.
"""

import contextlib
import io
import os
import shutil
import sys
import tempfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from assistant_runner.batch.reader import InputFormat, Record, read_records
from assistant_runner.batch.rows import Row, RowShape, build_rows
from assistant_runner.errors import UsageError


@dataclass(frozen=True, slots=True)
class Shard:
    """Part `number` (from 1) of `total`: rows are dealt out by their key, not by their place."""

    number: int
    total: int

    def holds(self, key: str) -> bool:
        return self.total == 1 or zlib.crc32(key.encode("utf-8", "replace")) % self.total == self.number - 1


WHOLE = Shard(1, 1)


def parse_shard(text: str) -> Shard:
    """`2/5` is the second of five; UsageError otherwise."""
    number, _, total = text.partition("/")
    if number.isdigit() and total.isdigit() and 1 <= int(number) <= int(total):
        return Shard(int(number), int(total))
    raise UsageError(f"--shard {text!r} is no part of a whole", remedy="such as 2/5: the second of five")


@dataclass(frozen=True, slots=True)
class Source:
    """Where rows come from. `path` None: standard input, streamed once. `name` is for messages."""

    path: Path | None
    name: str
    form: InputFormat = "auto"
    encoding: str | None = None
    comment: str | None = None
    shape: RowShape = field(default_factory=RowShape)
    shard: Shard = WHOLE

    @property
    def rereadable(self) -> bool:
        return self.path is not None

    def rows(self) -> Iterator[Row]:
        """This shard's rows in input order; indexes and lines are those of the whole input."""
        with self._open() as stream:
            for row in build_rows(self._records(stream), self.shape):
                if self.shard.holds(row.key):
                    yield row

    def count(self) -> int:
        """How many rows there are. Where nothing but the number depends on a row, none is built."""
        if self.shard != WHOLE or self.shape.template is not None:
            return sum(1 for _ in self.rows())
        with self._open() as stream:
            return sum(1 for _ in self._records(stream))

    def _records(self, stream: io.BufferedReader) -> Iterator[Record]:
        return read_records(
            stream, name=self.name, form=self.form, encoding=self.encoding, comment=self.comment
        )

    @contextlib.contextmanager
    def _open(self) -> Iterator[io.BufferedReader]:
        if self.path is None:
            yield _live_input()
            return
        with _opened(self.path, self.name) as stream:
            yield stream


def _opened(path: Path, name: str) -> io.BufferedReader:
    try:
        return path.open("rb")
    except OSError as error:
        raise UsageError(
            f"{name} cannot be read: {error.strerror}", remedy="name a file, or - for standard input"
        ) from None


def _standard_input() -> io.BufferedReader:
    stream = sys.stdin.buffer
    if isinstance(stream, io.BufferedReader):
        return stream
    return io.BufferedReader(stream)  # type: ignore[arg-type]


def _live_input() -> io.BufferedReader:
    """Standard input for a thread that may still read it when the program leaves.

    The interpreter closes `sys.stdin` at its end, and dies if a thread is reading it: this is another
    reader on the same input.
    """
    try:
        return open(sys.stdin.fileno(), "rb", closefd=False)
    except (OSError, ValueError):  # not a real one
        return _standard_input()


def spool(path: Path | None, to: Path | None) -> Path:
    """A copy of what cannot be read twice: standard input (None), a pipe; in a new file if `to` is None."""
    if to is None:
        handle, name = tempfile.mkstemp(prefix="batch-input-")
    else:
        handle, name = os.open(to, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), str(to)
    with os.fdopen(handle, "wb") as copy:
        if path is None:
            shutil.copyfileobj(_standard_input(), copy)
        else:
            with _opened(path, str(path)) as stream:
                shutil.copyfileobj(stream, copy)
    return Path(name)
