"""`run`: the runs of this machine's journal: take one up, look at it, play it again, branch off."""

import json
import os
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from assistant_runner.cli.edge import begin_work, run_async
from assistant_runner.cli.groups import Group, Integer, argument
from assistant_runner.cli.options import (
    RunnerOptions,
    forked_options,
    json_option,
    looked_at_options,
    option,
    positional,
    shared,
    taken_up_options,
)
from assistant_runner.cli.rendering import Rendering, print_event, print_json, rendering_options
from assistant_runner.errors import UsageError, error_of, printable

if TYPE_CHECKING:
    from assistant_runner.assembly import AssembledRunner
    from assistant_runner.run.dispatch import DecideUnknown
    from assistant_runner.run.events import CallStarted
    from assistant_runner.run.history import Story
    from assistant_runner.run.journal import Journal, JournalRun
    from assistant_runner.run.request import RunResult

TAIL_S = 0.1


@dataclass(frozen=True)
class RunReference:
    """Which run of the journal is meant."""

    name: str | None = positional(required=False, metavar="[RUN]", help="A run's id, or its beginning.")
    last: bool = option("--last", is_flag=True, help="The newest run.")


run_reference = shared(RunReference, "which")


app = Group("run", help="Runs of this machine: resume, show, replay, fork.")


@contextmanager
def _journal() -> "Iterator[Journal]":
    from assistant_runner.run.journal import Journal
    from assistant_runner.settings import load_settings

    loaded = load_settings({}, environ=os.environ, cwd=Path.cwd())
    with Journal(loaded.folders.state) as journal:
        yield journal


def _find(journal: "Journal", which: RunReference) -> "JournalRun":
    if which.last == (which.name is not None):
        raise UsageError("name one run", remedy="give a run's id, or --last")
    return journal.last() if which.name is None else journal.find(which.name)


def _story(journal: "Journal", run: "JournalRun") -> "Story":
    from assistant_runner.run.history import Story
    from assistant_runner.run.memory import recall

    result = journal.result(run.key)
    return Story(run, recall(journal.records(run.key)), result["text"] if result else None)


@app.command("list")
@click.option("--limit", "-n", type=Integer(min=1), default=20, help="How many.")
@json_option
def list_runs(
    limit: int,
    as_json: bool,
) -> None:
    """The newest runs, newest first; `stopped` ones lost their process and wait for run resume."""
    with _journal() as journal:
        runs = journal.runs(limit=limit)
        stopped = {run.key for run in runs if run.owner and not journal.is_worked_on(run)}
    if as_json:
        documents = [{**run.document(), "stopped": run.key in stopped} for run in runs]
        print_json(documents, compact=False)
        return
    width = max(20, shutil.get_terminal_size().columns - 68) if sys.stdout.isatty() else 60
    for run in runs:
        when = datetime.fromtimestamp(run.created_at).strftime("%Y-%m-%d %H:%M:%S")
        prompt = " ".join((run.prompt or "").split())
        status = "stopped" if run.key in stopped else run.status
        click.echo(f"{run.run_id or run.key}  {when}  {status:<16} {printable(prompt[:width])}")


@app.command("show")
@run_reference
@json_option
def show(which: RunReference, as_json: bool) -> None:
    """One run: its prompt, rounds, calls, outputs and answer."""
    with _journal() as journal:
        story = _story(journal, _find(journal, which))
    if as_json:
        print_json(story.document(), compact=False)
        return
    click.echo(f"run: {story.run.run_id or 'never began'} (journal {story.run.key})")
    click.echo(f"thread: {story.run.thread_id or 'none'}\nbackend: {story.run.backend}")
    click.echo(printable("\n".join(story.lines())))


@app.command("diff")
@argument("before", metavar="A")
@argument("after", metavar="B")
def diff(
    before: str,
    after: str,
) -> int:
    """What is different between two runs: prompt, calls, outputs, answer. Status 0 if nothing, else 1."""
    from assistant_runner.run.history import compare

    with _journal() as journal:
        lines = compare(_story(journal, journal.find(before)), _story(journal, journal.find(after)))
    if lines:
        click.echo(printable("\n".join(lines)))
    return int(bool(lines))


@app.command("replay")
@run_reference
@shared(Rendering, "rendering", without=("quiet", "iterations"))
def replay(
    which: RunReference,
    rendering: Rendering,
) -> int:
    """Print what a run printed, from the journal alone: no backend, no tool, no socket."""
    from assistant_runner.run.records import result_of

    with _journal() as journal:
        run = _find(journal, which)
        records, result = journal.records(run.key), journal.result(run.key)
    if rendering.as_events:
        for record in records:
            print_event(record.event.document())
    if result is None and run.error and "exit_status" in run.error:
        raise error_of(run.error)
    if result is None:
        raise UsageError(
            f"run {run.run_id or run.key} did not complete: it is {run.status}",
            remedy=f"go on with: assistant-runner run resume {run.run_id or run.key}",
        )
    return rendering.show(result_of(result))


@app.command("tail")
@run_reference
@click.option("--jsonl", is_flag=True, help="Print every event as a line of JSON.")
def tail(which: RunReference, jsonl: bool) -> None:
    """Follow a run that another process works on, until it ends."""
    with _journal() as journal:
        run = _find(journal, which)
        _follow(journal, run, jsonl=jsonl)


def _follow(journal: "Journal", run: "JournalRun", *, jsonl: bool) -> None:
    from assistant_runner.run.events import RunEnded, TextArrived

    begin_work()
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
                click.echo(f"{moment} {document.pop('event')} {_line(document)}")
            if isinstance(record.event, RunEnded):
                alive = False
        if not alive:
            return
        time.sleep(TAIL_S)


