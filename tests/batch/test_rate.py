import asyncio

import pytest

from assistant_runner.batch.rate import RequestRate


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


class Line:
    """Tasks at a rate with a clock of ours; `order` says who had a turn, and when."""

    def __init__(self, per_minute: int) -> None:
        self.clock = Clock()
        self.rate = RequestRate(per_minute, clock=self.clock)
        self.order: list[tuple[str, float]] = []
        self.tasks: list[asyncio.Task[None]] = []

    async def request(self, name: str) -> None:
        await self.rate.request()
        self.order.append((name, self.clock.now - 100.0))

    async def row(self, name: str, requests: int = 1) -> None:
        if await self.rate.begin():
            for _ in range(requests):
                await self.request(name)

    def add(self, *coroutines) -> None:
        self.tasks += [asyncio.create_task(coroutine) for coroutine in coroutines]

    async def pass_time(self, seconds: float, step_s: float = 0.5) -> None:
        for _ in range(int(seconds / step_s) + 1):
            for _ in range(5):
                await asyncio.sleep(0)
            self.clock.now += step_s
            self.rate._wake()
        await asyncio.sleep(0)

    @property
    def names(self) -> str:
        return "".join(name for name, _ in self.order)


@pytest.fixture
async def line():
    lines = []

    def make(per_minute: int) -> Line:
        lines.append(Line(per_minute))
        return lines[-1]

    yield make
    for made in lines:
        for task in made.tasks:
            task.cancel()
        await asyncio.gather(*made.tasks, return_exceptions=True)


@pytest.mark.parametrize("per_minute", [1, 3, 10, 25, 60, 600])
async def test_no_minute_holds_more_requests_than_allowed_and_each_is_used(line, per_minute):
    made = line(per_minute)
    made.add(*(made.row("r", requests=3) for _ in range(per_minute)))

    await made.pass_time(150, step_s=0.1)

    times = [at for _, at in made.order]
    for first, last in zip(times, times[per_minute:], strict=False):
        assert last - first >= 60 - 1e-6
    assert len(times) >= 2 * per_minute


async def test_requests_are_spread_over_the_minute(line):
    made = line(20)
    made.add(*(made.row("r") for _ in range(20)))

    await made.pass_time(12)

    assert [at for _, at in made.order] == [0.0, 0.0, 6.0, 6.0, 12.0, 12.0]


async def test_a_row_uses_the_turn_that_it_began_with(line):
    made = line(10)
    made.add(made.row("a"))
    await made.pass_time(0)

    made.add(made.request("x"))
    await made.pass_time(6.5)

    assert made.order == [("a", 0.0), ("x", 6.0)]


async def test_a_turn_that_a_row_used_late_counts_from_then(line):
    made = line(60)

    async def late() -> None:
        assert await made.rate.begin()
        made.clock.now += 0.9
        await made.request("late")

    made.add(late())
    await asyncio.sleep(0)
    made.add(*(made.request("x") for _ in range(61)))
    await made.pass_time(70, step_s=0.1)

    assert made.order[0] == ("late", pytest.approx(0.9))
    assert made.order[60][1] - made.order[0][1] >= 60 - 1e-6


async def test_a_turn_that_a_row_did_not_use_in_time_is_lost(line):
    made = line(10)

    async def slow() -> None:
        assert await made.rate.begin()
        made.clock.now += 2.0
        await made.request("slow")

    made.add(slow())
    await made.pass_time(7)

    assert made.order == [("slow", pytest.approx(6.0))]


async def test_runs_under_way_go_before_rows_and_rows_have_every_fourth_turn(line):
    made = line(10)
    made.add(made.request("x"))
    await asyncio.sleep(0)

    made.add(*(made.row("r") for _ in range(3)), *(made.request("x") for _ in range(10)))
    await made.pass_time(120)

    assert made.names == "xxxrxxxrxxxrxx"


async def test_an_urgent_request_goes_at_once_and_counts(line):
    made = line(10)
    made.rate.count()

    made.add(made.request("x"))
    await made.pass_time(5)
    made.rate.count()
    assert made.order == []
    await made.pass_time(7)

    assert [name for name, _ in made.order] == ["x"]
    assert made.order[0][1] >= 11


async def test_after_the_close_no_row_begins_and_runs_under_way_go_on(line):
    made = line(10)
    made.rate.count()
    made.add(made.row("r"), made.request("x"))
    await asyncio.sleep(0)

    made.rate.close()
    made.add(made.row("s"))
    await made.pass_time(12)

    assert made.names == "x"
    assert all(task.done() for task in made.tasks)


async def test_who_leaves_waits_for_nothing(line):
    made = line(1)
    made.rate.count()
    made.add(made.request("x"), made.row("r"))
    await asyncio.sleep(0)

    made.rate.let_go()
    made.add(made.request("y"))
    await asyncio.gather(*made.tasks)

    assert made.names == "xy"


async def test_who_was_cancelled_takes_no_turn(line):
    made = line(10)
    made.rate.count()
    made.add(made.row("a"), made.request("b"))
    await asyncio.sleep(0)
    for task in made.tasks:
        task.cancel()
    await asyncio.wait(made.tasks)

    made.add(made.request("x"))
    await made.pass_time(6.5)

    assert made.order == [("x", 6.0)]
    await asyncio.wait_for(made.rate.quiet(), 1)


async def test_waiting_needs_no_one_to_wake_it():
    rate = RequestRate(600, minute_s=0.6)
    began = asyncio.get_running_loop().time()

    for _ in range(61):
        await asyncio.wait_for(rate.request(), 5)

    assert asyncio.get_running_loop().time() - began >= 0.06
