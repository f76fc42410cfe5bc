"""`thread import|export`: threads carried from one place to another."""

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from assistant_runner.cli.groups import Group, argument
from assistant_runner.cli.options import PATH, backend_option, data_option
from assistant_runner.errors import printable

if TYPE_CHECKING:
    from assistant_runner.settings import LoadedSettings

app = Group("thread", help="Threads: import and export.")


@app.command("import")
@argument("file", type=PATH, help="JSON or JSON lines: threads and messages, dumped or exported.")
@backend_option
@data_option
@click.option("--again", is_flag=True, help="As new threads, even if imported before.")
@click.option("--dry-run", is_flag=True, help="Only say what would be imported.")
@click.option("--json", "as_json", is_flag=True, help="The report as one JSON document.")
def import_command(
    file: Path,
    backend: str | None,
    data: str | None,
    again: bool,
    dry_run: bool,
    as_json: bool,
) -> int:
    """Import threads, once: the same file again adds nothing. Exits with 16 if a thread is not whole."""
    from assistant_runner.assembly import open_backend
    from assistant_runner.cli.edge import run_async
    from assistant_runner.errors import ConfigurationError
    from assistant_runner.setup.dumps import read_dump
    from assistant_runner.setup.threads import Ledger, ThreadReport, import_thread, read_threads

    loaded = _settings(backend, data)
    dumps, strangers = read_threads(read_dump(file), name=file.name)
    if not dumps:
        found = f" (found {', '.join(strangers)})" if strangers else ""
        raise ConfigurationError(
            f"{file}: no thread and no message in it{found}", remedy="is it the right file?"
        )
    reports: list[ThreadReport] = []

    async def work() -> None:
        ledger = Ledger.read(loaded.folders.state / "imported-threads.json")
        async with open_backend(loaded) as (opened, _):
            for dump in dumps:
                reports.append(await import_thread(opened, dump, ledger, again=again))

    if dry_run:
        for dump in dumps:
            words = "would be imported"
            reports.append(
                ThreadReport(dump.source, words, None, dump.read, 0, dump.text_hash, lost=dump.lost)
            )
    else:
        run_async(work())
    _show(reports, strangers, as_json)
    return 0 if all(one.is_whole for one in reports) else 16


def _show(reports: Any, strangers: list[str], as_json: bool) -> None:
    totals = {
        "threads": len(reports),
        "messages_read": sum(one.read for one in reports),
        "messages_written": sum(one.written for one in reports),
        "whole": all(one.is_whole for one in reports),
    }
    if as_json:
        document = {**totals, "items": [one.document() for one in reports], "not_threads": strangers}
        click.echo(json.dumps(document, ensure_ascii=False, indent=2))
        return
    for one in reports:
        click.echo(
            f"{one.source}\t{one.thread_id or '-'}\t{one.status}\t{one.written} of {one.read} messages"
        )
        if not one.is_whole:
            click.secho(
                "  the backend shows other texts, or another order, than were sent", fg="red", err=True
            )
        for word in one.lost:
            click.echo(printable(f"  not carried over: {word}"), err=True)
    for word in strangers:
        click.echo(printable(f"not imported: {word}"), err=True)
    click.echo(f"{totals['threads']} threads, {totals['messages_written']} messages written", err=True)


@app.command()
@argument("threads", nargs=-1, required=True, metavar="THREAD...", help="Ids of threads.")
@click.option("--output", "-o", type=PATH, default=Path("-"), help="Where to; - is stdout.")
@backend_option
@data_option
def export(
    threads: tuple[str, ...],
    output: Path,
    backend: str | None,
    data: str | None,
) -> None:
    """Export threads as JSON lines: each thread, then its messages, oldest first."""
    from assistant_runner.assembly import open_backend
    from assistant_runner.cli.edge import run_async
    from assistant_runner.setup.threads import export_hash, export_lines, export_thread

    loaded = _settings(backend, data)
    lines: list[str] = []

    async def work() -> None:
        async with open_backend(loaded) as (opened, _):
            for ident in threads:
                thread, messages = await export_thread(opened, ident)
                lines.extend(export_lines(thread, messages))
                digest = export_hash(messages)
                click.echo(f"{ident}: {len(messages)} messages, sha256 of texts {digest}", err=True)

    run_async(work())
    text = "".join(f"{line}\n" for line in lines)
    if str(output) == "-":
        sys.stdout.write(text)
    else:
        write_whole(output, text)


def write_whole(path: Path, text: str) -> None:
    """Write a file, whole or not at all; ConfigurationError if it cannot be written."""
    from assistant_runner.errors import ConfigurationError

    part = path.with_name(f".{path.name}.part")
    try:
        part.write_text(text, encoding="utf-8")
        os.replace(part, path)
    except OSError as error:
        part.unlink(missing_ok=True)
        words = f"{path}: cannot be written: {error.strerror or error}"
        raise ConfigurationError(words, remedy="name a folder that you can write to") from None


def _settings(backend: str | None, data: str | None) -> "LoadedSettings":
    from assistant_runner.settings import load_settings

    flags = {"backend": backend, "data_folder": data}
    return load_settings(flags, environ=os.environ, cwd=Path.cwd())
