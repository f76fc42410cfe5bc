"""Threads and messages (reference, sections 2, 4.2 to 4.4, 10)."""

from assistant_runner.service import documents, lifecycle
from assistant_runner.service.core import Core
from assistant_runner.service.endings import conclude
from assistant_runner.service.failures import ApiError, deletion_locked, messages_locked, not_found
from assistant_runner.service.messages import add_message
from assistant_runner.service.resources import resolved, without_deleted
from assistant_runner.service.store.base import ActiveRun, Document, Row
from assistant_runner.service.web import Answer, Call, check_prefix
from assistant_runner.wire.bodies import (
    check_message_create,
    check_metadata_modify,
    check_thread_create,
    check_thread_modify,
)

KIND = "thread"
MESSAGE = "thread.message"


def make_thread(core: Core, world: str, body: Document) -> Document:
    """A new thread with its messages; inside the caller's transaction."""
    resources = resolved(core, world, body.get("tool_resources"))
    document = documents.thread(now=core.now(), metadata=body.get("metadata"), tool_resources=resources)
    core.store.insert(KIND, world, document["id"], document)
    attached = False
    for message in body.get("messages") or []:
        add_message(core, world, document["id"], message)
        attached = attached or bool(message.get("attachments"))
    if attached:
        row = core.store.get(KIND, world, document["id"])
        return row.doc if row is not None else document
    return document


def active_run(core: Core, thread_id: str) -> ActiveRun | None:
    """The run that locks a thread, if its time is not over."""
    active = core.store.active_run(thread_id)
    if active is not None and core.workers.lapse(active):
        return None
    return active


async def create(call: Call) -> Answer:
    body = call.document(check_thread_create)
    with call.core.store.transaction():
        document = make_thread(call.core, call.world, body)
    return Answer(document)


async def list_all(call: Call) -> Answer:
    """Asked for by Foundry's clients only."""
    if call.scope["state"]["family"] != "foundry":
        raise ApiError(404, f"Invalid URL (GET {call.scope['state']['path']}).", code="unknown_url")
    return call.list_answer(KIND, call.world)


async def retrieve(call: Call) -> Answer:
    row = call.row(KIND, call.world, call.identifier(KIND, "thread_id"))
    return Answer(without_deleted(call.core, call.world, row.doc))


async def modify(call: Call) -> Answer:
    identifier = call.identifier(KIND, "thread_id")
    body = call.document(check_thread_modify)
    core = call.core
    with core.store.transaction():
        row = call.row(KIND, call.world, identifier)
        changed: Document = {}
        if "metadata" in body:
            changed["metadata"] = body["metadata"] or {}
        if "tool_resources" in body:
            changed["tool_resources"] = resolved(core, call.world, body["tool_resources"])
        row.doc = {**row.doc, **changed}
        core.store.update(row)
    return Answer(row.doc)


async def delete(call: Call) -> Answer:
    """Ends the active run first, as cancelled."""
    identifier = call.identifier(KIND, "thread_id")
    core = call.core
    with core.store.transaction():
        call.row(KIND, call.world, identifier)
        active = core.store.active_run(identifier)
        if active is not None:
            _cancel_now(core, active)
        after: str | None = None
        more = True
        while more:
            rows, more = core.store.page("thread.run", identifier, limit=500, after=after)
            for row in rows:
                core.store.delete_children(row.id)
                after = row.id
        core.store.delete_children(identifier)
        core.store.delete(KIND, call.world, identifier)
    return Answer(documents.deleted(identifier, KIND))


def _cancel_now(core: Core, active: ActiveRun) -> None:
    row = core.store.get("thread.run", active.thread_id, active.run_id)
    if row is not None:
        if row.doc["status"] != "cancelling":
            row.doc = lifecycle.advance(row.doc, "request_cancel", core.now())
        conclude(core, row, "cancel")
    core.store.deactivate(active.run_id)
    core.workers.halt(active.run_id, "stop")


# ---- messages


async def create_message(call: Call) -> Answer:
    thread_id = call.thread_id()
    body = call.document(check_message_create)
    core = call.core
    active_run(core, thread_id)  # outside the transaction: an expiry stands even if this request fails
    with core.store.transaction():
        active = active_run(core, thread_id)
        if active is not None:
            raise messages_locked(thread_id, active.run_id)
        document = add_message(core, call.world, thread_id, body)
    return Answer(document)


async def list_messages(call: Call) -> Answer:
    thread_id = call.thread_id()
    run_id = call.param("run_id")
    if run_id is not None:
        check_prefix("thread.run", "run_id", run_id)
    return call.list_answer(MESSAGE, thread_id, tag=run_id)


def _message_row(call: Call, thread_id: str) -> Row:
    identifier = call.identifier(MESSAGE, "message_id")
    row = call.core.store.get(MESSAGE, thread_id, identifier)
    if row is None:
        raise not_found(MESSAGE, identifier)
    return row


async def retrieve_message(call: Call) -> Answer:
    return Answer(_message_row(call, call.thread_id()).doc)


async def modify_message(call: Call) -> Answer:
    thread_id = call.thread_id()
    body = call.document(check_metadata_modify)
    with call.core.store.transaction():
        row = _message_row(call, thread_id)
        if "metadata" in body:
            row.doc = {**row.doc, "metadata": body["metadata"] or {}}
            call.core.store.update(row)
    return Answer(row.doc)


async def delete_message(call: Call) -> Answer:
    thread_id = call.thread_id()
    core = call.core
    active_run(core, thread_id)
    with core.store.transaction():
        row = _message_row(call, thread_id)
        active = active_run(core, thread_id)
        if active is not None:
            raise deletion_locked(thread_id, active.run_id)
        if not core.store.delete(MESSAGE, thread_id, row.id):
            raise not_found(MESSAGE, row.id)
    return Answer(documents.deleted(row.id, MESSAGE))
