"""`run`: the runs of this machine's journal: take one up, look at it, play it again, branch off."""

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from assistant_runner.cli.ask import OUTPUTS, Rendering, print_event, print_json
from assistant_runner.cli.edge import run_async
from assistant_runner.cli.options import RunnerOptions, runner_options
from assistant_runner.errors import UsageError, error_of

if TYPE_CHECKING:
    from assistant_runner.assembly import AssembledRunner
    from assistant_runner.run.dispatch import DecideUnknown
    from assistant_runner.run.events import CallStarted
    from assistant_runner.run.history import Story
    from assistant_runner.run.journal import Journal, JournalRun
    from assistant_runner.run.request import RunResult

app = typer.Typer(name="run", no_args_is_help=True, help="Runs of this machine: resume, show, replay, fork.")

TAIL_S = 0.1

RunArgument = Annotated[str | None, typer.Argument(metavar="[RUN]", help="A run's id, or its beginning.")]
LastOption = Annotated[bool, typer.Option("--last", help="The newest run.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
JsonlOption = Annotated[bool, typer.Option("--jsonl", help="Print every event as a line of JSON.")]
OutputOption = Annotated[
    str, typer.Option("--output", help=f"What to print: {', '.join(OUTPUTS)}.", metavar="KIND")
]
QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="No progress on stderr.")]


def register(root: typer.Typer) -> None:
    root.add_typer(app)


@contextmanager
def _journal() -> "Iterator[Journal]":
    from assistant_runner.run.journal import Journal
    from assistant_runner.settings import load_settings

    loaded = load_settings({}, environ=os.environ, cwd=Path.cwd())
    with Journal(loaded.folders.state) as journal:
        yield journal


def _find(journal: "Journal", reference: str | None, last: bool) -> "JournalRun":
    if last == (reference is not None):
        raise UsageError("name one run", remedy="give a run's id, or --last")
    return journal.last() if reference is None else journal.find(reference)


def _story(journal: "Journal", run: "JournalRun") -> "Story":
    from assistant_runner.run.history import Story
    from assistant_runner.run.journal import recall

    result = journal.result(run.key)
    return Story(run, recall(journal.records(run.key)), result["text"] if result else None)


@app.command("list")
def list_runs(
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="How many.")] = 20,
    json_: JsonOption = False,
) -> None:
    """The newest runs, newest first; `stopped` ones lost their process and wait for run resume."""
    with _journal() as journal:
        runs = journal.runs(limit=limit)
        stopped = {run.key for run in runs if run.owner and not journal.is_worked_on(run)}
    if json_:
        documents = [{**run.document(), "stopped": run.key in stopped} for run in runs]
        print_json(documents, compact=False)
        return
    for run in runs:
        when = datetime.fromtimestamp(run.created_at).strftime("%Y-%m-%d %H:%M:%S")
        prompt = " ".join((run.prompt or "").split())
        status = "stopped" if run.key in stopped else run.status
        typer.echo(f"{run.run_id or run.key}  {when}  {status:<16} {prompt[:60]}")


@app.command("show")
def show(reference: RunArgument = None, last: LastOption = False, json_: JsonOption = False) -> None:
    """One run: its prompt, rounds, calls, outputs and answer."""
    with _journal() as journal:
        story = _story(journal, _find(journal, reference, last))
    if json_:
        print_json(story.document(), compact=False)
        return
    typer.echo(f"run: {story.run.run_id or 'never began'} (journal {story.run.key})")
    typer.echo(f"thread: {story.run.thread_id or 'none'}\nbackend: {story.run.backend}")
    typer.echo("\n".join(story.lines()))


@app.command("diff")
def diff(
    before: Annotated[str, typer.Argument(metavar="A")],
    after: Annotated[str, typer.Argument(metavar="B")],
) -> None:
    """What is different between two runs: prompt, calls, outputs, answer. Status 0 if nothing, else 1."""
    from assistant_runner.run.history import compare

    with _journal() as journal:
        lines = compare(_story(journal, journal.find(before)), _story(journal, journal.find(after)))
    if lines:
        typer.echo("\n".join(lines))
        raise typer.Exit(1)


@app.command("replay")
def replay(
    reference: RunArgument = None,
    last: LastOption = False,
    json_: JsonOption = False,
    jsonl: JsonlOption = False,
    output: OutputOption = "text",
) -> None:
    """Print what a run printed, from the journal alone: no backend, no tool, no socket."""
    from assistant_runner.run.records import result_of

    with _journal() as journal:
        run = _find(journal, reference, last)
        records, result = journal.records(run.key), journal.result(run.key)
    if jsonl:
        for record in records:
            print_event(record.event.document())
    if result is None and run.error and "exit_status" in run.error:
        raise error_of(run.error)
    if result is None:
        raise UsageError(
            f"run {run.run_id or run.key} did not complete: it is {run.status}",
            remedy=f"go on with: assistant-runner run resume {run.run_id or run.key}",
        )
    rendering = Rendering(output, json_, jsonl, quiet=True)
    rendering.show(result_of(result))


