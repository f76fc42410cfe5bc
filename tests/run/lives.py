"""One run through many lives of the program, each ended somehow, and what has to hold after each.

The backend outlives the lives: the embedded service on a clock that is moved by hand. A life has a runner
and a journal of its own over the same folder; a kill cuts it off from both at once, without tidying up.
The model plays the same turns in each run, so a fresh run asks for everything again.
"""

import asyncio
import contextlib
import json
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from assistant_runner.assembly.question import Question
from assistant_runner.assembly.runner import AssembledRunner
from assistant_runner.assembly.shelf import Shelf
from assistant_runner.backends.embedded import over_service
from assistant_runner.errors import AssistantRunnerError, BackendUnreachable, OutcomeUnknown, UsageError
from assistant_runner.run.events import CallFinished
from assistant_runner.run.journal import Journal
from assistant_runner.run.memory import call_key, recall
from assistant_runner.run.request import Limits
from assistant_runner.service.app import Service
from assistant_runner.service.engines.script import ScriptEngine
from assistant_runner.service.settings import ServiceSettings
from assistant_runner.service.store.sqlite import SqliteStore
from assistant_runner.settings import load_settings
from assistant_runner.tooling.contract import ToolFailure
from assistant_runner.tooling.gate import ToolGate
from assistant_runner.tooling.human import HUMAN_TOOL, human_tool
from assistant_runner.tooling.policy import Policy
from assistant_runner.tooling.registry import Toolbox
from assistant_runner.tooling.schema import tool_from_function
from assistant_runner.wire.threads import ThreadCreate
from tests.run.world import HandClock

BUNDLE = "multi_tool_use.parallel"
WRITES = ("write", "plain", "breaks", "asks")
ANSWER = "All is done."


class Killed(BaseException):
    """The process is gone: nothing of it does anything any more."""


@dataclass(frozen=True)
class Life:
    """What one life is given and how it ends.

    `end`: kill or interrupt, `at` its n-th record (`before` it is on disk or after), or at its n-th tool
    call, which has then done its work; the n-th request of a kind (`faults`) loses its way there or its
    answer, or its stream breaks.
    """

    end: str = ""  # "", "kill", "interrupt", "hang"
    where: str = "record"  # "record", "call", "request"
    at: int = 1
    before: bool = False
    dies_after: int | None = None  # requests that an interrupted life still makes
    rounds: int = 25
    pause_after: int | None = None
    faults: tuple[tuple[str, int, str], ...] = ()
    again: bool | None = None
    restart: bool = False
    allow: bool = True
    answer: bool = False
    fork: int | None = None  # with this round, -1: all
    meanwhile: str = ""  # before it: "expire", "cancel"
    timeout_s: float = 15
    if_active: str = "fail"
    on_interrupt: str = "cancel"


