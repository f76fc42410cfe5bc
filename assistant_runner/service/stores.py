"""Vector stores: their files, how files get into them, what a store looks like now.

A file is taken in by a task in the background: text, chunks, done. Counts are counted when a store
is read, so they cannot drift. A file that was being taken in when its process died is taken in again
when somebody looks at it.
"""

import asyncio
import contextlib
from typing import Any

from assistant_runner.aside import aside
from assistant_runner.service import documents
from assistant_runner.service.core import Core
from assistant_runner.service.failures import not_found
from assistant_runner.service.ids import new_id
from assistant_runner.service.retrieval.text import (
    DEFAULT_CHUNKING,
    FileTooLong,
    UnsupportedFile,
    chunks_of,
    text_of,
)
from assistant_runner.service.store.base import Conflict, Document, Row

DAY_S = 86_400
FILES_AT_ONCE = 4
"""How many files are read side by side: each is in memory while it is."""
STATUSES = ("in_progress", "completed", "failed", "cancelled")


class Intake:
    """The files that are being taken into vector stores by this process."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._tasks: dict[tuple[str, str], asyncio.Task[None]] = {}
        self._hands = asyncio.Semaphore(FILES_AT_ONCE)

    def begin(self, world: str, store_id: str, file_id: str) -> None:
        """Takes a file in, unless that is under way."""
        key = (store_id, file_id)
        if key not in self._tasks:
            task = asyncio.create_task(self._take_in(world, store_id, file_id))
            self._tasks[key] = task
            task.add_done_callback(lambda _: self._tasks.pop(key, None))

    async def settle(self, world: str, store_ids: list[str], timeout_s: float) -> None:
        """Waits until the files of these stores are taken in, or the time is over."""
        for store_id in store_ids:
            rows, _ = self._core.store.page("vector_store.file", store_id, limit=1000, tag="in_progress")
            for row in rows:
                self.begin(world, store_id, row.id)
        tasks = [task for (store_id, _), task in self._tasks.items() if store_id in store_ids]
        if tasks:
            await asyncio.wait(tasks, timeout=timeout_s)

    async def close(self) -> None:
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _take_in(self, world: str, store_id: str, file_id: str) -> None:
        core = self._core
        row = core.store.get("vector_store.file", store_id, file_id)
        file_row = core.store.get("file", world, file_id)
        if row is None or row.doc["status"] != "in_progress":
            return
        failure: Document | None = None
        chunks: list[str] = []
        sizes = row.doc["chunking_strategy"].get("static", DEFAULT_CHUNKING)
        if file_row is None:
            failure = {"code": "invalid_file", "message": f"The file {file_id} was deleted."}
        else:
            try:
                place, name = core.shelf.place(file_id), file_row.doc["filename"]
                async with self._hands:
                    chunks = await aside(lambda: _chunks(place, name, sizes), name="intake")
            except UnsupportedFile as error:
                code = "invalid_file" if isinstance(error, FileTooLong) else "unsupported_file"
                failure = {"code": code, "message": str(error)}
            except (OSError, RecursionError, MemoryError) as error:
                failure = {
                    "code": "server_error",
                    "message": f"The file cannot be read: {type(error).__name__}.",
                }
        with contextlib.suppress(Conflict), core.store.transaction():
            row = core.store.get("vector_store.file", store_id, file_id)
            if row is None or row.doc["status"] != "in_progress":
                return
            if failure is None:
                used = sum(len(chunk.encode()) for chunk in chunks)
                row.doc = {**row.doc, "status": "completed", "usage_bytes": used}
                core.store.delete("chunks", store_id, file_id)
                core.store.insert("chunks", store_id, file_id, {"chunks": chunks})
                add_usage(core, world, store_id, used)
            else:
                row.doc = {**row.doc, "status": "failed", "last_error": failure}
            row.tag = row.doc["status"]
            core.store.update(row)


def _chunks(path: Any, filename: str, sizes: Document) -> list[str]:
    return chunks_of(text_of(path, filename), **sizes)


def create_store(core: Core, world: str, body: Document) -> Row:
    """A new vector store with its files; inside the caller's transaction."""
    now = core.now()
    expires = body.get("expires_after")
    document: Document = {
        "id": new_id("vector_store"),
        "object": "vector_store",
        "created_at": now,
        "name": body.get("name") or "",
        "usage_bytes": 0,
        "file_counts": None,
        "status": "completed",
        "expires_after": expires,
        "expires_at": now + expires["days"] * DAY_S if expires else None,
        "last_active_at": now,
        "metadata": body.get("metadata") or {},
    }
    for file_id in body.get("file_ids") or []:
        if not core.store.exists("file", world, file_id):
            raise not_found("file", file_id)
    if body.get("description"):
        document["description"] = body["description"]
    row = core.store.insert("vector_store", world, document["id"], document)
    for file_id in body.get("file_ids") or []:
        attach(core, world, row.id, file_id, chunking=body.get("chunking_strategy"), attributes=None)
    return row


