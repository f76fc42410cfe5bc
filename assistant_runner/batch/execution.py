"""A batch from its first row to its last: what to ask, what to keep, when to stop.

One task per row in flight; the limiter says how many. A finished row goes to the store at once and is
never asked again. Rows that name the same thread go one after the other (case-079). What is nobody's
fault in particular (key, quota, no backend) stops the batch and leaves its rows for the next run.
"""

import asyncio
import contextlib
import json
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol, runtime_checkable

from assistant_runner.aside import aside
from assistant_runner.assembly import Question, Runner
from assistant_runner.batch.budget import Spending
from assistant_runner.batch.cache import AnswerCache
from assistant_runner.batch.checks import NO_ASSERTIONS, Assertions, expectation_problem, run_checks
from assistant_runner.batch.limiter import Limiter
from assistant_runner.batch.outcomes import (
    answered_row,
    failed_row,
    head,
    invalid_row,
    is_out_of_reach,
    is_quota_used_up,
    is_refusal,
    is_unknown,
    trouble_of,
)
from assistant_runner.batch.output import Found, ResultStore
from assistant_runner.batch.rows import Occurrences, Row, row_limits
from assistant_runner.batch.source import Source
from assistant_runner.errors import (
    ApiGone,
    AssistantRunnerError,
    AuthenticationFailed,
    ConfigurationError,
    HumanNeeded,
    RunError,
)
from assistant_runner.run.events import CallStarted, Listener, RunEvent, RunStarted
from assistant_runner.run.request import RunResult

OnError = Literal["skip", "stop", "route"]
WINDOW = 10_000
"""Rows that may be finished and wait for one before them."""
BREATH = 8
"""Rows that are started at once; more would stay a crowd, of which each waits for all."""


@dataclass(frozen=True, slots=True)
class Policy:
    """How rows are treated. `retries`: further attempts after trouble; refusals for rate do not count,
    they end after `patience_s`."""

    on_error: OnError = "skip"
    retry_failed: bool = False
    accept_changes: bool = False
    retries: int = 4
    patience_s: float = 600.0
    dedup: bool = False
    keep_original: bool = False
    scan: bool = True


@dataclass(slots=True)
class Tally:
    """Where the batch stands. `kept`: rows that earlier invocations finished, failed ones included;
    `unpassed` counts kept ones, too. `gone`: finished rows that the input has no more."""

    total: int | None = None
    kept: int = 0
    kept_failed: int = 0
    gone: int = 0
    ok: int = 0
    failed: int = 0
    paused: int = 0
    unpassed: int = 0
    copied: int = 0
    left: int = 0
    unknown_calls: int = 0
    running: int = 0
    changed: list[str] = field(default_factory=list)
    changed_rows: int = 0
    kinds: dict[str, int] = field(default_factory=dict)
    statuses: set[int] = field(default_factory=set)
    began: float = field(default_factory=time.monotonic)

    def keep(self, rows: int, failed: int, unpassed: int) -> None:
        """Counts rows that earlier invocations finished."""
        self.kept += rows
        self.kept_failed += failed
        self.unpassed += unpassed

    @property
    def done(self) -> int:
        return self.kept + self.ok + self.failed + self.paused

    @property
    def answered(self) -> int:
        """Answered rows of the whole output."""
        return self.kept - self.kept_failed + self.ok

    @property
    def failures(self) -> int:
        """Failed rows of the whole output."""
        return self.failed + self.kept_failed


@dataclass(frozen=True, slots=True)
class Stop:
    """Why no further row is started: exit status and words."""

    status: int
    why: str
    error: AssistantRunnerError | None = None


