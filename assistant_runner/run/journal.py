"""The journal: every run of ours, written ahead to SQLite, so that nothing is lost or done twice.

A record is on disk before the run goes on: a call is recorded before its tool is asked, its output
before it is submitted. Runs that go on at the same moment share one commit. Killed at any instant, the
process leaves records from which `memory.recall` tells what is known, and the run can be taken up again.
Write-ahead logging without a flush per record: a kill loses nothing; a power cut may lose the last
moments, never the file.

One row per run for lists, its records in order (the events of run/events.py), its result once it
has one. A process that works on a run holds a lock on a file of its own, which the system releases
however it ends: so a run is taken up by one process at a time.
"""

import asyncio
import contextlib
import itertools
import json
import os
import secrets
import sqlite3
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Self

from assistant_runner.errors import ConfigurationError, NotFound, UsageError
from assistant_runner.run.events import (
    CallFinished,
    CallStarted,
    OutputsSubmitted,
    RoundCompleted,
    RoundStarted,
    RunEnded,
    RunEvent,
    RunRequested,
    RunResumed,
    RunStarted,
    TextArrived,
    ToolActivity,
    Warned,
)
from assistant_runner.run.records import field_names
from assistant_runner.wire.jsons import record_text

FILE = "journal.sqlite3"
LOCKS = "locks"
BUSY_S = 10.0
STALE_LOCK_S = 3600
LEFT_LOCKS = 20
WAITING = (TextArrived, RoundStarted, RoundCompleted, RunEnded)
WAITING_EVENTS = 64
"""Events that nothing depends on, and how many of them may wait for the next record."""

KEPT_RUNS = 2000
"""Ended runs beyond the newest so many are dropped when a journal is opened."""

PRUNE_EVERY = 500
CHECKPOINT_PAGES = 4000
"""Pages (of 4 KiB) in the write-ahead log before they move into the file, which waits for the disk."""

_VERSION = 1
_SCHEMA = """
CREATE TABLE IF NOT EXISTS runs (
    key TEXT PRIMARY KEY, run_id TEXT, thread_id TEXT, assistant_id TEXT, model TEXT,
    backend TEXT NOT NULL, prompt TEXT, status TEXT NOT NULL, error TEXT,
    owner TEXT, about TEXT NOT NULL, result TEXT,
    created_at REAL NOT NULL, updated_at REAL NOT NULL
);
CREATE INDEX IF NOT EXISTS runs_by_run_id ON runs (run_id);
CREATE TABLE IF NOT EXISTS records (
    key TEXT NOT NULL, seq INTEGER NOT NULL, at REAL NOT NULL, event TEXT NOT NULL, body TEXT NOT NULL,
    PRIMARY KEY (key, seq)
) WITHOUT ROWID;
"""
_COLUMNS = (
    "key, run_id, thread_id, assistant_id, model, backend, prompt, status, error, owner, about, "
    "created_at, updated_at"
)
_DELTAS = "text.deltas"  # the pieces of a text between two records, in one row

EVENTS: Mapping[str, type[RunEvent]] = {
    kind.name: kind
    for kind in (
        RunRequested,
        RunStarted,
        RunResumed,
        TextArrived,
        ToolActivity,
        RoundStarted,
        CallStarted,
        CallFinished,
        RoundCompleted,
        OutputsSubmitted,
        Warned,
        RunEnded,
    )
}


@dataclass(frozen=True, slots=True)
class JournalRun:
    """A run as lists show it. `about`: what is needed to take it up again (settings, folder, question)."""

    key: str
    run_id: str | None
    thread_id: str | None
    assistant_id: str | None
    model: str | None
    backend: str
    prompt: str | None
    status: str
    error: dict[str, Any] | None
    owner: str | None
    about: dict[str, Any]
    created_at: float
    updated_at: float

    def document(self) -> dict[str, Any]:
        document = {
            name: getattr(self, name) for name in field_names(JournalRun) if name not in ("owner", "about")
        }
        return {**document, "created_at": round(self.created_at, 3), "updated_at": round(self.updated_at, 3)}


