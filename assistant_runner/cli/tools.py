"""`assistant-runner tools`: list, show, schema, lint, call, new, convert."""

import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from assistant_runner.cli.edge import run_async
from assistant_runner.cli.groups import Group, Number, argument
from assistant_runner.cli.options import PATH, json_option
from assistant_runner.errors import printable

if TYPE_CHECKING:
    from assistant_runner.settings import LoadedSettings
    from assistant_runner.tooling.contract import Tool, ToolOutcome

app = Group("tools", help="Look at tools, call one alone, write a new one.")

names_argument = argument(
    "names", nargs=-1, help="Names, path.py:name or package.module:name. Without any: all that can be found."
)
folder_option = click.option("--folder", type=PATH, help="A folder of tool modules of your own.")


@app.command("list")
@folder_option
@json_option
def list_tools(folder: Path | None, as_json: bool) -> None:
    """Every tool that can be found by name, and the modules that cannot be loaded."""
    from assistant_runner.tooling.registry import find_tools

    catalogue = find_tools(folder=_folder(folder))
    if as_json:
        _print([_document(tool) for tool in catalogue.tools.values()])
    else:
        rows = [(tool.name, tool.kind, tool.effects, tool.description) for tool in catalogue.tools.values()]
        _table(("NAME", "KIND", "EFFECTS", "DESCRIPTION"), rows)
    for problem in catalogue.problems:
        click.echo(printable(f"not loaded: {problem}"), err=True)


@app.command()
@argument("name")
@folder_option
@json_option
def show(name: str, folder: Path | None, as_json: bool) -> None:
    """Everything about one tool."""
    tool = _load_one(name, folder)
    document = _document(tool)
    if as_json:
        _print(document)
        return
    for key, value in document.items():
        if value not in ("", None):
            text = json.dumps(value, ensure_ascii=False, indent=2) if isinstance(value, dict) else str(value)
            click.echo(printable(f"{key}: {text}"))


@app.command()
@names_argument
@folder_option
def schema(names: tuple[str, ...], folder: Path | None) -> None:
    """The definitions as the model gets them, as JSON: one object for one name, else a list."""
    definitions = [tool.definition().function.document() for tool in _load(names, folder)[0]]
    _print(definitions[0] if names and len(definitions) == 1 else definitions)


@app.command()
@names_argument
@folder_option
@click.option("--profile", default="default", help="default or pangu.")
@json_option
def lint(
    names: tuple[str, ...],
    folder: Path | None,
    profile: str,
    as_json: bool,
) -> int:
    """What a model would stumble over. Exit status 3 if there is an error among the findings, or a module
    that cannot be loaded."""
    from assistant_runner.errors import ConfigurationError, UsageError
    from assistant_runner.tooling.linting import lint as judge

    if profile not in ("default", "pangu"):
        raise UsageError(f"there is no profile {profile!r}", remedy="use default or pangu")
    tools, problems = _load(names, folder)
    findings = judge(tools, profile="pangu" if profile == "pangu" else "default")
    if as_json:
        _print([{"tool": one.tool, "level": one.level, "message": one.message} for one in findings])
    else:
        for one in findings:
            click.echo(printable(f"{one.tool}: {one.level}: {one.message}"))
    errors = sum(one.level == "error" for one in findings)
    click.echo(f"{len(findings)} findings, {errors} of them errors", err=True)
    return ConfigurationError.exit_status if errors or problems else 0


