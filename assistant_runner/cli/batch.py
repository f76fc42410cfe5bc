"""`batch`: many prompts in, one result row each out; resumable, paced, checked."""

import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from assistant_runner.cli.edge import run_async
from assistant_runner.cli.options import RunnerOptions, runner_options
from assistant_runner.errors import UsageError

if TYPE_CHECKING:
    from assistant_runner.batch.invocation import BatchOutcome, BatchRequest

app = typer.Typer(no_args_is_help=True, help="Many prompts in, one result row each out.")
FORMATS = ("auto", "jsonl", "json", "csv", "tsv", "lines")
DETACH_WAIT_S = 15.0

OutputArgument = Annotated[Path, typer.Argument(help="The output of a batch run.", metavar="OUTPUT")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]


def register(root: typer.Typer) -> None:
    root.add_typer(app, name="batch")


@app.command("run")
@runner_options
def run(
    input_: Annotated[
        str,
        typer.Argument(
            help="Prompts: JSONL, JSON, CSV, TSV or plain lines; - is standard input.", metavar="INPUT"
        ),
    ] = "-",
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Where results go; without it to stdout, not resumable."),
    ] = None,
    form: Annotated[
        str, typer.Option("--format", help=f"Of the input: {', '.join(FORMATS)}.", metavar="FORMAT")
    ] = "auto",
    encoding: Annotated[str | None, typer.Option("--encoding", help="Of the input, such as cp1252.")] = None,
    comments: Annotated[
        str | None,
        typer.Option("--comments", help="Leave out lines that begin so, such as #.", metavar="MARK"),
    ] = None,
    prompt_column: Annotated[str, typer.Option("--prompt-column", help="The column to ask.")] = "prompt",
    id_column: Annotated[str, typer.Option("--id-column", help="The column that names a row.")] = "id",
    template: Annotated[
        str | None,
        typer.Option(
            "--template", help="A prompt with {{ columns }}: a text, or a file.", metavar="TEXT|FILE"
        ),
    ] = None,
    output_format: Annotated[
        str | None, typer.Option("--output-format", help="jsonl or csv; by the output's suffix if not given.")
    ] = None,
    unordered: Annotated[bool, typer.Option("--unordered", help="Write rows as they finish.")] = False,
    original: Annotated[bool, typer.Option("--original", help="Keep each row's input with it.")] = False,
    in_flight: Annotated[
        str, typer.Option("--in-flight", "-j", help="Rows at once: auto, or a number.", metavar="N|auto")
    ] = "auto",
    rpm: Annotated[int | None, typer.Option("--rpm", min=1, help="Most requests in a minute.")] = None,
    tpm: Annotated[int | None, typer.Option("--tpm", min=1, help="Most tokens in a minute.")] = None,
    retries: Annotated[
        int, typer.Option("--retries", min=0, help="Further attempts of a row after trouble.")
    ] = 4,
    on_error: Annotated[
        str,
        typer.Option(
            "--on-error", help="skip (the row fails, the rest goes on), stop, or route.", metavar="POLICY"
        ),
    ] = "skip",
    errors: Annotated[
        Path | None,
        typer.Option("--errors", help="Where --on-error route writes failed rows.", metavar="FILE"),
    ] = None,
    ignore_errors: Annotated[
        bool, typer.Option("--ignore-errors", help="Leave with 0 although rows failed.")
    ] = False,
    retry_failed: Annotated[bool, typer.Option("--retry-failed", help="Ask failed rows again.")] = False,
    accept_changes: Annotated[
        bool,
        typer.Option("--accept-changes", help="Go on although model, instructions or tools have changed."),
    ] = False,
    no_scan: Annotated[
        bool, typer.Option("--no-scan", help="Stream standard input: begin before all of it is there.")
    ] = False,
    max_cost: Annotated[
        float | None, typer.Option("--max-cost", help="Stop before the output cost more.")
    ] = None,
    max_tokens: Annotated[
        int | None, typer.Option("--max-tokens", help="Stop before the output took more tokens.")
    ] = None,
    max_rows: Annotated[
        int | None, typer.Option("--max-rows", min=0, help="Ask at most so many rows now.")
    ] = None,
    max_time: Annotated[
        str | None, typer.Option("--max-time", help="Begin no row after this time: 90, 30m, 2h.")
    ] = None,
    expect: Annotated[
        Path | None,
        typer.Option("--expect", help="Assertions on the answers (JSON or YAML).", metavar="FILE"),
    ] = None,
    junit: Annotated[Path | None, typer.Option("--junit", help="Write JUnit XML.", metavar="FILE")] = None,
    report: Annotated[
        Path | None, typer.Option("--report", help="Write an HTML report.", metavar="FILE")
    ] = None,
    dedup: Annotated[bool, typer.Option("--dedup", help="Ask equal rows once.")] = False,
    cache: Annotated[
        bool, typer.Option("--cache", help="Take answers from earlier batches, keep new ones.")
    ] = False,
    shard: Annotated[
        str | None, typer.Option("--shard", help="Only part i of n: 2/5.", metavar="I/N")
    ] = None,
    detach: Annotated[bool, typer.Option("--detach", help="Go on in the background.")] = False,
    plain: Annotated[bool, typer.Option("--plain", help="Plain lines instead of a live view.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress on stderr.")] = False,
    json_: Annotated[bool, typer.Option("--json", help="Print the summary as JSON (with -o).")] = False,
    *,
    options: RunnerOptions,
) -> None:
    """Ask every row of INPUT; run the same command again to go on where it stopped."""
    from assistant_runner.batch.budget import Budget
    from assistant_runner.batch.checks import NO_ASSERTIONS, load_assertions
    from assistant_runner.batch.execution import Policy
    from assistant_runner.batch.invocation import BatchRequest
    from assistant_runner.batch.limiter import LimiterPlan
    from assistant_runner.batch.source import WHOLE, parse_shard

    if json_ and output is None:
        raise UsageError(
            "--json prints the summary, and stdout holds the rows", remedy="name a file: -o FILE"
        )
    if detach:
        _detach(input_, output)
        return
    policy, errors = _error_policy(on_error, errors, output)
    request = BatchRequest(
        source=replace(
            _source(input_, form, encoding, comments, prompt_column, id_column, template),
            shard=parse_shard(shard) if shard else WHOLE,
        ),
        output=output,
        output_form=_choice("--output-format", output_format, ("jsonl", "csv")),
        question=options.question({"prompt": ""}),
        ordered=not unordered,
        errors=errors,
        policy=Policy(
            on_error=policy,
            retry_failed=retry_failed,
            accept_changes=accept_changes,
            retries=retries,
            dedup=dedup,
            keep_original=original,
            scan=not no_scan,
        ),
        limiter=LimiterPlan(fixed=_in_flight(in_flight), requests_per_minute=rpm, tokens_per_minute=tpm),
        budget=Budget(max_cost, max_tokens, max_rows, parse_duration(max_time) if max_time else None),
        assertions=load_assertions(expect) if expect else NO_ASSERTIONS,
        cache=cache,
        report=report,
        junit=junit,
        command={"argv": sys.argv[1:], "cwd": str(Path.cwd()), "input": input_},
    )
    outcome = _run(request, options, plain=plain, quiet=quiet)
    if json_:
        typer.echo(json.dumps({**outcome.snapshot, "output": str(output)}, indent=2, default=str))
    status = outcome.status
    if ignore_errors and status in (11, 16) and outcome.stop is None:
        typer.echo(f"batch: warning: rows failed (status {status} ignored)", err=True)
        status = 0
    raise typer.Exit(status)


