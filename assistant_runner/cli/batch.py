"""`batch`: many prompts in, one result row each out; resumable, paced, checked."""

import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from assistant_runner.cli.edge import begin_work, run_async
from assistant_runner.cli.groups import Group, Integer, Number, argument
from assistant_runner.cli.options import PATH, RunnerOptions, json_option, runner_options
from assistant_runner.errors import NotFound, UsageError

if TYPE_CHECKING:
    from assistant_runner.batch.invocation import BatchOutcome, BatchRequest

app = Group("batch", help="Many prompts in, one result row each out.")
FORMATS = ("auto", "jsonl", "json", "csv", "tsv", "lines")
DETACH_WAIT_S = 15.0

output_argument = argument("output", type=PATH, metavar="OUTPUT", help="The output of a batch run.")


@app.command("run")
@argument(
    "input_",
    default="-",
    metavar="[INPUT]",
    help="Prompts: JSONL, JSON, CSV, TSV or plain lines; - is standard input.",
)
@click.option("--output", "-o", type=PATH, help="Where results go; without it to stdout, not resumable.")
@click.option(
    "--format", "form", default="auto", metavar="FORMAT", help=f"Of the input: {', '.join(FORMATS)}."
)
@click.option("--encoding", help="Of the input, such as cp1252.")
@click.option("--comments", metavar="MARK", help="Leave out lines that begin so, such as #.")
@click.option("--prompt-column", default="prompt", help="The column to ask.")
@click.option("--id-column", default="id", help="The column that names a row.")
@click.option("--template", metavar="TEXT|FILE", help="A prompt with {{ columns }}: a text, or a file.")
@click.option("--output-format", help="jsonl or csv; by the output's suffix if not given.")
@click.option("--unordered", is_flag=True, help="Write rows as they finish.")
@click.option("--original", is_flag=True, help="Keep each row's input with it.")
@click.option("--in-flight", "-j", default="auto", metavar="N|auto", help="Rows at once: auto, or a number.")
@click.option("--rpm", type=Integer(min=1), help="Most requests in a minute.")
@click.option("--tpm", type=Integer(min=1), help="Most tokens in a minute.")
@click.option("--retries", type=Integer(min=0), default=4, help="Further attempts of a row after trouble.")
@click.option(
    "--on-error",
    default="skip",
    metavar="POLICY",
    help="skip (the row fails, the rest goes on), stop, or route.",
)
@click.option("--errors", type=PATH, metavar="FILE", help="Where --on-error route writes failed rows.")
@click.option("--ignore-errors", is_flag=True, help="Leave with 0 although rows failed.")
@click.option("--retry-failed", is_flag=True, help="Ask failed rows again.")
@click.option(
    "--accept-changes", is_flag=True, help="Go on although model, instructions or tools have changed."
)
@click.option("--no-scan", is_flag=True, help="Stream standard input: begin before all of it is there.")
@click.option("--max-cost", type=Number(min=0), help="Stop before the output cost more.")
@click.option("--max-tokens", type=Integer(min=0), help="Stop before the output took more tokens.")
@click.option("--max-rows", type=Integer(min=0), help="Ask at most so many rows now.")
@click.option("--max-time", help="Begin no row after this time: 90, 30m, 2h.")
@click.option("--expect", type=PATH, metavar="FILE", help="Assertions on the answers (JSON or YAML).")
@click.option("--junit", type=PATH, metavar="FILE", help="Write JUnit XML.")
@click.option("--report", type=PATH, metavar="FILE", help="Write an HTML report.")
@click.option("--dedup", is_flag=True, help="Ask equal rows once.")
@click.option("--cache", is_flag=True, help="Take answers from earlier batches, keep new ones.")
@click.option("--shard", metavar="I/N", help="Only part i of n: 2/5.")
@click.option("--detach", is_flag=True, help="Go on in the background.")
@click.option("--plain", is_flag=True, help="Plain lines instead of a live view.")
@click.option("--quiet", "-q", is_flag=True, help="No progress on stderr.")
@click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON (with -o).")
@runner_options
def run(
    input_: str,
    output: Path | None,
    form: str,
    encoding: str | None,
    comments: str | None,
    prompt_column: str,
    id_column: str,
    template: str | None,
    output_format: str | None,
    unordered: bool,
    original: bool,
    in_flight: str,
    rpm: int | None,
    tpm: int | None,
    retries: int,
    on_error: str,
    errors: Path | None,
    ignore_errors: bool,
    retry_failed: bool,
    accept_changes: bool,
    no_scan: bool,
    max_cost: float | None,
    max_tokens: int | None,
    max_rows: int | None,
    max_time: str | None,
    expect: Path | None,
    junit: Path | None,
    report: Path | None,
    dedup: bool,
    cache: bool,
    shard: str | None,
    detach: bool,
    plain: bool,
    quiet: bool,
    as_json: bool,
    options: RunnerOptions,
) -> int:
    """Ask every row of INPUT; run the same command again to go on where it stopped."""
    from assistant_runner.batch.budget import Budget
    from assistant_runner.batch.checks import NO_ASSERTIONS, load_assertions
    from assistant_runner.batch.execution import Policy
    from assistant_runner.batch.invocation import BatchRequest
    from assistant_runner.batch.limiter import LimiterPlan
    from assistant_runner.batch.source import WHOLE, parse_shard

    if output is not None and str(output) == "-":
        output = None
    if as_json and output is None:
        raise UsageError(
            "--json prints the summary, and stdout holds the rows", remedy="name a file: -o FILE"
        )
    if detach:
        return _detach(input_, output)
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
    if as_json:
        click.echo(json.dumps({**outcome.snapshot, "output": str(output)}, indent=2, default=str))
    status = outcome.status
    if ignore_errors and status not in (0, 6) and outcome.stop is None:
        click.echo(f"batch: warning: rows failed (status {status} ignored)", err=True)
        status = 0
    return status


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


