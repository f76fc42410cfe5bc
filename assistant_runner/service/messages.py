"""Messages as they are added to a thread, by whichever endpoint."""

from assistant_runner.service import documents, stores
from assistant_runner.service.core import Core
from assistant_runner.service.failures import not_found
from assistant_runner.service.store.base import Document

ATTACHED_STORE_DAYS = 7


def add_message(core: Core, world: str, thread_id: str, body: Document) -> Document:
    """The new message; its attachments become resources of the thread. Inside a transaction."""
    content = documents.message_content(body["content"])
    for part in content:
        if part["type"] == "image_file":
            _demand_file(core, world, part["image_file"]["file_id"])
    attachments = body.get("attachments") or []
    for attachment in attachments:
        if attachment.get("file_id"):
            _demand_file(core, world, attachment["file_id"])
    document = documents.message(
        now=core.now(),
        thread_id=thread_id,
        role=body["role"],
        content=content,
        attachments=attachments,
        metadata=body.get("metadata"),
    )
    core.store.insert("thread.message", thread_id, document["id"], document)
    if attachments:
        _attach(core, world, thread_id, attachments)
    return document


def _demand_file(core: Core, world: str, file_id: str) -> None:
    if not core.store.exists("file", world, file_id):
        raise not_found("file", file_id)


def _attach(core: Core, world: str, thread_id: str, attachments: list[Document]) -> None:
    """Files for file_search go to the thread's own store, made when first needed; files for
    code_interpreter to the thread's list (reference, section 8.3)."""
    row = core.store.get("thread", world, thread_id)
    if row is None:
        return
    resources = {**(row.doc.get("tool_resources") or {})}
    for attachment in attachments:
        file_id = attachment.get("file_id")
        words = {tool["type"] for tool in attachment.get("tools") or []}
        if not file_id:
            continue
        if "code_interpreter" in words:
            listed = (resources.get("code_interpreter") or {}).get("file_ids") or []
            resources["code_interpreter"] = {"file_ids": list(dict.fromkeys([*listed, file_id]))}
        if "file_search" in words:
            store_ids = (resources.get("file_search") or {}).get("vector_store_ids") or []
            store_ids = [
                store_id for store_id in store_ids if core.store.exists("vector_store", world, store_id)
            ]
            if not store_ids:
                expires = {"anchor": "last_active_at", "days": ATTACHED_STORE_DAYS}
                store_ids = [stores.create_store(core, world, {"expires_after": expires}).id]
                resources["file_search"] = {"vector_store_ids": store_ids}
            stores.attach(core, world, store_ids[0], file_id, chunking=None, attributes=None)
    row.doc = {**row.doc, "tool_resources": resources}
    core.store.update(row)
