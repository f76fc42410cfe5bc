"""What an apply would do: the file beside what the backend shows and what the lock remembers.

Planning only reads. An assistant is found by the lock's id, else by our metadata, else by its name if
no other has it and nobody else manages it; else it is new. Reading costs one list of assistants (one
GET for a single known one), and for assistants with files one list of files and of their stores.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from typing import Any, Literal, TypeVar

from assistant_runner.backends.base import Backend
from assistant_runner.errors import ConfigurationError, NotFound, RequestRejected
from assistant_runner.service.engines.catalog import retirement_of
from assistant_runner.setup.desired import (
    RESETS,
    WIRE_FIELDS,
    Definitions,
    LocalFile,
    hash_file,
    same,
    shown_fields,
    wanted_fields,
)
from assistant_runner.setup.document import FileInvalid, Problem
from assistant_runner.setup.lock import AssistantRecord, BackendRecords, digest
from assistant_runner.setup.model import IDENTITY_KEY, AssistantSpec, FileSearchEntry, FileUse, ToolUse
from assistant_runner.wire.assistants import Assistant
from assistant_runner.wire.base import Page, WireObject
from assistant_runner.wire.files import File, VectorStore, VectorStoreFile

OPTIONS_KEY = "assistant_runner_options"
CODE_INTERPRETER, FILE_SEARCH = "code_interpreter", "file_search"
MAX_PAGES = 200
MAX_INTERPRETER_FILES = 20
HASH_ATTRIBUTE = "sha256"

Action = Literal["create", "update", "adopt", "none"]


def no_definitions(spec: AssistantSpec, use: ToolUse) -> Sequence[Mapping[str, Any]]:
    """For callers without a tool kit: any tool that needs one is an error."""
    raise ConfigurationError(f"{use.place}: {use.key}: no tool kit to load it with", remedy="this is a bug")


@dataclass(frozen=True, slots=True)
class PlanOptions:
    """`default_model`: for files without one. `adopt`: the id to take over instead of a new one.

    `new`: never take over an assistant by its name. `recreate`: make again what the lock names and the
    backend no longer has. `today`: the day by which models are told to leave; None is today.
    """

    define: Definitions = no_definitions
    default_model: str | None = None
    aliases: Mapping[str, str] = field(default_factory=dict)
    adopt: str | None = None
    new: bool = False
    recreate: bool = False
    today: date | None = None


@dataclass(frozen=True, slots=True)
class FieldChange:
    """One field. `by_hand`: the backend shows something else than after our last apply."""

    name: str
    before: Any
    after: Any
    by_hand: bool = False

    def document(self) -> dict[str, Any]:
        """For JSON."""
        return {"field": self.name, "before": self.before, "after": self.after, "by_hand": self.by_hand}


@dataclass(slots=True)
class StorePlan:
    """The vector store of an assistant. `id` None: to be made. `replaces`: one of ours to be deleted
    afterwards. `present`: ids of files in it; `again`: files whose indexing failed, to be added anew."""

    id: str | None
    options: str
    adopted: bool = False
    replaces: str | None = None
    present: dict[str, VectorStoreFile] = field(default_factory=dict)
    again: set[str] = field(default_factory=set)


@dataclass(slots=True)
class AssistantPlan:
    """What one assistant needs. `files`: the id of each file that is there, by its key."""

    spec: AssistantSpec
    action: Action
    wanted: dict[str, Any]
    assistant: Assistant | None = None
    found: Literal["lock", "metadata", "name", "id"] | None = None
    changes: list[FieldChange] = field(default_factory=list)
    search: list[LocalFile] = field(default_factory=list)
    interpreter: list[LocalFile] = field(default_factory=list)
    files: dict[str, str] = field(default_factory=dict)
    uploads: list[LocalFile] = field(default_factory=list)
    attach: list[LocalFile] = field(default_factory=list)
    detach: list[str] = field(default_factory=list)
    drop: list[str] = field(default_factory=list)
    store: StorePlan | None = None
    drop_store: str | None = None
    extras: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def is_empty(self) -> bool:
        """Nothing would be written on the backend."""
        return not (
            self.action in ("create", "update")
            or self.uploads
            or self.attach
            or self.detach
            or self.drop
            or self.extras
            or self.drop_store
            or (self.store and (self.store.id is None or self.store.replaces))
        )

    def steps(self) -> list[dict[str, Any]]:
        """What would be done, in order: `{do, what, ...}` for words and JSON alike."""
        steps: list[dict[str, Any]] = [
            {"do": "upload", "what": "file", "name": one.name, "bytes": one.size, "sha256": one.sha256}
            for one in self.uploads
        ]
        if self.store and self.store.id is None:
            steps.append({"do": "create", "what": "vector store", "files": len(self.search)})
        elif self.store and self.attach:
            names = [one.name for one in self.attach]
            steps.append({"do": "extend", "what": "vector store", "id": self.store.id, "files": names})
        if self.action in ("create", "update"):
            step: dict[str, Any] = {"do": self.action, "what": "assistant", "name": self.spec.name}
            if self.assistant:
                step["id"] = self.assistant.id
            steps.append({**step, "changes": [one.document() for one in self.changes]})
        if self.store and self.detach:
            steps += [{"do": "detach", "what": "file", "id": one} for one in self.detach]
        steps += [{"do": "delete", "what": "file", "id": one} for one in self.drop]
        old_store = self.drop_store or (self.store.replaces if self.store else None)
        if old_store:
            steps.append({"do": "delete", "what": "vector store", "id": old_store})
        steps += [
            {"do": "delete", "what": "assistant", "id": one, "why": "made twice"} for one in self.extras
        ]
        return steps

    def document(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "name": self.spec.name,
            "file": str(self.spec.source),
            "action": "none" if self.is_empty else self.action if self.action != "adopt" else "update",
            "id": self.assistant.id if self.assistant else None,
            "found_by": self.found,
            "steps": self.steps(),
            "notes": self.notes,
        }


@dataclass(slots=True)
class Plan:
    """All assistants of an apply. `orphans`: in the lock under these files, no longer in them."""

    backend: str
    assistants: list[AssistantPlan]
    orphans: dict[str, AssistantRecord] = field(default_factory=dict)
    prune: bool = False

    @property
    def is_empty(self) -> bool:
        """Nothing would be written on the backend."""
        return all(one.is_empty for one in self.assistants) and not (self.prune and self.orphans)

    def document(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "backend": self.backend,
            "changes": not self.is_empty,
            "assistants": [one.document() for one in self.assistants],
            "orphans": [
                {"identity": key, "id": one.id, "made": one.made} for key, one in self.orphans.items()
            ],
            "prune": self.prune,
        }


# --- reading the backend ---------------------------------------------------------------------------

ItemT = TypeVar("ItemT", bound=WireObject)


async def all_pages(first: Any, item: type[ItemT]) -> list[ItemT]:
    """Everything that `first(after)` lists, page by page; stops at a cursor that does not move."""
    items: list[ItemT] = []
    after: str | None = None
    for _ in range(MAX_PAGES):
        page: Page[ItemT] = await first(after)
        items += page.data
        cursor = page.last_id or (getattr(page.data[-1], "id", None) if page.data else None)
        if not page.has_more or not page.data or cursor == after:
            break
        after = cursor
    return items


@dataclass(slots=True)
class Snapshot:
    """What the backend showed. `complete`: all assistants were listed, not only the known one."""

    assistants: list[Assistant]
    complete: bool
    files: dict[str, File] = field(default_factory=dict)
    stores: list[VectorStore] = field(default_factory=list)


async def observe(backend: Backend, specs: Sequence[AssistantSpec], records: BackendRecords) -> Snapshot:
    """One look at the backend, as small as the specs and the lock allow."""
    snapshot = await _observe_assistants(backend, specs, records)
    if any(spec.search_files or spec.interpreter_files for spec in specs) or _had_files(specs, records):
        files = await all_pages(lambda after: backend.list_files(limit=1000, after=after), File)
        snapshot.files = {one.id: one for one in files}
    if any(_own_store(spec) for spec in specs):
        snapshot.stores = await all_pages(lambda after: backend.list_vector_stores(after=after), VectorStore)
    return snapshot


async def _observe_assistants(
    backend: Backend, specs: Sequence[AssistantSpec], records: BackendRecords
) -> Snapshot:
    if len(specs) == 1 and (record := records.assistants.get(specs[0].identity)):
        try:
            return Snapshot([await backend.retrieve_assistant(record.id)], complete=False)
        except NotFound:
            pass
    found = await all_pages(lambda after: backend.list_assistants(after=after), Assistant)
    return Snapshot(found, complete=True)


def _had_files(specs: Sequence[AssistantSpec], records: BackendRecords) -> bool:
    identities = {spec.identity for spec in specs}
    return any(record.users & identities for record in records.files.values())


def _own_store(spec: AssistantSpec) -> bool:
    entry = spec.tool(FILE_SEARCH)
    return bool(spec.search_files or (entry and entry.file_ids))


# --- planning --------------------------------------------------------------------------------------


async def make_plan(
    backend: Backend,
    specs: Sequence[AssistantSpec],
    records: BackendRecords,
    options: PlanOptions,
    *,
    prune: bool = False,
    files: Sequence[str] = (),
) -> Plan:
    """The plan; nothing is written. All files are checked before the backend is asked anything.

    `files`: the names of the assistant files as the lock has them, to find orphans.
    """
    wanted = [
        wanted_fields(spec, options.define, default_model=options.default_model, aliases=options.aliases)
        for spec in specs
    ]
    hashes: dict[str, LocalFile] = {}
    local = [
        (
            [_hashed(use, hashes) for use in spec.search_files],
            [_hashed(use, hashes) for use in spec.interpreter_files],
        )
        for spec in specs
    ]
    snapshot = await observe(backend, specs, records)
    today = options.today or datetime.now(UTC).date()
    plans = []
    for spec, fields, (search, interpreter) in zip(specs, wanted, local, strict=True):
        one = _place(spec, fields, records, snapshot, options, backend.label)
        one.search, one.interpreter = search, interpreter
        await _plan_files(backend, one, records, snapshot)
        _plan_fields(one, records.assistants.get(spec.identity))
        retirement = retirement_of(fields["model"])
        if retirement:
            one.notes.append(retirement.words(today))
        plans.append(one)
    keep = {spec.identity for spec in specs}
    orphans = {k: r for k, r in records.assistants.items() if k not in keep and r.file in files}
    return Plan(backend.label, plans, orphans, prune)


def _hashed(use: FileUse, seen: dict[str, LocalFile]) -> LocalFile:
    key = str(use.path)
    if key not in seen:
        seen[key] = hash_file(use)
    return seen[key]


def _place(
    spec: AssistantSpec,
    fields: dict[str, Any],
    records: BackendRecords,
    snapshot: Snapshot,
    options: PlanOptions,
    label: str,
) -> AssistantPlan:
    """Find the assistant: by lock, metadata, name; or plan a new one."""
    record = records.assistants.get(spec.identity)
    by_id = {one.id: one for one in snapshot.assistants}
    plan = AssistantPlan(spec, "create", fields)
    if record and record.id in by_id:
        plan.assistant, plan.found = by_id[record.id], "lock"
    elif options.adopt:
        if options.adopt not in by_id:
            raise ConfigurationError(f"no assistant {options.adopt} on {label}", remedy="see: assistant list")
        plan.assistant, plan.found = by_id[options.adopt], "id"
    else:
        _find_elsewhere(plan, records, snapshot, options)
    if record and plan.found != "lock":
        _note_gone(plan, record, options, label)
    if snapshot.complete and plan.assistant:
        _note_extras(plan, records, snapshot)
    plan.action = "create" if plan.assistant is None else "none" if plan.found == "lock" else "adopt"
    return plan


def _find_elsewhere(
    plan: AssistantPlan, records: BackendRecords, snapshot: Snapshot, options: PlanOptions
) -> None:
    spec = plan.spec
    mine = _carriers(spec, snapshot)
    if mine:
        plan.assistant, plan.found = mine[0], "metadata"
        plan.notes.append(f"found again by its metadata: {mine[0].id}")
        return
    if options.new:
        return
    taken = {record.id for record in records.assistants.values()}
    named = [
        one
        for one in snapshot.assistants
        if one.name == spec.name and IDENTITY_KEY not in (one.metadata or {}) and one.id not in taken
    ]
    if len(named) > 1:
        ids = ", ".join(one.id for one in named)
        raise ConfigurationError(
            f"{len(named)} assistants are named {spec.name!r} and none is ours: {ids}",
            remedy="say which with --adopt ID, or make another with --new",
        )
    if named:
        plan.assistant, plan.found = named[0], "name"
        plan.notes.append(f"takes over {named[0].id}, the only assistant of this name; --new makes another")


def _carriers(spec: AssistantSpec, snapshot: Snapshot) -> list[Assistant]:
    """Those that carry our identity, oldest first."""
    mine = [one for one in snapshot.assistants if (one.metadata or {}).get(IDENTITY_KEY) == spec.identity]
    return sorted(mine, key=lambda one: (one.created_at, one.id))


def _note_gone(plan: AssistantPlan, record: AssistantRecord, options: PlanOptions, label: str) -> None:
    """The lock's id is not there any more (case-086)."""
    gone = f"{record.id}, which the lock names, is no longer on {label}"
    if plan.assistant is not None or options.recreate or label == "embedded":
        plan.notes.append(gone + ("" if plan.assistant else "; it is made again"))
        return
    raise ConfigurationError(
        f"{plan.spec.name}: {gone}",
        remedy="make it again with --recreate, or name another with --adopt ID",
        assistant_id=record.id,
    )