def _line(document: dict[str, Any]) -> str:
    text = json.dumps(document, ensure_ascii=False, default=str)
    return text if len(text) <= 160 else text[:159] + "…"


@app.command("resume")
@run_reference
@rendering_options
@click.option(
    "--repeat-unknown/--skip-unknown",
    default=None,
    help="Calls that write, outcome unknown: make them again, or not. Asked if not given.",
)
@click.option(
    "--answer", multiple=True, help="Answer a question that the run waits with: [CALL_ID=]TEXT. Repeatable."
)
@taken_up_options
def resume(
    which: RunReference,
    rendering: Rendering,
    repeat_unknown: bool | None,
    answer: tuple[str, ...],
    options: RunnerOptions,
) -> int:
    """Go on with a run that was interrupted or killed; nothing that is finished is done again."""
    again = _decide(repeat_unknown, bool(options.no_input))
    return _take_up(which, options, rendering, again, answer)


@app.command("wait")
@run_reference
@rendering_options
@taken_up_options
def wait(
    which: RunReference,
    rendering: Rendering,
    options: RunnerOptions,
) -> int:
    """Wait for a run that was started with --detach, answer its calls, print its answer."""
    return _take_up(which, options, rendering, None, [])


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


def _answers(values: Sequence[str], open_calls: dict[str, str]) -> dict[str, str]:
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
    which: RunReference,
    options: RunnerOptions,
    rendering: Rendering,
    again: "DecideUnknown | None",
    answers: Sequence[str],
) -> int:
    from assistant_runner.run.memory import recall

    with _journal() as journal:
        run = _find(journal, which)
        result = journal.result(run.key)
        given = _answers(answers, recall(journal.records(run.key)).open_calls() if answers else {})
    if result is not None:  # it completed: its answer is all there is to say
        from assistant_runner.run.records import result_of

        return rendering.show(result_of(result))

    async def work(runner: "AssembledRunner", listener: Any) -> "RunResult":
        return await runner.resume(
            run,
            listener=listener,
            whole_thread=rendering.output == "run",
            again=again,
            answers=given,
        )

    return run_async(_with_runner(run, options, rendering, work))


@app.command("fork")
@run_reference
@click.option("--round", "round_", type=Integer(min=0), help="Keep the results up to this round [all].")
@click.option("--prompt", help="Another prompt.")
@rendering_options
@forked_options
def fork(
    which: RunReference,
    round_: int | None,
    prompt: str | None,
    rendering: Rendering,
    options: RunnerOptions,
) -> int:
    """Ask again on a new thread from a round on, perhaps with another model or prompt."""
    with _journal() as journal:
        run = _find(journal, which)

    async def work(runner: "AssembledRunner", listener: Any) -> "RunResult":
        return await runner.fork(
            run,
            round_number=round_,
            model=options.model,
            prompt=prompt,
            listener=listener,
            whole_thread=rendering.output == "run",
        )

    return run_async(_with_runner(run, options, rendering, work))


async def _with_runner(run: "JournalRun", options: RunnerOptions, rendering: Rendering, work: Any) -> int:
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
        return rendering.show(result)


@app.command("steps")
@run_reference
@json_option
@looked_at_options
def steps(
    which: RunReference,
    as_json: bool,
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
        if as_json:
            print_json([step.document() for step in found], compact=False)
        elif found:
            click.echo(printable("\n".join(render_steps(found))))

    run_async(_at_backend(which, options, work))


@app.command("cancel")
@run_reference
@json_option
@looked_at_options
def cancel(
    which: RunReference,
    as_json: bool,
    options: RunnerOptions,
) -> None:
    """Cancel a run at its backend and wait until it is over."""
    from assistant_runner.run.start import cancel_and_wait

    async def work(runner: "AssembledRunner", thread_id: str, run_id: str) -> None:
        run, _ = await runner.backend.retrieve_run(thread_id=thread_id, run_id=run_id)
        if not run.is_terminal:
            run = await cancel_and_wait(runner.backend, run)
            await runner.note_end(run)
        if as_json:
            print_json(run.document(), compact=False)
        else:
            click.echo(f"{run.id} is {run.status}")

    run_async(_at_backend(which, options, work))


async def _at_backend(which: RunReference, options: RunnerOptions, work: Any) -> None:
    """Do the work on a run at its backend: one of the journal, or any with its --thread.

    RunTimedOut if it takes longer than --timeout.
    """
    import asyncio

    from assistant_runner.assembly import open_runner
    from assistant_runner.errors import RunTimedOut

    limit_s = options.timeout or 60
    saved: dict[str, Any] | None = None
    run_id, thread_id = which.name, options.thread
    if thread_id is None:
        with _journal() as journal:
            run = _find(journal, which)
        saved, run_id, thread_id = run.about.get("settings"), run.run_id, run.thread_id
    if run_id is None or thread_id is None:
        raise UsageError("this run never began", remedy="name a run that has an id")
    async with open_runner(options.load(os.environ, Path.cwd(), saved=saved)) as runner:
        try:
            async with asyncio.timeout(limit_s):
                await work(runner, thread_id, run_id)
        except TimeoutError:
            raise RunTimedOut(
                f"run {run_id}: {runner.backend.label} has not said within {limit_s:g} s how it is",
                run_id=run_id,
                thread_id=thread_id,
                remedy="look again later (run steps), or raise --timeout",
            ) from None
