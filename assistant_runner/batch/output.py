"""Results on disk: each row once, in input order, whole or not at all, and found again on resume.

The truth is OUTPUT together with `OUTPUT.batch/pending.jsonl`. A row that finishes before its turn is
appended to the pending file and copied into OUTPUT when all before it are there, so nothing finished is
lost when the process is killed, and memory holds places, not rows. On resume the part of OUTPUT that
still is the beginning of the input stays as it lies; rows behind it move to the pending file (first
written, then cut off) and flow back in order. Answers that no input row asks for any more are kept in
`superseded.jsonl`.
"""

import contextlib
import json
import os
import sqlite3
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from assistant_runner.batch.budget import spent
from assistant_runner.batch.codec import Codec, JsonlCodec
from assistant_runner.errors import ConfigurationError

Place = Literal["output", "pending", "errors"]
PENDING_KEEP_BYTES = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Found:
    """A result that an earlier run left: where it lies and what it was. `passed` None: nothing expected.

    `at`: index and line of the input where its row was then.
    """

    place: Place
    ordinal: int
    offset: int
    length: int
    status: str
    content_hash: str
    fingerprint: str
    passed: bool | None = None
    at: tuple[int, int] | None = None


def state_folder(output: Path) -> Path:
    """Where a batch keeps what is not results: lock, pending rows, progress, the command."""
    return output.with_name(output.name + ".batch")


class Index:
    """Keys of finished rows and where they lie. On disk when many: memory stays flat."""

    def __init__(self) -> None:
        self._db = sqlite3.connect("", isolation_level=None, check_same_thread=False)
        self._db.execute("PRAGMA journal_mode=OFF")
        self._db.execute("PRAGMA cache_size=-8192")
        self._db.execute(
            "CREATE TABLE found (key TEXT PRIMARY KEY, place TEXT, ordinal INTEGER, offset INTEGER,"
            " length INTEGER, status TEXT, hash TEXT, fingerprint TEXT, passed INTEGER, kept INTEGER,"
            " checks TEXT, row_index INTEGER, line INTEGER) WITHOUT ROWID"
        )
        self._db.execute("CREATE INDEX place ON found (place)")
        self._db.execute("CREATE TABLE begun (key TEXT PRIMARY KEY, run_id TEXT, hash TEXT) WITHOUT ROWID")
        self._db.execute("BEGIN")

    def add(self, key: str, found: Found, *, replace: bool) -> bool:
        """False if the key was there and stays as it was."""
        word = "REPLACE" if replace else "IGNORE"
        cursor = self._db.execute(
            f"INSERT OR {word} INTO found VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, 0, NULL, ?, ?)",
            (
                key,
                found.place,
                found.ordinal,
                found.offset,
                found.length,
                found.status,
                found.content_hash,
                found.fingerprint,
                found.passed,
                *(found.at or (None, None)),
            ),
        )
        return cursor.rowcount > 0

    def get(self, key: str) -> Found | None:
        row = self._db.execute(
            "SELECT place, ordinal, offset, length, status, hash, fingerprint, passed, row_index, line"
            " FROM found WHERE key = ?",
            (key,),
        ).fetchone()
        if row is None:
            return None
        *what, passed, index, line = row
        at = None if index is None or line is None else (index, line)
        what += [None if passed is None else bool(passed), at]
        return Found(*what)

    @property
    def is_empty(self) -> bool:
        """Whether earlier runs left nothing, no row that was begun either."""
        queries = ("SELECT 1 FROM found LIMIT 1", "SELECT 1 FROM begun LIMIT 1")
        return all(self._db.execute(query).fetchone() is None for query in queries)

    def add_begun(self, key: str, run_id: str, content_hash: str) -> None:
        self._db.execute("INSERT OR REPLACE INTO begun VALUES (?, ?, ?)", (key, run_id, content_hash))

    def begun(self, key: str, content_hash: str) -> str | None:
        """The run that an earlier invocation began for this row, as it still is."""
        row = self._db.execute(
            "SELECT run_id FROM begun WHERE key = ? AND hash = ?", (key, content_hash)
        ).fetchone()
        return str(row[0]) if row and row[0] else None

    def keep(self, key: str) -> None:
        self._db.execute("UPDATE found SET kept = 1 WHERE key = ?", (key,))

    def recheck(self, key: str, passed: bool | None, checks: list[dict[str, Any]]) -> None:
        """The row stays, but what is expected of it has changed: these are its checks now."""
        self._db.execute(
            "UPDATE found SET passed = ?, checks = ? WHERE key = ?",
            (passed, json.dumps(checks, default=str), key),
        )

    def checks(self, key: str) -> list[dict[str, Any]] | None:
        """What `recheck` said of this row, None if it said nothing."""
        row = self._db.execute("SELECT checks FROM found WHERE key = ?", (key,)).fetchone()
        return json.loads(row[0]) if row and row[0] is not None else None

    def drop(self, key: str) -> None:
        self._db.execute("DELETE FROM found WHERE key = ?", (key,))

    def keep_all(self) -> None:
        self._db.execute("UPDATE found SET kept = 1")

    def is_kept(self, key: str) -> bool:
        row = self._db.execute("SELECT kept FROM found WHERE key = ?", (key,)).fetchone()
        return bool(row and row[0])

    def move(self, key: str, *, place: Place, offset: int, length: int) -> None:
        self._db.execute(
            "UPDATE found SET place = ?, offset = ?, length = ? WHERE key = ?", (place, offset, length, key)
        )

    def drop_unkept(self) -> None:
        self._db.execute("DELETE FROM found WHERE kept = 0")

    def count(self, place: Place, *, kept: bool | None = None) -> int:
        clause = "" if kept is None else f" AND kept = {int(kept)}"
        [(count,)] = self._db.execute(f"SELECT COUNT(*) FROM found WHERE place = ?{clause}", (place,))
        return int(count)

    def has(self, place: Place) -> bool:
        """Whether a row lies there; asked for each row that is put, so it counts none."""
        return (
            self._db.execute("SELECT 1 FROM found WHERE place = ? LIMIT 1", (place,)).fetchone() is not None
        )

    def unkept(self) -> int:
        """How many rows are not kept."""
        [(count,)] = self._db.execute("SELECT COUNT(*) FROM found WHERE kept = 0")
        return int(count)

    def kept(self) -> tuple[int, int, int]:
        """How many rows are kept; how many of them without an answer, and how many that did not pass."""
        [counts] = self._db.execute(
            "SELECT COUNT(*), TOTAL(status != 'ok'), TOTAL(passed = 0) FROM found WHERE kept = 1"
        )
        rows, failed, unpassed = map(int, counts)
        return rows, failed, unpassed

    def first_moving(self, place: Place) -> int | None:
        """The ordinal of the first row of a file that does not stay as it is."""
        [(ordinal,)] = self._db.execute(
            "SELECT MIN(ordinal) FROM found WHERE place = ? AND (kept = 0 OR checks IS NOT NULL)", (place,)
        )
        return None if ordinal is None else int(ordinal)

    def close(self) -> None:
        self._db.close()


