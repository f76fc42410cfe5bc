"""From what a user names to an assistant on a backend: a file, a name, an id, or nothing.

A file is applied on the way, by the same machinery as `assistant apply`, so that a backend that stores
nothing for us works the same; when nothing has changed that costs one GET. Rows S1.33 and S2.13.
"""

import contextlib
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from assistant_runner.backends.base import Backend
from assistant_runner.errors import ConfigurationError, NotFound
from assistant_runner.setup.apply import Applier, Report, quiet
from assistant_runner.setup.finding import find_assistant, find_spec
from assistant_runner.setup.lock import LOCK_NAME, guarded, read_lock
from assistant_runner.setup.model import AssistantSpec
from assistant_runner.setup.planned import PlanOptions
from assistant_runner.wire.assistants import Assistant


@dataclass(frozen=True, slots=True)
class Resolved:
    """An assistant that is there. `spec` if it came from a file. `note`: for stderr, "" if nothing to say."""

    assistant: Assistant
    spec: AssistantSpec | None = None
    note: str = ""

    @property
    def assistant_id(self) -> str:
        """The id on the backend."""
        return self.assistant.id


async def resolve_assistant(
    backend: Backend,
    reference: str | None,
    *,
    cwd: Path,
    environ: Mapping[str, str],
    state: Path,
    options: PlanOptions,
    profile: str | None = None,
    report: Report = quiet,
) -> Resolved | None:
    """The assistant that `reference` names; None if it is None and `cwd` has no lone assistant file.

    `reference`: a file (`FILE`, `FILE#NAME`), an id (also `asst_…:Name`), or a name. `state`: the state
    folder, for guards and for locks of folders without one. NotFound or UsageError says what there is.
    """
    spec, note = find_spec(reference, cwd=cwd, environ=environ, profile=profile)
    if spec is not None:
        assistant = await ensure_assistant(backend, spec, state=state, options=options, report=report)
        return Resolved(assistant, spec, note)
    if reference is None:
        return None
    return Resolved(await find_assistant(backend, reference))


async def look_up(backend: Backend, reference: str, spec: AssistantSpec | None, *, state: Path) -> Resolved:
    """As `resolve_assistant`, but nothing is made or changed: a file must have been applied."""
    if spec is None:
        return Resolved(await find_assistant(backend, reference))
    for path in (spec.folder / LOCK_NAME, lock_for(spec, state)):
        record = read_lock(path).of(backend.label).assistants.get(spec.identity)
        if record:
            return Resolved(await backend.retrieve_assistant(record.id), spec)
    raise NotFound(
        f"{spec.name!r} of {spec.source} was never applied to {backend.label}",
        status_code=404,
        remedy=f"assistant-runner assistant apply {spec.source}",
    )


async def ensure_assistant(
    backend: Backend, spec: AssistantSpec, *, state: Path, options: PlanOptions, report: Report = quiet
) -> Assistant:
    """The assistant of a spec on the backend, made or updated if need be.

    The lock beside the file is used if there is one, else one in the state folder: asking a question
    leaves no new file in the user's folder.
    """
    lock_path = lock_for(spec, state)
    applier = Applier(backend, read_lock(lock_path), report)
    plan = await applier.plan([spec], options)
    [one] = plan.assistants
    if plan.is_empty and one.found == "lock" and one.assistant is not None:
        return one.assistant
    with guarded(lock_path, state / "guards") as lock:
        [done] = await Applier(backend, lock, report).apply([spec], options)
    with contextlib.suppress(NotFound):
        return await backend.retrieve_assistant(done.assistant_id)
    raise ConfigurationError(f"{done.assistant_id} was deleted while it was set up", remedy="ask again")


def lock_for(spec: AssistantSpec, state: Path) -> Path:
    """Where the lock of a spec lies when a question is asked."""
    beside = spec.folder / LOCK_NAME
    if beside.exists():
        return beside
    digest = hashlib.sha256(str(spec.source.resolve()).encode()).hexdigest()[:16]
    return state / "assistants" / digest / LOCK_NAME