def _note_extras(plan: AssistantPlan, records: BackendRecords, snapshot: Snapshot) -> None:
    """Others with our identity: our own if a create was cut off, else somebody's to look at."""
    assert plan.assistant is not None
    others = [one.id for one in _carriers(plan.spec, snapshot) if one.id != plan.assistant.id]
    if not others:
        return
    if f"create assistant {plan.spec.identity}" in records.pending:
        plan.extras = others
    else:
        plan.notes.append(
            f"{', '.join(others)} carry the same identity {plan.spec.identity!r} and are left alone;"
            " give one of the files a project: of its own, or delete them"
        )


# --- files and stores ---


async def _plan_files(
    backend: Backend, plan: AssistantPlan, records: BackendRecords, snapshot: Snapshot
) -> None:
    spec, identity = plan.spec, plan.spec.identity
    if _own_store(spec):
        plan.store = _plan_store(plan, records, snapshot)
        if plan.store.id:
            store_id = plan.store.id
            present = await all_pages(
                lambda after: backend.list_vector_store_files(store_id, after=after), VectorStoreFile
            )
            plan.store.present = {one.id: one for one in present}
    for one in dict.fromkeys([*plan.search, *plan.interpreter]):
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


# --- fields ---


def _plan_fields(plan: AssistantPlan, record: AssistantRecord | None) -> None:
    known = record.fields if record else {}
    plan.wanted |= {
        name: RESETS.get(name) for name in known if name in WIRE_FIELDS and name not in plan.wanted
    }
    resources = wanted_resources(plan)
    for name in (CODE_INTERPRETER, FILE_SEARCH):
        if name in known and name not in resources:
            resources[name] = []
    files = resources.get(CODE_INTERPRETER, [])
    if len(files) > MAX_INTERPRETER_FILES:
        words = f"expected at most {MAX_INTERPRETER_FILES} files of the code interpreter; found {len(files)}"
        raise FileInvalid([Problem(plan.spec.place("tools"), "tools", words)])
    shown = shown_fields(plan.assistant) if plan.assistant else {}
    here = shown_resources(plan.assistant)
    for name, after in plan.wanted.items():
        if plan.assistant is None:
            if after not in (None, []):
                plan.changes.append(FieldChange(name, None, after))
        elif not _unchanged(name, after, shown, known):
            plan.changes.append(_change(name, shown.get(name), after, known))
    for name, ids in resources.items():
        before = here.get(name, [])
        unknown = any(one is None for one in ids)
        if unknown or set(before) != set(ids):
            after = [one or "(known after apply)" for one in ids]
            plan.changes.append(_change(name, before, after, known))
    if plan.assistant is not None and plan.changes:
        plan.action = "update"