def attach(
    core: Core,
    world: str,
    store_id: str,
    file_id: str,
    *,
    chunking: Document | None,
    attributes: Document | None,
) -> Row:
    """Puts a file into a store and begins to take it in; one that is there only gets the attributes."""
    if not core.store.exists("file", world, file_id):
        raise not_found("file", file_id)
    known = core.store.get("vector_store.file", store_id, file_id)
    if known is not None and known.doc["status"] in ("in_progress", "completed"):
        if attributes is not None and attributes != known.doc["attributes"]:
            known.doc = {**known.doc, "attributes": attributes}
            core.store.update(known)
        return known
    if known is not None:
        core.store.delete("vector_store.file", store_id, file_id)
    sizes = dict(DEFAULT_CHUNKING) if not chunking or chunking["type"] == "auto" else chunking["static"]
    document = {
        "id": file_id,
        "object": "vector_store.file",
        "usage_bytes": 0,
        "created_at": core.now(),
        "vector_store_id": store_id,
        "status": "in_progress",
        "last_error": None,
        "chunking_strategy": {"type": "static", "static": sizes},
        "attributes": attributes or {},
    }
    row = core.store.insert("vector_store.file", store_id, file_id, document, tag="in_progress")
    core.intake.begin(world, store_id, file_id)
    return row


def detach(core: Core, world: str, store_id: str, file_id: str) -> bool:
    """Takes a file out of a store; the file itself survives. False if it was not there."""
    row = core.store.get("vector_store.file", store_id, file_id)
    if row is None:
        return False
    core.store.delete("vector_store.file", store_id, file_id)
    core.store.delete("chunks", store_id, file_id)
    add_usage(core, world, store_id, -row.doc["usage_bytes"])
    return True


def add_usage(core: Core, world: str, store_id: str, used: int) -> None:
    row = core.store.get("vector_store", world, store_id)
    if row is not None:
        touch(core, row, used=used)


def touch(core: Core, row: Row, *, used: int = 0) -> None:
    """Notes that a store was used: its expiry counts from here."""
    now = core.now()
    expires = row.doc.get("expires_after")
    row.doc = {
        **row.doc,
        "usage_bytes": row.doc["usage_bytes"] + used,
        "last_active_at": now,
        "expires_at": now + expires["days"] * DAY_S if expires else None,
    }
    core.store.update(row)


def counts_of(tags: dict[str | None, int]) -> Document:
    counts = {status: tags.get(status, 0) for status in STATUSES}
    return {**counts, "total": sum(counts.values())}


def is_expired(core: Core, document: Document) -> bool:
    return document.get("expires_at") is not None and core.clock() >= document["expires_at"]


def shown_store(core: Core, row: Row) -> Document:
    """A store as it is now: counted, and expired if its time is over."""
    counts = counts_of(core.store.count("vector_store.file", row.id))
    status = (
        "expired" if is_expired(core, row.doc) else "in_progress" if counts["in_progress"] else "completed"
    )
    return {**row.doc, "file_counts": counts, "status": status}


def delete_store(core: Core, world: str, store_id: str) -> bool:
    if not core.store.delete("vector_store", world, store_id):
        return False
    for batch_row in core.store.scan("vector_store.files_batch", store_id, limit=100_000):
        core.store.delete_children(batch_row.id)
    core.store.delete_children(store_id)
    return True


def deleted_answer(store_id: str) -> Document:
    return documents.deleted(store_id, "vector_store")
