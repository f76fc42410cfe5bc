"""`--rpm` on real sockets: the server counts every request that reaches it."""

import asyncio
import contextlib
import json
import time

import pytest

from assistant_runner.assembly import Question
from assistant_runner.batch.invocation import BatchRequest, run_batch
from assistant_runner.batch.limiter import LimiterPlan
from assistant_runner.batch.source import Source
from assistant_runner.errors import UsageError
from assistant_runner.run.request import Limits, RunRequest
from assistant_runner.settings import load_settings
from tests.backends.faulty import nothing
from tests.batch.conftest import FakeRunner
from tests.run.world import open_world

TURNS = [{"tool_calls": [{"name": "look", "arguments": {}}]}, {"text": "done"}]


def look() -> str:
    """Look."""
    return "seen"


class Quiet:
    def say(self, message):
        pass

    def tell(self, progress):
        pass


class WorldRunner:
    """The real driver on the world's backend."""

    engine_label = "script"
    notices = ()

    def __init__(self, world, timeout_s=20.0) -> None:
        self.world, self.backend, self.begun = world, world.backend, 0
        self._limits = Limits(timeout_s=timeout_s)

    async def ask(self, question, *, listener=None):
        self.begun += 1
        request = RunRequest(self.world.assistant_id, prompt=question.prompt)
        return await self.world.driver(self._limits).run(request, listener=listener)


async def go(runner, tmp_path, rows, **plan):
    (tmp_path / "in.txt").write_text("".join(f"p{n}\n" for n in range(rows)))
    request = BatchRequest(
        Source(tmp_path / "in.txt", "in.txt"),
        tmp_path / "out.jsonl",
        question=Question(""),
        limiter=LimiterPlan(**plan),
    )

    @contextlib.asynccontextmanager
    async def opened(loaded):
        yield runner

    loaded = load_settings({}, environ={"ASSISTANT_RUNNER_HOME": str(tmp_path)}, cwd=tmp_path)
    outcome = await run_batch(request, loaded, Quiet(), folder=tmp_path, opened=opened)
    return outcome, [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]


def noting(times):
    def plan(seen):
        times.append(time.monotonic())
        return nothing(seen)

    return plan


async def test_no_window_holds_more_requests_than_the_cap(tmp_path):
    times: list[float] = []
    async with open_world(TURNS, look, plan=noting(times)) as world:
        times.clear()
        outcome, rows = await go(
            WorldRunner(world), tmp_path, 12, fixed=8, requests_per_minute=12, minute_s=1.0
        )

    assert (outcome.status, [row["status"] for row in rows]) == (0, ["ok"] * 12)
    assert len(times) >= 24, "each row sends a create and a submission"
    for first, last in zip(times, times[12:], strict=False):
        assert last - first > 0.8, "a request may be longer on its way than the next"


async def test_runs_under_way_keep_their_deadline_where_the_cap_is_low(tmp_path):
    async with open_world(TURNS, look) as world:
        runner = WorldRunner(world, timeout_s=0.7)
        outcome, rows = await go(runner, tmp_path, 6, fixed=6, requests_per_minute=10, minute_s=1.0)

    assert [row["status"] for row in rows] == ["ok"] * 6
    assert outcome.status == 0


async def test_who_leaves_at_once_cancels_runs_without_waiting_for_the_cap(tmp_path):
    paths: list[str] = []

    def plan(seen):
        paths.append(f"{seen.method} {seen.path}")

    async with open_world(TURNS, look, plan=plan) as world:
        paths.clear()
        task = asyncio.create_task(go(WorldRunner(world), tmp_path, 6, fixed=6, requests_per_minute=1))
        while not paths:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)
        task.cancel()
        began = time.monotonic()
        with pytest.raises(asyncio.CancelledError):
            await task

    assert time.monotonic() - began < 2
    assert any(path.endswith("/cancel") for path in paths)


async def test_a_cap_that_would_not_hold_is_refused(tmp_path):
    runner = FakeRunner()
    runner.backend = None

    with pytest.raises(UsageError, match="only for a backend that we speak HTTP to"):
        await go(runner, tmp_path, 1, requests_per_minute=5)
