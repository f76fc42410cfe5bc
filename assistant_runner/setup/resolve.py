"""From what a user names to an assistant on a backend: a file, a name, an id, or nothing.

A file is applied on the way, by the same machinery as `assistant apply`, so that a backend that stores
nothing for us works the same; when nothing has changed that costs one GET. Rows S1.33 and S2.13.
"""

import contextlib
import difflib
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from assistant_runner.backends.base import Backend
from assistant_runner.errors import ConfigurationError, NotFound, UsageError
from assistant_runner.setup.apply import Applier, Report, quiet
from assistant_runner.setup.document import SUFFIXES
from assistant_runner.setup.load import load_assistant_file, lone_assistant_file
from assistant_runner.setup.lock import LOCK_NAME, guarded, read_lock
from assistant_runner.setup.model import AssistantSpec
from assistant_runner.setup.observing import all_pages
from assistant_runner.setup.planned import PlanOptions
from assistant_runner.wire.assistants import Assistant
from assistant_runner.wire.tools import FunctionTool


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


@dataclass(frozen=True, slots=True)
class ToolDifference:
    """Case-087. `missing`: the assistant offers them and no local tool answers; `unused`: the reverse."""

    missing: tuple[str, ...]
    unused: tuple[str, ...]


def find_spec(
    reference: str | None, *, cwd: Path, environ: Mapping[str, str], profile: str | None = None
) -> tuple[AssistantSpec | None, str]:
    """The assistant of a file that `reference` names, and a note for stderr; None if it is no file.

    None as reference: the lone assistant file of `cwd`. `FILE#NAME` picks one of several. A bare name
    is looked for in the lone file too. Nothing is sent anywhere.
    """
    if reference is None:
        lone = lone_assistant_file(cwd)
        if lone is None:
            return None, ""
        specs = load_assistant_file(lone, environ=environ, profile=profile)
        spec = _one_of(specs, None, lone.name)
        return spec, f"assistant {spec.name!r} from {lone.name}"
    text, _, name = reference.partition("#")
    path = cwd / text
    if text and _is_path(text, path):
        specs = load_assistant_file(path, environ=environ, profile=profile)
        return _one_of(specs, name or None, text), ""
    if reference.startswith("asst_"):
        return None, ""
    lone = lone_assistant_file(cwd)
    if lone is not None:
        for spec in load_assistant_file(lone, environ=environ, profile=profile):
            if spec.name == reference:
                return spec, f"assistant {spec.name!r} from {lone.name}"
    return None, ""


def _is_path(text: str, path: Path) -> bool:
    return (
        path.is_file() or Path(text).suffix.lower() in SUFFIXES or "/" in text or "\\" in text or text == "."
    )


def _one_of(specs: Sequence[AssistantSpec], name: str | None, source: str) -> AssistantSpec:
    if name is None and len(specs) == 1:
        return specs[0]
    names = [spec.name for spec in specs]
    if name is None:
        raise UsageError(
            f"{source} has {len(specs)} assistants: {', '.join(names)}",
            remedy=f"say which: --assistant '{source}#{names[0] if names else 'NAME'}'",
        )
    for spec in specs:
        if spec.name == name:
            return spec
    raise UsageError(
        f"{source} has no assistant {name!r}; it has: {', '.join(names)}", remedy="name one of these"
    )


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


async def find_assistant(backend: Backend, reference: str) -> Assistant:
    """The assistant with this id (also `asst_…:Name`) or name; NotFound, or UsageError if not unique."""
    if reference.startswith("asst_"):
        return await backend.retrieve_assistant(reference.split(":", 1)[0])
    return await _by_name(backend, reference)


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


async def _by_name(backend: Backend, name: str) -> Assistant:
    found = await all_pages(lambda after: backend.list_assistants(after=after), Assistant)
    named = [one for one in found if one.name == name]
    if len(named) == 1:
        return named[0]
    if named:
        ids = ", ".join(f"{one.id}:{name}" for one in named)
        raise UsageError(f"{len(named)} assistants are named {name!r}: {ids}", remedy="name one by its id")
    names = sorted({one.name for one in found if one.name})
    near = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
    there = f"; near: {', '.join(near)}" if near else f"; there are: {', '.join(names[:10])}" if names else ""
    raise NotFound(
        f"no file and no assistant {name!r} on {backend.label}{there}",
        status_code=404,
        remedy="see: assistant-runner assistant list; or name a file such as ./assistant.yaml",
    )


def compare_tools(assistant: Assistant, local: Sequence[str]) -> ToolDifference:
    """The functions that the assistant offers beside the tools that are here (case-087)."""
    offered = [tool.function.name for tool in assistant.tools if isinstance(tool, FunctionTool)]
    return ToolDifference(
        missing=tuple(name for name in offered if name not in local),
        unused=tuple(name for name in local if name not in offered),
    )
