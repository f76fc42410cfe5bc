"""Rows that wait: for a place, for a cap, for their thread, for a row that asks the same."""

import asyncio
import itertools

import pytest

from assistant_runner.assembly import Question
from assistant_runner.batch import execution
from assistant_runner.batch.execution import Stop
from assistant_runner.batch.limiter import LimiterPlan
from assistant_runner.errors import AuthenticationFailed, BackendUnreachable, RateLimited, RunFailed
from tests.batch.conftest import FakeRunner

ON_ONE_THREAD = Question("", thread_id="thread_x")


async def until(condition) -> None:
    async with asyncio.timeout(5):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0)


async def test_a_refused_row_gets_its_place_back_while_equal_rows_wait_for_its_answer(bench):
    bench.write(*({"id": n, "prompt": "same"} for n in range(4)))
    refusals = [RateLimited("429", retry_after_s=0.001)]

    async def act(question, number):
        await asyncio.sleep(0.01)
        if refusals:
            raise refusals.pop()

    status = await asyncio.wait_for(bench.go(runner := FakeRunner(act), workers=2, dedup=True), 5)

    assert (status, len(runner.asked)) == (0, 2)
    assert [row["answer"] for row in bench.rows()] == ["re: same"] * 4


async def test_when_a_row_fails_one_of_its_equals_asks_for_all_others(bench):
    bench.write(*({"id": n, "prompt": "same"} for n in range(5)))

    async def act(question, number):
        await asyncio.sleep(0.01)
        if number == 0:
            raise RunFailed("no", run_id="run_0")

    await bench.go(runner := FakeRunner(act), workers=5, dedup=True)

    assert len(runner.asked) == 2
    assert [row["status"] for row in bench.rows()] == ["failed", "ok", "ok", "ok", "ok"]


async def test_equal_rows_are_left_too_when_their_row_stops_the_batch(bench):
    bench.write(*({"id": n, "prompt": "same"} for n in range(4)))

    async def act(question, number):
        await asyncio.sleep(0.01)
        raise AuthenticationFailed("401", status_code=401)

    assert await bench.go(runner := FakeRunner(act), workers=4, dedup=True) == 4

    assert len(runner.asked) == 1
    assert bench.batch.tally.left == 4


async def test_the_cap_on_tokens_holds_for_rows_of_one_thread(bench):
    bench.write(*({"prompt": f"p{n}"} for n in range(3)))
    asked_at = []

    def act(question, number):
        asked_at.append(asyncio.get_running_loop().time())

    plan = LimiterPlan(fixed=4, tokens_per_minute=10, minute_s=0.1)
    await bench.go(FakeRunner(act), plan=plan, question=ON_ONE_THREAD)

    assert all(later - earlier >= 0.1 for earlier, later in itertools.pairwise(asked_at))
    assert len(asked_at) == 3


async def test_an_interrupt_ends_a_wait_for_a_cap_at_once(bench):
    bench.write(*({"prompt": f"p{n}"} for n in range(3)))
    plan = LimiterPlan(fixed=1, tokens_per_minute=5)
    task = asyncio.create_task(bench.go(runner := FakeRunner(), plan=plan))
    await until(lambda: bench.batch and bench.batch.tally.done == 1)

    bench.batch.halt(Stop(130, "interrupted"))

    assert await asyncio.wait_for(task, 1) == 130
    assert (runner.prompts, bench.batch.tally.left) == (["p0"], 2)


async def test_an_interrupt_ends_a_wait_for_the_first_request_at_once(bench):
    bench.write(*({"prompt": f"p{n}"} for n in range(30)))
    task = asyncio.create_task(bench.go(FakeRunner(), plan=LimiterPlan(fixed=20, requests_per_minute=10)))
    await until(lambda: bench.batch and bench.batch.tally.done == 1)

    bench.batch.halt(Stop(130, "interrupted"))

    assert await asyncio.wait_for(task, 1) == 130
    assert (bench.batch.tally.ok, bench.batch.tally.left) == (1, 29)


@pytest.mark.parametrize(
    "error",
    [RateLimited("429", retry_after_s=60), BackendUnreachable("503", status_code=503)],
    ids=["refused", "trouble"],
)
async def test_an_interrupt_leaves_rows_that_wait_to_be_asked_again(bench, error):
    bench.write(*({"prompt": f"p{n}"} for n in range(3)))

    def act(question, number):
        raise error

    task = asyncio.create_task(bench.go(runner := FakeRunner(act), workers=3))
    await until(lambda: len(runner.asked) == 3 and bench.batch.limiter.in_flight == 0)

    bench.batch.halt(Stop(130, "interrupted"))

    assert await asyncio.wait_for(task, 1) == 130
    assert (bench.rows(), bench.batch.tally.left) == ([], 3)


async def test_rows_that_wait_for_their_thread_are_left_when_we_leave(bench):
    bench.write(*({"prompt": f"p{n}"} for n in range(5)))
    runner = FakeRunner(lambda question, number: asyncio.sleep(60))
    task = asyncio.create_task(bench.go(runner, question=ON_ONE_THREAD))
    await until(lambda: runner.in_flight == 1)

    task.cancel()
    await asyncio.wait([task])

    assert bench.batch.tally.left == 5


async def test_what_waits_for_one_thread_does_not_hold_up_others_longer_than_needed(bench, monkeypatch):
    monkeypatch.setattr(execution, "WINDOW", 2)
    bench.write(*({"prompt": f"x{n}", "thread": "thread_x"} for n in range(3)), {"prompt": "other"})
    goes_on = asyncio.Event()
    runner = FakeRunner(lambda question, n: goes_on.wait() if question.prompt == "x1" else None)
    task = asyncio.create_task(bench.go(runner))

    await until(lambda: "other" in runner.prompts)
    goes_on.set()

    assert await asyncio.wait_for(task, 5) == 0
