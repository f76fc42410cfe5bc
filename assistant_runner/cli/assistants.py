"""`assistant plan|apply|show|list|drift|import|destroy|init`: assistants as code."""

import json
import os
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from assistant_runner.backends.base import Backend
    from assistant_runner.settings import LoadedSettings
    from assistant_runner.setup.apply import Applier, Progress, Report
    from assistant_runner.setup.lock import Lock
    from assistant_runner.setup.model import AssistantSpec
    from assistant_runner.setup.plan import Plan, PlanOptions
    from assistant_runner.setup.tools import Found
    from assistant_runner.tooling.registry import Toolbox

app = typer.Typer(help="Assistants as code: files that become working assistants.", no_args_is_help=True)

CHANGES = 20
PathArgument = Annotated[
    Path, typer.Argument(help="An assistant file, or a folder of them.", show_default="this folder")
]
ProfileOption = Annotated[str | None, typer.Option("--profile", help="An overlay under profiles:.")]
OnlyOption = Annotated[
    list[str] | None, typer.Option("--only", help="Only the assistant of this name. Repeatable.")
]
BackendOption = Annotated[
    str | None, typer.Option("--backend", help="embedded, or the base URL of an Assistants API.")
]
DataOption = Annotated[str | None, typer.Option("--data", help="Folder of the embedded service.")]
ModelOption = Annotated[str | None, typer.Option("--model", "-m", help="For files that name no model.")]
JsonOption = Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")]
ExitOption = Annotated[bool, typer.Option("--detailed-exitcode", help="Exit with 20 if there are changes.")]
PruneOption = Annotated[
    bool, typer.Option("--prune", help="Delete what an earlier apply made and the files no longer have.")
]
RecreateOption = Annotated[
    bool, typer.Option("--recreate", help="Make again what the lock names and the backend lost.")
]
AdoptOption = Annotated[
    str | None, typer.Option("--adopt", help="Take over this assistant instead of making one.", metavar="ID")
]
NewOption = Annotated[bool, typer.Option("--new", help="Never take over an assistant by its name.")]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


@app.command()
def plan(
    path: PathArgument = Path("."),
    profile: ProfileOption = None,
    only: OnlyOption = None,
    backend: BackendOption = None,
    data: DataOption = None,
    model: ModelOption = None,
    prune: PruneOption = False,
    recreate: RecreateOption = False,
    adopt: AdoptOption = None,
    new: NewOption = False,
    detailed_exitcode: ExitOption = False,
    as_json: JsonOption = False,
    verbose: Annotated[bool, typer.Option("--full", help="Show values whole.")] = False,
) -> None:
    """Show what apply would do. Writes nothing anywhere."""
    from assistant_runner.cli.edge import run_async
    from assistant_runner.cli.plan_view import show_plan

    target = _Target(path, profile, only, backend, data, model)
    choices = {"recreate": recreate, "adopt": adopt, "new": new}

    async def work() -> "list[Plan]":
        plans = []
        async with _groups(target, choices) as groups:
            for applier, specs, options in groups:
                plans.append(await applier.plan(specs, options, prune=prune))
        return plans

    plans = run_async(work())
    if as_json:
        _print_json(
            {"changes": any(not one.is_empty for one in plans), "plans": [p.document() for p in plans]}
        )
    else:
        for one in plans:
            show_plan(one, verbose=verbose)
    if detailed_exitcode and any(not one.is_empty for one in plans):
        raise typer.Exit(CHANGES)


