"""All runs that this process works on, and the watch over those that nobody works on.

Who works on a run stands in the store (`owner`), with a sign of life every tick. A run whose owner is
gone is taken over: at once if its process is dead on this machine, after `lease_s` otherwise.
"""

import asyncio
import contextlib
import logging
import os
import secrets
import socket

from assistant_runner.service import lifecycle
from assistant_runner.service.core import Core
from assistant_runner.service.endings import conclude, last_error
from assistant_runner.service.sse import DONE, error_frame
from assistant_runner.service.store.base import ActiveRun, Row
from assistant_runner.service.work import RunWork, StopReason

logger = logging.getLogger("assistant_runner.service")

ATTEMPTS = 3
"""How often a run is taken up again before it is given up."""

KEEP_KEYS_S = 24 * 3600.0


class Workers:
    """Starts, stops and watches the work on runs."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self.owner = f"{socket.gethostname()}/{os.getpid()}/{secrets.token_hex(4)}"
        self._tasks: dict[str, tuple[RunWork, asyncio.Task[None]]] = {}
        self._watch: asyncio.Task[None] | None = None
        self._stopping = False
        self._forget_at = 0.0

    async def open(self) -> None:
        self._tick()
        self._watch = asyncio.create_task(self._watch_runs())

    async def close(self) -> None:
        """Stops all work; what was under way is kept for the next process."""
        self._stopping = True
        if self._watch is not None:
            self._watch.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._watch
        works = list(self._tasks.values())
        for work, task in works:
            work.stop_reason = "stop"
            task.cancel()
        await asyncio.gather(*(task for _, task in works), return_exceptions=True)
        store = self._core.store
        for active in store.active_runs(owner=self.owner):
            store.claim(active.run_id, expected=self.owner, owner=None, seen_at=0.0)
            words = "The service stops; the run goes on when it is started again."
            self._core.hub.finish(active.run_id, error_frame(words) + DONE)

    @property
    def count(self) -> int:
        """How many runs this process works on now."""
        return len(self._tasks)

    def start(self, row: Row, *, world: str, deadline_at: float) -> None:
        """Begins the work on a run that this process owns."""
        if self._stopping:
            return
        run_id = row.id
        work = RunWork(self._core, row, world=world, deadline_at=deadline_at, owner=self.owner)
        task = asyncio.create_task(work.go())
        self._tasks[run_id] = (work, task)
        task.add_done_callback(lambda task: self._forget(run_id, work, task))

    def _forget(self, run_id: str, work: RunWork, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("run %s: its state could not be written (%s); it is taken up again", run_id, error)
        entry = self._tasks.get(run_id)
        if entry is not None and entry[0] is work:
            del self._tasks[run_id]

    def halt(self, run_id: str, reason: StopReason) -> bool:
        """Stops the work on a run of this process; False if there is none."""
        entry = self._tasks.get(run_id)
        if entry is None or entry[1].done():
            return False
        work, task = entry
        if work.stop_reason is None:
            work.stop_reason = reason
            if work.is_started:  # a task cancelled before its first step would never end its run
                task.cancel()
        return True

    def lapse(self, active: ActiveRun) -> bool:
        """Ends a run whose time is over; False if it has time left. Called on every read."""
        if self._core.clock() < active.deadline_at:
            return False
        if active.owner == self.owner and self.halt(active.run_id, "expire"):
            return False
        self._end_idle(active, "expire")
        return True

    async def _watch_runs(self) -> None:
        while True:
            await asyncio.sleep(self._core.settings.tick_s)
            try:
                self._tick()
            except Exception:
                logger.exception("the watch over the runs failed; it goes on")

    def _tick(self) -> None:
        core, store = self._core, self._core.store
        now = core.clock()
        if self._tasks:
            store.beat(self.owner, now)
            for active in store.active_runs(owner=self.owner):
                if active.status == "cancelling" and not self.halt(active.run_id, "cancel"):
                    self.end_cancelled(active)
                elif active.run_id not in self._tasks:  # its work ended and could not write so
                    self._take_over(active)
        for active in store.active_runs(overdue_at=now):
            self.lapse(active)
        for active in store.active_runs(unseen_since=now - core.settings.lease_s):
            if active.run_id not in self._tasks:
                self._take_over(active)
        for active in store.active_runs(unseen_since=now + 1):
            if active.owner != self.owner and active.owner is not None and _is_dead(active.owner):
                self._take_over(active)
        if now >= self._forget_at:
            store.forget_before(now - KEEP_KEYS_S)
            self._forget_at = now + 600

    def _take_over(self, active: ActiveRun) -> None:
        """Goes on with a run whose process is gone."""
        core, store = self._core, self._core.store
        if self._stopping:
            return
        with store.transaction():
            if not store.claim(active.run_id, expected=active.owner, owner=self.owner, seen_at=core.clock()):
                return
            row = store.get("thread.run", active.thread_id, active.run_id)
            if row is None:
                store.deactivate(active.run_id)
                return
            status = row.doc["status"]
            if status == "cancelling":
                conclude(core, row, "cancel")
                return
            if status not in ("queued", "in_progress"):
                return
            attempts = row.extra.get("attempts", 0) + (1 if status == "in_progress" else 0)
            if attempts > ATTEMPTS:
                words = f"The run was interrupted {attempts} times while it was in progress; it was given up."
                conclude(core, row, "fail", last_error=last_error("server_error", words))
                return
            row.extra["attempts"] = attempts
            store.update(row)
            self._drop_turn(row)
        logger.info("run %s is taken up again", active.run_id)
        self.start(row, world=active.world, deadline_at=active.deadline_at)

    def _drop_turn(self, row: Row) -> None:
        """Takes back what the interrupted turn had written; the turn begins again."""
        store = self._core.store
        turn = row.extra.get("turn", 0)
        for step_row in store.scan("thread.run.step", row.id):
            if step_row.extra.get("turn") != turn:
                break
            details = step_row.doc["step_details"]
            if details["type"] == "message_creation":
                store.delete("thread.message", row.parent, details["message_creation"]["message_id"])
            store.delete("thread.run.step", row.id, step_row.id)

    def end_cancelled(self, active: ActiveRun) -> None:
        """Confirms the cancellation of a run that nobody works on."""
        self._end_idle(active, "cancel")

    def _end_idle(self, active: ActiveRun, event: lifecycle.RunEventName) -> None:
        core, store = self._core, self._core.store
        with store.transaction():
            row = store.get("thread.run", active.thread_id, active.run_id)
            if row is None or not lifecycle.is_active(row.doc["status"]):
                store.deactivate(active.run_id)
                return
            if lifecycle.allows(row.doc["status"], event):
                conclude(core, row, event)


def _is_dead(owner: str) -> bool:
    """Whether an owner's process is known to be gone: same machine, no such process."""
    host, pid, _ = owner.split("/", 2)
    if host != socket.gethostname() or int(pid) == os.getpid():
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return False
