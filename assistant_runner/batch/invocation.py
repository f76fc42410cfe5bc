"""One `batch run`, whole: lock, what is there, the runner, signals, progress, reports, exit status.

`cli/` and library users call `run_batch`; everything that talks to people is behind `Talk`.
"""

import asyncio
import contextlib
import dataclasses
import json
import signal
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from assistant_runner.assembly import Question, Runner, limits_of, open_runner
from assistant_runner.backends.http import HttpBackend
from assistant_runner.batch.budget import Budget, Spending
from assistant_runner.batch.cache import AnswerCache
from assistant_runner.batch.checks import NO_ASSERTIONS, Assertions
from assistant_runner.batch.codec import OutputFormat, codec_for
from assistant_runner.batch.execution import Batch, Policy, Stop
from assistant_runner.batch.fingerprint import (
    Fingerprints,
    World,
    changed_parts,
    remote_assistant_parts,
    settings_parts,
)
from assistant_runner.batch.limiter import Limiter, LimiterPlan
from assistant_runner.batch.lock import output_lock
from assistant_runner.batch.output import ResultStore, read_results, state_folder, writing
from assistant_runner.batch.progress import LOCK_FILE, read_command, snapshot, write_command, write_snapshot
from assistant_runner.batch.source import WHOLE, Source, spool
from assistant_runner.errors import NotFound, UsageError
from assistant_runner.settings import LoadedSettings, lay_assistant_file
from assistant_runner.setup.finding import find_spec

TICK_S = 1.0


@dataclass(frozen=True, slots=True)
class BatchRequest:
    """What a batch is asked to do. `output` None: standard output, which cannot be resumed.

    `errors`: the second file of `--on-error route`. `command`: how it was asked for, kept for retries.
    """

    source: Source
    output: Path | None
    question: Question = field(default_factory=lambda: Question(""))
    output_form: OutputFormat | None = None
    ordered: bool = True
    errors: Path | None = None
    policy: Policy = field(default_factory=Policy)
    limiter: LimiterPlan = field(default_factory=LimiterPlan)
    budget: Budget = field(default_factory=Budget)
    assertions: Assertions = NO_ASSERTIONS
    cache: bool = False
    report: Path | None = None
    junit: Path | None = None
    command: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class BatchOutcome:
    """`status` is the exit status; `snapshot` the last progress (see progress.py)."""

    status: int
    snapshot: dict[str, Any]
    stop: Stop | None


class Talk(Protocol):
    """How a batch speaks to people."""

    def say(self, message: str) -> None:
        """One thing worth knowing."""
        ...

    def tell(self, progress: dict[str, Any]) -> None:
        """How far it is, about once a second and at the end."""
        ...


async def run_batch(
    request: BatchRequest,
    loaded: LoadedSettings,
    talk: Talk,
    *,
    folder: Path,
    opened: Callable[[LoadedSettings], AbstractAsyncContextManager[Runner]] = open_runner,
) -> BatchOutcome:
    """Run what is due and say how it ended; errors that keep it from beginning are raised.

    `folder`: where relative paths of assistant files count from.
    """
    _check(request)
    laid = _with_assistant_file(loaded, folder)
    with contextlib.ExitStack() as stack:
        if request.output is not None:
            stack.enter_context(_locked(request.output))
        request = dataclasses.replace(
            request,
            source=_reread(request, stack),
            question=dataclasses.replace(request.question, limits=request.question.limits or limits_of(laid)),
        )
        store = ResultStore(
            request.output,
            codec_for(request.output_form, request.output.name if request.output else ""),
            ordered=request.ordered,
            errors=request.errors,
        )
        stack.callback(store.close)
        store.load()
        cache = AnswerCache(loaded.folders.cache / "batch.sqlite3") if request.cache else None
        if cache:
            stack.callback(cache.close)
        async with opened(loaded) as runner:
            for notice in runner.notices:
                talk.say(notice)
            prints = await _fingerprints(request, laid, runner, folder)
            batch = Batch(
                request.source,
                store,
                question=request.question,
                fingerprint=prints.of,
                limiter=_limiter(request.limiter, runner),
                spending=Spending(request.budget, laid.settings.prices),
                policy=request.policy,
                assertions=request.assertions,
                cache=cache,
                changes=_changes(request.output, prints),
            )
            batch.prepare()
            _say_what_is_there(batch, request.output, talk)
            if request.output is not None and request.command is not None:
                errors = str(request.errors.resolve()) if request.errors is not None else None
                write_command(request.output, request.command | {"errors": errors, "settings": prints.parts})
            state = await _work(batch, store, runner, request.output, talk)
        final = snapshot(batch, state=state)
        if request.output is not None:
            write_snapshot(request.output, final)
        talk.tell(final)
        _say_how_it_ended(batch, talk)
        if batch.unasked and batch.stop is None and request.source.shard == WHOLE:
            talk.say(f"no row has the id {', '.join(sorted(batch.unasked)[:5])}: its assertions hold nothing")
        if request.output is not None:
            _write_reports(request, request.output)
        return BatchOutcome(batch.status(), final, batch.stop)


