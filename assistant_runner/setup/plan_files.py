"""The files and the vector store of an assistant: which are there, which are missing, which must go.

A file is known by the hash of its content and its name: by the lock, by the mark on the store's file, or
by looking at what hangs on our assistant and at uploads whose answer was lost.
"""

import hashlib

from assistant_runner.backends.base import Backend
from assistant_runner.errors import NotFound, RequestRejected
from assistant_runner.setup.desired import (
    LocalFile,
)
from assistant_runner.setup.finding import all_pages
from assistant_runner.setup.lock import BackendRecords, digest
from assistant_runner.setup.model import IDENTITY_KEY, FileSearchEntry
from assistant_runner.setup.observing import Snapshot, has_own_store
from assistant_runner.setup.planned import (
    FILE_SEARCH,
    HASH_ATTRIBUTE,
    OPTIONS_KEY,
    AssistantPlan,
    StorePlan,
)


async def plan_files(
    backend: Backend, plan: AssistantPlan, records: BackendRecords, snapshot: Snapshot
) -> None:
    """Put into the plan what is to be uploaded, attached, detached and deleted."""
    spec, identity = plan.spec, plan.spec.identity
    if has_own_store(spec):
        plan.store = _plan_store(plan, records, snapshot)
        if plan.store.id:
            store_id = plan.store.id
            present = await all_pages(lambda after: backend.list_vector_store_files(store_id, after=after))
            plan.store.present = {one.id: one for one in present}
    for one in {one.key: one for one in [*plan.search, *plan.interpreter]}.values():
        file_id = await _find_file(backend, one, plan, records, snapshot)
        if file_id:
            plan.files[one.key] = file_id
        else:
            plan.uploads.append(one)
    wanted_keys = {one.key for one in [*plan.search, *plan.interpreter]}
    stale = [
        record for key, record in records.files.items() if identity in record.users and key not in wanted_keys
    ]
    plan.drop = [record.id for record in stale if record.users <= {identity}]
    if plan.store:
        entry = spec.tool(FILE_SEARCH)
        ids = {plan.files.get(one.key) for one in plan.search} | set(entry.file_ids)
        inside = set(plan.store.present)
        plan.store.again = {
            one.id
            for one in plan.store.present.values()
            if one.status in ("failed", "cancelled") and one.id in ids
        }
        plan.attach = [
            one
            for one in plan.search
            if plan.files.get(one.key) not in inside or plan.files.get(one.key) in plan.store.again
        ]
        ours = {record.id for record in records.files.values()}
        unwanted = [one for one in plan.store.present.values() if one.id not in ids]
        plan.detach = sorted(
            one.id for one in unwanted if one.id in ours or HASH_ATTRIBUTE in (one.attributes or {})
        )
        foreign = sorted({one.id for one in unwanted} - set(plan.detach))
        if foreign:
            plan.notes.append(f"{', '.join(foreign)} in the vector store are not ours and are left alone")
    elif identity in records.stores:
        plan.drop_store = records.stores[identity].id


def _plan_store(plan: AssistantPlan, records: BackendRecords, snapshot: Snapshot) -> StorePlan:
    entry: FileSearchEntry = plan.spec.tool(FILE_SEARCH)
    options = store_options(entry)
    record = records.stores.get(plan.spec.identity)
    by_id = {one.id: one for one in snapshot.stores if one.status != "expired"}
    expired = {one.id for one in snapshot.stores if one.status == "expired"}
    if record and record.id in expired:
        return StorePlan(None, options, replaces=record.id)
    if record and record.id in by_id:
        if record.options in (options, ""):
            return StorePlan(record.id, options)
        return StorePlan(None, options, replaces=record.id)
    for store in sorted(by_id.values(), key=lambda one: (one.created_at, one.id)):
        metadata = store.metadata or {}
        if metadata.get(IDENTITY_KEY) == plan.spec.identity and metadata.get(OPTIONS_KEY) == options:
            return StorePlan(store.id, options, adopted=True)
    return StorePlan(None, options)


def store_options(entry: FileSearchEntry) -> str:
    """A hash of what cannot be changed in a store that is there: chunking; and its expiry."""
    chunking = entry.chunking.model_dump() if entry.chunking else None
    return digest([chunking, entry.expires_after_days])


async def _find_file(
    backend: Backend, one: LocalFile, plan: AssistantPlan, records: BackendRecords, snapshot: Snapshot
) -> str | None:
    """The id of this content under this name on the backend: by lock, by hash, by looking."""
    record = records.files.get(one.key)
    if record and record.id in snapshot.files:
        return record.id
    known = {other.id for other in records.files.values()}
    if plan.store:
        for present in plan.store.present.values():
            shown = snapshot.files.get(present.id)
            marked = (present.attributes or {}).get(HASH_ATTRIBUTE) == one.sha256
            if marked and shown and shown.filename == one.name:
                return present.id
    attached = _attached(plan)
    pending = f"upload {one.key}" in records.pending
    for shown in sorted(snapshot.files.values(), key=lambda file: (file.created_at, file.id)):
        if shown.id in known or shown.filename != one.name or shown.bytes != one.size:
            continue
        if (shown.id in attached or pending) and await _has_content(backend, shown.id, one.sha256):
            return shown.id
    return None


def _attached(plan: AssistantPlan) -> set[str]:
    """Files that hang on our assistant or our store already."""
    ids = set(plan.store.present) if plan.store else set()
    if plan.assistant and plan.found in ("lock", "metadata") and plan.assistant.tool_resources:
        resources = plan.assistant.tool_resources.code_interpreter
        ids |= set((resources.file_ids if resources else None) or [])
    return ids


async def _has_content(backend: Backend, file_id: str, sha256: str) -> bool:
    """Whether a file has this content; name and size must do where a backend gives no content back."""
    try:
        content = await backend.file_content(file_id)
    except NotFound:
        return False
    except RequestRejected:
        return True
    return hashlib.sha256(content).hexdigest() == sha256
