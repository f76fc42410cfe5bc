"""`doctor`: one look at everything that can stand in the way, and what to do about it."""

import json
import os
from pathlib import Path

import click

from assistant_runner.cli.edge import run_async
from assistant_runner.cli.groups import Command
from assistant_runner.cli.options import json_option
from assistant_runner.errors import printable

MARKS = {"ok": "ok", "note": "--", "warning": "!!", "fault": "XX"}


@click.command("doctor", cls=Command)
@json_option
@click.option("--offline", is_flag=True, help="Open no socket.")
@click.option("--backend", help="Look at this backend.")
def doctor(
    as_json: bool,
    offline: bool,
    backend: str | None,
) -> int:
    """Check configuration, keys, backend, proxy, clock, folders, tools and local servers."""
    from assistant_runner.doctor import diagnose
    from assistant_runner.settings import load_settings

    loaded = load_settings({"backend": backend}, environ=os.environ, cwd=Path.cwd())
    diagnosis = run_async(diagnose(loaded, cwd=Path.cwd(), offline=offline or loaded.settings.offline))
    if as_json:
        click.echo(json.dumps(diagnosis.document(), ensure_ascii=False, indent=2))
    else:
        for finding in diagnosis.findings:
            click.echo(printable(f"{MARKS[finding.state]}  {finding.check}: {finding.found}"))
            if finding.remedy:
                click.echo(printable(f"      {finding.remedy}"))
    return diagnosis.exit_status