@app.command()
@argument("name", help="A name, path.py:name or package.module:name.")
@argument("arguments", default="{}", help="The arguments as a JSON object [{}]; - reads stdin.")
@folder_option
@click.option(
    "--raw", is_flag=True, help="The whole HTTP reply: statusLine, headers, entity, _debug, original."
)
@click.option("--offline", is_flag=True, default=None, help="Recorded replies, no network.")
@click.option("--allow-host", multiple=True, help="A private host that may be reached. Repeatable.")
@click.option("--timeout", "timeout_s", type=Number(min=0.001), help="Seconds.")
@click.option("--question", default="", show_default=False, help="What a summary should answer.")
def call(
    name: str,
    arguments: str,
    folder: Path | None,
    raw: bool,
    offline: bool | None,
    allow_host: tuple[str, ...],
    timeout_s: float | None,
    question: str,
) -> int:
    """Call one tool alone, with checked arguments. Exit status 7 if the call fails."""
    from assistant_runner.errors import ToolStopped
    from assistant_runner.settings import load_settings
    from assistant_runner.tooling.arguments import Rejection, parse_arguments
    from assistant_runner.tooling.encoding import to_text

    flags = {
        "offline": offline,
        "tool_timeout_s": timeout_s,
        "allow_hosts": allow_host or None,
    }
    loaded = load_settings(flags, environ=os.environ, cwd=Path.cwd())
    tool = _load_one(name, folder)
    given = parse_arguments(sys.stdin.read() if arguments == "-" else arguments, tool)
    if isinstance(given, Rejection):
        raise ToolStopped(given.reason, remedy=f"assistant-runner tools schema {name}")
    if loaded.settings.offline:
        click.echo("offline: replies are recordings", err=True)
    outcome = run_async(_call(tool, given, loaded, question))
    for note in outcome.notes:
        click.echo(printable(f"note: {note}"), err=True)
    if raw and (document := _raw_document(tool, given, outcome, loaded.environ)) is not None:
        _print(document)
        if not outcome.is_error:
            return 0
    if outcome.waits_for is not None:
        _print(outcome.waits_for)
        return 0
    if outcome.is_error:
        raise ToolStopped(to_text(outcome.content))
    text = outcome.content if isinstance(outcome.content, str) else _pretty(outcome.content)
    click.echo(printable(text) if sys.stdout.isatty() else text)
    return 0


@app.command()
@argument("name")
@click.option("--folder", type=PATH, default=Path("."), help="Where the two files go.")
def new(
    name: str,
    folder: Path,
) -> None:
    """Write a working tool and its test."""
    from assistant_runner.tooling.template import write_tool

    tool, test = write_tool(name, folder)
    click.echo(str(tool))
    click.echo(str(test))
    click.echo(f'try it: assistant-runner tools call {tool}:{name} \'{{"who": "Ada"}}\'', err=True)


@app.command()
@argument("files", nargs=-1, required=True, help="JSON documents; - reads stdin.")
@click.option("--to", default="openai", help="neutral, openai, responses or converse.")
def convert(
    files: tuple[str, ...],
    to: str,
) -> None:
    """Definitions, messages or a model's answer in another provider's form."""
    from assistant_runner.errors import UsageError
    from assistant_runner.tooling.neutral import FORMS, convert, merge_tools

    if to not in FORMS:
        raise UsageError(f"there is no form {to!r}", remedy=f"use one of {', '.join(FORMS)}")
    documents = [_read_json(name) for name in files]
    document = documents[0] if len(documents) == 1 else merge_tools(*documents)
    notes: list[str] = []
    _print(convert(document, to, notes=notes))
    for note in notes:
        click.echo(printable(f"note: {note}"), err=True)


def _read_json(name: str) -> Any:
    from assistant_runner.errors import UsageError

    try:
        text = sys.stdin.read() if name == "-" else Path(name).read_text(encoding="utf-8-sig")
        return json.loads(text)
    except (OSError, ValueError) as error:
        words = error.strerror if isinstance(error, OSError) else str(error)
        raise UsageError(f"{name} is no JSON document: {words}", remedy="name a JSON file") from None


