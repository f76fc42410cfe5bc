"""`doctor`: one look at everything that can stand in the way, and what to do about it."""

import json
import os
from pathlib import Path
from typing import Annotated

import typer

from assistant_runner.cli.edge import run_async

MARKS = {"ok": "ok", "note": "--", "warning": "!!", "fault": "XX"}


def register(app: typer.Typer) -> None:
    app.command("doctor")(doctor)


def doctor(
    json_: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
    offline: Annotated[bool, typer.Option("--offline", help="Open no socket.")] = False,
    backend: Annotated[str | None, typer.Option("--backend", help="Look at this backend.")] = None,
) -> None:
    """Check configuration, keys, backend, proxy, clock, folders, tools and local servers."""
    from assistant_runner.doctor import diagnose
    from assistant_runner.settings import load_settings

    loaded = load_settings({"backend": backend}, environ=os.environ, cwd=Path.cwd())
    diagnosis = run_async(diagnose(loaded, cwd=Path.cwd(), offline=offline or loaded.settings.offline))
    if json_:
        typer.echo(json.dumps(diagnosis.document(), ensure_ascii=False, indent=2))
    else:
        for finding in diagnosis.findings:
            typer.echo(f"{MARKS[finding.state]}  {finding.check}: {finding.found}")
            if finding.remedy:
                typer.echo(f"      {finding.remedy}")
    raise typer.Exit(diagnosis.exit_status)