@dataclass(frozen=True, slots=True)
class Record:
    """One event as it was; `at` in Unix seconds."""

    seq: int
    at: float
    event: RunEvent


class Journal:
    """The journal in one folder. ConfigurationError if the folder cannot be used."""

    def __init__(self, folder: Path, *, clock: Callable[[], float] = time.time) -> None:
        self._folder = folder
        self._clock = clock
        self.path = folder / FILE
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            (folder / LOCKS).mkdir(exist_ok=True, mode=0o700)
            if not self.path.exists():
                os.close(os.open(self.path, os.O_CREAT | os.O_WRONLY, 0o600))  # prompts are private
            self._db = sqlite3.connect(self.path, isolation_level=None, timeout=BUSY_S)
            self._prepare()
        except (OSError, sqlite3.Error) as error:
            raise ConfigurationError(
                f"the journal {self.path} cannot be used: {error}",
                remedy="correct the folder's rights or move the file away, set another state_folder, "
                "or leave the journal out with --no-journal",
            ) from None
        self._owner = uuid.uuid4().hex
        self._group: _Group | None = None
        self._recordings = 0
        self._lock: BinaryIO | None = None
        self._began = 0

    def _prepare(self) -> None:
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = NORMAL")
        self._db.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}")
        version = self._db.execute("PRAGMA user_version").fetchone()[0]
        if version > _VERSION:
            raise sqlite3.DatabaseError(f"it was written by a newer version ({version})")
        if version < _VERSION:
            self._db.executescript(_SCHEMA)
            self._db.execute(f"PRAGMA user_version = {_VERSION}")

    def close(self) -> None:
        with contextlib.suppress(ConfigurationError):
            self.commit()
        self._db.close()
        if self._lock is not None:
            with contextlib.suppress(OSError):
                os.unlink(self._lock.name)
            self._lock.close()
            self._lock = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    # -- writing --------------------------------------------------------------------------------

    def begin(
        self, *, backend: str, prompt: str | None, thread_id: str | None, about: Mapping[str, Any]
    ) -> "Recording":
        """A recording of a run that is about to be asked for."""
        self._hold_lock()
        now = self._clock()
        key = f"j_{int(now * 1000):012x}{secrets.token_hex(4)}"  # in order of time: neighbours on disk
        self._began += 1
        if self._began % PRUNE_EVERY == 0:  # a batch begins very many
            self.prune()
        row = (key, thread_id, backend, prompt, self._owner, record_text(about), now, now)
        return Recording(self, key, 0, row=row)

    def take_up(self, run: JournalRun) -> "Recording":
        """A recording that goes on with this run; UsageError if another living process works on it."""
        self._hold_lock()
        run = self.find(run.key)  # whoever had it may have finished since it was looked up
        if run.owner and run.owner != self._owner and self._is_alive(run.owner):
            raise UsageError(
                f"run {run.run_id or run.key} is being worked on by another process",
                remedy=f"watch it: assistant-runner run tail {run.run_id or run.key}",
            )
        self.commit()
        with self._writing():
            taken = self._db.execute(
                "UPDATE runs SET owner = ?, updated_at = ? WHERE key = ? AND owner IS ?",
                (self._owner, self._clock(), run.key, run.owner),
            ).rowcount
        if not taken:
            raise UsageError(
                f"run {run.run_id or run.key} was just taken up by another process",
                remedy=f"watch it: assistant-runner run tail {run.run_id or run.key}",
            )
        last = self._db.execute("SELECT max(seq) FROM records WHERE key = ?", (run.key,)).fetchone()[0]
        return Recording(self, run.key, last or 0)

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        """Every write: a journal that cannot be written stops the run before it goes on."""
        try:
            yield
        except sqlite3.Error as error:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raised = ConfigurationError(
                f"the journal {self.path} cannot be written: {error}",
                remedy="free space on the disk, or leave the journal out with --no-journal",
            )
            self._close_group(raised)
            raise raised from None

    def _append(
        self,
        key: str,
        row: Sequence[Any] | None,
        records: Sequence[tuple[int, str, str]],
        changes: Mapping[str, Any],
    ) -> None:
        """The run's row if it is new, records of (seq, event, body), changes of the row. No commit."""
        now = self._clock()
        with self._writing():
            if not self._db.in_transaction:
                self._db.execute("BEGIN IMMEDIATE")
            if row is not None:
                self._db.execute(
                    "INSERT INTO runs (key, thread_id, backend, prompt, status, owner, about, created_at,"
                    " updated_at) VALUES (?, ?, ?, ?, 'requested', ?, ?, ?, ?)",
                    row,
                )
            if records:
                places = ", ".join(["(?, ?, ?, ?, ?)"] * len(records))
                values = [value for seq, event, body in records for value in (key, seq, now, event, body)]
                self._db.execute(f"INSERT INTO records (key, seq, at, event, body) VALUES {places}", values)
            if changes:
                sets = ", ".join(f"{name} = ?" for name in changes)
                self._db.execute(
                    f"UPDATE runs SET {sets}, updated_at = ? WHERE key = ?", (*changes.values(), now, key)
                )

    def commit(self) -> None:
        """What was written is on disk when it returns."""
        if self._db.in_transaction:
            with self._writing():
                self._db.execute("COMMIT")
        self._close_group(None)

    async def committed(self) -> None:
        """What was written is on disk when it returns; those who wait at the same moment share one commit."""
        if self._recordings < 2:  # there is nobody to wait for
            self.commit()
            return
        group = self._join_group()
        await group.closed.wait()
        if group.error is not None:
            raise group.error

    def commit_soon(self) -> None:
        """For the end of a run, which nobody waits for."""
        try:
            self._join_group()
        except RuntimeError:  # no loop is running
            self.commit()

    def _join_group(self) -> "_Group":
        if self._group is None:
            asyncio.get_running_loop().call_soon(self._commit_group)
            self._group = _Group()
        return self._group

    def _commit_group(self) -> None:
        if self._group is not None:  # else somebody has committed meanwhile
            with contextlib.suppress(ConfigurationError):  # every run of the group raises it
                self.commit()

    def _close_group(self, error: ConfigurationError | None) -> None:
        if self._group is not None:
            self._group.error = error
            self._group.closed.set()
            self._group = None

    # -- reading --------------------------------------------------------------------------------

    def runs(self, *, limit: int = 20) -> list[JournalRun]:
        """The newest runs first, in the order in which they were begun, whatever the clock said."""
        rows = self._db.execute(f"SELECT {_COLUMNS} FROM runs ORDER BY rowid DESC LIMIT ?", (limit,))
        return [_journal_run(row) for row in rows]

    def find(self, reference: str) -> JournalRun:
        """The run with this run id or journal key, or whose id begins so; NotFound otherwise.

        It is found by the id of a run that a fresh one took the place of, too.
        """
        rows = self._db.execute(
            f"SELECT {_COLUMNS} FROM runs WHERE run_id = ?1 OR key = ?1 ORDER BY rowid DESC LIMIT 1",
            (reference,),
        ).fetchall()
        if not rows:
            rows = self._db.execute(
                f"SELECT {_COLUMNS} FROM runs WHERE key IN"
                " (SELECT key FROM records WHERE event = ? AND instr(body, ?)) ORDER BY rowid DESC LIMIT 1",
                (RunStarted.name, json.dumps({"run_id": reference})[1:-1].replace(": ", ":")),
            ).fetchall()
        if not rows and len(reference) >= 6:
            rows = self._db.execute(
                f"SELECT {_COLUMNS} FROM runs"
                " WHERE substr(run_id, 1, ?2) = ?1 OR substr(key, 1, ?2) = ?1 LIMIT 2",
                (reference, len(reference)),
            ).fetchall()
        if len(rows) != 1:
            why = "is the beginning of more than one run's id" if rows else "is not in the journal"
            raise NotFound(
                f"run {reference!r} {why} ({self.path})",
                status_code=404,
                remedy="assistant-runner run list shows the runs of this machine",
            )
        return _journal_run(rows[0])

    def last(self) -> JournalRun:
        """The newest run; NotFound if there is none."""
        newest = self.runs(limit=1)
        if not newest:
            raise NotFound(
                f"the journal {self.path} holds no run", status_code=404, remedy="ask something first"
            )
        return newest[0]

    def records(self, key: str, *, after: int = 0) -> list[Record]:
        """The run's records after this number, in order, texts in the pieces in which they came."""
        rows = self._db.execute(
            "SELECT seq, at, event, body FROM records WHERE key = ? AND seq > ? ORDER BY seq", (key, after)
        )
        return [record for row in rows for record in _records_of(row)]

    def run_ids_on(self, thread_id: str) -> set[str]:
        """The ids of all runs on this thread that are some question's, also of those that were replaced."""
        bodies = self._db.execute(
            "SELECT body FROM records JOIN runs USING (key) WHERE thread_id = ? AND event = ?",
            (thread_id, RunStarted.name),
        )
        return {json.loads(body)["run_id"] for (body,) in bodies}

    def result(self, key: str) -> dict[str, Any] | None:
        """What `Recording.finish` was given, None if the run has not completed."""
        row = self._db.execute("SELECT result FROM runs WHERE key = ?", (key,)).fetchone()
        return json.loads(row[0]) if row and row[0] else None

    def unended_calls(self, words: str) -> Iterator[str]:
        """The records of finished calls that hold these words, of runs that can be resumed."""
        rows = self._db.execute(
            "SELECT body FROM records JOIN runs USING (key) WHERE event = ? AND instr(body, ?) AND"
            " (owner IS NOT NULL OR (result IS NULL AND status NOT IN"
            " ('completed', 'failed', 'cancelled', 'incomplete')))",
            (CallFinished.name, words),
        )
        return (body for (body,) in rows)

    def is_worked_on(self, run: JournalRun) -> bool:
        """Whether a living process (this one too) holds the run."""
        return bool(run.owner) and (run.owner == self._owner or self._is_alive(str(run.owner)))

    def tidy(self) -> None:
        """Prunes when there is much to prune; cheap otherwise."""
        count = self._db.execute("SELECT count(*) FROM runs").fetchone()[0]
        if count > KEPT_RUNS * 1.2:
            self.prune()
        elif sum(1 for _ in (self._folder / LOCKS).iterdir()) > LEFT_LOCKS:
            self._drop_locks()

    def prune(self, *, keep: int = KEPT_RUNS) -> int:
        """Drops ended runs beyond the newest `keep`, and locks that nobody holds; how many runs.

        A run that waits for a person has not ended: it stays.
        """
        self.commit()
        with self._writing():
            self._db.execute("BEGIN IMMEDIATE")
            old = [
                row[0]
                for row in self._db.execute(
                    "SELECT key FROM runs WHERE owner IS NULL AND (result IS NOT NULL OR status IN"
                    " ('completed', 'failed', 'cancelled', 'expired', 'incomplete'))"
                    " ORDER BY rowid DESC LIMIT -1 OFFSET ?",
                    (keep,),
                )
            ]
            self._db.executemany("DELETE FROM records WHERE key = ?", [(key,) for key in old])
            self._db.executemany("DELETE FROM runs WHERE key = ?", [(key,) for key in old])
            self._db.execute("COMMIT")
        self._drop_locks()
        return len(old)

    def _drop_locks(self) -> None:
        """Removes the locks that killed processes left; a young one may not be locked yet."""
        for path in (self._folder / LOCKS).iterdir():
            with contextlib.suppress(OSError):
                if time.time() - path.stat().st_mtime > STALE_LOCK_S and not self._is_alive(path.name):
                    path.unlink()

    # -- who works on what ----------------------------------------------------------------------

    def _hold_lock(self) -> None:
        if self._lock is None:
            try:
                self._lock = (self._folder / LOCKS / self._owner).open("wb")
            except OSError as error:
                raise ConfigurationError(
                    f"the journal's lock cannot be made: {error}", remedy="check the state folder's rights"
                ) from None
            _lock(self._lock)

    def _is_alive(self, owner: str) -> bool:
        try:
            with (self._folder / LOCKS / owner).open("rb+") as file:
                return not _lock(file)
        except OSError:
            return False


