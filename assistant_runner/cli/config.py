"""`config schema|show`: the schema of an assistant file, the settings and where they come from."""

import json
import os
import re
from pathlib import Path
from typing import Any

import click

from assistant_runner.cli.groups import Group
from assistant_runner.cli.options import json_option

app = Group("config", help="Settings, and the schema of assistant files.")

MASKED = "(hidden)"
PASSWORD = re.compile(r"(//[^:@/]*:)[^@/]*@")


@app.command()
def schema() -> None:
    """Print the JSON Schema of an assistant file, for your editor."""
    from assistant_runner.setup.file_schema import file_schema

    click.echo(json.dumps(file_schema(), ensure_ascii=False, indent=2))


@app.command()
@click.option("--origin", is_flag=True, help="Also where each value comes from.")
@click.option("--assistant", "-a", help="Count in what this assistant file says.")
@click.option("--profile", help="Its profile.")
@json_option
def show(
    origin: bool,
    assistant: str | None,
    profile: str | None,
    as_json: bool,
) -> None:
    """Show the settings that hold here: environment over assistant file, project file, user file."""
    from assistant_runner.settings import lay_assistant_file, load_settings
    from assistant_runner.setup.finding import find_spec

    cwd = Path.cwd()
    loaded = load_settings({}, environ=os.environ, cwd=cwd)
    spec, _ = find_spec(
        assistant or loaded.settings.assistant,
        cwd=cwd,
        environ=os.environ,
        profile=profile or loaded.settings.profile,
    )
    if spec is not None:
        loaded = lay_assistant_file(loaded, str(spec.source), spec.settings_layer())
    values: dict[str, Any] = loaded.settings.model_dump(mode="json")
    if values["backend_headers"]:
        values["backend_headers"] = dict.fromkeys(values["backend_headers"], MASKED)
    for name in ("backend", "engine_base_url", "proxy"):
        if values[name]:
            values[name] = PASSWORD.sub(rf"\1{MASKED}@", values[name])
    folders = {
        f"{name}_folder": str(getattr(loaded.folders, name)) for name in ("config", "data", "state", "cache")
    }
    if as_json:
        document: dict[str, Any] = {"settings": values, "folders": folders}
        if origin:
            document["origins"] = dict(loaded.origins)
        click.echo(json.dumps(document, ensure_ascii=False, indent=2))
        return
    for name, value in values.items():
        where = f"  # {loaded.origins[name]}" if origin else ""
        click.echo(f"{name} = {json.dumps(value, ensure_ascii=False)}{where}")
    for name, path in folders.items():
        click.echo(f"# {name}: {path}")
