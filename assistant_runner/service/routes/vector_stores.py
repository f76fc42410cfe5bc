"""Vector stores, their files and file batches (reference, sections 2, 4.8 to 4.11, 8.3)."""

import operator
from collections.abc import Callable
from typing import Any

from assistant_runner.aside import aside
from assistant_runner.service import documents, stores
from assistant_runner.service.failures import ApiError, bad_request, not_found, unknown_word
from assistant_runner.service.ids import new_id
from assistant_runner.service.retrieval.search import search_stores
from assistant_runner.service.retrieval.text import UnsupportedFile, text_of
from assistant_runner.service.store.base import Document, Row
from assistant_runner.service.web import Answer, Call, check_prefix
from assistant_runner.wire.bodies import (
    check_file_batch_create,
    check_vector_store_create,
    check_vector_store_file_create,
    check_vector_store_file_modify,
    check_vector_store_modify,
    check_vector_store_search,
)

KIND = "vector_store"
FILE = "vector_store.file"
BATCH = "vector_store.files_batch"
_MEMBER = "batch.file"


def _store_row(call: Call) -> Row:
    return call.row(KIND, call.world, call.identifier(KIND, "vector_store_id"))


async def create(call: Call) -> Answer:
    body = call.document(check_vector_store_create)
    with call.core.store.transaction():
        row = stores.create_store(call.core, call.world, body)
    return Answer(stores.shown_store(call.core, row))


async def list_all(call: Call) -> Answer:
    rows, has_more = call.page(KIND, call.world)
    return Answer(documents.listing([stores.shown_store(call.core, row) for row in rows], has_more))


async def retrieve(call: Call) -> Answer:
    row = _store_row(call)
    _wake(call, row.id)
    return Answer(stores.shown_store(call.core, row))


async def modify(call: Call) -> Answer:
    call.identifier(KIND, "vector_store_id")
    body = call.document(check_vector_store_modify)
    with call.core.store.transaction():
        row = _store_row(call)
        changed: Document = {}
        if "name" in body:
            changed["name"] = body["name"] or ""
        if "metadata" in body:
            changed["metadata"] = body["metadata"] or {}
        if "expires_after" in body:
            changed["expires_after"] = body["expires_after"]
        row.doc = {**row.doc, **changed}
        stores.touch(call.core, row)
    return Answer(stores.shown_store(call.core, row))


async def delete(call: Call) -> Answer:
    identifier = call.identifier(KIND, "vector_store_id")
    with call.core.store.transaction():
        if not stores.delete_store(call.core, call.world, identifier):
            raise not_found(KIND, identifier)
    return Answer(stores.deleted_answer(identifier))


async def search(call: Call) -> Answer:
    row = _store_row(call)
    body = call.document(check_vector_store_search)
    if stores.is_expired(call.core, row.doc):
        raise bad_request(f"The vector store {row.id} has expired.")
    filters = body.get("filters")
    queries = [body["query"]] if isinstance(body["query"], str) else body["query"]
    found = await search_stores(
        call.core,
        call.world,
        [row.id],
        queries,
        most=body.get("max_num_results") or 10,
        threshold=(body.get("ranking_options") or {}).get("score_threshold") or 0,
        accepts=(lambda attributes: accepts(filters, attributes)) if filters else (lambda attributes: True),
    )
    with call.core.store.transaction():
        fresh = call.core.store.get(KIND, call.world, row.id)
        if fresh is not None:
            stores.touch(call.core, fresh)
    return Answer(
        {
            "object": "vector_store.search_results.page",
            "search_query": queries,
            "data": found,
            "has_more": False,
            "next_page": None,
        }
    )


_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "gt": operator.gt,
    "gte": operator.ge,
    "lt": operator.lt,
    "lte": operator.le,
}