class ShakyBackend:
    """The way from one life to the backend."""

    def __init__(self, world: "Lives", life: Life) -> None:
        self._world, self._life = world, life
        self._inner = world.backend
        self._counts: Counter[str] = Counter()
        self.label = "embedded"

    def _fault(self, name: str) -> str:
        if self._world.dead:
            raise Killed
        if self._world.dying is not None:
            if self._world.dying <= 0:
                self._world.dead = True
                raise Killed
            self._world.dying -= 1
        self._counts[name] += 1
        self._counts["request"] += 1
        life = self._life
        if life.end == "kill" and life.where == "request" and life.at == self._counts["request"]:
            return "killed before" if life.before else "killed after"
        return next((how for kind, nth, how in life.faults if (kind, nth) == (name, self._counts[name])), "")

    def _kill(self) -> None:
        self._world.dead = True
        raise Killed

    def __getattr__(self, name: str) -> Any:
        inner = getattr(self._inner, name)

        async def ask(*args: Any, **kwargs: Any) -> Any:
            how = self._fault(name)
            if how == "killed before":
                self._kill()
            if how == "before":
                raise BackendUnreachable(f"{name}: refused", remedy="look at it")
            answer = await inner(*args, **kwargs)
            if how == "killed after":
                self._kill()
            if how:
                raise OutcomeUnknown(f"{name}: the answer was lost", remedy="look at it")
            if self._world.dead:
                raise Killed
            return answer

        return ask

    def stream_thread_and_run(self, body: Any) -> Any:
        return self._stream("create", lambda: self._inner.stream_thread_and_run(body))

    def stream_run(self, thread_id: str, body: Any) -> Any:
        return self._stream("create", lambda: self._inner.stream_run(thread_id, body))

    def stream_submit(self, *, thread_id: str, run_id: str, outputs: Any) -> Any:
        async def note() -> None:
            self._world.submitted.setdefault(run_id, []).append({o.tool_call_id: o.output for o in outputs})

        stream = lambda: self._inner.stream_submit(thread_id=thread_id, run_id=run_id, outputs=outputs)  # noqa: E731
        return self._stream("submit", stream, note)

    @asynccontextmanager
    async def _stream(self, name: str, open_: Any, note: Any = None) -> AsyncIterator[Any]:
        how = self._fault(name)
        if how == "killed before":
            self._kill()
        if how == "before":
            raise BackendUnreachable(f"{name}: refused", remedy="look at it")
        async with open_() as events:
            if note is not None:
                await note()
            if how == "killed after":
                self._kill()
            if how == "lost":
                raise OutcomeUnknown(f"{name}: the answer was lost", remedy="look at it")

            async def told() -> AsyncIterator[Any]:
                number = 0
                async for event in events:
                    if self._world.dead:
                        raise Killed
                    if how == "breaks" and number == 2:
                        raise BackendUnreachable(f"{name}: broke", remedy="look at it", stream_broke=True)
                    number += 1
                    yield event

            yield told()


class MortalJournal(Journal):
    """Writes nothing any more once its process is dead."""

    def __init__(self, folder: Path, world: "Lives", life: Life) -> None:
        super().__init__(folder, clock=world.clock)
        self._world, self._life = world, life

    def begin(self, **kwargs: Any) -> Any:
        return self._mortal(super().begin(**kwargs))

    def take_up(self, run: Any) -> Any:
        return self._mortal(super().take_up(run))

    def _mortal(self, recording: Any) -> Any:
        listen, life, world, count = recording.listen, self._life, self._world, 0

        async def counting(event: Any) -> None:
            nonlocal count
            if world.dead:
                raise Killed
            count += 1
            here = life.where == "record" and count == life.at
            if here and life.before and life.end == "kill":
                world.dead = True
                raise Killed
            await listen(event)
            if isinstance(event, CallFinished):
                world.journaled.append(event)
                world.try_beside(recording.key)
            if here and life.end == "kill":
                world.dead = True
                raise Killed
            if here and life.end == "interrupt":
                world.interrupt()

        recording.listen = counting
        return recording

    def _append(self, *args: Any) -> None:
        if self._world.dead:
            raise Killed
        super()._append(*args)

    def commit(self) -> None:
        if self._world.dead:
            raise Killed
        super().commit()

    def die(self) -> None:
        """As the system does it: what was not committed is gone, the lock is free."""
        self._db.rollback()
        self._db.close()
        if self._lock is not None:
            self._lock.close()


class QuickRunner(AssembledRunner):
    """Pauses take no time, the clock is the world's."""

    world: "Lives"

    def _driver(self, *args: Any, **kwargs: Any) -> Any:
        driver = super()._driver(*args, **kwargs)
        driver._sleep = _short
        driver._clock = self.world.clock
        return driver

    def _tool_client(self) -> Any:
        return self.world.client


async def _short(_seconds: float) -> None:
    await asyncio.sleep(0.001)