@dataclass(slots=True)
class _Group:
    """Runs whose writes go to disk together."""

    closed: asyncio.Event = field(default_factory=asyncio.Event)
    error: ConfigurationError | None = None


class Recording:
    """Writes one run's events; `listen` is a Listener, awaited before the run goes on.

    Events that nothing depends on (pieces of text, the frame of a round, the end) wait for the next write
    and go to disk with it, in their order. `row`: of a run that is new, written with its first event.
    """

    def __init__(
        self, journal: Journal, key: str, last_seq: int, *, row: Sequence[Any] | None = None
    ) -> None:
        self.key = key
        self._journal = journal
        self._seq = last_seq
        self._row = row
        self._waiting: list[RunEvent] = []
        self._released = False
        journal._recordings += 1

    async def listen(self, event: RunEvent) -> None:
        """On disk when it returns, unless the event may wait."""
        self._waiting.append(event)
        if not isinstance(event, WAITING) or len(self._waiting) >= WAITING_EVENTS:
            self._write({})
            await self._journal.committed()

    def finish(self, result: Mapping[str, Any]) -> None:
        """The result of the completed run, whole, for replay; nobody works on the run any more."""
        self._write({"result": record_text(result), "owner": None})
        self._released = True

    def release(self) -> None:
        """Nobody works on the run any more."""
        if not self._released:
            self._write({"owner": None})
        self._journal._recordings -= 1
        self._journal.commit_soon()

    def _write(self, changes: dict[str, Any]) -> None:
        records: list[tuple[int, str, str]] = []
        for key, group in itertools.groupby(self._waiting, key=_text_of):
            events = list(group)
            if key is None:
                records.extend((self._next(), event.name, record_text(_fields(event))) for event in events)
            else:
                pieces = [event.text for event in events if isinstance(event, TextArrived)]
                records.append((self._next(), _DELTAS, record_text({"message_id": key, "pieces": pieces})))
        learned: dict[str, Any] = {}
        for event in self._waiting:
            learned |= _changes(event)
        self._journal._append(self.key, self._row, records, learned | changes)
        self._waiting, self._row = [], None

    def _next(self) -> int:
        self._seq += 1
        return self._seq


