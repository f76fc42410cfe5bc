"""What a plan is made of: the assistants, their steps, their changed fields."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import Any, Literal

from assistant_runner.errors import ConfigurationError
from assistant_runner.setup.desired import (
    Definitions,
    LocalFile,
)
from assistant_runner.setup.lock import AssistantRecord
from assistant_runner.setup.model import AssistantSpec, ToolUse
from assistant_runner.wire.assistants import Assistant
from assistant_runner.wire.files import VectorStoreFile

OPTIONS_KEY = "assistant_runner_options"
CODE_INTERPRETER, FILE_SEARCH = "code_interpreter", "file_search"
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
