"""What somebody changed by hand on a backend since our last apply."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from assistant_runner.setup.apply import Applier
from assistant_runner.setup.desired import shown_fields
from assistant_runner.setup.lock import BackendRecords, digest
from assistant_runner.setup.model import AssistantSpec
from assistant_runner.setup.observing import Snapshot, has_own_store, observe
from assistant_runner.setup.plan_fields import shown_resources


@dataclass(frozen=True, slots=True)
class Drift:
    """One assistant: `fields` that no longer are as our last apply left them, with what they are now."""

    name: str
    assistant_id: str | None
    what: str = ""
    fields: dict[str, Any] = field(default_factory=dict)

    @property
    def is_drift(self) -> bool:
        """Something was changed."""
        return bool(self.what)

    def document(self) -> dict[str, Any]:
        """For JSON."""
        return {"name": self.name, "id": self.assistant_id, "drift": self.what or None, "fields": self.fields}


async def find_drift(applier: Applier, specs: Sequence[AssistantSpec]) -> list[Drift]:
    """One entry per assistant, by the hashes in the lock; the file's own changes are no drift."""
    seen = await observe(applier.backend, specs, applier.records)
    assistants = {one.id: one for one in seen.assistants}
    found = []
    for spec in specs:
        record = applier.records.assistants.get(spec.identity)
        if record is None:
            found.append(Drift(spec.name, None, "never applied: the lock does not name it"))
            continue
        assistant = assistants.get(record.id)
        if assistant is None:
            found.append(Drift(spec.name, record.id, f"{record.id} is no longer there"))
            continue
        shown, here = shown_fields(assistant), shown_resources(assistant)
        now = {
            name: here.get(name, []) if name in ("code_interpreter", "file_search") else shown.get(name)
            for name in record.fields
        }
        changed = {name: value for name, value in now.items() if digest(value) != record.fields[name][1]}
        what = [f"{', '.join(changed)} changed by hand"] if changed else []
        what += [f"{one} is no longer there" for one in _gone(spec, applier.records, seen)]
        found.append(Drift(spec.name, record.id, "; ".join(what), changed))
    return found


def _gone(spec: AssistantSpec, records: BackendRecords, seen: Snapshot) -> list[str]:
    """The vector store and the files that were made for this assistant and that the backend has no more."""
    store = records.stores.get(spec.identity)
    gone = []
    if store is not None and has_own_store(spec) and store.id not in {one.id for one in seen.stores}:
        gone.append(f"vector store {store.id}")
    for name, file in records.files.items():
        if spec.identity in file.users and file.id not in seen.files:
            gone.append(f"file {name.partition('/')[2]} ({file.id})")
    return gone
