"""What the commands about assistants share: options, which files and where to, progress, questions."""

import json
import os
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from assistant_runner.cli.options import PATH, option, positional, shared

if TYPE_CHECKING:
    from assistant_runner.backends.base import Backend
    from assistant_runner.settings import LoadedSettings
    from assistant_runner.setup.apply import Applier, Progress, Report
    from assistant_runner.setup.lock import Lock
    from assistant_runner.setup.model import AssistantSpec
    from assistant_runner.setup.planned import PlanOptions
    from assistant_runner.setup.tools import Found
    from assistant_runner.tooling.registry import Toolbox

CHANGES = 20
exit_option = click.option("--detailed-exitcode", is_flag=True, help="Exit with 20 if there are changes.")
yes_option = click.option("--yes", "-y", is_flag=True, help="Do not ask.")


@dataclass(frozen=True)
class Target:
    """Which files, and where to."""

    path: Path = positional(  # noqa: RUF009
        type=PATH, default=Path("."), help="An assistant file, FILE#NAME, or a folder of them [this folder]."
    )
    profile: str | None = option("--profile", help="An overlay under profiles:.")
    only: tuple[str, ...] = option(
        "--only", multiple=True, help="Only the assistant of this name. Repeatable."
    )
    backend: str | None = option("--backend", help="embedded, or the base URL of an Assistants API.")
    data: str | None = option("--data", help="Folder of the embedded service.")
    model: str | None = option("--model", "-m", help="For files that name no model.")

    @property
    def file(self) -> Path:
        """The file or folder alone."""
        return self._parts[0]

    @property
    def names(self) -> tuple[str, ...]:
        """The assistants that are meant; all if none."""
        return (*self.only, *self._parts[1])

    @property
    def _parts(self) -> tuple[Path, tuple[str, ...]]:
        text, _, name = str(self.path).rpartition("#")
        return (Path(text), (name,)) if text and name and not self.path.exists() else (self.path, ())


@dataclass(frozen=True)
class Choices:
    """How far a plan may go."""

    prune: bool = option(
        "--prune", is_flag=True, help="Delete what an earlier apply made and the files no longer have."
    )
    recreate: bool = option(
        "--recreate", is_flag=True, help="Make again what the lock names and the backend lost."
    )
    adopt: str | None = option(
        "--adopt", metavar="ID", help="Take over this assistant instead of making one."
    )
    new: bool = option("--new", is_flag=True, help="Never take over an assistant by its name.")


target_options = shared(Target, "target")
choice_options = shared(Choices, "choices")


@asynccontextmanager
async def open_groups(
    target: Target,
    choices: Choices,
    *,
    guard: bool = False,
    checked: bool = True,
    timeout_s: float = 600.0,
) -> "AsyncIterator[list[tuple[Applier, list[AssistantSpec], PlanOptions]]]":
    """For each folder and backend that the files name: an applier, its assistants, the options.

    All files are read and checked, with their tools, before any backend is opened.
    """
    from assistant_runner.setup.apply import Applier
    from assistant_runner.setup.load import load_assistant_file
    from assistant_runner.setup.lock import LOCK_NAME, guarded, read_lock
    from assistant_runner.setup.planned import PlanOptions
    from assistant_runner.setup.tools import definitions_from, open_spec_tools

    found = load_assistant_file(target.file, environ=os.environ, profile=target.profile)
    specs = _chosen(found, target.names)
    grouped: dict[str, tuple[LoadedSettings, Path, list[AssistantSpec]]] = {}
    async with AsyncExitStack() as stack:
        boxes: dict[str, Toolbox] = {}
        found_tools: Found = {}
        locks: dict[Path, Lock] = {}
        groups: list[tuple[Applier, list[AssistantSpec], PlanOptions]] = []
        report = stack.enter_context(progress_lines())
        for spec in specs:
            loaded = settings_of(target.backend, target.data, model=target.model, spec=spec)
            if checked:
                folder = tools_folder(loaded)
                tools = open_spec_tools(spec, environ=os.environ, folder=folder, found=found_tools)
                boxes[spec.identity] = await stack.enter_async_context(tools)
            settings = loaded.settings.model_dump(mode="json")
            key = json.dumps([str(spec.folder.resolve()), settings], sort_keys=True)
            grouped.setdefault(key, (loaded, spec.folder, []))[2].append(spec)
        for loaded, place, members in grouped.values():
            options = PlanOptions(
                define=definitions_from(tools_folder(loaded), boxes=boxes),
                default_model=loaded.settings.model,
                aliases=loaded.settings.model_aliases,
                recreate=choices.recreate,
                adopt=choices.adopt,
                new=choices.new,
            )
            opened = await stack.enter_async_context(open_backend_of(loaded))
            path = place.resolve() / LOCK_NAME
            if path not in locks:  # several backends of one folder share its lock
                guards = loaded.folders.state / "guards"
                locks[path] = stack.enter_context(guarded(path, guards)) if guard else read_lock(path)
            applier = Applier(opened, locks[path], report, index_timeout_s=timeout_s)
            groups.append((applier, members, options))
        yield groups