def accepts(condition: Document, attributes: Document) -> bool:
    """Whether a file's attributes pass a comparison or compound filter (reference, section 4.9)."""
    word = condition["type"]
    if word in ("and", "or"):
        results = (accepts(inner, attributes) for inner in condition["filters"])
        return all(results) if word == "and" else any(results)
    have, wanted = attributes.get(condition["key"]), condition["value"]
    if word == "eq":
        return bool(have == wanted)
    if word == "ne":
        return bool(have != wanted)
    if word in ("in", "nin"):
        among = have in (wanted if isinstance(wanted, list) else [wanted])
        return among if word == "in" else not among
    try:
        return have is not None and _COMPARE[word](have, wanted)
    except TypeError:
        return False


# ---- files


def _file_row(call: Call, store_id: str) -> Row:
    return call.row(FILE, store_id, call.identifier(FILE, "file_id"))


def _wake(call: Call, store_id: str) -> None:
    """Goes on with files whose taking in was cut off by the end of a process."""
    rows, _ = call.core.store.page(FILE, store_id, limit=100, tag="in_progress")
    for row in rows:
        call.core.intake.begin(call.world, store_id, row.id)


async def add_file(call: Call) -> Answer:
    store_row = _store_row(call)
    body = call.document(check_vector_store_file_create)
    check_prefix(FILE, "file_id", body["file_id"])
    with call.core.store.transaction():
        row = stores.attach(
            call.core,
            call.world,
            store_row.id,
            body["file_id"],
            chunking=body.get("chunking_strategy"),
            attributes=body.get("attributes"),
        )
    return Answer(row.doc)


def _status_filter(call: Call) -> str | None:
    value = call.param("filter")
    if value is not None and value not in stores.STATUSES:
        raise unknown_word("filter", value[:80], stores.STATUSES)
    return value


async def list_files(call: Call) -> Answer:
    store_row = _store_row(call)
    _wake(call, store_row.id)
    return call.list_answer(FILE, store_row.id, tag=_status_filter(call))


async def retrieve_file(call: Call) -> Answer:
    store_row = _store_row(call)
    row = _file_row(call, store_row.id)
    if row.doc["status"] == "in_progress":
        call.core.intake.begin(call.world, store_row.id, row.id)
    return Answer(row.doc, headers={"openai-poll-after-ms": "50"})


async def modify_file(call: Call) -> Answer:
    store_row = _store_row(call)
    body = call.document(check_vector_store_file_modify)
    with call.core.store.transaction():
        row = _file_row(call, store_row.id)
        row.doc = {**row.doc, "attributes": body["attributes"] or {}}
        call.core.store.update(row)
    return Answer(row.doc)


async def remove_file(call: Call) -> Answer:
    store_row = _store_row(call)
    identifier = call.identifier(FILE, "file_id")
    with call.core.store.transaction():
        if not stores.detach(call.core, call.world, store_row.id, identifier):
            raise not_found(FILE, identifier)
    return Answer(documents.deleted(identifier, FILE))


async def file_content(call: Call) -> Answer:
    store_row = _store_row(call)
    row = _file_row(call, store_row.id)
    file_row = call.core.store.get("file", call.world, row.id)
    if file_row is None:
        raise not_found("file", row.id)
    try:
        place, name = call.core.shelf.place(row.id), file_row.doc["filename"]
        text = await aside(lambda: text_of(place, name), name="text")
    except (UnsupportedFile, OSError) as error:
        raise ApiError(400, f"The content of {row.id} cannot be shown: {error}") from None
    return Answer(
        {
            "object": "vector_store.file_content.page",
            "data": [{"type": "text", "text": text}],
            "has_more": False,
            "next_page": None,
        }
    )


# ---- batches