class Batch:
    """One invocation on one output. `fingerprint` says which settings answer a row (by its assistant);
    `changes` names what of them has changed since the last invocation, for people."""

    def __init__(
        self,
        source: Source,
        store: ResultStore,
        *,
        question: Question,
        fingerprint: Callable[[str | None], str],
        limiter: Limiter,
        spending: Spending,
        policy: Policy,
        assertions: Assertions = NO_ASSERTIONS,
        cache: AnswerCache | None = None,
        changes: Sequence[str] = (),
    ) -> None:
        self.tally = Tally()
        self.stop: Stop | None = None
        self.limiter = limiter
        self.spending = spending
        self._source = source
        self._store = store
        self._question = question
        self._fingerprint = fingerprint
        self._policy = policy
        self._assertions = assertions
        self._cache = cache
        self._changes = changes
        self.unasked = set(assertions.rows)  # ids that assertions name and no row has had so far
        self._tasks: set[asyncio.Task[None]] = set()
        self._room = asyncio.Event()
        self._halted = asyncio.Event()
        self._chains: dict[str, deque[tuple[int, Row]]] = {}
        self._chained = 0
        self._doubled = Occurrences() if policy.dedup else None
        self._leaders: dict[str, _Leader] = {}
        self._closed = False  # no row begins any more, even if it has been admitted
        self._failure: BaseException | None = None
        self._drained = False
        self._scanned = policy.scan and source.rereadable
        self._runner: Runner | None = None

    # -- before the first request --------------------------------------------------------------------

    def prepare(self) -> None:
        """Look at what is there and at the whole input; ConfigurationError if settings changed.

        Call `ResultStore.load` first. Without a scan (a stream) all earlier rows wait in the pending
        file until the input reaches them.
        """
        self.spending.before(cost=self._store.cost, tokens=self._store.tokens)
        if not self._scanned:
            self._keep_everything()
            return
        if self._store.index.is_empty and self._doubled is None:  # the first run on this output
            self.tally.total = self._source.count()
            return
        prefix, broken, total, due = 0, False, 0, 0
        moved: int | None = None  # the first row of OUTPUT that is elsewhere in the input now
        mixed: dict[str, int] = {}
        for row in self._source.rows():
            total += 1
            if self._doubled is not None:
                self._doubled.count(row.content_hash)
            found = self._store.index.get(row.key)
            if found is None or not self._keeps(self._judged(row), found):
                broken = True
                if found is not None:
                    due += 1
                    self._reopen(row, found)
                continue
            self._store.index.keep(row.key)
            broken = self._recheck(row, found) or broken
            if found.place == "output" and found.at != (row.index, row.line):
                broken = True
                moved = found.ordinal if moved is None else min(moved, found.ordinal)
            if found.status == "ok" and found.fingerprint != self._fingerprint(row.asks.get("assistant")):
                mixed[found.fingerprint] = mixed.get(found.fingerprint, 0) + 1
            if not broken and found.place == "output" and found.ordinal == prefix:
                prefix += 1
            else:
                broken = True
        self.tally.total = total
        self.tally.gone = self._store.index.unkept() - due
        self.tally.keep(*self._store.index.kept())
        if mixed and not self._policy.accept_changes:
            raise ConfigurationError(
                f"{sum(mixed.values())} finished rows were answered with other settings; changed since: "
                f"{', '.join(self._changes) or 'model, instructions, tools or assistant'}",
                remedy="name another output, or go on with --accept-changes: finished rows stay as they are",
                fingerprints=mixed,
            )
        if not self._store.ordered:
            first = self._store.index.first_moving("output")
            prefix = self._store.index.count("output") if first is None else first
            prefix = prefix if moved is None else min(prefix, moved)
        self._store.settle(prefix=prefix)

    def _keep_everything(self) -> None:
        self._store.index.keep_all()
        self._store.settle(prefix=0 if self._store.ordered else self._store.index.count("output"))

    def _judged(self, row: Row) -> Row:
        """The row with the problem of its expectations, if they have one."""
        if row.problem is None and row.expect and (problem := expectation_problem(row.expect)):
            return replace(row, problem=problem)
        return row

    def _keeps(self, row: Row, found: Found) -> bool:
        """Whether what an earlier invocation found still answers this row."""
        if found.content_hash != row.content_hash:
            self.tally.changed_rows += 1
            if len(self.tally.changed) < 5:
                self.tally.changed.append(row.name)
            return False
        if found.status == "paused" or (row.problem is None) == (found.status == "invalid"):
            return False
        return found.status == "ok" or not self._policy.retry_failed

    def _recheck(self, row: Row, found: Found) -> bool:
        """Whether a kept row passes or fails other checks than it did, as what is expected has changed."""
        expect = self._assertions.of(row.id, row.expect) if row.problem is None else {}
        if found.place == "errors" or (not expect and found.passed is None):
            return False
        document = self._store.read(found)
        checks, passed = _checked(document, expect)
        if checks == (document.get("checks") or []):
            return False
        self._store.index.recheck(row.key, passed, checks)
        return True

    def _reopen(self, row: Row, found: Found) -> None:
        """A row that waits for a person goes on with its run, any other begins a new one."""
        paused = found.status == "paused" and found.content_hash == row.content_hash
        run_id = str(self._store.read(found).get("run_id") or "") if paused else ""
        self._store.begin(row.key, run_id, row.content_hash)

    # -- the run -------------------------------------------------------------------------------------

    async def run(self, runner: Runner) -> None:
        """Ask every row that is due. Raises what the store raises (a full disk) and bugs, nothing else.

        Cancelled: rows in flight are left for the next run; everything finished is written.
        """
        self._runner = runner
        try:
            await self._feed()
            while self._tasks:
                await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)
            if self._failure is not None:
                raise self._failure
        finally:
            self.limiter.let_go()
            for task in tuple(self._tasks):
                task.cancel()
            if self._tasks:
                await asyncio.wait(self._tasks)
            self.tally.left += sum(len(waiting) for waiting in self._chains.values())
            whole = self._drained and self._failure is None
            self._store.finish(complete=whole, unclaimed=not self._scanned)
            if whole and not self.tally.left + self.tally.paused:
                self._store.forget_begun()
            if self._doubled is not None:
                self._doubled.close()

    def halt(self, stop: Stop, *, admitted_too: bool = True) -> None:
        """Start no further row; what runs may end. `admitted_too`: nor one that has a place already and
        waits for its turn to begin."""
        self.stop = self.stop or stop
        self._closed = self._closed or admitted_too
        self.limiter.close(admitted_too=admitted_too)
        self._halted.set()
        self._room.set()

    async def _feed(self) -> None:
        streamed = not self._source.rereadable
        rows = self._source.rows()
        try:
            sequence = -1
            while (row := await self._next(rows, streamed)) is not None:
                sequence += 1
                await self._offer(sequence, self._judged(row))
                if sequence % BREATH == BREATH - 1:
                    await asyncio.sleep(0)
                if self._failure is not None:
                    return
            if streamed and self.stop is not None:
                return
            self._drained = True
            self.tally.total = sequence + 1
        finally:
            with contextlib.suppress(ValueError):  # a thread may still be reading it
                rows.close()  # type: ignore[attr-defined]

    async def _next(self, rows: Iterator[Row], streamed: bool) -> Row | None:
        """The next row; None after the last, and for a stream, which may keep us waiting, after `halt`."""
        if not streamed:
            return next(rows, None)
        reading = asyncio.create_task(aside(lambda: next(rows, None), name="batch-input"))
        halted = asyncio.create_task(self._halted.wait())
        either: set[asyncio.Future[Any]] = {reading, halted}
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            return reading.result() if reading.done() and self.stop is None else None
        finally:
            halted.cancel()
            reading.cancel()

    async def _offer(self, sequence: int, row: Row) -> None:
        self.unasked.discard(str(row.id))
        found = self._store.index.get(row.key)
        if found is not None and (self._scanned or self._keeps(row, found)):
            if not self._scanned:
                self.tally.keep(1, found.status != "ok", found.passed is False)
                self._store.index.drop(row.key)
            self._store.known(sequence, found, (row.index, row.line))
            return
        if row.problem is not None and self.stop is None:
            self._finish(sequence, row, invalid_row(row), started=False)
            return
        if not await self._admit(row):
            self._leave(sequence)
            return
        thread = row.asks.get("thread_id") or self._question.thread_id
        if thread is not None and thread in self._chains:
            self._chains[thread].append((sequence, row))
            self._chained += 1
            self.limiter.release()
            return
        if thread is not None:
            self._chains[thread] = deque()
        self._start(sequence, row, thread)

    async def _admit(self, row: Row) -> bool:
        """A place for one more row; False if the batch stops here."""
        await self._wait_while(
            lambda: self._store.backlog >= WINDOW or self._chained >= WINDOW or self.spending.must_wait()
        )
        if not self._may_go_on():
            return False
        if not await self.limiter.admit():
            return False
        if not self._may_go_on():
            self.limiter.release()
            return False
        return True

    async def _wait_while(self, crowded: Callable[[], bool]) -> None:
        while self.stop is None and crowded():
            self._room.clear()
            await self._room.wait()

    def _may_go_on(self) -> bool:
        if self.stop is None and (why := self.spending.exhausted()):
            self.halt(Stop(8, why), admitted_too=False)
        return self.stop is None and self._failure is None

    def _leave(self, sequence: int) -> None:
        self.tally.left += 1
        self._store.skip(sequence)

    def _start(self, sequence: int, row: Row, thread: str | None) -> None:
        self.spending.start()  # here, not in the task: rows are started a few at a time
        task = asyncio.create_task(self._work(sequence, row, thread))
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._room.set()
        if not task.cancelled() and (error := task.exception()) and self._failure is None:
            self._failure = error
            self.halt(Stop(1, str(error)))

    async def _work(self, sequence: int, row: Row, thread: str | None) -> None:
        """One row, and then those that wait for its thread, one after the other."""
        placed = True
        try:
            while True:
                await self._answer(sequence, row)
                if thread is None or self._is_last(thread):
                    return
                placed = False
                self.limiter.release()
                await self._wait_while(self.spending.must_wait)
                placed = await self.limiter.admit()
                sequence, row = self._take_next(thread)
                while not self._may_go_on():
                    self._leave(sequence)
                    if self._is_last(thread):
                        return
                    sequence, row = self._take_next(thread)
                self.spending.start()
        finally:
            if placed:
                self.limiter.release()

    def _is_last(self, thread: str) -> bool:
        """Whether no row waits for this thread any more; it is free then."""
        if self._chains[thread]:
            return False
        del self._chains[thread]
        return True

    def _take_next(self, thread: str) -> tuple[int, Row]:
        self._chained -= 1
        self._room.set()
        return self._chains[thread].popleft()

    async def _answer(self, sequence: int, row: Row) -> None:
        fingerprint = self._fingerprint(row.asks.get("assistant"))
        self.tally.running += 1
        document: dict[str, Any] | None = None
        try:
            document = await self._reuse(row, fingerprint)
            if document is None and not self._closed:
                document = await self._ask(row)
                self._share(row, document, fingerprint)
        finally:
            self.tally.running -= 1
            if document is None:
                self._share(row, None, fingerprint)
                self.spending.finish({})
                self._leave(sequence)
        if document is None:
            return
        document |= {"content_hash": row.content_hash, "fingerprint": fingerprint}
        self._finish(sequence, row, document, started=True)

    # -- answers that need no run --------------------------------------------------------------------

    async def _reuse(self, row: Row, fingerprint: str) -> dict[str, Any] | None:
        if self._cache is not None and (cached := self._cache.get(row.content_hash, fingerprint)):
            return head(row) | cached | {"copied_from": "cache", "usage": None, "cost": None}
        if self._doubled is None or self._doubled.seen(row.content_hash) < 2:
            return None
        waited = False
        while (leader := self._leaders.get(row.content_hash)) is not None:
            if not leader.answer.done():
                waited = True
                await self._wait_for(leader)
            if (first := leader.answer.result()) is not None:
                same = {name: value for name, value in first.items() if name not in _OWN}
                return head(row) | same | {"copied_from": first["key"], "usage": None, "cost": None}
        self._leaders[row.content_hash] = _Leader(row.key, asyncio.get_running_loop().create_future())
        if waited and not self._closed:
            await self.limiter.step_out(0)
        return None

    async def _wait_for(self, leader: "_Leader") -> None:
        """Until it has an answer, or none. In no place: the leader may need one to get on."""
        self._chained += 1
        try:
            await self.limiter.wait_outside(asyncio.shield(leader.answer))
        finally:
            self._chained -= 1
            self._room.set()

    def _share(self, row: Row, document: dict[str, Any] | None, fingerprint: str) -> None:
        answered = document if document and document["status"] == "ok" else None
        if self._cache is not None and answered and "copied_from" not in answered:
            kept = {name: value for name, value in answered.items() if name not in _OWN}
            self._cache.put(row.content_hash, fingerprint, kept)
        leader = self._leaders.get(row.content_hash)
        if leader is not None and leader.key == row.key and not leader.answer.done():
            leader.answer.set_result(answered)
            if answered is None:
                del self._leaders[row.content_hash]

    # -- one row -------------------------------------------------------------------------------------

    async def _ask(self, row: Row) -> dict[str, Any] | None:
        """The row's result; None if it is left for another run."""
        assert self._runner is not None
        question = row_question(row, self._question)
        began_at, began = time.time(), time.monotonic()
        attempt, wrote = 0, False
        lost: dict[str, Any] | None = None  # the row, if trouble came after its tools may have written
        begun = self._store.index.begun(row.key, row.content_hash)
        while True:
            attempt += 1
            if not await self.limiter.begin() and lost is None:
                return None
            watch = _Watch(self.limiter, lambda run_id: self._store.begin(row.key, run_id, row.content_hash))
            asked = time.monotonic()
            try:
                result = await self._take_up(begun, watch) if begun else None
                if result is None and lost is None:
                    result = await self._runner.ask(question, listener=watch)
            except AssistantRunnerError as error:
                begun = _still_open(error, watch.run_id or begun)
                wrote = wrote or watch.wrote
                document = failed_row(row, error, run_id=watch.run_id, thread_id=watch.thread_id)
                again = await self._again(error, attempt, began, wrote=wrote, resumable=begun is not None)
                if again == "again":
                    lost = document if wrote else None
                    continue
                if again == "left":
                    return None
                if self._is_everybodys(error, row):
                    self.halt(Stop(error.exit_status, error.message, error))
                    return None
            else:
                if result is None:
                    assert lost is not None
                    attempt -= 1
                    document = lost
                else:
                    document = answered_row(row, result)
                    tokens = result.usage.total_tokens if result.usage else 0
                    self.limiter.succeeded(tokens=tokens, seconds=time.monotonic() - asked)
            document["duration_s"] = round(time.monotonic() - began, 4)
            document["started_at"] = round(began_at, 3)
            document["attempts"] = attempt
            return document

    async def _take_up(self, run_id: str, watch: "_Watch") -> RunResult | None:
        """The result of a run that was left open; None if it cannot be taken up and did no harm."""
        if not isinstance(self._runner, Resumer):
            return None
        return await self._runner.take_up(run_id, listener=watch)

    async def _again(
        self, error: AssistantRunnerError, attempt: int, began: float, *, wrote: bool, resumable: bool
    ) -> Literal["again", "left", "no"]:
        """Whether to go on once more, after the wait that this error calls for; "left": in another run.

        A row whose tools may have written is taken up again, or not at all.
        """
        waited = time.monotonic() - began
        wrote = wrote and not (resumable and isinstance(self._runner, Resumer))
        if is_refusal(error):
            hint = getattr(error, "retry_after_s", None)
            if is_quota_used_up(error) or wrote or waited > self._policy.patience_s:
                self.limiter.refuse(hint)
                return "no"
            if await self.limiter.refused(hint):
                return "again"
            return "left" if self._closed else "no"
        kind = trouble_of(error)
        if kind is None:
            return "no"
        self.limiter.troubled(kind)
        if kind == "timeout" or wrote or attempt > self._policy.retries:
            return "no"
        return "again" if await self.limiter.step_out(min(8.0, 0.25 * 2 ** (attempt - 1))) else "left"

    def _is_everybodys(self, error: AssistantRunnerError, row: Row) -> bool:
        """Whether every other row would meet the same: the key, the quota, the way to the backend."""
        if isinstance(error, ApiGone) or is_out_of_reach(error) or is_quota_used_up(error):
            return True
        own = row.asks.get("assistant") or row.asks.get("tools") or row.asks.get("thread_id")
        return isinstance(error, AuthenticationFailed | ConfigurationError) and not own

    def _finish(self, sequence: int, row: Row, document: dict[str, Any], *, started: bool) -> None:
        expect = self._assertions.of(row.id, row.expect)
        if expect and row.problem is None:
            document["checks"], document["passed"] = _checked(document, expect)
            self.tally.unpassed += not document["passed"]
        document["cost"] = document.get("cost") or self.spending.price(
            document.get("model"), document.get("usage")
        )
        document.setdefault("fingerprint", self._fingerprint(row.asks.get("assistant")))
        if self._policy.keep_original:
            document["original"] = row.original
        if started:
            self.spending.finish(document)
            self._room.set()
        self._count(document)
        self._store.put(sequence, document)
        if document["status"] in ("failed", "invalid") and self._policy.on_error == "stop":
            self.halt(Stop(16, f"{row.name} failed and --on-error is stop"))

    def _count(self, document: Mapping[str, Any]) -> None:
        tally = self.tally
        status = document["status"]
        tally.ok += status == "ok"
        tally.paused += status == "paused"
        tally.failed += status in ("failed", "invalid")
        tally.copied += "copied_from" in document
        tally.unknown_calls += sum(is_unknown(call) for call in document.get("tool_calls") or [])
        if error := document.get("error"):
            tally.kinds[error["kind"]] = tally.kinds.get(error["kind"], 0) + 1
            tally.statuses.add(error["exit_status"])

    def status(self) -> int:
        """The exit status of this invocation (case-078).

        0 all rows are answered · 16 some failed, or failed their checks · the rows' own status if all
        failed for one reason, 11 if for several · 6 rows wait for a person · the stop's status if the
        batch stopped before its end.
        """
        if self.stop is not None:
            return self.stop.status
        tally = self.tally
        if tally.failures and not tally.answered and not tally.paused:
            return min(tally.statuses) if len(tally.statuses) == 1 and not tally.kept_failed else 11
        if tally.failures or tally.unpassed:
            return 16
        return 6 if tally.paused else 0