def _chosen(specs: "list[AssistantSpec]", only: Sequence[str]) -> "list[AssistantSpec]":
    from assistant_runner.errors import UsageError

    if not only:
        return specs
    names = [spec.name for spec in specs]
    for name in only:
        if name not in names:
            raise UsageError(
                f"no assistant {name!r} in these files; there are: {', '.join(names)}", remedy="--only NAME"
            )
    return [spec for spec in specs if spec.name in only]


def settings_of(
    backend: str | None,
    data: str | None,
    *,
    model: str | None = None,
    spec: "AssistantSpec | None" = None,
) -> "LoadedSettings":
    from assistant_runner.settings import load_settings

    flags = {"backend": backend, "data_folder": data, "model": model}
    layer = (str(spec.source), spec.settings_layer()) if spec else None
    return load_settings(flags, environ=os.environ, cwd=Path.cwd(), assistant_file=layer)


def tools_folder(loaded: "LoadedSettings") -> Path | None:
    folder = loaded.settings.tools_folder
    return Path(folder).expanduser() if folder else None


@asynccontextmanager
async def open_backend_of(loaded: "LoadedSettings") -> "AsyncIterator[Backend]":
    from assistant_runner.assembly import open_backend

    async with open_backend(loaded) as (backend, _):
        yield backend


@contextmanager
def after_break(applier: "Applier") -> Iterator[None]:
    """An apply that breaks off says where it left what it made, and how to go on."""
    from assistant_runner.errors import BackendError
    from assistant_runner.setup.apply import add_remedy

    try:
        yield
    except BackendError as error:
        raise add_remedy(error, applier.lock.path) from error.__cause__


@contextmanager
def progress_lines() -> "Iterator[Report]":
    """Progress on stderr: a bar at a terminal, a line per step elsewhere."""
    if not sys.stderr.isatty():
        last = [""]

        def tell(step: "Progress") -> None:
            line = f"{step.doing} {step.subject}"
            if step.total is None or step.done == step.total or line != last[0]:
                last[0] = line
                count = f": {step.done} of {step.total}" if step.total is not None else ""
                click.echo(f"{line}{count}", err=True)

        yield tell
        return
    from rich.console import Console
    from rich.progress import Progress as Bar

    console = Console(stderr=True, highlight=False)
    with ExitStack() as stack:  # no bar before there is something to count: a question may come first
        bars: list[Bar] = []
        tasks: dict[str, Any] = {}

        def draw(step: "Progress") -> None:
            label = f"{step.doing} {step.subject}"
            if step.total is None:
                console.print(label, markup=False)
                return
            if not bars:
                bars.append(stack.enter_context(Bar(console=console, transient=True)))
            if label not in tasks:
                tasks[label] = bars[0].add_task(label, total=step.total)
            bars[0].update(tasks[label], completed=step.done)
            if step.done == step.total:  # nothing may be drawn while results are printed
                bars[0].remove_task(tasks.pop(label))
                if not tasks:
                    bars.pop().stop()

        yield draw


def confirm(question: str, *, yes: bool) -> None:
    """Go on, or leave: with --yes, or by a person at the terminal."""
    from assistant_runner.errors import UsageError

    if yes:
        return
    if not sys.stdin.isatty():
        raise UsageError(f"{question} Nobody is there to answer", remedy="give --yes")
    if not click.confirm(question, err=True):
        raise click.exceptions.Exit(0)


def print_json(document: Any) -> None:
    click.echo(json.dumps(document, ensure_ascii=False, indent=2, default=str))