def _run(request: "BatchRequest", options: RunnerOptions, *, plain: bool, quiet: bool) -> "BatchOutcome":
    from assistant_runner.batch.invocation import run_batch
    from assistant_runner.cli.batch_view import talk_for

    cwd = Path.cwd()
    loaded = options.load(os.environ, cwd)
    with talk_for(plain=plain, quiet=quiet) as talk:
        return run_async(run_batch(request, loaded, talk, folder=cwd), busy=True)


def _source(
    input_: str,
    form: str,
    encoding: str | None,
    comments: str | None,
    prompt_column: str,
    id_column: str,
    template: str | None,
) -> Any:
    from assistant_runner.batch.rows import RowShape
    from assistant_runner.batch.source import Source

    if input_ == "-" and sys.stdin.isatty():
        raise UsageError("no input given", remedy="name a file of prompts, or pipe them")
    return Source(
        None if input_ == "-" else Path(input_),
        input_,
        form=_choice("--format", form, FORMATS),
        encoding=encoding,
        comment=comments,
        shape=RowShape(prompt_column, id_column, _template(template)),
    )


def _template(text: str | None) -> str | None:
    """The template: a text that has braces, else a file's content."""
    if text is None or "{{" in text or "{%" in text:
        return text
    try:
        return Path(text).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(
            f"--template {text!r}: {error}", remedy="give a file, or a text such as 'Weather in {{ city }}?'"
        ) from None


