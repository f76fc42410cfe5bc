"""Shards put together: the rows of several outputs in input order, once each.

Every row carries its index in the whole input, so a merge needs no input. A key that is in more than
one output is one row: one with an answer goes before one without, else the later file counts.
"""

import heapq
import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assistant_runner.batch.codec import Codec, codec_of
from assistant_runner.batch.output import read_results, state_folder, writing
from assistant_runner.errors import ConfigurationError


@dataclass(frozen=True, slots=True)
class Merged:
    """`gaps`: indexes below the highest that no output has."""

    rows: int
    failed: int
    doubled: int
    gaps: int


def merge_outputs(parts: Sequence[Path], output: Path, codec: Codec) -> Merged:
    """Write the union of the parts; the output appears whole or not at all."""
    for part in parts:
        if not part.exists():
            raise ConfigurationError(f"{part} does not exist", remedy="name the outputs of all shards")
        if part.resolve() == output.resolve():
            raise ConfigurationError(f"{part} is also the output", remedy="name another output")
    best = _best_places(parts)
    fresh = output.with_name(output.name + ".part")
    rows = failed = 0
    highest = -1
    with writing(output), fresh.open("wb") as stream:
        stream.write(codec.header)
        for row in heapq.merge(*(_chosen(n, part, best) for n, part in enumerate(parts)), key=_index):
            stream.write(codec.encode(row))
            rows += 1
            failed += row["status"] != "ok"
            highest = max(highest, _index(row))
    fresh.replace(output)
    [(total,)] = best.execute("SELECT SUM(n) FROM best")
    best.close()
    return Merged(rows, failed, int(total or 0) - rows, highest + 1 - rows)


def _index(row: dict[str, Any]) -> int:
    return int(row["index"])


def _best_places(parts: Sequence[Path]) -> sqlite3.Connection:
    """Which part has the row of each key."""
    db = sqlite3.connect("", isolation_level=None)
    db.execute("CREATE TABLE best (key TEXT PRIMARY KEY, part INTEGER, ok INTEGER, n INTEGER) WITHOUT ROWID")
    db.execute("BEGIN")
    for number, part in enumerate(parts):
        for row in read_results(part, codec_of(part)):
            ok = int(row["status"] == "ok")
            db.execute(
                "INSERT INTO best VALUES (?1, ?2, ?3, 1) ON CONFLICT DO UPDATE SET n = n + 1,"
                " part = CASE WHEN ?3 >= ok THEN ?2 ELSE part END, ok = MAX(ok, ?3)",
                (str(row["key"]), number, ok),
            )
    return db


def _chosen(number: int, part: Path, best: sqlite3.Connection) -> Iterator[dict[str, Any]]:
    """This part's rows that count, by their index."""
    codec = codec_of(part)
    rows = read_results(part, codec)
    if not _is_sorted(part, codec):
        rows = iter(sorted(rows, key=_index))
    for row in rows:
        [(chosen,)] = best.execute("SELECT part FROM best WHERE key = ?", (str(row["key"]),))
        if chosen == number:
            yield row


def _is_sorted(part: Path, codec: Codec) -> bool:
    last = -1
    for row in read_results(part, codec):
        if _index(row) < last:
            return False
        last = _index(row)
    return True


def unfinished(part: Path) -> bool:
    """Whether rows of this output still wait beside it: its batch was killed."""
    pending = state_folder(part) / "pending.jsonl"
    return pending.exists() and pending.stat().st_size > 0