def _text_of(event: RunEvent) -> str | None:
    """Pieces of one text go into one row."""
    return event.message_id if isinstance(event, TextArrived) else None


# -- forms on disk --------------------------------------------------------------------------------


def _fields(event: RunEvent) -> dict[str, Any]:
    return {name: getattr(event, name) for name in field_names(type(event))}


def _changes(event: RunEvent) -> dict[str, Any]:
    """What the run's row learns from an event."""
    if isinstance(event, RunStarted):
        return {
            "run_id": event.run_id,
            "thread_id": event.thread_id,
            "assistant_id": event.assistant_id,
            "model": event.model,
            "status": "in_progress",
            "error": None,
        }
    if isinstance(event, RunResumed):
        return {"status": event.status, "error": None}
    if isinstance(event, RunEnded):
        return {"status": event.status, "error": record_text(event.error) if event.error else None}
    return {}


def _records_of(row: tuple[int, float, str, str]) -> Iterator[Record]:
    seq, at, name, body = row
    values = json.loads(body)
    if name == _DELTAS:
        for piece in values["pieces"]:
            yield Record(seq, at, TextArrived(text=piece, message_id=values["message_id"]))
        return
    kind = EVENTS.get(name)
    if kind is not None:  # a later version's event tells this one nothing
        values = {key: value for key, value in values.items() if key in field_names(kind)}
        if kind is CallFinished and "notes" in values:
            values["notes"] = tuple(values["notes"])
        yield Record(seq, at, kind(**values))


def _journal_run(row: Sequence[Any]) -> JournalRun:
    values = dict(zip((name.strip() for name in _COLUMNS.split(",")), row, strict=True))
    values["error"] = json.loads(values["error"]) if values["error"] else None
    values["about"] = json.loads(values["about"])
    return JournalRun(**values)


def _lock(file: BinaryIO) -> bool:
    """Whether this handle now holds the file's lock; the system lets go of it with the process."""
    try:
        import fcntl
    except ImportError:  # Windows
        import msvcrt

        try:
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined]
        except OSError:
            return False
        return True
    try:
        fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
