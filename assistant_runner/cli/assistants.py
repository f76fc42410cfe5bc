"""`assistant plan|apply|show|list|drift|destroy`: assistants as code. `import` and `init` join them."""

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from assistant_runner.cli import assistant_files
from assistant_runner.cli.assistant_options import (
    CHANGES,
    Choices,
    Target,
    after_break,
    choice_options,
    confirm,
    exit_option,
    open_backend_of,
    open_groups,
    print_json,
    settings_of,
    target_options,
    yes_option,
)
from assistant_runner.cli.groups import Group, argument
from assistant_runner.cli.options import backend_option, data_option, json_option, shared
from assistant_runner.errors import printable

if TYPE_CHECKING:
    from assistant_runner.setup.planned import Plan

app = Group("assistant", help="Assistants as code: files that become working assistants.")


@app.command()
@target_options
@choice_options
@exit_option
@json_option
@click.option("--full", "verbose", is_flag=True, help="Show values whole.")
def plan(
    target: Target,
    choices: Choices,
    detailed_exitcode: bool,
    as_json: bool,
    verbose: bool,
) -> int:
    """Show what apply would do. Writes nothing anywhere."""
    from assistant_runner.cli.edge import run_async
    from assistant_runner.cli.plan_view import show_plan

    async def work() -> "list[Plan]":
        plans = []
        async with open_groups(target, choices) as groups:
            for applier, specs, options in groups:
                plans.append(await applier.plan(specs, options, prune=choices.prune))
        return plans

    plans = run_async(work())
    if as_json:
        print_json(
            {"changes": any(not one.is_empty for one in plans), "plans": [p.document() for p in plans]}
        )
    else:
        for one in plans:
            show_plan(one, verbose=verbose)
    return CHANGES if detailed_exitcode and any(not one.is_empty for one in plans) else 0


@app.command()
@target_options
@choice_options
@yes_option
@click.option("--index-timeout", type=float, default=600.0, help="Seconds to wait for the files of a store.")
@json_option
def apply(
    target: Target,
    choices: Choices,
    yes: bool,
    index_timeout: float,
    as_json: bool,
) -> None:
    """Make the backend as the files say. A second apply writes nothing."""
    from assistant_runner.cli.edge import run_async
    from assistant_runner.cli.plan_view import show_plan

    documents: list[dict[str, Any]] = []

    async def work() -> None:
        async with open_groups(target, choices, guard=True, timeout_s=index_timeout) as groups:
            for applier, specs, options in groups:
                found = await applier.plan(specs, options, prune=choices.prune)
                if not as_json:
                    show_plan(found)
                if choices.prune and found.orphans:
                    confirm(f"Delete {len(found.orphans)} assistants and what was made for them?", yes=yes)
                with after_break(applier):
                    for done in await applier.carry_out(found):
                        documents.append({"backend": found.backend, **done.document()})
                        if not as_json:
                            click.echo(f"{done.assistant_id}\t{done.spec.name}")

    run_async(work())
    if as_json:
        print_json({"changed": any(one["changed"] for one in documents), "assistants": documents})


@app.command()
@target_options
@exit_option
@json_option
def drift(
    target: Target,
    detailed_exitcode: bool,
    as_json: bool,
) -> int:
    """Show what somebody changed by hand since the last apply."""
    from assistant_runner.cli.edge import run_async
    from assistant_runner.setup.drift import Drift, find_drift

    async def work() -> "list[Drift]":
        found = []
        async with open_groups(target, Choices(recreate=True)) as groups:
            for applier, specs, _ in groups:
                found += await find_drift(applier, specs)
        return found

    found = run_async(work())
    if as_json:
        print_json({"drift": any(one.is_drift for one in found), "assistants": [d.document() for d in found]})
    else:
        for one in found:
            _show_drift(one)
    return CHANGES if detailed_exitcode and any(one.is_drift for one in found) else 0


def _show_drift(one: Any) -> None:
    if not one.is_drift:
        click.echo(printable(f"  {one.name} ({one.assistant_id}): as applied"))
        return
    click.secho(printable(f"! {one.name}: {one.what}"), fg="yellow")
    for field, before in one.fields.items():
        click.echo(printable(f"    {field}: {json.dumps(before, ensure_ascii=False)[:300]}"))


@app.command("list")
@backend_option
@data_option
@json_option
def list_command(
    backend: str | None,
    data: str | None,
    as_json: bool,
) -> None:
    """List the assistants of the backend, newest first."""
    from assistant_runner.cli.edge import run_async
    from assistant_runner.setup.finding import all_pages
    from assistant_runner.setup.model import IDENTITY_KEY
    from assistant_runner.wire.assistants import Assistant

    async def work() -> list[Assistant]:
        async with open_backend_of(settings_of(backend, data)) as opened:
            return await all_pages(lambda after: opened.list_assistants(after=after))

    found = run_async(work())
    if as_json:
        print_json([one.document() for one in found])
        return
    for one in found:
        ours = (one.metadata or {}).get(IDENTITY_KEY)
        words = f"{one.id}\t{one.name or '-'}\t{one.model}\t{'from a file' if ours is not None else ''}"
        click.echo(printable(words.rstrip()))
    if not found:
        click.echo("no assistants", err=True)


@app.command()
@argument("reference", help="An id, a name, or a file.")
@backend_option
@data_option
@click.option("--json", "as_json", is_flag=True, help="The object as the backend has it.")
def show(
    reference: str,
    backend: str | None,
    data: str | None,
    as_json: bool,
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
        click.echo(to_yaml(file_document(assistant), head=assistant.id), nl=False)


@app.command()
@shared(Target, "target", without=("profile", "model"))
@yes_option
@json_option
def destroy(
    target: Target,
    yes: bool,
    as_json: bool,
) -> None:
    """Delete what apply made for these files: assistants, vector stores, uploaded files.

    What was there before us is left alone.
    """
    from assistant_runner.cli.edge import run_async

    done: dict[str, list[str]] = {}

    async def work() -> None:
        async with open_groups(target, Choices(), guard=True, checked=False) as groups:
            for applier, specs, _ in groups:
                names = {applier.name_of(spec.source) for spec in specs}
                chosen = {spec.identity for spec in specs}
                recorded = [
                    identity
                    for identity, record in applier.records.assistants.items()
                    if identity in chosen or (not target.names and record.file in names)
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
            click.echo(line)
    if not done:
        click.echo("nothing to destroy: the lock names no assistant of these files", err=True)


app.add_command(assistant_files.import_command)
app.add_command(assistant_files.init)
