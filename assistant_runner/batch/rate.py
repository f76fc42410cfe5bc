"""How many requests a minute: each one that a batch sends has its turn here (`--rpm`).

A provider counts every request, not rows: the one that begins a run, each submission, reads, what is
tried again. So the backend asks before each. At most `per_minute` go in any minute, and at most a tenth
of them in any tenth of it: a run that has begun then never waits long for its next request, and its
deadline holds. A row waits for its first request before its run begins, so that this costs it no time.
Requests of runs under way go first; every fourth turn is for a row that begins, so that neither starves.
"""

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass

BEGIN_EVERY = 4


@dataclass(slots=True)
class _Turn:
    """The turn that a row has had for its first request, not yet used."""

    at: float
    used: bool = False


_turn: ContextVar[_Turn | None] = ContextVar("turn", default=None)


class RequestRate:
    """Turns for requests. One event loop, no threads."""

    def __init__(
        self, per_minute: int, *, minute_s: float = 60.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        share = max(1, per_minute // 10)
        self._windows = ((per_minute, minute_s), (share, minute_s * share / per_minute))
        self._keeps_s = minute_s / 60
        self._sent: deque[float] = deque(maxlen=per_minute)
        self._clock = clock
        self._requests: deque[asyncio.Future[bool]] = deque()
        self._beginnings: deque[asyncio.Future[bool]] = deque()
        self._since_begin = 0
        self._timer: asyncio.TimerHandle | None = None
        self._nobody_begins = asyncio.Event()
        self._nobody_begins.set()
        self._closed = False
        self._open = False

    # -- turns ---------------------------------------------------------------------------------------

    async def begin(self) -> bool:
        """True when this task may send a run's first request; False if no run may begin any more."""
        if self._closed:
            return False
        self._nobody_begins.clear()
        try:
            granted = await self._wait_in(self._beginnings)
        finally:
            if not self._beginnings:
                self._nobody_begins.set()
        if granted:
            _turn.set(_Turn(self._clock()))
        return granted

    async def request(self) -> None:
        """Returns when one more request may be sent."""
        turn = _turn.get()
        if turn is not None and not turn.used:
            turn.used = True
            if self._clock() - turn.at < self._keeps_s:
                self._move(turn.at)
                return
        if self._open:
            self.count()
            return
        await self._wait_in(self._requests)

    def count(self) -> None:
        """A request that cannot wait: those after it wait longer."""
        self._sent.append(self._clock())

    async def quiet(self) -> None:
        """Returns when nobody waits to begin a run: only then another row is worth a place."""
        await asyncio.sleep(0)  # a row that has just got one comes here first
        await self._nobody_begins.wait()

    # -- the end -------------------------------------------------------------------------------------

    def close(self) -> None:
        """No further run begins; runs under way go on."""
        self._closed = True
        while self._beginnings:
            _answer(self._beginnings.popleft(), False)

    def let_go(self) -> None:
        """What is still sent, to leave in order, does not wait."""
        self.close()
        self._open = True
        while self._requests:
            self.count()
            _answer(self._requests.popleft(), True)

    # -- inside --------------------------------------------------------------------------------------

    async def _wait_in(self, line: deque[asyncio.Future[bool]]) -> bool:
        future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        line.append(future)
        self._wake()
        try:
            return await future
        except asyncio.CancelledError:
            with contextlib.suppress(ValueError):
                line.remove(future)
            raise

    def _wake(self) -> None:
        while line := self._next_line():
            wait_s = self._wait_s()
            if wait_s > 0:
                self._wake_later(wait_s)
                return
            future = line.popleft()
            if not future.done():
                self._since_begin = 0 if line is self._beginnings else self._since_begin + 1
                self.count()
                future.set_result(True)

    def _next_line(self) -> deque[asyncio.Future[bool]]:
        begins = self._beginnings and (not self._requests or self._since_begin >= BEGIN_EVERY - 1)
        return self._beginnings if begins else self._requests

    def _wait_s(self) -> float:
        now = self._clock()
        return max(
            (
                self._sent[-most] + window_s - now
                for most, window_s in self._windows
                if len(self._sent) >= most
            ),
            default=0.0,
        )

    def _wake_later(self, wait_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(wait_s + 0.001, self._wake)

    def _move(self, counted_at: float) -> None:
        """The request that was counted then is sent now."""
        with contextlib.suppress(ValueError):
            self._sent.remove(counted_at)
        self.count()


def _answer(future: asyncio.Future[bool], granted: bool) -> None:
    if not future.done():
        future.set_result(granted)
