"""What an apply would do: the file beside what the backend shows and what the lock remembers.

Planning only reads. An assistant is found by the lock's id, else by our metadata, else by its name if
no other has it and nobody else manages it; else it is new. Reading costs one list of assistants (one
GET for a single known one), and for assistants with files one list of files and of their stores.
"""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

from assistant_runner.backends.base import Backend
from assistant_runner.errors import ConfigurationError
from assistant_runner.service.engines.catalog import retirement_of
from assistant_runner.setup.desired import (
    LocalFile,
    hash_file,
    wanted_fields,
)
from assistant_runner.setup.lock import AssistantRecord, BackendRecords
from assistant_runner.setup.model import IDENTITY_KEY, AssistantSpec, FileUse
from assistant_runner.setup.observing import Snapshot, observe
from assistant_runner.setup.plan_fields import plan_fields
from assistant_runner.setup.plan_files import plan_files
from assistant_runner.setup.planned import AssistantPlan, Plan, PlanOptions
from assistant_runner.wire.assistants import Assistant


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
    local = [(_hashed(spec.search_files, hashes), _hashed(spec.interpreter_files, hashes)) for spec in specs]
    snapshot = await observe(backend, specs, records)
    today = options.today or datetime.now(UTC).date()
    plans = []
    for spec, fields, (search, interpreter) in zip(specs, wanted, local, strict=True):
        one = _place(spec, fields, records, snapshot, options, backend.label)
        one.search, one.interpreter = search, interpreter
        await plan_files(backend, one, records, snapshot)
        plan_fields(one, records.assistants.get(spec.identity))
        retirement = retirement_of(fields["model"])
        if retirement:
            one.notes.append(retirement.words(today))
        plans.append(one)
    keep = {spec.identity for spec in specs}
    orphans = {k: r for k, r in records.assistants.items() if k not in keep and r.file in files}
    return Plan(backend.label, plans, orphans, prune)


def _hashed(uses: Iterable[FileUse], seen: dict[str, LocalFile]) -> list[LocalFile]:
    """The files with their hashes; the same content under the same name, in two folders, is one file."""
    found: dict[str, LocalFile] = {}
    for use in uses:
        path = str(use.path)
        if path not in seen:
            seen[path] = hash_file(use)
        found.setdefault(seen[path].key, seen[path])
    return list(found.values())


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
