"""Carry out a plan, step by step, so that a kill between any two steps costs nothing.

Before a thing is made, the lock says that it was begun; after, the lock has its id. What was made but
not written down is found again: assistants and stores by metadata, files by name, size and content.
Order: upload, store, index, assistant, and only then the old things go. Only what we made is deleted.
"""

import asyncio
import hashlib
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from assistant_runner.backends.base import Backend
from assistant_runner.errors import BackendError, ConfigurationError, NotFound, RequestRejected, RunTimedOut
from assistant_runner.setup.desired import LocalFile, shown_fields
from assistant_runner.setup.finding import all_pages
from assistant_runner.setup.lock import AssistantRecord, BackendRecords, FileRecord, Lock, StoreRecord, digest
from assistant_runner.setup.model import IDENTITY_KEY, AssistantSpec, ChunkingEntry
from assistant_runner.setup.plan import make_plan
from assistant_runner.setup.plan_fields import shown_resources, wanted_resources
from assistant_runner.setup.planned import (
    CODE_INTERPRETER,
    FILE_SEARCH,
    HASH_ATTRIBUTE,
    OPTIONS_KEY,
    AssistantPlan,
    Plan,
    PlanOptions,
)
from assistant_runner.wire.assistants import Assistant, AssistantCreate, AssistantModify
from assistant_runner.wire.files import (
    ExpiresAfter,
    FileBatchCreate,
    VectorStoreCreate,
    VectorStoreFileCreate,
)
from assistant_runner.wire.tools import ChunkingStrategy, StaticChunking

BATCH_SIZE = 100
UPLOADS_AT_ONCE = 8
UPLOADS_A_GROUP = 64
"""Uploads between two writings of the lock: after a kill, so many are looked for on the backend."""
FIRST_WAIT_S, LONGEST_WAIT_S = 0.05, 1.0


@dataclass(frozen=True, slots=True)
class Progress:
    """One step for people: `doing` such as `uploading`, `subject`, and for counted ones `done` of `total`."""

    doing: str
    subject: str
    done: int | None = None
    total: int | None = None


Report = Callable[[Progress], None]


def quiet(progress: Progress) -> None:
    """Report nothing."""


@dataclass(frozen=True, slots=True)
class Applied:
    """What became of one assistant. `changed`: something was written on the backend."""

    spec: AssistantSpec
    assistant_id: str
    changed: bool
    plan: AssistantPlan

    def document(self) -> dict[str, Any]:
        """For JSON."""
        return {**self.plan.document(), "id": self.assistant_id, "changed": self.changed}