@app.command()
def apply(
    path: PathArgument = Path("."),
    profile: ProfileOption = None,
    only: OnlyOption = None,
    backend: BackendOption = None,
    data: DataOption = None,
    model: ModelOption = None,
    prune: PruneOption = False,
    recreate: RecreateOption = False,
    adopt: AdoptOption = None,
    new: NewOption = False,
    yes: YesOption = False,
    index_timeout: Annotated[
        float, typer.Option("--index-timeout", help="Seconds to wait for the files of a store.")
    ] = 600.0,
    as_json: JsonOption = False,
) -> None:
    """Make the backend as the files say. A second apply writes nothing."""
    from assistant_runner.cli.edge import run_async
    from assistant_runner.cli.plan_view import show_plan

    target = _Target(path, profile, only, backend, data, model)
    choices = {"recreate": recreate, "adopt": adopt, "new": new}
    documents: list[dict[str, Any]] = []

    async def work() -> None:
        async with _groups(target, choices, guard=True, timeout_s=index_timeout) as groups:
            for applier, specs, options in groups:
                found = await applier.plan(specs, options, prune=prune)
                if not as_json:
                    show_plan(found)
                if prune and found.orphans:
                    _ask(f"Delete {len(found.orphans)} assistants and what was made for them?", yes=yes)
                with _after_break(applier):
                    for done in await applier.carry_out(found):
                        documents.append({"backend": found.backend, **done.document()})
                        if not as_json:
                            typer.echo(f"{done.assistant_id}\t{done.spec.name}")

    run_async(work())
    if as_json:
        _print_json({"changed": any(one["changed"] for one in documents), "assistants": documents})


@app.command()
def drift(
    path: PathArgument = Path("."),
    profile: ProfileOption = None,
    only: OnlyOption = None,
    backend: BackendOption = None,
    data: DataOption = None,
    model: ModelOption = None,
    detailed_exitcode: ExitOption = False,
    as_json: JsonOption = False,
) -> None:
    """Show what somebody changed by hand since the last apply."""
    from assistant_runner.cli.edge import run_async
    from assistant_runner.setup.drift import Drift, find_drift

    target = _Target(path, profile, only, backend, data, model)

    async def work() -> "list[Drift]":
        found = []
        async with _groups(target, {"recreate": True}) as groups:
            for applier, specs, _ in groups:
                found += await find_drift(applier, specs)
        return found

    found = run_async(work())
    if as_json:
        _print_json(
            {"drift": any(one.is_drift for one in found), "assistants": [d.document() for d in found]}
        )
    else:
        for one in found:
            _show_drift(one)
    if detailed_exitcode and any(one.is_drift for one in found):
        raise typer.Exit(CHANGES)


def _show_drift(one: Any) -> None:
    if not one.is_drift:
        typer.echo(f"  {one.name} ({one.assistant_id}): as applied")
        return
    typer.secho(f"! {one.name}: {one.what}", fg="yellow")
    for field, before in one.fields.items():
        typer.echo(f"    {field}: {json.dumps(before, ensure_ascii=False)[:300]}")