def _unchanged(name: str, after: Any, shown: Mapping[str, Any], known: Mapping[str, tuple[str, str]]) -> bool:
    if name in known and known[name] == (digest(after), digest(shown.get(name))):
        return True
    if name not in shown:
        return after in (None, [])
    return same(name, after, shown[name])


def _change(name: str, before: Any, after: Any, known: Mapping[str, tuple[str, str]]) -> FieldChange:
    by_hand = name in known and known[name][1] != digest(before)
    return FieldChange(name, before, after, by_hand)


def shown_resources(assistant: Assistant | None) -> dict[str, list[str]]:
    """The ids that hang on an assistant: files of the code interpreter, the store of file search."""
    resources = assistant.tool_resources if assistant else None
    found: dict[str, list[str]] = {}
    if resources and resources.code_interpreter:
        found[CODE_INTERPRETER] = list(resources.code_interpreter.file_ids or [])
    if resources and resources.file_search:
        found[FILE_SEARCH] = list(resources.file_search.vector_store_ids or [])
    return found


def wanted_resources(plan: AssistantPlan) -> dict[str, list[str | None]]:
    """The ids that the file wants on the assistant; None where the id is not known yet."""
    spec = plan.spec
    wanted: dict[str, list[str | None]] = {}
    interpreter, search = spec.tool(CODE_INTERPRETER), spec.tool(FILE_SEARCH)
    given = spec.tool_resources
    ids: list[str | None] = []
    if given and given.code_interpreter:
        ids += given.code_interpreter.file_ids or []
        wanted[CODE_INTERPRETER] = ids
    if interpreter and (interpreter.file_ids or plan.interpreter):
        ids += [*interpreter.file_ids, *(plan.files.get(one.key) for one in plan.interpreter)]
        wanted[CODE_INTERPRETER] = ids
    if plan.store:
        wanted[FILE_SEARCH] = [plan.store.id]
    elif search and search.vector_store_ids:
        wanted[FILE_SEARCH] = list(search.vector_store_ids)
    elif given and given.file_search:
        wanted[FILE_SEARCH] = list(given.file_search.vector_store_ids or [])
    return wanted