async def create_batch(call: Call) -> Answer:
    store_row = _store_row(call)
    body = call.document(check_file_batch_create)
    core = call.core
    entries = body.get("files")
    if entries is None:
        shared = {"chunking_strategy": body.get("chunking_strategy"), "attributes": body.get("attributes")}
        entries = [{"file_id": file_id, **shared} for file_id in body["file_ids"]]
    document: Document = {
        "id": new_id(BATCH),
        "object": BATCH,
        "created_at": core.now(),
        "vector_store_id": store_row.id,
        "status": "in_progress",
        "file_counts": None,
    }
    with core.store.transaction():
        batch_row = core.store.insert(BATCH, store_row.id, document["id"], document)
        for file_id, entry in {entry["file_id"]: entry for entry in entries}.items():
            stores.attach(
                core,
                call.world,
                store_row.id,
                file_id,
                chunking=entry.get("chunking_strategy"),
                attributes=entry.get("attributes"),
            )
            core.store.insert(_MEMBER, document["id"], file_id, {"id": file_id})
    return Answer(_shown_batch(call, batch_row))


def _batch_row(call: Call) -> Row:
    store_row = _store_row(call)
    return call.row(BATCH, store_row.id, call.identifier(BATCH, "batch_id"))


def _members(call: Call, batch_row: Row) -> list[Row]:
    """The batch's files that are still in the store, newest first."""
    rows = call.core.store.scan(_MEMBER, batch_row.id, limit=10_000)
    found = (call.core.store.get(FILE, batch_row.parent, row.id) for row in rows)
    return [row for row in found if row is not None]


def _shown_batch(call: Call, batch_row: Row) -> Document:
    tags: dict[str | None, int] = {}
    for row in _members(call, batch_row):
        tags[row.doc["status"]] = tags.get(row.doc["status"], 0) + 1
    counts = stores.counts_of(tags)
    status = batch_row.doc["status"]
    if status == "in_progress" and not counts["in_progress"]:
        status = "completed"
    return {**batch_row.doc, "status": status, "file_counts": counts}


async def retrieve_batch(call: Call) -> Answer:
    batch_row = _batch_row(call)
    _wake(call, batch_row.parent)
    return Answer(_shown_batch(call, batch_row), headers={"openai-poll-after-ms": "50"})


async def cancel_batch(call: Call) -> Answer:
    core = call.core
    with core.store.transaction():
        batch_row = _batch_row(call)
        if _shown_batch(call, batch_row)["status"] == "in_progress":
            for row in _members(call, batch_row):
                if row.doc["status"] == "in_progress":
                    row.doc = {**row.doc, "status": "cancelled"}
                    row.tag = "cancelled"
                    core.store.update(row)
            batch_row.doc = {**batch_row.doc, "status": "cancelled"}
            core.store.update(batch_row)
    return Answer(_shown_batch(call, batch_row))


async def list_batch_files(call: Call) -> Answer:
    batch_row = _batch_row(call)
    _wake(call, batch_row.parent)
    status = _status_filter(call)
    rows, has_more = call.page(_MEMBER, batch_row.id)
    if status is not None:
        return Answer(documents.listing(*_in_state(call, batch_row, status)))
    found = (call.core.store.get(FILE, batch_row.parent, row.id) for row in rows)
    return Answer(documents.listing([row.doc for row in found if row is not None], has_more))


def _in_state(call: Call, batch_row: Row, status: str) -> tuple[list[Document], bool]:
    """A page of the batch's files in one state; the state is the file's, so the store cannot narrow by it.

    The parameters of the page have been checked.
    """
    store = call.core.store
    rows = store.scan(_MEMBER, batch_row.id, limit=10_000)
    if call.param("order") == "asc":
        rows.reverse()
    places = {row.id: place for place, row in enumerate(rows)}
    after, before = call.param("after"), call.param("before")
    first = places[after] + 1 if after in places else 0
    last = places[before] if before in places else len(rows)
    files = (store.get(FILE, batch_row.parent, row.id) for row in rows[first:last])
    found = [row.doc for row in files if row is not None and row.doc["status"] == status]
    limit = int(call.param("limit") or 20)
    page = found[-limit:] if before and not after else found[:limit]
    return page, len(found) > limit