class ResultStore:
    """Reads what is there, takes new rows, keeps the order. Opened by one process at a time."""

    def __init__(
        self, output: Path | None, codec: Codec, *, ordered: bool = True, errors: Path | None = None
    ) -> None:
        """`output` None: standard output, nothing is resumable. `errors`: where failed rows go instead."""
        self.ordered = ordered
        self.index = Index()
        self.written = 0
        self.cost, self.tokens = 0.0, 0
        self._codec = codec
        self._jsonl = JsonlCodec()
        self._path = output
        self._errors_path = errors
        self._folder = state_folder(output) if output else None
        self._next = 0
        self._waiting: dict[int, tuple[int, int] | None] = {}
        self._dirty = False
        self._header_due = False
        self._doubled: int | None = None
        if output is None:
            self._out = os.dup(1)
            with tempfile.TemporaryFile() as scratch:
                self._pending = os.dup(scratch.fileno())
            self._header_due = bool(codec.header)
        else:
            assert self._folder is not None
            try:
                self._folder.mkdir(parents=True, exist_ok=True)
                self._out = _open(output)
                self._pending = _open(self._folder / "pending.jsonl")
            except OSError as error:
                raise _cannot_write(output, error) from None
            self._header_due = bool(codec.header) and os.fstat(self._out).st_size == 0
        with writing(errors):
            self._errors = _open(errors) if errors else None
        self._begun = _open(self._folder / "begun.jsonl") if self._folder else None
        self._pending_size = os.fstat(self._pending).st_size

    # -- what an earlier run left -------------------------------------------------------------------

    def load(self) -> int:
        """How many finished rows are there; torn last rows are cut off. Call before anything is put."""
        if self._path is None:
            return 0
        self._load(self._path, self._codec, self._out, "output")
        self._load(_child(self._folder, "pending.jsonl"), self._jsonl, self._pending, "pending")
        if self._errors is not None and self._errors_path is not None:
            self._load(self._errors_path, self._jsonl, self._errors, "errors")
        self._load_begun(_child(self._folder, "begun.jsonl"))
        self._pending_size = os.fstat(self._pending).st_size
        self._header_due = bool(self._codec.header) and os.fstat(self._out).st_size == 0
        return sum(self.index.count(place) for place in ("output", "pending", "errors"))

    def _load(self, path: Path, codec: Codec, handle: int, place: Place) -> None:
        good = 0
        size = os.fstat(handle).st_size
        bad: int | None = None
        with path.open("rb") as stream:
            for ordinal, (offset, data) in enumerate(codec.split(stream)):
                try:
                    row = codec.decode(data)
                    found = Found(
                        place,
                        ordinal,
                        offset,
                        len(data),
                        str(row["status"]),
                        str(row["content_hash"]),
                        str(row["fingerprint"]),
                        row.get("passed"),
                        _place_in_input(row),
                    )
                    key = str(row["key"])
                except (ValueError, KeyError):
                    if bad is not None or ordinal == 0:
                        raise _not_ours(path, ordinal + 1) from None
                    bad = ordinal + 1
                    continue
                if bad is not None:
                    raise _not_ours(path, bad)
                added = self.index.add(key, found, replace=place == "pending" and self._may_replace(key))
                if added:
                    cost, tokens = spent(row)
                    self.cost, self.tokens = self.cost + cost, self.tokens + tokens
                elif place == "output" and self._doubled is None:
                    self._doubled = ordinal
                good = offset + len(data)
        good = max(good, len(codec.header) if size >= len(codec.header) else 0)
        if good == 0 and size > 0 and path == self._path and not self._looks_torn(path):
            raise _not_ours(path, 1)
        if good < size:
            os.ftruncate(handle, good)

    def _load_begun(self, path: Path) -> None:
        with path.open("rb") as stream:
            for line in stream:
                with contextlib.suppress(ValueError, KeyError, TypeError):
                    begun = json.loads(line)
                    self.index.add_begun(begun["key"], begun["run_id"], begun["content_hash"])

    def _may_replace(self, key: str) -> bool:
        """Within the pending file the last row of a key counts; OUTPUT goes before the pending file."""
        found = self.index.get(key)
        return found is None or found.place == "pending"

    @staticmethod
    def _looks_torn(path: Path) -> bool:
        with path.open("rb") as stream:
            head = stream.read(16)
        marks = (b'{"index":', b"index,line")
        return any(head[: len(mark)] == mark[: len(head)] for mark in marks) or not head.strip(b"\0")

    def read(self, found: Found) -> dict[str, Any]:
        """A row that `index` knows."""
        if found.place == "output":
            return self._codec.decode(_pread(self._out, found.offset, found.length))
        handle = self._errors if found.place == "errors" else self._pending
        assert handle is not None
        return self._jsonl.decode(_pread(handle, found.offset, found.length))

    def settle(self, *, prefix: int) -> None:
        """Make the files fit the plan: kept rows of OUTPUT up to ordinal `prefix` stay in place.

        Kept rows behind it move to the pending file; rows that are not kept leave, those with an
        answer into `superseded.jsonl`. Rows that are checked anew move, too, as one cannot grow in its place.
        """
        if self._path is None or self._folder is None:
            return
        rows_out = self.index.count("output")
        dropped = any(self.index.count(place, kept=False) for place in ("output", "pending", "errors"))
        dropped = dropped or self.index.first_moving("pending") is not None
        if self._doubled is not None:
            prefix, dropped = min(prefix, self._doubled), True
        if prefix >= rows_out and not dropped:
            return
        fresh = self._folder / "pending.jsonl.new"
        cut: int | None = None
        moved: list[tuple[str, int, int]] = []
        with fresh.open("wb") as stream, (self._folder / "superseded.jsonl").open("ab") as old:
            for place, data, row, offset, ordinal in self._all_rows():
                key = str(row["key"])
                found = self.index.get(key)
                current = found is not None and (found.place, found.offset) == (place, offset)
                stays = place == "output" and ordinal < prefix
                if place == "output" and not stays and cut is None:
                    cut = offset
                if stays or not current:
                    continue
                if not self.index.is_kept(key):
                    if row["status"] == "ok":
                        old.write(self._jsonl.encode(row))
                    continue
                checks = self.index.checks(key)
                if checks is not None:
                    row |= {"passed": found.passed if found else None, "checks": checks}
                line = data if place == "pending" and checks is None else self._jsonl.encode(row)
                moved.append((key, stream.tell(), len(line)))
                stream.write(line)
            for handle in (stream, old):
                handle.flush()
                os.fsync(handle.fileno())
        os.close(self._pending)
        os.replace(fresh, self._folder / "pending.jsonl")
        self._pending = _open(self._folder / "pending.jsonl")
        self._pending_size = os.fstat(self._pending).st_size
        if cut is not None:
            os.ftruncate(self._out, cut)
        for key, offset, length in moved:
            self.index.move(key, place="pending", offset=offset, length=length)
        self._settle_errors()
        self.index.drop_unkept()

    def _settle_errors(self) -> None:
        """Failed rows that are asked again leave the errors file."""
        if self._errors is None or self._errors_path is None or not self.index.count("errors", kept=False):
            return
        fresh = self._errors_path.with_name(self._errors_path.name + ".new")
        with fresh.open("wb") as stream, self._errors_path.open("rb") as old:
            for _, data in self._jsonl.split(old):
                key = str(self._jsonl.decode(data)["key"])
                if self.index.is_kept(key):
                    self.index.move(key, place="errors", offset=stream.tell(), length=len(data))
                    stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        os.close(self._errors)
        os.replace(fresh, self._errors_path)
        self._errors = _open(self._errors_path)

    def _all_rows(self) -> Iterator[tuple[Place, bytes, dict[str, Any], int, int]]:
        assert self._path is not None
        sources: tuple[tuple[Place, Path, Codec], ...] = (
            ("output", self._path, self._codec),
            ("pending", _child(self._folder, "pending.jsonl"), self._jsonl),
        )
        for place, path, codec in sources:
            with path.open("rb") as stream:
                for ordinal, (offset, data) in enumerate(codec.split(stream)):
                    yield place, data, codec.decode(data), offset, ordinal

    def begin(self, key: str, run_id: str, content_hash: str) -> None:
        """Note that this run works on the row, so that a killed batch takes it up again; "": none does."""
        if self._begun is not None:
            self.index.add_begun(key, run_id, content_hash)
            note = {"key": key, "run_id": run_id, "content_hash": content_hash}
            _write(self._begun, self._jsonl.encode(note))

    # -- new rows ------------------------------------------------------------------------------------

    @property
    def backlog(self) -> int:
        """Rows that finished and wait for one before them."""
        return len(self._waiting)

    def put(self, sequence: int, row: dict[str, Any]) -> None:
        """Take a finished row; `sequence` is its place in the order, each number once, from 0."""
        try:
            self._put(sequence, row)
        except BrokenPipeError:  # whoever read standard output is gone: the whole program ends so
            raise
        except OSError as error:
            raise _cannot_write(self._path, error) from None

    def _put(self, sequence: int, row: dict[str, Any]) -> None:
        if self._errors is not None and row["status"] != "ok":
            _write(self._errors, self._jsonl.encode(row))
            self._pass(sequence)
        elif not self.ordered:
            self._emit(self._codec.encode(row))
        elif sequence == self._next:
            self._emit(self._codec.encode(row))
            self._advance()
        else:
            self._waiting[sequence] = self._set_aside(row)
        self._dirty = True

    def known(self, sequence: int, found: Found, at: tuple[int, int] | None = None) -> None:
        """This place in the order belongs to a row that an earlier run finished.

        `at`: index and line of the input where its row is now.
        """
        if found.place == "pending":
            place = (found.offset, found.length)
            if at is not None and at != found.at:
                place = self._set_aside(self.read(found) | {"index": at[0], "line": at[1]})
            if self.ordered:
                self._waiting[sequence] = place
                self._drain()
            else:
                self._emit_from_pending(place)
        else:
            self._pass(sequence)

    def skip(self, sequence: int) -> None:
        """This place in the order stays empty: the row was left for a later run."""
        self._pass(sequence)

    def _pass(self, sequence: int) -> None:
        if self.ordered:
            self._waiting[sequence] = None
            self._drain()

    def _advance(self) -> None:
        self._next += 1
        self._drain()

    def _drain(self) -> None:
        while self._next in self._waiting:
            place = self._waiting.pop(self._next)
            if place is not None:
                self._emit_from_pending(place)
            self._next += 1
        if not self._waiting and self._pending_size > PENDING_KEEP_BYTES and not self.index.has("pending"):
            self._sync_output()
            self.forget_pending()

    def _set_aside(self, row: dict[str, Any]) -> tuple[int, int]:
        data = self._jsonl.encode(row)
        place = (self._pending_size, len(data))
        _write(self._pending, data)
        self._pending_size += len(data)
        return place

    def _emit_from_pending(self, place: tuple[int, int]) -> None:
        data = _pread(self._pending, *place)
        if not isinstance(self._codec, JsonlCodec):
            data = self._codec.encode(self._jsonl.decode(data))
        self._emit(data)

    def _emit(self, data: bytes) -> None:
        if self._header_due:
            _write(self._out, self._codec.header)
            self._header_due = False
        _write(self._out, data)
        self.written += 1
        self._dirty = True

    # -- durability ----------------------------------------------------------------------------------

    def sync(self) -> None:
        """Everything put so far survives a loss of power. May run in a thread beside `put`."""
        if self._path is None or not self._dirty:
            return
        self._dirty = False
        try:
            self._sync_output()
            os.fsync(self._pending)
            if self._errors is not None:
                os.fsync(self._errors)
        except OSError as error:
            raise _cannot_write(self._path, error) from None

    def _sync_output(self) -> None:
        if self._path is not None:
            os.fsync(self._out)

    def finish(self, *, complete: bool, unclaimed: bool = False) -> None:
        """Write out what waits, holes left open.

        `complete`: every row of the input has passed, so that the pending file is needed no more.
        `unclaimed`: what the index still knows of it was asked for by no row.
        """
        for sequence in sorted(self._waiting):
            place = self._waiting[sequence]
            if place is not None:
                self._emit_from_pending(place)
        self._waiting.clear()
        self._dirty = True
        self.sync()
        if complete and unclaimed:
            self._keep_unclaimed()
        if complete:
            self.forget_pending()

    def _keep_unclaimed(self) -> None:
        """Answers that no row of a streamed input asked for go into `superseded.jsonl`."""
        if self._folder is None:
            return
        with (
            (self._folder / "pending.jsonl").open("rb") as stream,
            (self._folder / "superseded.jsonl").open("ab") as old,
        ):
            for offset, data in self._jsonl.split(stream):
                row = self._jsonl.decode(data)
                found = self.index.get(str(row["key"]))
                if found and (found.place, found.offset, found.status) == ("pending", offset, "ok"):
                    old.write(data)

    def forget_pending(self) -> None:
        """All that was finished lies in OUTPUT now."""
        os.ftruncate(self._pending, 0)
        os.lseek(self._pending, 0, os.SEEK_SET)
        self._pending_size = 0

    def forget_begun(self) -> None:
        """No row is under way any more."""
        if self._begun is not None:
            os.ftruncate(self._begun, 0)

    def close(self) -> None:
        for handle in (self._out, self._pending, self._errors, self._begun):
            if handle is not None:
                os.close(handle)
        self.index.close()


