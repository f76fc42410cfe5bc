"""How many rows are in flight: one limiter that all workers share, growing until the backend says stop.

Growth (`auto`): one place more for every row that the backend took, up to a first ceiling; from there
for every row that came back; after a refusal the limit falls to what the backend had taken, all wait
as long as it asked (case-077), and the way up is one place at a time with growing pauses between the
attempts. A backend that never refuses but only queues is found out by its pace: when more places do not
make more rows a second, half of them are given back as long as the pace holds. A refusal for rate (429)
is told from trouble (5xx, unreachable) and from slowness (timeouts): the first says how much is
allowed, the others only that it is too much now. `-j N` starts at N and never goes above it; refusals
bring it down, too. How many requests rows in flight send in a minute is `rate.py`'s matter.
"""

import asyncio
import contextlib
import random
import time
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Literal, TypeVar

from assistant_runner.batch.rate import RequestRate

Trouble = Literal["server", "unreachable", "timeout"]
SLOTS_MAX = 512
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class LimiterPlan:
    """`fixed`: the caller's `-j N`, None for auto. `early`: growth by accepted rows goes up to it.
    `minute_s`: what a minute is."""

    fixed: int | None = None
    start: int = 4
    early: int = 16
    maximum: int = SLOTS_MAX
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    patience_s: float = 600.0
    minute_s: float = 60.0


@dataclass(slots=True)
class Pace:
    """Rows a second at so many in flight, measured over windows of about two rows' time."""

    began: float
    row_s: float = 0.0
    done: int = 0
    in_flight: int = 0
    best: float = 0.0
    best_at: float = 1.0
    descending: bool = False

    def window(self, now: float, in_flight: int, row_s: float) -> tuple[float, float] | None:
        """(rows a second, rows in flight on average) when a window is full, else None."""
        self.row_s = min(self.row_s, row_s) if self.row_s else row_s
        self.done += 1
        self.in_flight += in_flight
        if self.done < 8 or now - self.began < max(0.2, 2 * self.row_s):
            return None
        found = (self.done / (now - self.began), self.in_flight / self.done)
        self.began, self.done, self.in_flight = now, 0, 0
        self.row_s *= 1.05  # the quickest row of long ago counts for less
        return found


@dataclass(slots=True)
class LimiterCounts:
    """What happened, for the summary: refusals are 429 answers, or runs that failed for rate."""

    refused: int = 0
    troubles: dict[str, int] = field(default_factory=dict)
    most_in_flight: int = 0


