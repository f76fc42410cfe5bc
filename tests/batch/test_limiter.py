import asyncio
import heapq

import pytest

from assistant_runner.batch.limiter import Limiter, LimiterPlan


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def limiter(clock=None, **plan) -> Limiter:
    return Limiter(LimiterPlan(**plan), clock=clock or Clock(), jitter=lambda: 0.0)


async def fill(places: Limiter, count: int) -> None:
    for _ in range(count):
        await places.acquire()


async def test_accepted_rows_open_places_up_to_the_first_ceiling():
    places = limiter(start=4, early=10)

    for _ in range(20):
        if places.in_flight < places.limit:
            await places.acquire()
        places.accepted()

    assert places.limit == 10


async def test_answers_open_places_beyond_it_only_where_they_are_used():
    places = limiter(start=4, early=4)
    places.succeeded()
    assert places.limit == 4

    await fill(places, 4)
    places.succeeded()

    assert places.limit == 5


async def test_a_burst_of_refusals_leaves_as_many_places_as_were_taken():
    clock = Clock()
    places = limiter(clock, fixed=10)
    await fill(places, 10)

    refused = [asyncio.create_task(places.refused(1.0)) for _ in range(7)]
    await asyncio.sleep(0)

    assert places.limit == 3
    assert places.in_flight == 3
    assert places.counts.refused == 7
    for task in refused:
        task.cancel()
    await asyncio.wait(refused)


async def test_all_wait_as_long_as_the_backend_asks():
    clock = Clock()
    places = limiter(clock, fixed=5)
    await places.acquire()
    places.refuse(2.0)
    places.release()

    waiting = asyncio.create_task(places.acquire())
    await asyncio.sleep(0)
    assert not waiting.done()
    clock.now += 2.1
    places._wake()
    await waiting

    assert places.in_flight == 1


async def test_after_a_refusal_the_way_up_is_one_place_at_a_time():
    clock = Clock()
    places = limiter(clock, start=8)
    await fill(places, 8)
    places.refuse(0.0)
    places.release()
    assert places.limit == 7

    for _ in range(20):
        places.succeeded()
    assert places.limit == 7
    clock.now += 3
    for _ in range(20):
        places.succeeded()

    assert places.limit == 8


async def test_trouble_steps_back_once_per_wave():
    places = limiter(start=100, early=0)
    for _ in range(10):
        places.troubled("server")

    assert places.limit == 70
    assert places.counts.troubles == {"server": 10}


async def test_timeouts_halve():
    places = limiter(start=100, early=0)
    places.troubled("timeout")

    assert places.limit == 50


async def test_tokens_per_minute_are_a_cap():
    clock = Clock()
    places = limiter(clock, fixed=10, tokens_per_minute=100)
    await places.acquire()
    places.succeeded(tokens=150)

    waiting = asyncio.create_task(places.acquire())
    await asyncio.sleep(0)
    assert not waiting.done()
    clock.now += 60.1
    places._wake()

    await waiting


async def test_who_waits_for_a_place_for_a_new_row_is_told_at_once_that_there_is_none_any_more():
    places = limiter(fixed=1)
    assert await places.admit()
    new, old = asyncio.create_task(places.admit()), asyncio.create_task(places.acquire())
    await asyncio.sleep(0)

    places.close(admitted_too=False)
    assert await asyncio.wait_for(new, 1) is False
    assert await places.admit() is False
    places.release()
    await asyncio.wait_for(old, 1)

    assert places.in_flight == 1


@pytest.mark.parametrize("kind", ["refused", "trouble"])
async def test_who_waits_after_a_refusal_or_trouble_is_told_at_once_that_we_leave(kind):
    places = limiter(fixed=1)
    assert await places.admit()
    waits = places.refused(60.0) if kind == "refused" else places.step_out(8.0)
    waiting = asyncio.create_task(waits)
    await asyncio.sleep(0)

    places.close()

    assert await asyncio.wait_for(waiting, 1) is False
    assert places.in_flight == 1


async def test_a_new_row_is_not_admitted_while_another_waits_to_begin():
    places = limiter(clock := Clock(), fixed=10, requests_per_minute=10)
    assert await places.admit()
    assert await places.begin()
    assert await places.admit()
    beginning = asyncio.create_task(places.begin())

    third = asyncio.create_task(places.admit())
    await asyncio.sleep(0.01)
    assert not third.done()
    clock.now += 6.1
    places._rate._wake()

    assert await asyncio.wait_for(beginning, 1)
    assert await asyncio.wait_for(third, 1)


async def test_a_place_given_to_someone_who_left_is_free_again():
    places = limiter(fixed=1)
    await places.acquire()
    waiting = asyncio.create_task(places.acquire())
    await asyncio.sleep(0)
    places.release()
    waiting.cancel()
    await asyncio.wait([waiting])

    await asyncio.wait_for(places.acquire(), 1)


def simulate(*, slots: int, takes_s: float, rows: int) -> tuple[Limiter, float]:
    """A backend that accepts everything at once and works on `slots` rows, the others queue."""
    clock = Clock()
    places = limiter(clock)
    free, running, left = [clock.now] * slots, [], rows
    began = clock.now
    while left or running:
        while left and places.in_flight < places.limit:
            places._take()
            places.accepted()
            end = max(clock.now, heapq.heappop(free)) + takes_s
            heapq.heappush(free, end)
            heapq.heappush(running, (end, clock.now))
            left -= 1
        end, started = heapq.heappop(running)
        clock.now = max(clock.now, end)
        places.succeeded(seconds=clock.now - started)
        places.in_flight -= 1
    return places, clock.now - began


@pytest.mark.parametrize("slots", [1, 4, 100])
def test_a_backend_that_queues_is_not_given_more_than_makes_it_faster(slots):
    places, took = simulate(slots=slots, takes_s=1.0, rows=100 * slots)

    assert places.limit <= 4 * slots
    assert took <= 1.25 * 100


def test_a_backend_with_room_gets_all_that_it_takes():
    places, took = simulate(slots=10_000, takes_s=0.5, rows=4000)

    assert places.limit == 512
    assert took <= 10
