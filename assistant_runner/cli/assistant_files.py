"""`assistant import|init`: assistant files written from a backend, a dump, an example, or a few answers."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from assistant_runner.cli.assistant_options import open_backend_of, print_json, settings_of, tools_folder
from assistant_runner.cli.groups import Command, argument
from assistant_runner.cli.options import PATH, backend_option, data_option, json_option
from assistant_runner.errors import printable


@click.command("import", cls=Command)
@argument("references", nargs=-1, metavar="[ASSISTANT]...", help="Ids or names of assistants on the backend.")
@click.option(
    "--from", "source", type=PATH, metavar="FILE", help="A dump: assistants, Foundry agents, prompt exports."
)
@click.option(
    "--output",
    "-o",
    type=PATH,
    default=Path("assistant.yaml"),
    help="The assistant file to write; - is stdout.",
)
@click.option("--keep-ids", is_flag=True, help="Keep ids of files and vector stores of a dump.")
@click.option("--force", is_flag=True, help="Write over a file that says something else.")
@click.option("--dry-run", is_flag=True, help="Only say what would be written.")
@backend_option
@data_option
@json_option
def import_command(
    references: tuple[str, ...],
    source: Path | None,
    output: Path,
    keep_ids: bool,
    force: bool,
    dry_run: bool,
    backend: str | None,
    data: str | None,
    as_json: bool,
) -> None:
    """Write an assistant file from what a backend has, or from a dump of the old API."""
    from assistant_runner.errors import UsageError

    if bool(references) == bool(source):
        raise UsageError("expected an assistant of the backend or --from FILE", remedy="give one of the two")
    if source:
        text, report = _rescue(source, keep_ids=keep_ids)
    else:
        text, report = _import_from_backend(references, backend, data, output)
    status = _write_file(output, text, force=force, dry_run=dry_run)
    if as_json:
        print_json({**report, "output": str(output), "status": status})
        return
    for one in report["assistants"]:
        click.echo(printable(f"{status}\t{one['source']}\t{one['name']}"), err=True)
        for word in one["not_carried_over"]:
            click.echo(printable(f"  not carried over: {word}"), err=True)
    for word in report["not_assistants"]:
        click.echo(printable(f"no assistant: {word}"), err=True)


def _rescue(source: Path, *, keep_ids: bool) -> tuple[str, dict[str, Any]]:
    from assistant_runner.errors import ConfigurationError
    from assistant_runner.setup.rescue import rescue

    found = rescue(source, keep_ids=keep_ids)
    if not found.found:
        words = "; ".join(found.strangers) or "nothing"
        raise ConfigurationError(f"{source}: no assistant in it, but {words}", remedy="is it the right file?")
    return found.file_text(), found.report()


def _import_from_backend(
    references: Sequence[str], backend: str | None, data: str | None, output: Path
) -> tuple[str, dict[str, Any]]:
    from assistant_runner.cli.edge import run_async
    from assistant_runner.setup.finding import find_assistant
    from assistant_runner.setup.rescue import Rescue, Rescued
    from assistant_runner.setup.writing import file_document
    from assistant_runner.tooling.registry import find_tools

    loaded = settings_of(backend, data)
    local = [tool.definition().document() for tool in find_tools(folder=tools_folder(loaded)).tools.values()]
    found = Rescue(Path(loaded.settings.backend))

    async def work() -> None:
        async with open_backend_of(loaded) as opened:
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
        click.echo(text, nl=False)
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


@click.command("init", cls=Command)
@argument(
    "path", type=PATH, default=Path("."), help="The file to write, or the folder of an example [this folder]."
)
@click.option("--name", help="The assistant's name.")
@click.option("--model", "-m", help="For files that name no model.")
@click.option("--instructions", help="Its system prompt.")
@click.option("--tool", "-t", multiple=True, help="A tool. Repeatable.")
@click.option("--file", multiple=True, help="A file or glob to search in. Repeatable.")
@click.option("--example", help="Copy a worked example instead; ? lists them.")
@click.option("--force", is_flag=True, help="Write over what is there.")
def init(
    path: Path,
    name: str | None,
    model: str | None,
    instructions: str | None,
    tool: tuple[str, ...],
    file: tuple[str, ...],
    example: str | None,
    force: bool,
) -> None:
    """Write a first assistant file: by questions at a terminal, by flags, or from an example."""
    from assistant_runner.setup.starting import Answers, copy_example, example_names, first_file

    if example == "?":
        for one in example_names():
            click.echo(one)
        return
    if example:
        for copied in copy_example(example, path, force=force):
            click.echo(str(copied))
        click.echo(f"now: assistant-runner assistant plan {path}", err=True)
        return
    target = path / "assistant.yaml" if path.is_dir() or not path.suffix else path
    asking = sys.stdin.isatty() and not any((name, model, instructions, tool, file))
    default = Answers(name=target.resolve().parent.name or "assistant")
    if asking:
        name = click.prompt("Name", default=default.name, err=True)
        model = click.prompt("Model", default=default.model, err=True)
        instructions = click.prompt("Instructions", default=default.instructions, err=True)
        words = click.prompt(
            "Tools (names, with spaces between)", default="get_weather get_wiki_url", err=True
        )
        tool = tuple(words.split())
        words = click.prompt("Files to search in (paths or globs; none: -)", default="-", err=True)
        file = () if words == "-" else tuple(words.split())
    answers = Answers(
        name=name or default.name,
        model=model or default.model,
        instructions=instructions or default.instructions,
        tools=tool or default.tools,
        files=file,
    )
    target.parent.mkdir(parents=True, exist_ok=True)
    click.echo(f"{_write_file(target, first_file(answers), force=force, dry_run=False)}: {target}", err=True)
    click.echo(f"now: assistant-runner assistant plan {target}", err=True)