@app.command("list")
def list_command(
    backend: BackendOption = None,
    data: DataOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the assistants of the backend, newest first."""
    from assistant_runner.cli.edge import run_async
    from assistant_runner.setup.model import IDENTITY_KEY
    from assistant_runner.setup.plan import all_pages
    from assistant_runner.wire.assistants import Assistant

    async def work() -> list[Assistant]:
        async with _open(_settings(backend, data)) as opened:
            return await all_pages(lambda after: opened.list_assistants(after=after), Assistant)

    found = run_async(work())
    if as_json:
        _print_json([one.document() for one in found])
        return
    for one in found:
        ours = (one.metadata or {}).get(IDENTITY_KEY)
        typer.echo(
            f"{one.id}\t{one.name or '-'}\t{one.model}\t{'from a file' if ours is not None else ''}".rstrip()
        )
    if not found:
        typer.echo("no assistants", err=True)


@app.command()
def show(
    reference: Annotated[str, typer.Argument(help="An id, a name, or a file.")],
    backend: BackendOption = None,
    data: DataOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="The object as the backend has it.")] = False,
) -> None:
    """Show an assistant as the backend has it, in the words of an assistant file."""
    from assistant_runner.cli.edge import run_async
    from assistant_runner.setup.resolve import Resolved, find_spec, look_up
    from assistant_runner.setup.writing import file_document, to_yaml

    async def work() -> Resolved:
        spec, _ = find_spec(reference, cwd=Path.cwd(), environ=os.environ)
        loaded = _settings(backend, data, spec=spec)
        async with _open(loaded) as opened:
            return await look_up(opened, reference, spec, state=loaded.folders.state)

    assistant = run_async(work()).assistant
    if as_json:
        _print_json(assistant.document())
    else:
        typer.echo(to_yaml(file_document(assistant), head=assistant.id), nl=False)


@app.command()
def destroy(
    path: PathArgument = Path("."),
    only: OnlyOption = None,
    backend: BackendOption = None,
    data: DataOption = None,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Delete what apply made for these files: assistants, vector stores, uploaded files.

    What was there before us is left alone.
    """
    from assistant_runner.cli.edge import run_async

    target = _Target(path, None, only, backend, data, None)
    done: dict[str, list[str]] = {}

    async def work() -> None:
        async with _groups(target, {}, guard=True, checked=False) as groups:
            for applier, specs, _ in groups:
                names = {applier.name_of(spec.source) for spec in specs}
                chosen = {spec.identity for spec in specs}
                recorded = [
                    identity
                    for identity, record in applier.records.assistants.items()
                    if identity in chosen or (not only and record.file in names)
                ]
                if not recorded:
                    continue
                shown = ", ".join(
                    f"{one.lstrip('/')} ({applier.records.assistants[one].id})" for one in recorded
                )
                _ask(f"Delete {shown} on {applier.backend.label}, and the files uploaded for them?", yes=yes)
                with _after_break(applier):
                    for identity in recorded:
                        done[identity] = await applier.destroy(identity)

    run_async(work())
    if as_json:
        _print_json({"destroyed": done})
        return
    for lines in done.values():
        for line in lines:
            typer.echo(line)
    if not done:
        typer.echo("nothing to destroy: the lock names no assistant of these files", err=True)


@app.command("import")
def import_command(
    references: Annotated[
        list[str] | None,
        typer.Argument(help="Ids or names of assistants on the backend.", metavar="[ASSISTANT]..."),
    ] = None,
    source: Annotated[
        Path | None,
        typer.Option("--from", help="A dump: assistants, Foundry agents, prompt exports.", metavar="FILE"),
    ] = None,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="The assistant file to write; - is stdout.")
    ] = Path("assistant.yaml"),
    keep_ids: Annotated[
        bool, typer.Option("--keep-ids", help="Keep ids of files and vector stores of a dump.")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Write over a file that says something else.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be written.")] = False,
    backend: BackendOption = None,
    data: DataOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write an assistant file from what a backend has, or from a dump of the old API."""
    from assistant_runner.errors import UsageError

    if bool(references) == bool(source):
        raise UsageError("expected an assistant of the backend or --from FILE", remedy="give one of the two")
    if source:
        text, report = _rescue(source, keep_ids=keep_ids)
    else:
        text, report = _import_from_backend(references or [], backend, data, output)
    status = _write_file(output, text, force=force, dry_run=dry_run)
    if as_json:
        _print_json({**report, "output": str(output), "status": status})
        return
    for one in report["assistants"]:
        typer.echo(f"{status}\t{one['source']}\t{one['name']}", err=True)
        for word in one["not_carried_over"]:
            typer.echo(f"  not carried over: {word}", err=True)
    for word in report["not_assistants"]:
        typer.echo(f"no assistant: {word}", err=True)


def _rescue(source: Path, *, keep_ids: bool) -> tuple[str, dict[str, Any]]:
    from assistant_runner.errors import ConfigurationError
    from assistant_runner.setup.rescue import rescue

    found = rescue(source, keep_ids=keep_ids)
    if not found.found:
        words = "; ".join(found.strangers) or "nothing"
        raise ConfigurationError(f"{source}: no assistant in it, but {words}", remedy="is it the right file?")
    return found.file_text(), found.report()


def _import_from_backend(
    references: list[str], backend: str | None, data: str | None, output: Path
) -> tuple[str, dict[str, Any]]:
    from assistant_runner.cli.edge import run_async
    from assistant_runner.setup.rescue import Rescue, Rescued
    from assistant_runner.setup.resolve import find_assistant
    from assistant_runner.setup.writing import file_document
    from assistant_runner.tooling.registry import find_tools

    loaded = _settings(backend, data)
    local = [tool.definition().document() for tool in find_tools(folder=_tools_folder(loaded)).tools.values()]
    found = Rescue(Path(loaded.settings.backend))

    async def work() -> None:
        async with _open(loaded) as opened:
            for reference in references:
                shown = await find_assistant(opened, reference)
                document = file_document(shown, local=local)
                lost = [] if shown.name else ["the name: it has none, so its id stands for it"]
                found.found.append(Rescued("assistant", shown.id, document, lost))

    run_async(work())
    return found.file_text(), found.report()


def _write_file(output: Path, text: str, *, force: bool, dry_run: bool) -> str:
    """What became of the file: written, unchanged, printed, would be written."""
    from assistant_runner.cli.threads import write_whole
    from assistant_runner.errors import UsageError

    if str(output) == "-":
        typer.echo(text, nl=False)
        return "printed"
    there = output.read_text(encoding="utf-8") if output.is_file() else None
    if there == text:
        return "unchanged"
    if dry_run:
        return "would be written"
    if there is not None and not force:
        raise UsageError(f"{output} is there and says something else", remedy="--force, or another --output")
    write_whole(output, text)
    return "written"


@app.command()
def init(
    path: Annotated[Path, typer.Argument(help="The file to write, or the folder of an example.")] = Path("."),
    name: Annotated[str | None, typer.Option("--name", help="The assistant's name.")] = None,
    model: ModelOption = None,
    instructions: Annotated[str | None, typer.Option("--instructions", help="Its system prompt.")] = None,
    tool: Annotated[list[str] | None, typer.Option("--tool", "-t", help="A tool. Repeatable.")] = None,
    file: Annotated[
        list[str] | None, typer.Option("--file", help="A file or glob to search in. Repeatable.")
    ] = None,
    example: Annotated[
        str | None, typer.Option("--example", help="Copy a worked example instead; ? lists them.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Write over what is there.")] = False,
) -> None:
    """Write a first assistant file: by questions at a terminal, by flags, or from an example."""
    from assistant_runner.setup.starting import Answers, copy_example, example_names, first_file

    if example == "?":
        for one in example_names():
            typer.echo(one)
        return
    if example:
        for copied in copy_example(example, path, force=force):
            typer.echo(str(copied))
        typer.echo(f"now: assistant-runner assistant plan {path}", err=True)
        return
    target = path / "assistant.yaml" if path.is_dir() or not path.suffix else path
    asking = sys.stdin.isatty() and not any((name, model, instructions, tool, file))
    default = Answers(name=target.resolve().parent.name or "assistant")
    if asking:
        name = typer.prompt("Name", default=default.name, err=True)
        model = typer.prompt("Model", default=default.model, err=True)
        instructions = typer.prompt("Instructions", default=default.instructions, err=True)
        words = typer.prompt(
            "Tools (names, with spaces between)", default="get_weather get_wiki_url", err=True
        )
        tool = words.split()
        words = typer.prompt("Files to search in (paths or globs; none: -)", default="-", err=True)
        file = [] if words == "-" else words.split()
    answers = Answers(
        name=name or default.name,
        model=model or default.model,
        instructions=instructions or default.instructions,
        tools=tuple(tool) if tool is not None else default.tools,
        files=tuple(file or ()),
    )
    target.parent.mkdir(parents=True, exist_ok=True)
    typer.echo(f"{_write_file(target, first_file(answers), force=force, dry_run=False)}: {target}", err=True)
    typer.echo(f"now: assistant-runner assistant plan {target}", err=True)


# --- what the commands share -----------------------------------------------------------------------


@dataclass(frozen=True)
class _Target:
    """Which files, and where to."""

    path: Path
    profile: str | None
    only: list[str] | None
    backend: str | None
    data: str | None
    model: str | None


@asynccontextmanager
async def _groups(
    target: _Target,
    choices: dict[str, Any],
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
    from assistant_runner.setup.plan import PlanOptions
    from assistant_runner.setup.tools import definitions_from, open_spec_tools

    found = load_assistant_file(target.path, environ=os.environ, profile=target.profile)
    specs = _chosen(found, target.only)
    grouped: dict[str, tuple[LoadedSettings, Path, list[AssistantSpec]]] = {}
    async with AsyncExitStack() as stack:
        boxes: dict[str, Toolbox] = {}
        found_tools: Found = {}
        locks: dict[Path, Lock] = {}
        groups: list[tuple[Applier, list[AssistantSpec], PlanOptions]] = []
        report = stack.enter_context(_progress())
        for spec in specs:
            loaded = _settings(target.backend, target.data, model=target.model, spec=spec)
            if checked:
                folder = _tools_folder(loaded)
                tools = open_spec_tools(spec, environ=os.environ, folder=folder, found=found_tools)
                boxes[spec.identity] = await stack.enter_async_context(tools)
            settings = loaded.settings.model_dump(mode="json")
            key = json.dumps([str(spec.folder.resolve()), settings], sort_keys=True)
            grouped.setdefault(key, (loaded, spec.folder, []))[2].append(spec)
        for loaded, place, members in grouped.values():
            options = PlanOptions(
                define=definitions_from(_tools_folder(loaded), boxes=boxes),
                default_model=loaded.settings.model,
                aliases=loaded.settings.model_aliases,
                **choices,
            )
            opened = await stack.enter_async_context(_open(loaded))
            path = place.resolve() / LOCK_NAME
            if path not in locks:  # several backends of one folder share its lock
                guards = loaded.folders.state / "guards"
                locks[path] = stack.enter_context(guarded(path, guards)) if guard else read_lock(path)
            applier = Applier(opened, locks[path], report, index_timeout_s=timeout_s)
            groups.append((applier, members, options))
        yield groups


def _chosen(specs: "list[AssistantSpec]", only: list[str] | None) -> "list[AssistantSpec]":
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


def _settings(
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


def _tools_folder(loaded: "LoadedSettings") -> Path | None:
    folder = loaded.settings.tools_folder
    return Path(folder).expanduser() if folder else None


@asynccontextmanager
async def _open(loaded: "LoadedSettings") -> "AsyncIterator[Backend]":
    from assistant_runner.assembly import open_backend

    async with open_backend(loaded) as (backend, _):
        yield backend


@contextmanager
def _after_break(applier: "Applier") -> Iterator[None]:
    """An apply that breaks off says where it left what it made, and how to go on."""
    from assistant_runner.errors import BackendError
    from assistant_runner.setup.apply import add_remedy

    try:
        yield
    except BackendError as error:
        raise add_remedy(error, applier.lock.path) from error.__cause__


@contextmanager
def _progress() -> "Iterator[Report]":
    """Progress on stderr: a bar at a terminal, a line per step elsewhere."""
    if not sys.stderr.isatty():
        last = [""]

        def tell(step: "Progress") -> None:
            line = f"{step.doing} {step.subject}"
            if step.total is None or step.done == step.total or line != last[0]:
                last[0] = line
                count = f": {step.done} of {step.total}" if step.total is not None else ""
                typer.echo(f"{line}{count}", err=True)

        yield tell
        return
    from rich.console import Console
    from rich.progress import Progress as Bar

    with Bar(console=Console(stderr=True), transient=True) as bar:
        tasks: dict[str, Any] = {}

        def draw(step: "Progress") -> None:
            label = f"{step.doing} {step.subject}"
            if step.total is None:
                bar.console.print(label)
                return
            if label not in tasks:
                tasks[label] = bar.add_task(label, total=step.total)
            bar.update(tasks[label], completed=step.done)

        yield draw


def _ask(question: str, *, yes: bool) -> None:
    """Go on, or leave: with --yes, or by a person at the terminal."""
    from assistant_runner.errors import UsageError

    if yes:
        return
    if not sys.stdin.isatty():
        raise UsageError(f"{question} Nobody is there to answer", remedy="give --yes")
    if not typer.confirm(question, err=True):
        raise typer.Exit(0)


def _print_json(document: Any) -> None:
    typer.echo(json.dumps(document, ensure_ascii=False, indent=2, default=str))