def _choice(name: str, value: str | None, choices: tuple[str, ...]) -> Any:
    if value is not None and value not in choices:
        raise UsageError(f"{name} {value!r}: unknown", remedy=f"one of: {', '.join(choices)}")
    return value


def _error_policy(text: str, errors: Path | None, output: Path | None) -> tuple[Any, Path | None]:
    """`skip`, `stop`, `route` (to --errors), or `route:FILE`."""
    word, _, path = text.partition(":")
    policy = _choice("--on-error", word, ("skip", "stop", "route"))
    if policy != "route":
        if errors is not None or path:
            raise UsageError("--errors goes with --on-error route", remedy="add --on-error route")
        return policy, None
    if path:
        return policy, Path(path)
    if errors is None and output is not None:
        return policy, output.with_name(output.name + ".errors.jsonl")
    if errors is None:
        raise UsageError("--on-error route needs a file", remedy="name one: --errors errors.jsonl")
    return policy, errors


def _in_flight(text: str) -> int | None:
    if text == "auto":
        return None
    if text.isdigit() and int(text) > 0:
        return int(text)
    raise UsageError(f"-j {text!r}: neither auto nor a number above 0", remedy="such as -j 8")


def parse_duration(text: str) -> float:
    """Seconds of `90`, `90s`, `30m`, `2h`; UsageError otherwise."""
    units = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
    unit = units.get(text[-1:], 0.0)
    try:
        seconds = float(text[:-1]) * unit if unit else float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < float("inf"):
        raise UsageError(f"{text!r} is no time", remedy="such as 90, 30m or 2h")
    return seconds