class Lives:
    """The world that outlives the program. `made`: the calls that did their work, by key."""

    def __init__(
        self, folder: Path, script: list[list[tuple[str, int]]], repeats: int, *, on_thread: bool = False
    ) -> None:
        self.on_thread = on_thread
        self.thread_id: str | None = None
        self.folder = folder
        self.script = script
        self.repeats = repeats
        self.clock = HandClock()
        self.client = httpx.AsyncClient(transport=httpx.MockTransport(lambda _: httpx.Response(404)))
        self.made: Counter[str] = Counter()
        self.allowed: Counter[str] = Counter()  # repetitions that somebody said yes to
        self.journaled: list[CallFinished] = []
        self.submitted: dict[str, list[dict[str, str]]] = {}
        self.dead = False
        self.dying: int | None = None
        self.task: asyncio.Task[Any] | None = None
        self._serial = 0
        self._calls = 0
        self._life = Life()
        self.key: str | None = None
        self.told: list[str] = []

    # -- what the model asks for ------------------------------------------------------------------

    def document(self) -> dict[str, Any]:
        turns: list[dict[str, Any]] = []
        for round_ in self.script:
            calls: list[dict[str, Any]] = []
            for name, n in round_:
                if name == "bundle":
                    uses = [
                        {"recipient_name": f"functions.{tool}", "parameters": {"n": n}}
                        for tool in ("write", "read", "write")
                    ]
                    calls.append({"name": BUNDLE, "arguments": {"tool_uses": uses}})
                elif name == "human":
                    options = {"urgency": "low", "format": "free_text", "choices": None}
                    words = {"question": f"{n}?", "context": "none", "options": options}
                    calls.append({"name": HUMAN_TOOL, "arguments": words})
                else:
                    calls.append({"name": name, "arguments": {"n": n}})
            turns.append({"tool_calls": calls})
        return {"format": 1, "scripts": {"m": {"turns": [*turns, {"text": ANSWER}]}}}

    def planned(self) -> Counter[str]:
        planned: Counter[str] = Counter()
        for name, n in (call for round_ in self.script for call in round_):
            for tool in ("write", "read", "write") if name == "bundle" else (name,):
                planned[call_key(tool, {"n": n})] += 1
        return planned

    # -- what the tools do ------------------------------------------------------------------------

    async def _work(self, tool: str, n: int) -> str:
        if self.dead:
            raise Killed
        await asyncio.sleep(0)
        if self.dead:
            raise Killed
        self._serial += 1
        self._calls += 1
        self.made[call_key(tool, {"n": n})] += 1
        token = f"<{tool}{n}:{self._serial}>"
        if self._life.where == "call" and self._calls == self._life.at:
            if self._life.end == "kill":
                self.dead = True
                raise Killed
            if self._life.end == "interrupt":
                self.interrupt()
                await asyncio.Event().wait()
            if self._life.end == "hang":
                await asyncio.Event().wait()
            if self._life.end == "expire":
                self.clock.now += 700
        return token

    def toolbox(self, life: Life) -> Toolbox:
        async def read(n: int) -> str:
            """Read."""
            return await self._work("read", n)

        async def write(n: int) -> str:
            """Write."""
            return await self._work("write", n)

        async def plain(n: int) -> str:
            """Do something."""
            return await self._work("plain", n)

        async def breaks(n: int) -> str:
            """Write a half, then fail."""
            raise ToolFailure(await self._work("breaks", n))

        async def asks(n: int) -> str:
            """Write, with an approval."""
            return await self._work("asks", n)

        def tool(function: Any, **fields: Any) -> Any:
            return replace(tool_from_function(function), effects_declared=True, **fields)

        timeout = {"timeout_s": 0.05} if life.end == "hang" and life.timeout_s > 1 else {}
        return Toolbox(
            [
                tool(read, effects="read", **timeout),
                tool(write, effects="write", approval="never", **timeout),
                replace(tool_from_function(plain), **timeout),
                tool(breaks, effects="write", approval="never", **timeout),
                tool(asks, effects="write", **timeout),
                human_tool(),
            ]
        )

    # -- lives ------------------------------------------------------------------------------------

    def interrupt(self) -> None:
        self.dying = self._life.dies_after
        assert self.task is not None
        self.task.cancel()

    def try_beside(self, key: str) -> None:
        """Another process does not get the run while this one lives."""
        with Journal(self.folder) as other, pytest.raises(UsageError, match="being worked on"):
            other.take_up(other.find(key))

    async def live(self, life: Life) -> str:
        """How it went: `ok`, the kind of its error, `killed` or `interrupted`."""
        self.dead, self.dying, self._calls, self._life = False, None, 0, life
        if life.meanwhile and self.key is not None:
            await self._meanwhile(life.meanwhile)
        journal = MortalJournal(self.folder, self, life)
        flags = {"if_active": life.if_active, "on_interrupt": life.on_interrupt}
        flags |= {"restart_expired": True} if life.restart else {}
        loaded = load_settings(
            {"offline": True, "state_folder": str(self.folder), **flags}, environ={}, cwd=self.folder
        )
        gate = ToolGate(policy=Policy(writes="allow" if life.allow else "ask"))
        runner = QuickRunner(
            loaded,
            backend=ShakyBackend(self, life),  # type: ignore[arg-type]
            shelf=Shelf(self.toolbox(life), gate, None),
            tools_named=True,
            stack=AsyncExitStack(),
            engine_label="script",
            engine=None,
            model="m",
            notices=(),
            journal=journal,
        )
        runner.world = self
        self.task = asyncio.ensure_future(self._act(runner, journal, life))
        try:
            async with asyncio.timeout(20):
                await asyncio.wait({self.task})
        except TimeoutError:
            self.task.cancel()
            raise AssertionError("a life hangs") from None
        how = "ok"
        try:
            self.task.result()
        except asyncio.CancelledError:
            how = "interrupted"
        except AssistantRunnerError as error:
            how = error.kind
        except Killed:
            how = "killed"
        if self.dead:
            how = "killed"
            journal.die()
        else:
            journal.close()
        self.told.append(how)
        return how

    async def _act(self, runner: AssembledRunner, journal: MortalJournal, life: Life) -> None:
        limits = Limits(rounds=life.rounds, repeats=self.repeats, timeout_s=life.timeout_s)
        if self.key is None or not journal.runs():
            self.key = None
            try:
                question = Question("go", limits=limits, thread_id=self.thread_id)
                await runner.ask(question, pause_after=life.pause_after)
            finally:
                self._learn()
            return
        run = journal.find(self.key)
        if life.fork is not None:
            if life.fork >= 0:
                life = replace(life, fork=min(life.fork, len(recall(journal.records(run.key)).rounds)))
            self._forking(journal, run, life)
            try:
                await runner.fork(run, round_number=None if life.fork == -1 else life.fork)
            finally:
                self._learn()
            return
        if journal.result(run.key) is not None:
            return

        async def again(call: Any) -> bool:
            if life.again:
                self.allowed[call_key(call.tool, call.arguments)] += 1
            return bool(life.again)

        open_ = recall(journal.records(run.key)).open_calls()
        answers = {call_id: "yes" for call_id, tool in open_.items() if tool == HUMAN_TOOL}
        # the limits of a resumed run are those of its question: given anew, as by a flag
        about = {**run.about, "question": {**run.about["question"], "limits": _fields(limits)}}
        await runner.resume(
            replace(run, about=about),
            pause_after=life.pause_after,
            again=again if life.again is not None else None,
            answers=answers if life.answer else None,
        )

    def _forking(self, journal: Journal, run: Any, life: Life) -> None:
        """A fork makes anew what it does not keep: that is asked for."""
        if life.fork == -1:
            unknown = recall(journal.records(run.key)).doubts()
            for key, calls in unknown.items():
                self.allowed[key] += len(calls)
        else:
            for key, count in self.planned().items():
                self.allowed[key] += count
            self.journaled.clear()

    def _learn(self) -> None:
        with Journal(self.folder) as looking:
            newest = looking.runs(limit=1)
            self.key = newest[0].key if newest else None

    async def _meanwhile(self, what: str) -> None:
        with Journal(self.folder) as looking:
            run = looking.find(str(self.key))
        if run.run_id is None:
            return
        if what == "expire":
            self.clock.now += 700
            for _ in range(100):
                found, _hint = await self.backend.retrieve_run(thread_id=run.thread_id, run_id=run.run_id)
                if found.is_terminal:
                    return
                await asyncio.sleep(0.005)
        else:
            with contextlib.suppress(AssistantRunnerError):
                await self.backend.cancel_run(thread_id=run.thread_id, run_id=run.run_id)

    # -- what has to hold -------------------------------------------------------------------------

    async def check(self, how: str, life: Life) -> None:
        """After each life."""
        for key, count in self.planned().items():
            if json.loads(key)[0] in WRITES:
                most = count + self.allowed[key]
                assert self.made[key] <= most, f"{key} was made {self.made[key]} times: {self.told}"
        if self.key is None:
            return
        with Journal(self.folder) as looking:
            run = looking.find(self.key)
            assert not looking.is_worked_on(run)
            if how == "killed":
                return
            assert run.owner is None, f"after {how} the run is still owned"
            assert looking.result(run.key) is None or run.status == "completed"
        if (
            run.run_id is not None
            and not life.faults
            and not (how == "human_needed" and life.end == "expire")
        ):
            found, _ = await self.backend.retrieve_run(thread_id=run.thread_id, run_id=run.run_id)
            if run.status not in ("not started", "requested"):
                assert run.status == found.status, f"{how}: {run.status} is {found.status}"
        left = [path.name for path in (self.folder / "locks").iterdir()]
        assert len(left) <= self.told.count("killed")

    async def finish(self, again: bool | None) -> None:
        """Resume until it is over: it has to be, with its answer, and each result was given once."""
        strict, self.repeats = self.repeats > 10, 50
        for _ in range(12):
            life = Life(again=again, restart=True, answer=True)
            if self.told and self.told[-1] in ("run_cancelled", "run_failed"):
                life = Life(again=again, restart=True, answer=True, fork=-1)
            how = await self.live(life)
            await self.check(how, life)
            if how == "ok":
                break
            assert how in ("human_needed", "run_cancelled", "run_expired"), f"{how} at last: {self.told}"
        with Journal(self.folder) as looking:
            run, result = looking.find(str(self.key)), looking.result(str(self.key))
        assert run.status == "completed"
        assert result is not None
        assert result["text"] == ANSWER
        runs = (await self.backend.list_runs(run.thread_id)).data
        assert all(one.is_terminal for one in runs), "a run still locks the thread"
        if strict:
            given = json.dumps([list(round_.values()) for round_ in self.submitted.get(run.run_id, [])])
            for event in self.journaled:
                token = event.output[event.output.find("<") : event.output.find(">") + 1]
                if event.tool in WRITES and event.origin == "made" and token:
                    assert given.count(token) == 1, f"{token} given {given.count(token)} times: {self.told}"

    async def __aenter__(self) -> "Lives":
        self._stack = AsyncExitStack()
        store = SqliteStore.open(Path(":memory:"))
        self._stack.callback(store.close)
        service = Service(
            store=store,
            engine=ScriptEngine.from_document(self.document()),
            settings=ServiceSettings(tick_s=0.005),
            clock=self.clock,
        )
        self.backend = await self._stack.enter_async_context(over_service(service))
        self._stack.push_async_callback(self.client.aclose)
        if self.on_thread:
            self.thread_id = (await self.backend.create_thread(ThreadCreate())).id
        return self

    async def __aexit__(self, *exc: Any) -> None:
        await self._stack.aclose()


def _fields(limits: Limits) -> dict[str, Any]:
    return {"rounds": limits.rounds, "repeats": limits.repeats, "timeout_s": limits.timeout_s}


async def play(
    folder: Path,
    script: list[list[tuple[str, int]]],
    lives: list[Life],
    *,
    again: bool | None = None,
    repeats: int = 50,
    on_thread: bool = False,
) -> Lives:
    """The whole history, checked at every step."""
    async with Lives(folder, script, repeats, on_thread=on_thread) as world:
        for life in lives:
            how = await world.live(life)
            await world.check(how, life)
        await world.finish(again)
    return world