@runtime_checkable
class Resumer(Protocol):
    """A runner with a journal."""

    async def take_up(self, run_id: str, *, listener: Listener | None = None) -> RunResult | None:
        """The completed run with this id, nothing done twice; None if it is not known."""
        ...


def _checked(
    document: Mapping[str, Any], expect: Mapping[str, Any]
) -> tuple[list[dict[str, Any]], bool | None]:
    """The checks of a result row as JSON has them, and whether all passed; None if nothing is expected."""
    checks = run_checks(document, expect)
    plain: list[dict[str, Any]] = json.loads(json.dumps([check.document() for check in checks], default=str))
    return plain, all(check.passed for check in checks) if checks else None


def _still_open(error: AssistantRunnerError, run_id: str | None) -> str | None:
    """The run, if this error did not end it."""
    return None if isinstance(error, RunError) and not isinstance(error, HumanNeeded) else run_id


@dataclass(frozen=True, slots=True)
class _Leader:
    """The row, by its key, that is asked for all that are equal; its answer is None if it has none."""

    key: str
    answer: asyncio.Future[dict[str, Any] | None]


_OWN = frozenset({"index", "line", "id", "key", "passed", "checks", "content_hash", "original"})


class _Watch:
    """What a row's run did so far, for the question whether it may be started anew."""

    def __init__(self, limiter: Limiter, begin: Callable[[str], None]) -> None:
        self.run_id: str | None = None
        self.thread_id: str | None = None
        self.wrote = False
        self._limiter = limiter
        self._begin = begin

    async def __call__(self, event: RunEvent) -> None:
        if isinstance(event, RunStarted):
            if self.run_id is None:
                self._limiter.accepted()
            if event.run_id != self.run_id:
                self._begin(event.run_id)
            self.run_id, self.thread_id = event.run_id, event.thread_id
        elif isinstance(event, CallStarted) and not event.harmless:
            self.wrote = True


def row_question(row: Row, base: Question) -> Question:
    """The batch's question with what the row says itself."""
    asks = dict(row.asks)
    if "tools" in asks:
        asks["tools"] = tuple(asks["tools"])
    if base.metadata and "metadata" in asks:
        asks["metadata"] = {**base.metadata, **asks["metadata"]}
    return replace(base, prompt=row.prompt, limits=row_limits(row, base.limits), **asks)