class Limiter:
    """Give out places: `admit` a row, `release` after it. One event loop, no threads.

    A backend's `Pacer`: with requests per minute as a cap, a row waits in `begin` for its first request
    and in `before_request` for all others.
    """

    def __init__(
        self,
        plan: LimiterPlan,
        *,
        clock: Callable[[], float] = time.monotonic,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self.plan = plan
        self.counts = LimiterCounts()
        self.in_flight = 0
        self._maximum = float(plan.fixed or plan.maximum)
        self._limit = float(plan.fixed or min(plan.start, plan.maximum))
        self._clock = clock
        self._jitter = jitter
        self._queue: deque[asyncio.Future[bool]] = deque()
        self._paused_until = 0.0
        self._pause_s = 0.0
        self._ceiling: float | None = None
        self._probe_at = 0.0
        self._probe_wait_s = 2.0
        self._epoch_ends = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._spent: deque[tuple[float, int]] = deque()
        self._spent_sum = 0
        self._pace = Pace(clock())
        self._newcomers: set[asyncio.Future[bool]] = set()
        self._closed = False
        self._leaving = asyncio.Event()
        self._rate: RequestRate | None = None
        if plan.requests_per_minute:
            self._rate = RequestRate(plan.requests_per_minute, minute_s=plan.minute_s, clock=clock)

    @property
    def limit(self) -> int:
        """Places now."""
        return max(1, int(self._limit))

    @property
    def paused_s(self) -> float:
        """Seconds until the backend wants to hear from us again."""
        return max(0.0, self._paused_until - self._clock())

    # -- places --------------------------------------------------------------------------------------

    async def admit(self) -> bool:
        """A place for a new row; False, at once, when there are none any more (`close`)."""
        if self._rate is not None:
            await self._rate.quiet()
        if self._closed:
            return False
        if not self._queue and self._may_start():
            self._take()
            return True
        future = self._line_up()
        self._newcomers.add(future)
        try:
            return await self._granted(future)
        finally:
            self._newcomers.discard(future)

    async def acquire(self) -> bool:
        """A place, in the order of asking, when limit, pause and caps allow it; False once we leave."""
        if self._leaving.is_set():
            return False
        if not self._queue and self._may_start():
            self._take()
            return True
        return await self._granted(self._line_up())

    def _line_up(self) -> asyncio.Future[bool]:
        future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._queue.append(future)
        self._wake()
        return future

    async def _granted(self, future: asyncio.Future[bool]) -> bool:
        try:
            return await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled():
                if future.result():
                    self.release()
            elif future in self._queue:
                self._queue.remove(future)
            raise

    def release(self) -> None:
        """The place is free."""
        self.in_flight -= 1
        self._wake()

    def _take(self) -> None:
        self.in_flight += 1
        self.counts.most_in_flight = max(self.counts.most_in_flight, self.in_flight)

    def _may_start(self) -> bool:
        return self.in_flight < self.limit and self._wait_s() <= 0

    def _wait_s(self) -> float:
        """Seconds until pause and the cap on tokens allow a start."""
        now, minute_s = self._clock(), self.plan.minute_s
        wait = self._paused_until - now
        if tokens := self.plan.tokens_per_minute:
            while self._spent and self._spent[0][0] <= now - minute_s:
                self._spent_sum -= self._spent.popleft()[1]
            if self._spent_sum >= tokens:
                wait = max(wait, self._spent[0][0] + minute_s - now)
        return wait

    def _wake(self) -> None:
        while self._queue and self.in_flight < self.limit:
            wait = self._wait_s()
            if wait > 0:
                self._wake_later(wait)
                return
            future = self._queue.popleft()
            if not future.done():
                self._take()
                future.set_result(True)

    def _wake_later(self, wait_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(wait_s + 0.001, self._wake)

    # -- requests of rows that have a place ----------------------------------------------------------

    async def begin(self) -> bool:
        """True when a row's run may begin: its first request has its turn; False after `close`."""
        return self._rate is None or await self._rate.begin()

    async def before_request(self, *, urgent: bool = False) -> None:
        """Returns when a request may be sent, at once if it is urgent; every one counts."""
        if self._rate is None:
            return
        if urgent:
            self._rate.count()
        else:
            await self._rate.request()

    # -- the end -------------------------------------------------------------------------------------

    def close(self, *, admitted_too: bool = True) -> None:
        """No new row is admitted, and who waits for that is told; `admitted_too`: nor does one begin, or go
        on after a refusal or trouble."""
        self._closed = True
        for future in tuple(self._queue):
            if (admitted_too or future in self._newcomers) and not future.done():
                self._queue.remove(future)
                future.set_result(False)
        if admitted_too:
            self._leaving.set()
            if self._rate is not None:
                self._rate.close()

    def let_go(self) -> None:
        """We leave: what is still sent to leave in order does not wait for its turn."""
        self.close()
        if self._rate is not None:
            self._rate.let_go()

    # -- what the backend says -----------------------------------------------------------------------

    def accepted(self) -> None:
        """The backend took a row: it answered with a run."""
        if self._ceiling is None and self._limit < self.plan.early:
            self._grow(1.0)

    def succeeded(self, *, tokens: int = 0, seconds: float = 0.0) -> None:
        """A row came back with an answer, after so many seconds."""
        if self.plan.tokens_per_minute and tokens:
            self._spent.append((self._clock(), tokens))
            self._spent_sum += tokens
        self._pause_s = 0.0
        if self.plan.fixed is None:
            self._follow_pace(seconds)
        if self._ceiling is None:
            self._grow(1.0)
        elif self._limit < self._ceiling:
            self._grow(min(1.0, 1.0 / self._limit))
        elif self._clock() >= self._probe_at:
            self._ceiling += max(1.0, self._ceiling // 10)
            self._probe_at = self._clock() + self._probe_wait_s
            self._probe_wait_s = max(1.0, self._probe_wait_s * 0.8)
            self._grow(1.0)

    def _follow_pace(self, row_s: float) -> None:
        """Give places back while that costs no pace; take them again when it does."""
        pace, now = self._pace, self._clock()
        window = pace.window(now, self.in_flight, row_s)
        if window is None:
            return
        rate, at = window
        if pace.descending:
            if rate >= 0.9 * pace.best and self._limit > 1:
                self._hold(self._limit / 2, 0.0)
            else:
                pace.descending = False
                self._hold(self._limit * 2, 15.0)
        elif at >= 1.4 * pace.best_at and rate < 1.1 * pace.best:
            pace.descending = True
            self._hold(pace.best_at, 0.0)
        elif rate > pace.best:
            pace.best, pace.best_at = rate, at
        else:
            pace.best *= 0.98  # rows may have become harder

    def _hold(self, limit: float, seconds: float) -> None:
        self._limit = self._ceiling = max(1.0, min(float(round(limit)), self._maximum))
        self._probe_wait_s = max(2.0, seconds)
        self._probe_at = self._clock() + (seconds or 3600.0)

    def _grow(self, places: float) -> None:
        if self.in_flight + 1 >= self._limit and self.paused_s <= 0:
            self._limit = min(self._limit + places, self._maximum)
            self._wake()

    def refuse(self, hint_s: float | None) -> None:
        """The backend refused one of us for rate: all wait, and fewer come back."""
        self.counts.refused += 1
        now = self._clock()
        first = now >= self._epoch_ends
        if hint_s is None:
            if first:
                self._pause_s = min(max(self._pause_s * 2, 0.5), 30.0)
            hint_s = self._pause_s * (0.75 + 0.25 * self._jitter())
        self._paused_until = max(self._paused_until, now + hint_s + 0.02 * self._jitter())
        # Those that still run were taken: that many are allowed. Refusals that come in one burst
        # all count down the same number, which is why the one that was refused counts out first.
        taken = max(1, self.in_flight - 1)
        if first:
            self._probe_wait_s = min(self._probe_wait_s * 2, 30.0) if self._ceiling else 2.0
        self._epoch_ends = self._paused_until
        self._ceiling = float(taken) if first or self._ceiling is None else min(self._ceiling, taken)
        self._probe_at = now + hint_s + self._probe_wait_s
        self._limit = max(1.0, min(self._limit, float(taken)))

    async def refused(self, hint_s: float | None) -> bool:
        """As `refuse`, and give the place back until there is one again. True: try again now; False:
        the backend wants more patience than we have, or we leave."""
        self.refuse(hint_s)
        if hint_s is not None and hint_s > self.plan.patience_s:
            return False
        return await self.step_out(0)

    async def step_out(self, seconds: float) -> bool:
        """Give the place to others for a while, then wait for one again; False, at once, when we leave."""
        self.release()
        granted = False
        try:
            if seconds:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(seconds * (0.75 + 0.5 * self._jitter())):
                        await self._leaving.wait()
            granted = await self.acquire()
        finally:
            if not granted:
                self.in_flight += 1  # its holder gives it back
        return granted

    async def wait_outside(self, waited: Awaitable[T]) -> T:
        """The result of what a holder waits for; its place is given to others meanwhile.

        Afterwards it has one again, if need be one more than there are: `step_out` before a run begins.
        """
        self.release()
        try:
            return await waited
        finally:
            self.in_flight += 1

    def troubled(self, kind: Trouble) -> None:
        """A server error, no connection, or no answer in time: step back once per wave of them."""
        self.counts.troubles[kind] = self.counts.troubles.get(kind, 0) + 1
        now = self._clock()
        if now < self._epoch_ends:
            return
        factor = 0.5 if kind == "timeout" else 0.7
        self._pause_s = min(max(self._pause_s * 2, 0.25), 15.0)
        self._epoch_ends = now + self._pause_s
        if kind == "unreachable":
            self._paused_until = max(self._paused_until, now + self._pause_s)
        self._limit = max(1.0, self._limit * factor)
        self._ceiling = self._limit if self._ceiling is None else min(self._ceiling, self._limit)
        self._probe_at = now + 1.0