@dataclass(slots=True)
class Applier:
    """Carries out plans on one backend with one lock. `index_timeout_s`: for all files of a store."""

    backend: Backend
    lock: Lock
    report: Report = quiet
    index_timeout_s: float = 600.0
    now: Callable[[], float] = time.time
    records: BackendRecords = field(init=False)
    uploaded: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.records = self.lock.of(self.backend.label)

    async def apply(
        self, specs: Sequence[AssistantSpec], options: PlanOptions, *, prune: bool = False
    ) -> list[Applied]:
        """Plan and carry out. Errors leave a lock that the next apply understands."""
        plan = await self.plan(specs, options, prune=prune)
        return await self.carry_out(plan)

    async def plan(
        self, specs: Sequence[AssistantSpec], options: PlanOptions, *, prune: bool = False
    ) -> Plan:
        """What `apply` would do."""
        names = {self.name_of(spec.source) for spec in specs}
        return await make_plan(self.backend, specs, self.records, options, prune=prune, files=sorted(names))

    def name_of(self, path: Path) -> str:
        """How the lock names an assistant file: relative to the lock's folder, with slashes."""
        return Path(os.path.relpath(path.resolve(), self.lock.path.parent.resolve())).as_posix()

    async def carry_out(self, plan: Plan) -> list[Applied]:
        """One assistant after the other, in order."""
        done = [await self._carry_out(one) for one in plan.assistants]
        if plan.prune:
            for identity in plan.orphans:
                await self.destroy(identity)
        return done

    async def _carry_out(self, plan: AssistantPlan) -> Applied:
        changed = not plan.is_empty
        await self._upload(plan)
        await self._fill_store(plan)
        assistant = await self._write_assistant(plan)
        await self._clear_away(plan, assistant)
        return Applied(plan.spec, assistant.id, changed, plan)

    # --- files ---

    async def _upload(self, plan: AssistantPlan) -> None:
        missing = []
        for one in plan.uploads:
            record = self.records.files.get(one.key)
            if record and one.key in self.uploaded:  # for another assistant of this apply
                plan.files[one.key] = record.id
            else:
                missing.append(one)
        for start in range(0, len(missing), UPLOADS_A_GROUP):
            group = missing[start : start + UPLOADS_A_GROUP]
            for one in group:
                self.records.pending.setdefault(f"upload {one.key}", int(self.now()))
            self.lock.save()
            slots = asyncio.Semaphore(UPLOADS_AT_ONCE)
            uploads = (self._upload_one(one, plan, slots) for one in group)
            results = await asyncio.gather(*uploads, return_exceptions=True)
            self.lock.save()
            for error in results:
                if isinstance(error, BaseException):
                    raise error
            self.report(Progress("uploading", plan.spec.name, start + len(group), len(missing)))
        self._note_users(plan)

    async def _upload_one(self, one: LocalFile, plan: AssistantPlan, slots: asyncio.Semaphore) -> None:
        async with slots:
            await self._upload_now(one, plan)

    async def _upload_now(self, one: LocalFile, plan: AssistantPlan) -> None:
        content = await asyncio.to_thread(one.path.read_bytes)
        if hashlib.sha256(content).hexdigest() != one.sha256:
            raise ConfigurationError(f"{one.path} changed while it was applied", remedy="apply again")
        file = await self.backend.upload_file(filename=one.name, content=content)
        plan.files[one.key] = file.id
        self.records.files[one.key] = FileRecord(file.id, one.size, {plan.spec.identity})
        self.records.pending.pop(f"upload {one.key}", None)
        self.uploaded.add(one.key)

    def _note_users(self, plan: AssistantPlan) -> None:
        """Which files this assistant needs, also those that were there already."""
        changed = False
        for one in [*plan.search, *plan.interpreter]:
            record = self.records.files.get(one.key)
            if record is None or record.id != plan.files[one.key]:
                users = record.users if record else set()
                self.records.files[one.key] = FileRecord(
                    plan.files[one.key], one.size, users | {plan.spec.identity}
                )
                changed = True
            elif plan.spec.identity not in record.users:
                record.users.add(plan.spec.identity)
                changed = True
            changed |= self.records.pending.pop(f"upload {one.key}", None) is not None
        if changed:
            self.lock.save()

    # --- vector stores ---

    async def _fill_store(self, plan: AssistantPlan) -> None:
        store = plan.store
        if store is None:
            return
        entry = plan.spec.tool(FILE_SEARCH)
        if store.id is None:
            made = await self.backend.create_vector_store(
                VectorStoreCreate.of(
                    name=entry.store_name or plan.spec.name,
                    metadata={IDENTITY_KEY: plan.spec.identity, OPTIONS_KEY: store.options},
                    expires_after=ExpiresAfter(days=entry.expires_after_days)
                    if entry.expires_after_days
                    else None,
                )
            )
            store.id = made.id
            self.report(Progress("creating the vector store", plan.spec.name))
        record = self.records.stores.get(plan.spec.identity)
        if record is None or record.id != store.id or record.options != store.options:
            if store.replaces:
                self.records.pending[f"delete store {store.replaces}"] = int(self.now())
            self.records.stores[plan.spec.identity] = StoreRecord(store.id, store.options)
            self.lock.save()
        for file_id in store.again:
            await self._quietly(
                self.backend.remove_vector_store_file(vector_store_id=store.id, file_id=file_id)
            )
        hashes = {plan.files[one.key]: one.sha256 for one in plan.attach}
        others = [one for one in entry.file_ids if one not in store.present]
        if plan.attach or others:
            await self._add_files(store.id, [*hashes, *others], hashes, entry.chunking)
        wanted = {plan.files[one.key]: one.name for one in plan.search} | {one: one for one in entry.file_ids}
        if any(store.present[one].status != "completed" if one in store.present else True for one in wanted):
            await self._wait_indexed(plan.spec, store.id, wanted)

    async def _add_files(
        self, store_id: str, file_ids: Sequence[str], hashes: dict[str, str], chunking: ChunkingEntry | None
    ) -> None:
        """Add in batches, marked with their hashes; without marks where a backend refuses attributes."""
        strategy = (
            ChunkingStrategy(
                type="static",
                static=StaticChunking(
                    max_chunk_size_tokens=chunking.size, chunk_overlap_tokens=chunking.overlap
                ),
            )
            if chunking
            else None
        )
        for start in range(0, len(file_ids), BATCH_SIZE):
            group = file_ids[start : start + BATCH_SIZE]
            marked = [
                VectorStoreFileCreate.of(
                    file_id=one,
                    chunking_strategy=strategy,
                    attributes={HASH_ATTRIBUTE: hashes[one]} if one in hashes else None,
                )
                for one in group
            ]
            try:
                await self.backend.create_file_batch(store_id, FileBatchCreate.of(files=marked))
            except RequestRejected as error:
                if error.status_code != 400:
                    raise
                body = FileBatchCreate.of(file_ids=list(group), chunking_strategy=strategy)
                await self.backend.create_file_batch(store_id, body)

    async def _wait_indexed(self, spec: AssistantSpec, store_id: str, wanted: dict[str, str]) -> None:
        """Until all wanted files are indexed; a file that fails is an error that names it."""
        deadline = time.monotonic() + self.index_timeout_s
        wait_s = FIRST_WAIT_S
        while True:
            files = await all_pages(lambda after: self.backend.list_vector_store_files(store_id, after=after))
            status = {one.id: one for one in files}
            failed = [one for one in files if one.id in wanted and one.status in ("failed", "cancelled")]
            if failed:
                words = "; ".join(
                    f"{wanted[one.id]}: {one.last_error.message if one.last_error else one.status}"
                    for one in failed
                )
                raise ConfigurationError(
                    f"{spec.name}: the backend could not index {words}",
                    remedy="correct or remove the file, then apply again; the rest is kept",
                )
            done = sum(1 for one in wanted if one in status and status[one].status == "completed")
            self.report(Progress("indexing", spec.name, done, len(wanted)))
            if done == len(wanted):
                return
            if time.monotonic() + wait_s > deadline:
                raise RunTimedOut(
                    f"{spec.name}: {len(wanted) - done} of {len(wanted)} files are not indexed after"
                    f" {self.index_timeout_s:g} s",
                    remedy="apply again: it goes on waiting; or give --index-timeout more seconds",
                )
            await asyncio.sleep(wait_s)
            wait_s = min(wait_s * 1.5, LONGEST_WAIT_S)

    # --- the assistant ---

    async def _write_assistant(self, plan: AssistantPlan) -> Assistant:
        spec = plan.spec
        resources = self._resources(plan)
        pending = f"create assistant {spec.identity}"
        if plan.assistant is None:
            if pending not in self.records.pending:
                self.records.pending[pending] = int(self.now())
                self.lock.save()
            body = {name: value for name, value in plan.wanted.items() if value is not None}
            if resources:
                body["tool_resources"] = resources
            assistant = await self.backend.create_assistant(AssistantCreate.model_validate(body))
            made = True
            self.report(Progress("created", f"{spec.name} ({assistant.id})"))
        else:
            record = self.records.assistants.get(spec.identity)
            made = record.made if record and plan.found == "lock" else plan.found == "metadata"
            assistant = plan.assistant
            if plan.changes:
                names = {one.name for one in plan.changes}
                body = {name: value for name, value in plan.wanted.items() if name in names}
                if names & {CODE_INTERPRETER, FILE_SEARCH}:
                    body["tool_resources"] = resources
                assistant = await self.backend.modify_assistant(
                    assistant.id, AssistantModify.model_validate(body)
                )
                self.report(Progress("updated", f"{spec.name} ({assistant.id})"))
        self._record(plan, assistant, made)
        return assistant

    def _resources(self, plan: AssistantPlan) -> dict[str, Any]:
        """`tool_resources`: the file's, and beside it what hangs there already; the API replaces both."""
        ids: dict[str, Any] = dict(shown_resources(plan.assistant))
        for one in plan.changes:
            if one.name in (CODE_INTERPRETER, FILE_SEARCH):
                ids[one.name] = []
        ids |= wanted_resources(plan)
        resources: dict[str, Any] = {}
        if CODE_INTERPRETER in ids:
            resources[CODE_INTERPRETER] = {"file_ids": ids[CODE_INTERPRETER]}
        if FILE_SEARCH in ids:
            resources[FILE_SEARCH] = {"vector_store_ids": ids[FILE_SEARCH]}
        return resources

    def _record(self, plan: AssistantPlan, assistant: Assistant, made: bool) -> None:
        """Write down the id and, per field, the hashes of what was wanted and of what is shown."""
        shown, here = shown_fields(assistant), shown_resources(assistant)
        fields = {
            name: (digest(value), digest(shown.get(name)))
            for name, value in plan.wanted.items()
            if name in plan.spec.given or name in ("name", "model")
        }
        for name, ids in wanted_resources(plan).items():
            fields[name] = (digest(sorted(map(str, ids))), digest(here.get(name, [])))
        record = AssistantRecord(assistant.id, made, self.name_of(plan.spec.source), fields)
        pending = (
            self.records.pending.pop(f"create assistant {plan.spec.identity}", None)
            if not plan.extras
            else None
        )
        if self.records.assistants.get(plan.spec.identity) != record or pending is not None:
            self.records.assistants[plan.spec.identity] = record
            self.lock.save()

    # --- what goes ---

    async def _clear_away(self, plan: AssistantPlan, assistant: Assistant) -> None:
        """Old files, old stores, assistants made twice: after the new ones stand."""
        identity = plan.spec.identity
        for extra in plan.extras:
            await self._quietly(self.backend.delete_assistant(extra))
        if plan.extras and self.records.pending.pop(f"create assistant {identity}", None) is not None:
            self.lock.save()
        if plan.store and plan.store.id:
            for file_id in plan.detach:
                await self._quietly(
                    self.backend.remove_vector_store_file(vector_store_id=plan.store.id, file_id=file_id)
                )
        old_stores = [plan.drop_store] if plan.drop_store else []
        old_stores += [
            one.removeprefix("delete store ")
            for one in self.records.pending
            if one.startswith("delete store ")
        ]
        for store_id in old_stores:
            await self._quietly(self.backend.delete_vector_store(store_id))
            self.records.pending.pop(f"delete store {store_id}", None)
            if plan.drop_store == store_id:
                self.records.stores.pop(identity, None)
            self.lock.save()
        await self._drop_files(identity, {one.key for one in [*plan.search, *plan.interpreter]})

    async def _drop_files(self, identity: str, keep: set[str]) -> list[str]:
        """Delete the files that nobody needs any more; says what became of them."""
        done = []
        for key, record in list(self.records.files.items()):
            if identity not in record.users or key in keep:
                continue
            if record.users == {identity}:
                there = await self._quietly(self.backend.delete_file(record.id))
                done.append(f"{_became(there)} file {record.id}")
                del self.records.files[key]
            else:
                record.users.discard(identity)
            self.lock.save()
        return done

    async def destroy(self, identity: str) -> list[str]:
        """Delete what was made for one assistant; says what, in words. Adopted ones are only forgotten."""
        done = []
        record = self.records.assistants.get(identity)
        if record and record.made:
            there = await self._quietly(self.backend.delete_assistant(record.id))
            done.append(f"{_became(there)} assistant {record.id}")
        elif record:
            done.append(f"left assistant {record.id}: it was there before us")
        if record:
            del self.records.assistants[identity]
            self.lock.save()
        store = self.records.stores.get(identity)
        if store:
            there = await self._quietly(self.backend.delete_vector_store(store.id))
            del self.records.stores[identity]
            self.lock.save()
            done.append(f"{_became(there)} vector store {store.id}")
        return done + await self._drop_files(identity, set())

    async def _quietly(self, call: Any) -> bool:
        """Do it; that it is gone already is as good, and False."""
        try:
            await call
        except NotFound:
            return False
        return True


def _became(there: bool) -> str:
    return "deleted" if there else "gone already:"


def add_remedy(error: BackendError, lock: Path) -> BackendError:
    """The error with a word on how to go on after an apply that broke off."""
    word = f"what was made is written in {lock}; apply again and it goes on from there"
    error.remedy = f"{error.remedy}; {word}" if error.remedy else word
    return error
