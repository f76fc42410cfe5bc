"""`assistant plan|apply|show|list|drift|destroy`: assistants as code. `import` and `init` join them."""

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from assistant_runner.cli import assistant_files
from assistant_runner.cli.assistant_options import (
    CHANGES,
    AdoptOption,
    BackendOption,
    DataOption,
    ExitOption,
    JsonOption,
    ModelOption,
    NewOption,
    OnlyOption,
    PathArgument,
    ProfileOption,
    PruneOption,
    RecreateOption,
    Target,
    YesOption,
    after_break,
    confirm,
    open_backend_of,
    open_groups,
    print_json,
    settings_of,
)

if TYPE_CHECKING:
    from assistant_runner.setup.planned import Plan

app = typer.Typer(help="Assistants as code: files that become working assistants.", no_args_is_help=True)


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

    target = Target(path, profile, only, backend, data, model)
    choices = {"recreate": recreate, "adopt": adopt, "new": new}

    async def work() -> "list[Plan]":
        plans = []
        async with open_groups(target, choices) as groups:
            for applier, specs, options in groups:
                plans.append(await applier.plan(specs, options, prune=prune))
        return plans

    plans = run_async(work())
    if as_json:
        print_json(
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

    target = Target(path, profile, only, backend, data, model)
    choices = {"recreate": recreate, "adopt": adopt, "new": new}
    documents: list[dict[str, Any]] = []

    async def work() -> None:
        async with open_groups(target, choices, guard=True, timeout_s=index_timeout) as groups:
            for applier, specs, options in groups:
                found = await applier.plan(specs, options, prune=prune)
                if not as_json:
                    show_plan(found)
                if prune and found.orphans:
                    confirm(f"Delete {len(found.orphans)} assistants and what was made for them?", yes=yes)
                with after_break(applier):
                    for done in await applier.carry_out(found):
                        documents.append({"backend": found.backend, **done.document()})
                        if not as_json:
                            typer.echo(f"{done.assistant_id}\t{done.spec.name}")

    run_async(work())
    if as_json:
        print_json({"changed": any(one["changed"] for one in documents), "assistants": documents})


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

    target = Target(path, profile, only, backend, data, model)

    async def work() -> "list[Drift]":
        found = []
        async with open_groups(target, {"recreate": True}) as groups:
            for applier, specs, _ in groups:
                found += await find_drift(applier, specs)
        return found

    found = run_async(work())
    if as_json:
        print_json({"drift": any(one.is_drift for one in found), "assistants": [d.document() for d in found]})
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
    from assistant_runner.setup.observing import all_pages
    from assistant_runner.wire.assistants import Assistant

    async def work() -> list[Assistant]:
        async with open_backend_of(settings_of(backend, data)) as opened:
            return await all_pages(lambda after: opened.list_assistants(after=after), Assistant)

    found = run_async(work())
    if as_json:
        print_json([one.document() for one in found])
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
    from assistant_runner.setup.finding import find_spec
    from assistant_runner.setup.resolve import Resolved, look_up
    from assistant_runner.setup.writing import file_document, to_yaml

    async def work() -> Resolved:
        spec, _ = find_spec(reference, cwd=Path.cwd(), environ=os.environ)
        loaded = settings_of(backend, data, spec=spec)
        async with open_backend_of(loaded) as opened:
            return await look_up(opened, reference, spec, state=loaded.folders.state)

    assistant = run_async(work()).assistant
    if as_json:
        print_json(assistant.document())
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

    target = Target(path, None, only, backend, data, None)
    done: dict[str, list[str]] = {}

    async def work() -> None:
        async with open_groups(target, {}, guard=True, checked=False) as groups:
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
                confirm(
                    f"Delete {shown} on {applier.backend.label}, and the files uploaded for them?", yes=yes
                )
                with after_break(applier):
                    for identity in recorded:
                        done[identity] = await applier.destroy(identity)

    run_async(work())
    if as_json:
        print_json({"destroyed": done})
        return
    for lines in done.values():
        for line in lines:
            typer.echo(line)
    if not done:
        typer.echo("nothing to destroy: the lock names no assistant of these files", err=True)


assistant_files.register(app)