def _detach(input_: str, output: Path | None) -> int:
    """Start the same command in the background; its exit status if it ended before it asked, else 0."""
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
    while time.monotonic() < ends and child.poll() is None and not _asks(output, child.pid):
        time.sleep(0.05)
    if child.poll() not in (None, 0):
        click.echo(log.read_text(encoding="utf-8", errors="replace"), err=True, nl=False)
        return child.returncode
    click.echo(f"batch: running as process {child.pid}; its words go to {log}", err=True)
    click.echo(f"batch: follow it with: assistant-runner batch watch {output}", err=True)
    return 0


def _asks(output: Path, pid: int) -> bool:
    """Whether this process has begun to ask: what is wrong with its command it would have said before."""
    from assistant_runner.batch.progress import read_snapshot

    try:
        return bool(read_snapshot(output)["pid"] == pid)
    except NotFound:
        return False


@app.command("status")
@output_argument
@json_option
def status(output: Path, as_json: bool) -> None:
    """Say how far a batch is."""
    from assistant_runner.batch.progress import read_snapshot
    from assistant_runner.cli.batch_view import line_of

    progress = read_snapshot(output)
    click.echo(json.dumps(progress, indent=2) if as_json else f"{progress['state']}: {line_of(progress)}")


@app.command("watch")
@output_argument
@click.option("--plain", is_flag=True, help="Plain lines instead of a live view.")
def watch(
    output: Path,
    plain: bool,
) -> int:
    """Follow a running batch until it ends; leave with its exit status."""
    from assistant_runner.batch.progress import read_snapshot
    from assistant_runner.cli.batch_view import talk_for

    begin_work()
    with talk_for(plain=plain, quiet=False) as talk:
        while True:
            progress = read_snapshot(output)
            talk.tell(progress)
            if progress["state"] != "running":
                break
            time.sleep(0.5)
        if progress["state"] == "killed":
            talk.say("its process was killed: run the same command again to go on")
            return 1
    return int(progress["exit_status"] or 0)


@app.command("retry")
@output_argument
def retry(output: Path) -> int:
    """Ask the failed rows of an output again, as its batch was run."""
    from assistant_runner.batch.output import state_folder
    from assistant_runner.batch.progress import read_command

    command = read_command(output)
    argv = [word for word in command["argv"] if word not in ("--retry-failed", "--detach")]
    cwd, kept = Path(command["cwd"]), (state_folder(output) / "input").resolve()
    if not cwd.is_dir():
        raise UsageError(
            f"{output} was asked for in {cwd}, which is not there any more",
            remedy="run its command with --retry-failed where its files are now",
        )
    if kept.exists() and not (cwd / command["input"]).is_file():  # it was read from a pipe
        argv = [str(kept) if word == command["input"] else word for word in argv]
        if str(kept) not in argv:
            argv.append(str(kept))
    done = subprocess.run(
        [sys.executable, "-m", "assistant_runner", *argv, "--retry-failed"], cwd=cwd, check=False
    )
    return done.returncode if done.returncode >= 0 else 128 - done.returncode


@app.command("report")
@output_argument
@click.option("--output", "-o", "to", type=PATH, help="Where the HTML goes [OUTPUT.html].")
@click.option("--junit", type=PATH, metavar="FILE", help="Write JUnit XML, too.")
def report(
    output: Path,
    to: Path | None,
    junit: Path | None,
) -> None:
    """Write the HTML report of an output."""
    from assistant_runner.batch.codec import codec_of
    from assistant_runner.batch.junit import write_junit
    from assistant_runner.batch.output import read_results, writing
    from assistant_runner.batch.progress import errors_file
    from assistant_runner.batch.report import write_report

    if not output.is_file():
        raise UsageError(f"{output} is no file", remedy="name the output of a batch run")
    codec, errors = codec_of(output), errors_file(output)
    path = to or output.with_name(output.name + ".html")
    with writing(path):
        write_report(path, read_results(output, codec, errors), title=output.name, made_at=time.time())
    if junit is not None:
        with writing(junit):
            write_junit(junit, read_results(output, codec, errors), name=output.name)
    click.echo(str(path))


@app.command("merge")
@argument("parts", nargs=-1, required=True, type=PATH, metavar="PART...", help="The outputs of all shards.")
@click.option("--output", "-o", type=PATH, required=True, help="Where the rows go.")
def merge(
    parts: tuple[Path, ...],
    output: Path,
) -> int:
    """Put the outputs of shards together, in input order. Leaves with 16 if rows are missing."""
    from assistant_runner.batch.codec import codec_for
    from assistant_runner.batch.merge import merge_outputs, unfinished

    for part in parts:
        if unfinished(part):
            raise UsageError(f"{part} is not finished", remedy="run its batch again: it goes on")
    merged = merge_outputs(parts, output, codec_for(None, output.name))
    missing = "a part is not there or not finished, or its failed rows lie in another file"
    click.echo(
        f"batch: {merged.rows:,} rows, {merged.failed:,} failed"
        + (f", {merged.doubled:,} were in more than one part" if merged.doubled else "")
        + (f", {merged.gaps:,} are missing: {missing}" if merged.gaps else ""),
        err=True,
    )
    return 16 if merged.gaps else 0
