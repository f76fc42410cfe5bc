"""`assistant-runner models`: which models can be reached from here, and what they can do."""

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from assistant_runner.cli.edge import run_async

if TYPE_CHECKING:
    from assistant_runner.settings import LoadedSettings

app = typer.Typer(invoke_without_command=True, help="Models that can be reached, and what they can do.")

AsJson = Annotated[bool, typer.Option("--json", help="One JSON document.")]
Engine = Annotated[str | None, typer.Option("--engine", help="auto, responses, chat, planner or script.")]
BaseUrl = Annotated[str | None, typer.Option("--engine-base-url", help="Where the engine's API answers.")]
Offline = Annotated[bool | None, typer.Option("--offline", help="Ask nobody: what is built in.")]
MARKS = {True: "tools", False: "no tools", None: "tools?"}


@app.callback()
def list_models(
    context: typer.Context,
    as_json: AsJson = False,
    engine: Engine = None,
    engine_base_url: BaseUrl = None,
    offline: Offline = None,
) -> None:
    """List the models that can be reached: of the engine that would be chosen, of local servers."""
    if context.invoked_subcommand is not None:
        return
    rows = run_async(_rows(_load(engine, engine_base_url, offline)))
    if as_json:
        typer.echo(json.dumps(rows, ensure_ascii=False, indent=2))
        return
    width = max(len(row["id"]) for row in rows)
    for row in rows:
        leaves = f"  leaves {row['shutdown_date']}" if row.get("shutdown_date") else ""
        mark = "*" if row["chosen"] else " "
        typer.echo(f"{mark} {row['id']:<{width}}  {MARKS[row['supports']['tools']]:<8}  {row['at']}{leaves}")


@app.command()
def show(
    name: Annotated[str, typer.Argument(help="A model's id, or an alias of the config.")],
    as_json: AsJson = False,
    engine: Engine = None,
    engine_base_url: BaseUrl = None,
    offline: Offline = None,
) -> None:
    """What is known about one model, also about OpenAI's models when no key is set."""
    row = run_async(_row(name, _load(engine, engine_base_url, offline)))
    if as_json:
        typer.echo(json.dumps(row, ensure_ascii=False, indent=2))
        return
    for key, value in row.items():
        shown = MARKS[value["tools"]] if key == "supports" else value
        typer.echo(f"{key}: {shown}")


def _load(engine: str | None, base_url: str | None, offline: bool | None) -> "LoadedSettings":
    from assistant_runner.settings import load_settings

    flags = {"engine": engine, "engine_base_url": base_url, "offline": offline}
    return load_settings(flags, environ=os.environ, cwd=Path.cwd())


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