async def _call(tool: "Tool", arguments: Any, loaded: "LoadedSettings", question: str) -> "ToolOutcome":
    """The outcome through the gate; whoever calls a tool by hand has approved it."""
    from assistant_runner.tooling.contract import ToolContext
    from assistant_runner.tooling.fetcher import guarded_client
    from assistant_runner.tooling.gate import ToolGate
    from assistant_runner.tooling.policy import Policy, PolicyRule
    from assistant_runner.tooling.recorded import recorded_client

    settings = loaded.settings
    client = (
        recorded_client()
        if settings.offline
        else guarded_client(allow_hosts=settings.allow_hosts, ca_file=settings.ca_file)
    )
    policy = Policy(rules=(PolicyRule(tool="*", action="allow", even_with_fetched_text=True),))
    gate = ToolGate(policy=policy, output_cap=settings.output_cap)
    async with client as http:
        context = ToolContext(
            tool_call_id="call_by_hand",
            http=http,
            environ=loaded.environ,
            deadline_s=settings.tool_timeout_s,
            question=question,
            recorded=settings.offline,
        )
        return await gate.call(tool, arguments, context)


def _raw_document(
    tool: "Tool", arguments: Any, outcome: "ToolOutcome", environ: Mapping[str, str]
) -> list[Any] | None:
    """The whole reply with the call as its `original` (row S1.23); None if there was no HTTP reply."""
    from assistant_runner.tooling.contract import HttpReply
    from assistant_runner.tooling.encoding import to_plain
    from assistant_runner.tooling.masking import Masker, secrets_of

    if not isinstance(outcome.raw, HttpReply):
        return None
    function = {
        "name": tool.name,
        "arguments": json.dumps(arguments, ensure_ascii=False),
        "json_arguments": arguments,
    }
    document = outcome.raw.document({"id": "call_by_hand", "type": "function", "function": function})
    return [Masker(secrets_of(environ)).mask_value(to_plain(document)[0])]


def _load(names: Sequence[str], folder: Path | None) -> tuple[list["Tool"], Sequence[str]]:
    """The tools, and in words the modules that cannot be loaded, which were said."""
    from assistant_runner.tooling.registry import find_tools, load_tools

    if names:
        return list(load_tools(names, folder=_folder(folder), cwd=Path.cwd()).values()), ()
    catalogue = find_tools(folder=_folder(folder))
    for problem in catalogue.problems:
        click.echo(printable(f"not loaded: {problem}"), err=True)
    return list(catalogue.tools.values()), catalogue.problems


def _load_one(name: str, folder: Path | None) -> "Tool":
    from assistant_runner.errors import UsageError

    found, _ = _load([name], folder)
    if len(found) > 1:
        names = ", ".join(tool.name for tool in found)
        raise UsageError(f"{name} holds several tools: {names}", remedy=f"name one: {name}:{found[0].name}")
    return found[0]


def _folder(folder: Path | None) -> Path | None:
    """The folder asked for, else the one of the settings, else `tools` of the user's config folder."""
    from assistant_runner.settings import load_settings

    if folder is not None:
        return folder
    loaded = load_settings({}, environ=os.environ, cwd=Path.cwd())
    named = loaded.settings.tools_folder
    return Path(named) if named else loaded.folders.config / "tools"


def _document(tool: "Tool") -> dict[str, Any]:
    return {
        "name": tool.name,
        "kind": tool.kind,
        "description": tool.description,
        "when_to_use": tool.when_to_use,
        "effects": tool.effects,
        "approval": tool.approval,
        "timeout_s": tool.timeout_s,
        "retries": tool.retries,
        "select": tool.select,
        "fetches": tool.fetches,
        "strict": tool.strict,
        "source": tool.source,
        "parameters": dict(tool.parameters),
        "output_schema": None if tool.output_schema is None else dict(tool.output_schema),
    }


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> None:
    """Columns as wide as they must be; the last one runs free."""
    widths = [max(len(row[index]) for row in [head, *rows]) for index in range(len(head) - 1)]
    for row in [head, *rows]:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=False)]
        click.echo(printable("  ".join([*cells, row[-1]])))


def _print(document: Any) -> None:
    click.echo(_pretty(document))


def _pretty(document: Any) -> str:
    return json.dumps(document, ensure_ascii=False, indent=2)
