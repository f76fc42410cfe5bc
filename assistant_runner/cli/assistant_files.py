"""`assistant import|init`: assistant files written from a backend, a dump, an example, or a few answers."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from assistant_runner.cli.assistant_options import (
    BackendOption,
    DataOption,
    JsonOption,
    ModelOption,
    open_backend_of,
    print_json,
    settings_of,
    tools_folder,
)


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("import")(import_command)
    app.command("init")(init)


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
        print_json({**report, "output": str(output), "status": status})
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
