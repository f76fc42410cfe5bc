"""The store: JSON documents by kind, parent and id, and the table of active runs.

Small on purpose, so that another database is one module. A document's *parent* is what it is listed
under: the thread of a message or a run, the run of a step, the store of a vector store file, the world
(see `ServiceSettings.api_keys`) of everything else. `seq` grows with every insert: the order of lists
and the tie-break of one-second timestamps. `tag` is a second key that a list can be narrowed by.

Calls are plain functions on the event loop: a statement takes tens of microseconds, less than a hop to
a thread. What belongs together stands in one `transaction()`; two processes on one store see each
other's transactions whole.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Literal, Protocol

Document = dict[str, Any]


@dataclass(slots=True)
class Row:
    """One document: `doc` is what a client sees, `extra` what the service keeps beside it."""

    kind: str
    parent: str
    id: str
    seq: int
    version: int
    doc: Document
    extra: Document
    tag: str | None = None


@dataclass(frozen=True, slots=True)
class ActiveRun:
    """A run that is not terminal; it locks its thread. `owner` works on it, None while it waits.

    `deadline_at` and `seen_at` are Unix seconds with fractions.
    """

    run_id: str
    thread_id: str
    world: str
    status: str
    deadline_at: float
    owner: str | None
    seen_at: float


@dataclass(frozen=True, slots=True)
class Holding:
    """Who works on an active run, its status there, and the version of its document."""

    owner: str | None
    status: str
    version: int


class Conflict(Exception):
    """The document was changed by somebody else since it was read."""


class UnknownCursor(LookupError):
    """`after` or `before` names no document of this list."""

    def __init__(self, param: str, identifier: str) -> None:
        super().__init__(identifier)
        self.param = param
        self.identifier = identifier


Order = Literal["asc", "desc"]


class Store(Protocol):
    def transaction(self) -> AbstractContextManager[None]:
        """One write transaction, taken at once; rolled back by an exception. May be nested."""
        ...

    def insert(
        self,
        kind: str,
        parent: str,
        identifier: str,
        doc: Document,
        *,
        extra: Document | None = None,
        tag: str | None = None,
    ) -> Row: ...

    def get(self, kind: str, parent: str, identifier: str) -> Row | None: ...

    def exists(self, kind: str, parent: str, identifier: str) -> bool: ...

    def update(self, row: Row) -> None:
        """Writes doc, extra and tag of a row that was read before; Conflict if it changed since."""
        ...

    def delete(self, kind: str, parent: str, identifier: str) -> bool:
        """False if there was none. The place of a deleted document stays good as a cursor."""
        ...

    def delete_children(self, parent: str) -> None:
        """Forgets everything under a parent."""
        ...

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
        """Rows strictly between the cursors in the order asked, and whether there are more.

        With `before` alone: the rows nearest to it. UnknownCursor.
        """
        ...

    def scan(self, kind: str, parent: str, *, below: int | None = None, limit: int = 100) -> list[Row]:
        """Newest first, `seq` below a bound: how a long thread is read backwards."""
        ...

    def count(self, kind: str, parent: str) -> dict[str | None, int]:
        """How many documents there are under each tag."""
        ...

    def parents_of(self, kind: str, identifier: str) -> list[str]:
        """Where documents with this id hang: the vector stores of a file."""
        ...

    def activate(self, run: ActiveRun) -> str | None:
        """Locks the thread for a run. The id of the run that holds it already, or None: done."""
        ...

    def active_run(self, thread_id: str) -> ActiveRun | None: ...

    def holding(self, run_id: str, seq: int) -> Holding | None:
        """How an active run stands, by its id and the place of its document; None if it ended."""
        ...

    def set_active(self, run_id: str, *, status: str, owner: str | None, seen_at: float) -> None: ...

    def claim(self, run_id: str, *, expected: str | None, owner: str | None, seen_at: float) -> bool:
        """Takes a run over from its expected owner (None: nobody). False if it changed hands."""
        ...

    def deactivate(self, run_id: str) -> None: ...

    def beat(self, owner: str, seen_at: float) -> None:
        """A sign of life for all runs of an owner."""
        ...

    def active_runs(
        self, *, overdue_at: float | None = None, unseen_since: float | None = None, owner: str | None = None
    ) -> Sequence[ActiveRun]:
        """Runs past their deadline, runs that should move and whose owner gave no sign since, or
        those of one owner."""
        ...

    def recall(self, world: str, key: str) -> Document | None:
        """What an Idempotency-Key stands for."""
        ...

    def remember(self, world: str, key: str, value: Document, at: float) -> None: ...

    def forget_before(self, at: float) -> None:
        """Drops Idempotency-Keys that are older."""
        ...

    def close(self) -> None: ...