@app.command("tail")
def tail(reference: RunArgument = None, last: LastOption = False, jsonl: JsonlOption = False) -> None:
    """Follow a run that another process works on, until it ends."""
    with _journal() as journal:
        run = _find(journal, reference, last)
        _follow(journal, run, jsonl=jsonl)


def _follow(journal: "Journal", run: "JournalRun", *, jsonl: bool) -> None:
    from assistant_runner.run.events import RunEnded, TextArrived

    seen = 0
    while True:
        alive = journal.is_worked_on(journal.find(run.key))
        for record in journal.records(run.key, after=seen):
            seen = record.seq
            if jsonl:
                print_event(record.event.document())
            elif not isinstance(record.event, TextArrived):
                document = record.event.document()
                moment = datetime.fromtimestamp(record.at).strftime("%H:%M:%S")
                typer.echo(f"{moment} {document.pop('event')} {_line(document)}")
            if isinstance(record.event, RunEnded):
                alive = False
        if not alive:
            return
        time.sleep(TAIL_S)


def _line(document: dict[str, Any]) -> str:
    text = json.dumps(document, ensure_ascii=False, default=str)
    return text if len(text) <= 160 else text[:159] + "…"


@app.command("resume")
@runner_options
def resume(
    reference: RunArgument = None,
    last: LastOption = False,
    json_: JsonOption = False,
    jsonl: JsonlOption = False,
    output: OutputOption = "text",
    quiet: QuietOption = False,
    repeat_unknown: Annotated[
        bool | None,
        typer.Option(
            "--repeat-unknown/--skip-unknown",
            help="Calls that write, outcome unknown: make them again, or not. Asked if not given.",
        ),
    ] = None,
    answer: Annotated[
        list[str] | None,
        typer.Option(
            "--answer", help="Answer a question that the run waits with: [CALL_ID=]TEXT. Repeatable."
        ),
    ] = None,
    *,
    options: RunnerOptions,
) -> None:
    """Go on with a run that was interrupted or killed; nothing that is finished is done again."""
    again = _decide(repeat_unknown, bool(options.no_input))
    _take_up(reference, last, options, Rendering(output, json_, jsonl, quiet), again, answer or [])


@app.command("wait")
@runner_options
def wait(
    reference: RunArgument = None,
    last: LastOption = False,
    json_: JsonOption = False,
    jsonl: JsonlOption = False,
    output: OutputOption = "text",
    quiet: QuietOption = False,
    *,
    options: RunnerOptions,
) -> None:
    """Wait for a run that was started with --detach, answer its calls, print its answer."""
    _take_up(reference, last, options, Rendering(output, json_, jsonl, quiet), None, [])


def _decide(repeat_unknown: bool | None, no_input: bool) -> "DecideUnknown | None":
    """How a call is decided on that may or may not have been made; None: it cannot be."""
    from assistant_runner.cli.approval import open_terminal, shown

    terminal = None if repeat_unknown is not None or no_input else open_terminal()
    if repeat_unknown is None and not no_input and terminal is None:
        return None

    async def decide(call: "CallStarted") -> bool:
        if terminal is None:
            return bool(repeat_unknown)
        words = f"{call.tool}({shown(call.arguments)}) may or may not have been made. Make it again? [y/N] "
        return await terminal.ask(words) in ("y", "yes")

    return decide


def _answers(values: list[str], open_calls: dict[str, str]) -> dict[str, str]:
    """Answers by tool call id; one answer to one open question needs no id."""
    given = {}
    for value in values:
        call_id, separator, text = value.partition("=")
        if separator and call_id in open_calls:
            given[call_id] = text
        elif len(open_calls) == 1:
            given[next(iter(open_calls))] = value
        else:
            raise UsageError(
                f"--answer {value!r}: it is not clear which question this answers",
                remedy=f"write CALL_ID=TEXT; open: {', '.join(open_calls) or 'none'}",
            )
    return given


def _take_up(
    reference: str | None,
    last: bool,
    options: RunnerOptions,
    rendering: Rendering,
    again: "DecideUnknown | None",
    answers: list[str],
) -> None:
    from assistant_runner.run.journal import recall

    with _journal() as journal:
        run = _find(journal, reference, last)
        result = journal.result(run.key)
        given = _answers(answers, recall(journal.records(run.key)).open_calls() if answers else {})
    if result is not None:  # it completed: its answer is all there is to say
        from assistant_runner.run.records import result_of

        rendering.show(result_of(result))
        return

    async def work(runner: "AssembledRunner", listener: Any) -> "RunResult":
        return await runner.resume(
            run,
            listener=listener,
            whole_thread=rendering.output == "run",
            again=again,
            answers=given,
        )

    run_async(_with_runner(run, options, rendering, work))