@contextlib.contextmanager
def writing(path: Path | None) -> Iterator[None]:
    """ConfigurationError names the file if it cannot be written meanwhile."""
    try:
        yield
    except OSError as error:
        raise _cannot_write(path, error) from None


def read_results(path: Path, codec: Codec, errors: Path | None = None) -> Iterator[dict[str, Any]]:
    """The whole rows of an output, in the order they lie there; ConfigurationError if it is none.

    `errors`: the file that failed rows were routed to; they come last.
    """
    with open(path, "rb") as stream:
        for ordinal, (_, data) in enumerate(codec.split(stream)):
            try:
                row = codec.decode(data)
                _ = row["key"], row["status"]
            except (ValueError, KeyError):
                raise _not_ours(path, ordinal + 1) from None
            yield row
    if errors is not None and errors.exists():
        yield from read_results(errors, JsonlCodec())


def _place_in_input(row: dict[str, Any]) -> tuple[int, int] | None:
    index, line = row.get("index"), row.get("line")
    return (index, line) if isinstance(index, int) and isinstance(line, int) else None


def _open(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_BINARY", 0), 0o644)


def _write(handle: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(handle, view) :]


def _pread(handle: int, offset: int, length: int) -> bytes:
    if hasattr(os, "pread"):
        return os.pread(handle, length, offset)
    os.lseek(handle, offset, os.SEEK_SET)  # Windows; files are opened for appending, so writes do not mind
    return os.read(handle, length)


def _child(folder: Path | None, name: str) -> Path:
    assert folder is not None
    return folder / name


def _not_ours(path: Path, row: int) -> ConfigurationError:
    return ConfigurationError(
        f"{path}, row {row}: this is no result of a batch",
        remedy="name another output, or move this file away",
        file=str(path),
    )


def _cannot_write(path: Path | None, error: OSError) -> ConfigurationError:
    return ConfigurationError(
        f"{path or 'standard output'} cannot be written: {error.strerror or error}",
        remedy="make room or correct the path, then run the same command again: it goes on",
    )
