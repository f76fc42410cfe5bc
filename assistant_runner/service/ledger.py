"""A run as the process that works on it holds it: read once, written with a check of who owns it.

Every write happens in a transaction that begins with `own()`: one look at whether the run is still
ours, whether somebody asked to stop, and whether the document changed (its metadata may, any time).
"""

from typing import Literal

from assistant_runner.service import lifecycle
from assistant_runner.service.core import Core
from assistant_runner.service.store.base import Row


class Lost(Exception):
    """Another process has taken the run over, or ended it."""


class Halted(Exception):
    """Somebody asked for the run to be cancelled."""


class Ledger:
    """One run of this process. `row` is the run as last seen; `deadline_at` in Unix seconds."""

    def __init__(self, core: Core, row: Row, *, deadline_at: float, owner: str) -> None:
        self.core = core
        self.row = row
        self.deadline_at = deadline_at
        self.thread_id = row.parent
        self.run_id = row.id
        self.owner = owner

    def own(self, *, whatever: bool = False) -> Row:
        """The run as it is now, inside a transaction; Lost, and Halted unless `whatever`."""
        holding = self.core.store.holding(self.run_id, self.row.seq)
        if holding is None or holding.owner != self.owner:
            raise Lost
        if holding.status == "cancelling" and not whatever:
            raise Halted
        if holding.version != self.row.version:
            row = self.core.store.get("thread.run", self.thread_id, self.run_id)
            if row is None:
                raise Lost
            row.extra = self.row.extra
            self.row = row
        return self.row

    def advance(self, event: Literal["start"]) -> Row:
        """One step of the state machine, written."""
        core = self.core
        with core.store.transaction():
            row = self.own()
            row.doc = lifecycle.advance(row.doc, event, core.now())
            core.store.update(row)
            core.store.set_active(
                self.run_id, status=row.doc["status"], owner=self.owner, seen_at=core.clock()
            )
        return row

    # ---- what the run has used

    @property
    def turn(self) -> int:
        """How many turns are booked."""
        return int(self.row.extra.get("turn", 0))

    @property
    def used(self) -> dict[str, int]:
        return self.row.extra.get("used") or dict(lifecycle.NO_USAGE)

    def book(self, usage: dict[str, int], carry: object = None) -> None:
        """Adds a turn to the account; written with the next write of the row."""
        used = self.used
        self.row.extra["used"] = {key: used[key] + usage[key] for key in lifecycle.NO_USAGE}
        self.row.extra["turn"] = self.turn + 1
        if carry is not None:
            self.row.extra["carry"] = carry

    def spent(self, *, exceeded: bool = False) -> str | None:
        """The budget that is used up (or overrun), as the protocol names it."""
        used = self.used
        for kind in ("completion", "prompt"):
            most = self.row.doc[f"max_{kind}_tokens"]
            if most is not None and used[f"{kind}_tokens"] >= most + (1 if exceeded else 0):
                return f"max_{kind}_tokens"
        return None