def _with_assistant_file(loaded: LoadedSettings, folder: Path) -> LoadedSettings:
    """The settings as the runner will see them: an assistant file says limits, model and engine, too."""
    settings = loaded.settings
    spec, _ = find_spec(settings.assistant, cwd=folder, environ=loaded.environ, profile=settings.profile)
    return lay_assistant_file(loaded, str(spec.source), spec.settings_layer()) if spec else loaded


def _check(request: BatchRequest) -> None:
    """Every file that will be written has its folder and is nothing else of this batch."""
    taken = {request.source.path.resolve(): "the input"} if request.source.path is not None else {}
    for option, path in (
        ("--output", request.output),
        ("--errors", request.errors),
        ("--report", request.report),
        ("--junit", request.junit),
    ):
        if path is None:
            continue
        if option in ("--report", "--junit") and request.output is None:
            raise UsageError(f"{option} needs a file of results", remedy="name one: -o results.jsonl")
        if not path.parent.is_dir():
            raise UsageError(f"there is no folder {path.parent}", remedy=f"make it, or name another {option}")
        if path.is_dir():
            raise UsageError(f"{path} is a folder", remedy=f"name a file: {option} FILE")
        if what := taken.get(path.resolve()):
            raise UsageError(f"{path} is {what}", remedy=f"name another file: {option} FILE")
        taken[path.resolve()] = f"the file of {option}"


def _reread(request: BatchRequest, stack: contextlib.ExitStack) -> Source:
    """The source, made one that can be read twice if it should be."""
    source = request.source
    readable = source.path is not None and (source.path.is_file() or not source.path.exists())
    if readable or not request.policy.scan:
        return source
    kept = state_folder(request.output) / "input" if request.output is not None else None
    copy = spool(source.path, kept)
    if kept is None:
        stack.callback(copy.unlink, missing_ok=True)
    return dataclasses.replace(source, path=copy)


@contextlib.contextmanager
def _locked(output: Path) -> Iterator[None]:
    folder = state_folder(output)
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise UsageError(
            f"{folder} cannot be made: {error.strerror}", remedy="name an output in a folder of yours"
        ) from None
    with output_lock(folder / LOCK_FILE, output=str(output)):
        yield


async def _fingerprints(
    request: BatchRequest, loaded: LoadedSettings, runner: Runner, folder: Path
) -> Fingerprints:
    settings = loaded.settings
    world = World(folder, loaded.environ, settings.profile)
    parts = settings_parts(settings, request.question, world)
    if isinstance(parts["assistant"], str):
        found = await runner.assistant(request.question)
        parts["assistant"] = remote_assistant_parts(found.document())
    return Fingerprints(parts, world)


def _changes(output: Path | None, prints: Fingerprints) -> list[str]:
    """What differs from the settings of the last invocation on this output."""
    if output is None:
        return []
    try:
        before = read_command(output).get("settings") or {}
    except NotFound:
        return []
    now = json.loads(json.dumps(prints.parts, default=str))
    return changed_parts(before, now)


def _limiter(plan: LimiterPlan, runner: Runner) -> Limiter:
    """The limiter, asked before every request of the backend and told of every refusal.

    Behind the embedded service stands a provider that we do not see answer at once: there, only
    answers open places.
    """
    backend = getattr(runner, "backend", None)
    if backend is not None and backend.label == "embedded":
        plan = dataclasses.replace(plan, early=0)
    limiter = Limiter(plan)
    if isinstance(backend, HttpBackend):
        backend.pacer = limiter
    elif plan.requests_per_minute:
        raise UsageError(
            "requests per minute can be capped only for a backend that we speak HTTP to",
            remedy="leave --rpm out, or cap rows at once with -j",
        )
    return limiter


