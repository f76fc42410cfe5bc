"""`assistant-runner models`: which models can be reached from here, and what they can do."""

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from assistant_runner.cli.edge import run_async
from assistant_runner.cli.groups import Group, argument
from assistant_runner.cli.options import json_option, option, shared
from assistant_runner.errors import printable

if TYPE_CHECKING:
    from assistant_runner.settings import LoadedSettings

MARKS = {True: "tools", False: "no tools", None: "tools?"}


@dataclass(frozen=True)
class EngineChoice:
    """Whose models are meant."""

    engine: str | None = option("--engine", help="auto, responses, chat, planner or script.")
    engine_base_url: str | None = option("--engine-base-url", help="Where the engine's API answers.")
    offline: bool | None = option(
        "--offline", is_flag=True, default=None, help="Ask nobody: what is built in."
    )

    def load(self) -> "LoadedSettings":
        """The settings with these flags on top."""
        from assistant_runner.settings import load_settings

        return load_settings(asdict(self), environ=os.environ, cwd=Path.cwd())


engine_options = shared(EngineChoice, "choice")


@click.group(
    "models", cls=Group, invoke_without_command=True, help="Models that can be reached, and what they can do."
)
@json_option
@engine_options
@click.pass_context
def app(
    context: click.Context,
    as_json: bool,
    choice: EngineChoice,
) -> None:
    """List the models that can be reached: of the engine that would be chosen, of local servers."""
    if context.invoked_subcommand is not None:
        return
    rows = run_async(_rows(choice.load()))
    if as_json:
        click.echo(json.dumps(rows, ensure_ascii=False, indent=2))
        return
    width = max(len(row["id"]) for row in rows)
    for row in rows:
        leaves = f"  leaves {row['shutdown_date']}" if row.get("shutdown_date") else ""
        mark = "*" if row["chosen"] else " "
        tools = MARKS[row["supports"]["tools"]]
        click.echo(printable(f"{mark} {row['id']:<{width}}  {tools:<8}  {row['at']}{leaves}"))


@app.command()
@argument("name", help="A model's id, or an alias of the config.")
@json_option
@engine_options
def show(
    name: str,
    as_json: bool,
    choice: EngineChoice,
) -> None:
    """What is known about one model, also about OpenAI's models when no key is set."""
    row = run_async(_row(name, choice.load()))
    if as_json:
        click.echo(json.dumps(row, ensure_ascii=False, indent=2))
        return
    for key, value in row.items():
        shown = MARKS[value["tools"]] if key == "supports" else value
        click.echo(printable(f"{key}: {shown}"))


async def _rows(loaded: "LoadedSettings") -> list[dict[str, Any]]:
    from assistant_runner.assembly import open_engine
    from assistant_runner.service.engines.listing import list_reachable

    engine = await open_engine(loaded)
    try:
        return await list_reachable(engine, offline=loaded.settings.offline)
    finally:
        await engine.aclose()


async def _row(name: str, loaded: "LoadedSettings") -> dict[str, Any]:
    from assistant_runner.service.engines.listing import find_model

    return await find_model(name, await _rows(loaded), loaded.settings.model_aliases)
