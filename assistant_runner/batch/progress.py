"""How far a batch is: one small JSON file beside the output, replaced as a whole about once a second."""

import json
import os
import time
from pathlib import Path
from typing import Any

from assistant_runner.batch.execution import Batch
from assistant_runner.batch.lock import is_locked
from assistant_runner.batch.output import state_folder
from assistant_runner.errors import ConfigurationError, NotFound

FILE = "progress.json"
COMMAND_FILE = "command.json"
LOCK_FILE = "lock"


def snapshot(batch: Batch, *, state: str) -> dict[str, Any]:
    """Counts, tokens and cost of the whole output; rate (rows a second), time, errors, trouble, refusals,
    rows copied and calls of unknown outcome are those of this invocation."""
    tally = batch.tally
    elapsed = time.monotonic() - tally.began
    finished = tally.ok + tally.failed + tally.paused
    rate = finished / elapsed if elapsed > 0 else 0.0
    ahead = None if tally.total is None else max(0, tally.total - tally.done - tally.left)
    return {
        "state": state,
        "pid": os.getpid(),
        "updated_at": round(time.time(), 3),
        "total": tally.total,
        "done": tally.done,
        "kept": tally.kept,
        "ok": tally.answered,
        "failed": tally.failures,
        "paused": tally.paused,
        "unpassed": tally.unpassed,
        "copied": tally.copied,
        "left": tally.left,
        "unknown_calls": tally.unknown_calls,
        "running": tally.running,
        "limit": batch.limiter.limit,
        "refused": batch.limiter.counts.refused,
        "troubles": dict(batch.limiter.counts.troubles),
        "errors": dict(tally.kinds),
        "changed_rows": tally.changed_rows,
        "tokens": batch.spending.tokens,
        "cost": round(batch.spending.cost, 6) if batch.spending.priced else None,
        "elapsed_s": round(elapsed, 3),
        "rows_per_s": round(rate, 2),
        "left_s": round(ahead / rate, 1) if ahead is not None and rate > 0 else None,
        "stopped": batch.stop.why if batch.stop else None,
        "exit_status": batch.status() if state != "running" else None,
    }


def write_snapshot(output: Path, document: dict[str, Any]) -> None:
    """Replace the progress file."""
    _replace(state_folder(output) / FILE, document)


def write_command(output: Path, document: dict[str, Any]) -> None:
    """Keep how this output was asked for, for `batch retry` and for people."""
    _replace(state_folder(output) / COMMAND_FILE, document)


def read_snapshot(output: Path) -> dict[str, Any]:
    """The last progress, its state `killed` if no process works on it any more; NotFound if none."""
    document = _read(output, FILE)
    if document["state"] == "running" and not is_locked(state_folder(output) / LOCK_FILE):
        document["state"] = "killed"
    return document


def read_command(output: Path) -> dict[str, Any]:
    """How this output was asked for; NotFound if no batch wrote it."""
    return _read(output, COMMAND_FILE)


def errors_file(output: Path) -> Path | None:
    """Where the last invocation on this output routed failed rows, if it did."""
    try:
        name = read_command(output).get("errors")
    except NotFound:
        return None
    return Path(name) if name else None


def _read(output: Path, name: str) -> dict[str, Any]:
    try:
        document: dict[str, Any] = json.loads((state_folder(output) / name).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        raise NotFound(
            f"no batch has written {output} (there is no {state_folder(output) / name})",
            status_code=404,
            remedy="name the output of a batch run",
        ) from None
    return document


def _replace(path: Path, document: dict[str, Any]) -> None:
    fresh = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh.write_text(json.dumps(document, indent=1, default=str) + "\n", encoding="utf-8")
        os.replace(fresh, path)
    except OSError as error:
        raise ConfigurationError(
            f"{path} cannot be written: {error.strerror or error}",
            remedy="make room or correct the path, then run the same command again: it goes on",
        ) from None