def _say_what_is_there(batch: Batch, output: Path | None, talk: Talk) -> None:
    tally = batch.tally
    if tally.changed_rows:
        names = ", ".join(tally.changed) + (" …" if tally.changed_rows > len(tally.changed) else "")
        talk.say(
            f"{tally.changed_rows} rows have changed since they were answered and are asked again: {names}"
        )

    if tally.gone and output is not None:
        talk.say(
            f"{tally.gone} finished rows are in the input no more and leave the output; answers among them "
            f"are kept in {state_folder(output) / 'superseded.jsonl'}"
        )


def _say_how_it_ended(batch: Batch, talk: Talk) -> None:
    if batch.stop is not None:
        talk.say(f"stopped: {batch.stop.why}")
        if batch.stop.error is not None and batch.stop.error.remedy:
            talk.say(batch.stop.error.remedy)
        talk.say(f"{batch.tally.left} rows are left: run the same command again to go on")
    if batch.tally.kept_failed:
        talk.say(f"{batch.tally.kept_failed} rows failed before and stay so: --retry-failed asks them again")
    if batch.tally.unknown_calls:
        talk.say(
            f"{batch.tally.unknown_calls} tool calls that write were cut off when an earlier process was "
            "killed: their outcome is unknown, their rows say so in `warnings`"
        )
    if batch.spending.unpriced:
        names = ", ".join(sorted(batch.spending.unpriced))
        talk.say(f"no price is known for {names}: its rows have no cost (set [prices] in the config)")


async def _work(batch: Batch, store: ResultStore, runner: Runner, output: Path | None, talk: Talk) -> str:
    """The batch's run under signals and ticks; the state it ended in."""
    task = asyncio.current_task()
    assert task is not None

    async def ticking() -> None:
        while True:
            progress = snapshot(batch, state="running")
            if output is not None:
                write_snapshot(output, progress)
            talk.tell(progress)
            await asyncio.sleep(TICK_S)
            await asyncio.to_thread(store.sync)

    def interrupt(number: int) -> None:
        if batch.stop is None:
            batch.halt(Stop(128 + number, "interrupted; rows that run may end, once more leaves at once"))
            talk.say("interrupted: waiting for the rows that run (once more: leave at once)")
        else:
            task.cancel()

    def failed(ticker: asyncio.Task[None]) -> None:
        """A disk that takes no progress takes no rows: stop now, and raise at the end."""
        if not ticker.cancelled() and (error := ticker.exception()):
            batch.halt(Stop(getattr(error, "exit_status", 1), str(error)))

    async with _signals(interrupt):
        ticker = asyncio.create_task(ticking())
        ticker.add_done_callback(failed)
        try:
            await batch.run(runner)
        except asyncio.CancelledError:
            if batch.stop is None or task.uncancel() > 0:
                raise
        finally:
            ticker.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await ticker
    return "finished" if batch.stop is None else "stopped"


@contextlib.asynccontextmanager
async def _signals(interrupt: Callable[[int], None]) -> AsyncIterator[None]:
    """SIGINT and SIGTERM call `interrupt` meanwhile, where the loop can do that."""
    loop = asyncio.get_running_loop()
    taken = []
    for number in (signal.SIGINT, signal.SIGTERM):
        with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):
            loop.add_signal_handler(number, interrupt, int(number))
            taken.append(number)
    try:
        yield
    finally:
        for number in taken:
            loop.remove_signal_handler(number)


def _write_reports(request: BatchRequest, output: Path) -> None:
    codec = codec_for(request.output_form, output.name)
    if request.junit is not None:
        from assistant_runner.batch.junit import write_junit

        with writing(request.junit):
            write_junit(request.junit, read_results(output, codec, request.errors), name=request.source.name)
    if request.report is not None:
        from assistant_runner.batch.report import write_report

        title, results = request.source.name, read_results(output, codec, request.errors)
        with writing(request.report):
            write_report(request.report, results, title=title, made_at=time.time())
