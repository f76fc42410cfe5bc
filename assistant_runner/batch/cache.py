"""Answers by content, across batches; off unless asked for. One SQLite file in the cache folder."""

import json
import os
import sqlite3
from pathlib import Path
from typing import Any

from assistant_runner.errors import ConfigurationError


class AnswerCache:
    """Keyed by what was asked (content hash) and by the settings that answered (fingerprint)."""

    def __init__(self, path: Path) -> None:
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600))  # answers are private
            path.chmod(0o600)
            self._db = sqlite3.connect(path, isolation_level=None, timeout=10, check_same_thread=False)
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=OFF")
            self._db.execute(
                "CREATE TABLE IF NOT EXISTS answers"
                " (hash TEXT, fingerprint TEXT, row TEXT, PRIMARY KEY (hash, fingerprint)) WITHOUT ROWID"
            )
        except (OSError, sqlite3.Error) as error:
            raise ConfigurationError(
                f"the cache {path} cannot be used: {error}", remedy="remove that file, or leave out --cache"
            ) from None

    def get(self, content_hash: str, fingerprint: str) -> dict[str, Any] | None:
        found = self._db.execute(
            "SELECT row FROM answers WHERE hash = ? AND fingerprint = ?", (content_hash, fingerprint)
        ).fetchone()
        row: dict[str, Any] | None = json.loads(found[0]) if found else None
        return row

    def put(self, content_hash: str, fingerprint: str, row: dict[str, Any]) -> None:
        self._db.execute(
            "INSERT OR REPLACE INTO answers VALUES (?, ?, ?)",
            (content_hash, fingerprint, json.dumps(row, default=str)),
        )

    def close(self) -> None:
        self._db.close()
