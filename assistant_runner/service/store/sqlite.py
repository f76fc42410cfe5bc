"""The store in SQLite: WAL, one writer, the stdlib driver, keyset pages, migrations by version.

`synchronous=NORMAL` in WAL loses nothing when the process is killed; a power cut may cost the last
transactions, never the file. A thread's lock and the runs that are under way stand in a table of
their own, so that finding them costs the same whatever the number of threads.
"""

import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from assistant_runner.errors import ConfigurationError
from assistant_runner.service.store.base import (
    ActiveRun,
    Conflict,
    Document,
    Holding,
    Order,
    Row,
    UnknownCursor,
)
from assistant_runner.wire.jsons import loaded, stored_bytes

MIGRATIONS = (
    """
    CREATE TABLE documents (
        seq INTEGER PRIMARY KEY,
        kind TEXT NOT NULL,
        parent TEXT NOT NULL,
        id TEXT NOT NULL,
        tag TEXT,
        version INTEGER NOT NULL DEFAULT 1,
        gone INTEGER NOT NULL DEFAULT 0,
        doc BLOB NOT NULL,
        extra BLOB
    );
    CREATE UNIQUE INDEX documents_by_id ON documents (id, kind, parent);
    CREATE INDEX documents_by_parent ON documents (parent, kind, seq) WHERE gone = 0;
    CREATE INDEX documents_by_tag ON documents (parent, kind, tag, seq) WHERE gone = 0 AND tag IS NOT NULL;
    CREATE TABLE active_runs (
        run_id TEXT PRIMARY KEY,
        thread_id TEXT NOT NULL UNIQUE,
        world TEXT NOT NULL,
        status TEXT NOT NULL,
        deadline_at REAL NOT NULL,
        owner TEXT,
        seen_at REAL NOT NULL
    ) WITHOUT ROWID;
    CREATE INDEX active_by_deadline ON active_runs (deadline_at);
    CREATE INDEX active_by_owner ON active_runs (owner);
    CREATE TABLE idempotency (
        world TEXT NOT NULL,
        key TEXT NOT NULL,
        at REAL NOT NULL,
        value BLOB NOT NULL,
        PRIMARY KEY (world, key)
    ) WITHOUT ROWID;
    CREATE INDEX idempotency_by_time ON idempotency (at);
    """,
)
"""Applied in order; `user_version` says how many a file has seen."""

_COLUMNS = "kind, parent, id, seq, version, doc, extra, tag"
_ACTIVE = "run_id, thread_id, world, status, deadline_at, owner, seen_at"


