"""What somebody changed by hand on a backend since our last apply."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from assistant_runner.errors import NotFound
from assistant_runner.setup.apply import Applier
from assistant_runner.setup.desired import shown_fields
from assistant_runner.setup.lock import digest
from assistant_runner.setup.model import AssistantSpec
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
    found = []
    for spec in specs:
        record = applier.records.assistants.get(spec.identity)
        if record is None:
            found.append(Drift(spec.name, None, "never applied: the lock does not name it"))
            continue
        try:
            assistant = await applier.backend.retrieve_assistant(record.id)
        except NotFound:
            found.append(Drift(spec.name, record.id, f"{record.id} is no longer there"))
            continue
        shown, here = shown_fields(assistant), shown_resources(assistant)
        now = {
            name: here.get(name, []) if name in ("code_interpreter", "file_search") else shown.get(name)
            for name in record.fields
        }
        changed = {name: value for name, value in now.items() if digest(value) != record.fields[name][1]}
        what = f"{', '.join(changed)} changed by hand" if changed else ""
        found.append(Drift(spec.name, record.id, what, changed))
    return found