def _detach(input_: str, output: Path | None) -> None:
    """Start the same command in the background and leave when it works (or say why it does not)."""
    from assistant_runner.batch.lock import is_locked
    from assistant_runner.batch.output import state_folder
    from assistant_runner.batch.progress import LOCK_FILE
    from assistant_runner.batch.source import spool

    if output is None:
        raise UsageError("--detach needs a file of results", remedy="name one: -o results.jsonl")
    folder = state_folder(output)
    if is_locked(folder / LOCK_FILE):
        raise UsageError(
            f"another process is writing {output}", remedy=f"assistant-runner batch watch {output}"
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{folder} cannot be made: {error.strerror}", remedy="name another output") from None
    argv = [word for word in sys.argv[1:] if word != "--detach"]
    if input_ == "-":
        copy = spool(None, folder / "input")
        argv = [str(copy) if word == "-" else word for word in argv]
        if str(copy) not in argv:
            argv.append(str(copy))
    log = folder / "log"
    with log.open("wb") as stream:
        child = subprocess.Popen(
            [sys.executable, "-m", "assistant_runner", *argv],
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=stream,
            start_new_session=True,
        )
    ends = time.monotonic() + DETACH_WAIT_S
    while time.monotonic() < ends and child.poll() is None and not is_locked(folder / LOCK_FILE):
        time.sleep(0.05)
    if child.poll() not in (None, 0):
        typer.echo(log.read_text(encoding="utf-8", errors="replace"), err=True, nl=False)
        raise typer.Exit(child.returncode)
    typer.echo(f"batch: running as process {child.pid}; its words go to {log}", err=True)
    typer.echo(f"batch: follow it with: assistant-runner batch watch {output}", err=True)


@app.command("status")
def status(output: OutputArgument, json_: JsonOption = False) -> None:
    """Say how far a batch is."""
    from assistant_runner.batch.progress import read_snapshot
    from assistant_runner.cli.batch_view import line_of

    progress = read_snapshot(output)
    typer.echo(json.dumps(progress, indent=2) if json_ else f"{progress['state']}: {line_of(progress)}")


@app.command("watch")
def watch(
    output: OutputArgument,
    plain: Annotated[bool, typer.Option("--plain", help="Plain lines instead of a live view.")] = False,
) -> None:
    """Follow a running batch until it ends; leave with its exit status."""
    from assistant_runner.batch.progress import read_snapshot
    from assistant_runner.cli.batch_view import talk_for

    with talk_for(plain=plain, quiet=False) as talk:
        while True:
            progress = read_snapshot(output)
            talk.tell(progress)
            if progress["state"] != "running":
                break
            time.sleep(0.5)
        if progress["state"] == "killed":
            talk.say("its process was killed: run the same command again to go on")
            raise typer.Exit(1)
    raise typer.Exit(progress["exit_status"] or 0)


@app.command("retry")
def retry(output: OutputArgument) -> None:
    """Ask the failed rows of an output again, as its batch was run."""
    from assistant_runner.batch.output import state_folder
    from assistant_runner.batch.progress import read_command

    command = read_command(output)
    argv = [word for word in command["argv"] if word not in ("--retry-failed", "--detach")]
    if command["input"] == "-":
        copy = str((state_folder(output) / "input").resolve())
        argv = [copy if word == "-" else word for word in argv]
        if copy not in argv:
            argv.append(copy)
    done = subprocess.run(
        [sys.executable, "-m", "assistant_runner", *argv, "--retry-failed"], cwd=command["cwd"], check=False
    )
    raise typer.Exit(done.returncode if done.returncode >= 0 else 128 - done.returncode)


@app.command("report")
def report(
    output: OutputArgument,
    to: Annotated[
        Path | None, typer.Option("--output", "-o", help="Where the HTML goes [OUTPUT.html].")
    ] = None,
    junit: Annotated[
        Path | None, typer.Option("--junit", help="Write JUnit XML, too.", metavar="FILE")
    ] = None,
) -> None:
    """Write the HTML report of an output."""
    from assistant_runner.batch.codec import codec_for
    from assistant_runner.batch.junit import write_junit
    from assistant_runner.batch.output import read_results
    from assistant_runner.batch.report import write_report

    if not output.exists():
        raise UsageError(f"{output} does not exist", remedy="name the output of a batch run")
    codec = codec_for(None, output.name)
    path = to or output.with_name(output.name + ".html")
    write_report(path, read_results(output, codec), title=output.name, made_at=time.time())
    if junit is not None:
        write_junit(junit, read_results(output, codec), name=output.name)
    typer.echo(str(path))


@app.command("merge")
def merge(
    parts: Annotated[list[Path], typer.Argument(help="The outputs of all shards.", metavar="PART...")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Where the rows go.")],
) -> None:
    """Put the outputs of shards together, in input order."""
    from assistant_runner.batch.codec import codec_for
    from assistant_runner.batch.merge import merge_outputs, unfinished

    for part in parts:
        if unfinished(part):
            raise UsageError(f"{part} is not finished", remedy="run its batch again: it goes on")
    merged = merge_outputs(parts, output, codec_for(None, output.name))
    typer.echo(
        f"batch: {merged.rows:,} rows, {merged.failed:,} failed"
        + (f", {merged.doubled:,} were in more than one part" if merged.doubled else "")
        + (f", {merged.gaps:,} are missing: a shard is not there or not finished" if merged.gaps else ""),
        err=True,
    )