class SqliteStore:
    """A Store in one file, or in memory."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._execute = connection.execute
        self._depth = 0

    @classmethod
    def open(cls, path: Path | str) -> "SqliteStore":
        """The store at a path (`:memory:` for none); made and migrated as needed.

        ConfigurationError if the file cannot be used or is from a newer version.
        """
        try:
            if str(path) != ":memory:":
                Path(path).parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600))  # threads are private
            connection = sqlite3.connect(
                path, isolation_level=None, timeout=10.0, cached_statements=256, check_same_thread=False
            )
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = NORMAL")
            connection.execute("PRAGMA wal_autocheckpoint = 8000")
            connection.execute("PRAGMA cache_size = -16000")
            connection.execute("PRAGMA temp_store = MEMORY")
            store = cls(connection)
            store._migrate(str(path))
        except (OSError, sqlite3.Error) as error:
            raise ConfigurationError(
                f"the store at {path} cannot be used: {error}",
                remedy="name another folder with --data (setting data_folder), or move the file away",
                path=str(path),
            ) from None
        return store

    def _migrate(self, path: str) -> None:
        with self.transaction():
            [version] = self._execute("PRAGMA user_version").fetchone()
            if version > len(MIGRATIONS):
                raise ConfigurationError(
                    f"the store at {path} has version {version}; this program knows up to {len(MIGRATIONS)}",
                    remedy="use a newer assistant-runner, or another data folder",
                    path=path,
                )
            for script in MIGRATIONS[version:]:
                for statement in script.split(";"):
                    if statement.strip():
                        self._execute(statement)
            if version < len(MIGRATIONS):
                self._execute(f"PRAGMA user_version = {len(MIGRATIONS)}")

    @contextmanager
    def transaction(self) -> Iterator[None]:
        if self._depth:
            yield
            return
        self._execute("BEGIN IMMEDIATE")
        self._depth = 1
        try:
            yield
            self._execute("COMMIT")
        except BaseException:
            if self._connection.in_transaction:  # a full disk may have ended it already
                self._execute("ROLLBACK")
            raise
        finally:
            self._depth = 0

    def insert(
        self,
        kind: str,
        parent: str,
        identifier: str,
        doc: Document,
        *,
        extra: Document | None = None,
        tag: str | None = None,
    ) -> Row:
        extra = extra or {}
        cursor = self._execute(
            "INSERT INTO documents (kind, parent, id, tag, doc, extra) VALUES (?, ?, ?, ?, ?, ?) "
            "ON CONFLICT (id, kind, parent) DO UPDATE SET gone = 0, version = version + 1, "
            "tag = excluded.tag, doc = excluded.doc, extra = excluded.extra WHERE gone = 1 "
            "RETURNING seq, version",
            (kind, parent, identifier, tag, stored_bytes(doc), stored_bytes(extra) if extra else None),
        )
        found = cursor.fetchone()
        if found is None:
            raise Conflict(f"{kind} {identifier} exists")
        return Row(kind, parent, identifier, found[0], found[1], doc, extra, tag)

    def get(self, kind: str, parent: str, identifier: str) -> Row | None:
        found = self._execute(
            f"SELECT {_COLUMNS} FROM documents WHERE id = ? AND kind = ? AND parent = ? AND gone = 0",
            (_plain(identifier), kind, parent),
        ).fetchone()
        return None if found is None else _row(found)

    def exists(self, kind: str, parent: str, identifier: str) -> bool:
        return (
            self._execute(
                "SELECT 1 FROM documents WHERE id = ? AND kind = ? AND parent = ? AND gone = 0",
                (_plain(identifier), kind, parent),
            ).fetchone()
            is not None
        )

    def update(self, row: Row) -> None:
        cursor = self._execute(
            "UPDATE documents SET doc = ?, extra = ?, tag = ?, version = version + 1 "
            "WHERE seq = ? AND id = ? AND version = ? AND gone = 0",
            (
                stored_bytes(row.doc),
                stored_bytes(row.extra) if row.extra else None,
                row.tag,
                row.seq,
                row.id,
                row.version,
            ),
        )
        if cursor.rowcount != 1:
            raise Conflict(f"{row.kind} {row.id} changed")
        row.version += 1

    def delete(self, kind: str, parent: str, identifier: str) -> bool:
        cursor = self._execute(
            "UPDATE documents SET gone = 1, doc = x'7B7D', extra = NULL, version = version + 1 "
            "WHERE id = ? AND kind = ? AND parent = ? AND gone = 0",
            (_plain(identifier), kind, parent),
        )
        return cursor.rowcount == 1

    def delete_children(self, parent: str) -> None:
        self._execute("DELETE FROM documents WHERE parent = ? AND gone = 0", (parent,))

    def page(
        self,
        kind: str,
        parent: str,
        *,
        limit: int,
        order: Order = "desc",
        after: str | None = None,
        before: str | None = None,
        tag: str | None = None,
    ) -> tuple[list[Row], bool]:
        conditions = ["parent = ?", "kind = ?", "gone = 0"]
        values: list[Any] = [parent, kind]
        if tag is not None:
            conditions.append("tag = ?")
            values.append(tag)
        ascending = order == "asc"
        for param, cursor in (("after", after), ("before", before)):
            if cursor is None:
                continue
            found = self._execute(
                "SELECT seq FROM documents WHERE id = ? AND kind = ? AND parent = ?",
                (_plain(cursor), kind, parent),
            ).fetchone()
            if found is None:
                raise UnknownCursor(param, cursor)
            conditions.append("seq > ?" if (param == "after") == ascending else "seq < ?")
            values.append(found[0])
        backwards = before is not None and after is None
        direction = "ASC" if ascending != backwards else "DESC"
        rows = self._execute(
            f"SELECT {_COLUMNS} FROM documents WHERE {' AND '.join(conditions)} "
            f"ORDER BY seq {direction} LIMIT ?",
            (*values, limit + 1),
        ).fetchall()
        chosen = [_row(found) for found in rows[:limit]]
        if backwards:
            chosen.reverse()
        return chosen, len(rows) > limit

    def scan(self, kind: str, parent: str, *, below: int | None = None, limit: int = 100) -> list[Row]:
        rows = self._execute(
            f"SELECT {_COLUMNS} FROM documents WHERE parent = ? AND kind = ? AND gone = 0 AND seq < ? "
            "ORDER BY seq DESC LIMIT ?",
            (parent, kind, below if below is not None else 1 << 62, limit),
        )
        return [_row(found) for found in rows]

    def count(self, kind: str, parent: str) -> dict[str | None, int]:
        rows = self._execute(
            "SELECT tag, COUNT(*) FROM documents WHERE parent = ? AND kind = ? AND gone = 0 GROUP BY tag",
            (parent, kind),
        )
        return dict(rows.fetchall())

    def parents_of(self, kind: str, identifier: str) -> list[str]:
        rows = self._execute(
            "SELECT parent FROM documents WHERE id = ? AND kind = ? AND gone = 0", (_plain(identifier), kind)
        )
        return [found[0] for found in rows]

    def activate(self, run: ActiveRun) -> str | None:
        cursor = self._execute(
            f"INSERT INTO active_runs ({_ACTIVE}) VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
            (run.run_id, run.thread_id, run.world, run.status, run.deadline_at, run.owner, run.seen_at),
        )
        if cursor.rowcount == 1:
            return None
        found = self._execute(
            "SELECT run_id FROM active_runs WHERE thread_id = ?", (run.thread_id,)
        ).fetchone()
        return str(found[0])

    def active_run(self, thread_id: str) -> ActiveRun | None:
        found = self._execute(
            f"SELECT {_ACTIVE} FROM active_runs WHERE thread_id = ?", (thread_id,)
        ).fetchone()
        return None if found is None else ActiveRun(*found)

    def holding(self, run_id: str, seq: int) -> Holding | None:
        found = self._execute(
            "SELECT a.owner, a.status, d.version FROM active_runs a, documents d "
            "WHERE a.run_id = ? AND d.seq = ? AND d.gone = 0",
            (run_id, seq),
        ).fetchone()
        return None if found is None else Holding(*found)

    def set_active(self, run_id: str, *, status: str, owner: str | None, seen_at: float) -> None:
        self._execute(
            "UPDATE active_runs SET status = ?, owner = ?, seen_at = ? WHERE run_id = ?",
            (status, owner, seen_at, run_id),
        )

    def claim(self, run_id: str, *, expected: str | None, owner: str | None, seen_at: float) -> bool:
        cursor = self._execute(
            "UPDATE active_runs SET owner = ?, seen_at = ? WHERE run_id = ? AND owner IS ?",
            (owner, seen_at, run_id, expected),
        )
        return cursor.rowcount == 1

    def deactivate(self, run_id: str) -> None:
        self._execute("DELETE FROM active_runs WHERE run_id = ?", (run_id,))

    def beat(self, owner: str, seen_at: float) -> None:
        self._execute("UPDATE active_runs SET seen_at = ? WHERE owner = ?", (seen_at, owner))

    def active_runs(
        self, *, overdue_at: float | None = None, unseen_since: float | None = None, owner: str | None = None
    ) -> Sequence[ActiveRun]:
        if overdue_at is not None:
            condition, values = "deadline_at <= ?", (overdue_at,)
        elif unseen_since is not None:
            condition, values = (
                "status <> 'requires_action' AND (owner IS NULL OR seen_at < ?)",
                (unseen_since,),
            )
        else:
            rows = self._execute(f"SELECT {_ACTIVE} FROM active_runs WHERE owner IS ?", (owner,))
            return [ActiveRun(*found) for found in rows]
        rows = self._execute(f"SELECT {_ACTIVE} FROM active_runs WHERE {condition}", values)
        return [ActiveRun(*found) for found in rows]

    def recall(self, world: str, key: str) -> Document | None:
        found = self._execute(
            "SELECT value FROM idempotency WHERE world = ? AND key = ?", (world, key)
        ).fetchone()
        return None if found is None else loaded(found[0])

    def remember(self, world: str, key: str, value: Document, at: float) -> None:
        self._execute(
            "INSERT OR REPLACE INTO idempotency (world, key, at, value) VALUES (?, ?, ?, ?)",
            (world, key, at, stored_bytes(value)),
        )

    def forget_before(self, at: float) -> None:
        self._execute("DELETE FROM idempotency WHERE at < ?", (at,))

    def close(self) -> None:
        self._connection.close()


def _row(found: Sequence[Any]) -> Row:
    kind, parent, identifier, seq, version, doc, extra, tag = found
    return Row(kind, parent, identifier, seq, version, loaded(doc), loaded(extra) if extra else {}, tag)


def _plain(identifier: str) -> str:
    """An id that the database can hold; what cannot be an id matches none."""
    return identifier if identifier.isascii() and "\0" not in identifier else ""