@app.command("fork")
@runner_options
def fork(
    reference: RunArgument = None,
    last: LastOption = False,
    round_: Annotated[
        int | None, typer.Option("--round", min=0, help="Keep the results up to this round [all].")
    ] = None,
    prompt: Annotated[str | None, typer.Option("--prompt", help="Another prompt.")] = None,
    json_: JsonOption = False,
    jsonl: JsonlOption = False,
    output: OutputOption = "text",
    quiet: QuietOption = False,
    *,
    options: RunnerOptions,
) -> None:
    """Ask again on a new thread from a round on, perhaps with another model or prompt."""
    rendering = Rendering(output, json_, jsonl, quiet)
    with _journal() as journal:
        run = _find(journal, reference, last)

    async def work(runner: "AssembledRunner", listener: Any) -> "RunResult":
        return await runner.fork(
            run,
            round_number=round_,
            model=options.model,
            prompt=prompt,
            listener=listener,
            whole_thread=rendering.output == "run",
        )

    run_async(_with_runner(run, options, rendering, work))


async def _with_runner(run: "JournalRun", options: RunnerOptions, rendering: Rendering, work: Any) -> None:
    """Do the work with a runner as the run had it, changed by the flags given now."""
    from assistant_runner.assembly import open_runner
    from assistant_runner.cli.approval import terminal_approver
    from assistant_runner.cli.progress import Progress

    folder = run.about.get("folder") or "."
    if os.path.isdir(folder):  # noqa: ASYNC240
        os.chdir(folder)  # relative tools and files are meant from there
    loaded = options.load(os.environ, Path.cwd(), saved=run.about.get("settings"))
    progress = Progress(quiet=rendering.quiet, events=print_event if rendering.as_events else None)
    approve = terminal_approver(options.no_input, progress)
    async with open_runner(loaded, approve=approve) as runner:
        progress.begin(runner)
        with progress:
            result = await work(runner, progress.listen)
        for warning in result.warnings:
            progress.note(warning)
        rendering.show(result)


@app.command("steps")
@runner_options
def steps(
    reference: RunArgument = None,
    last: LastOption = False,
    json_: JsonOption = False,
    *,
    options: RunnerOptions,
) -> None:
    """The run's steps as the backend has them."""
    from assistant_runner.run.history import render_steps

    async def work(runner: "AssembledRunner", thread_id: str, run_id: str) -> None:
        found: list[Any] = []
        after: str | None = None
        while True:
            page = await runner.backend.list_run_steps(thread_id=thread_id, run_id=run_id, after=after)
            found.extend(page.data)
            if not page.has_more or not page.data:
                break
            after = page.data[-1].id
        if json_:
            print_json([step.document() for step in found], compact=False)
        else:
            typer.echo("\n".join(render_steps(found)))

    run_async(_at_backend(reference, last, options, work))


@app.command("cancel")
@runner_options
def cancel(
    reference: RunArgument = None,
    last: LastOption = False,
    json_: JsonOption = False,
    *,
    options: RunnerOptions,
) -> None:
    """Cancel a run at its backend and wait until it is over."""
    import asyncio

    from assistant_runner.errors import RunTimedOut
    from assistant_runner.run.start import cancel_and_wait

    async def work(runner: "AssembledRunner", thread_id: str, run_id: str) -> None:
        run, _ = await runner.backend.retrieve_run(thread_id=thread_id, run_id=run_id)
        if not run.is_terminal:
            try:
                async with asyncio.timeout(options.timeout or 60):
                    run = await cancel_and_wait(runner.backend, run)
            except TimeoutError:
                raise RunTimedOut(
                    f"run {run_id} was cancelled, but is not over yet",
                    run_id=run_id,
                    thread_id=thread_id,
                    remedy="look again later, or raise --timeout",
                ) from None
        if json_:
            print_json(run.document(), compact=False)
        else:
            typer.echo(f"{run.id} is {run.status}")

    run_async(_at_backend(reference, last, options, work))


async def _at_backend(reference: str | None, last: bool, options: RunnerOptions, work: Any) -> None:
    """Do the work on a run at its backend: one of the journal, or any with its --thread."""
    from assistant_runner.assembly import open_runner

    saved: dict[str, Any] | None = None
    run_id, thread_id = reference, options.thread
    if thread_id is None:
        with _journal() as journal:
            run = _find(journal, reference, last)
        saved, run_id, thread_id = run.about.get("settings"), run.run_id, run.thread_id
    if run_id is None or thread_id is None:
        raise UsageError("this run never began", remedy="name a run that has an id")
    async with open_runner(options.load(os.environ, Path.cwd(), saved=saved)) as runner:
        await work(runner, thread_id, run_id)
