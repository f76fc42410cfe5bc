"""Live progress on stderr: which engine, which tools run, how long; nothing of it on stdout."""

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import click

from assistant_runner.errors import printable
from assistant_runner.run.events import (
    CallFinished,
    CallStarted,
    RunEnded,
    RunEvent,
    TextArrived,
    ToolActivity,
    Warned,
)

if TYPE_CHECKING:
    from rich.console import Console
    from rich.status import Status

    from assistant_runner.assembly import Runner


class Progress:
    """A listener that shows what happens; `events` gets every event as a document instead."""

    def __init__(self, *, quiet: bool, events: Callable[[dict[str, Any]], None] | None = None) -> None:
        self._quiet = quiet
        self._console = None if quiet else _terminal()
        self._events = events
        self._noted: set[str] = set()
        self._running: dict[str, tuple[str, float]] = {}
        self._status: Status | None = None
        self._held: list[str] | None = None

    def begin(self, runner: "Runner") -> None:
        """Say once what answers, and what is canned about it."""
        for line in runner.notices:
            self.say(line)

    def say(self, text: str) -> None:
        """A line of talk, unless quiet; after the answer of a person who is being asked."""
        text = printable(text)
        if self._held is not None:
            self._held.append(text)
        elif self._console is not None:
            self._console.print(text, style="dim", markup=False)
        elif not self._quiet:
            click.echo(text, err=True)

    def note(self, text: str) -> None:
        """A warning, said once however often it comes: as an event, and with the result."""
        if text not in self._noted:
            self._noted.add(text)
            self.say(f"note: {text}")

    def insist(self, text: str) -> None:
        """Said even when quiet: where things stand after an interrupt."""
        text = printable(text)
        if self._console is not None:
            self._console.print(text, markup=False)
        else:
            click.echo(text, err=True)

    def __enter__(self) -> Self:
        if self._console is not None:
            self._status = self._console.status("thinking", spinner="dots")
            self._status.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._status is not None:
            self._status.stop()
            self._status = None

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """No moving line, and no other line, while a person is asked."""
        if self._status is None:
            yield
            return
        self._status.stop()
        self._held = []
        try:
            yield
        finally:
            held, self._held = self._held, None
            for text in held:
                self.say(text)
            if self._status is not None:
                self._status.start()

    async def listen(self, event: RunEvent) -> None:
        if self._events is not None:
            self._events(event.document())
        if isinstance(event, CallStarted):
            self._running[event.tool_call_id] = (event.tool, time.monotonic())
            arguments = ", ".join(f"{key}={_short(value)}" for key, value in dict(event.arguments).items())
            self.say(f"→ {event.tool}({arguments})")
            self._show_running()
        elif isinstance(event, CallFinished):
            self._running.pop(event.tool_call_id, None)
            mark = "✗" if event.is_error else "✓"
            words = f": {_short(event.output, 160)}" if event.is_error else ""
            self.say(f"{mark} {event.tool} {event.duration_s:.2f} s{words}")
            for note in event.notes:
                self.say(f"  {note}")
            self._show_running()
        elif isinstance(event, ToolActivity):
            self.say(f"✓ {event.kind}")
        elif isinstance(event, Warned):
            self.note(event.message)
        elif isinstance(event, RunEnded) and event.error and event.error.get("kind") == "interrupted":
            self.insist(f"{event.error['message']}; {event.error['remedy']}")
        elif isinstance(event, TextArrived) and self._status is not None:
            self._status.update("answering")

    def _show_running(self) -> None:
        if self._status is not None:
            names = ", ".join(name for name, _ in self._running.values())
            self._status.update(f"running {names}" if names else "thinking")


def _terminal() -> "Console | None":
    """What draws on the terminal; None off it: nobody pays there for the import of rich."""
    if not sys.stderr.isatty():
        return None
    from rich.console import Console

    return Console(stderr=True, highlight=False, soft_wrap=True)


def _short(value: Any, most: int = 60) -> str:
    text = value if isinstance(value, str) else repr(value)
    text = " ".join(text.split())
    return text if len(text) <= most else text[: most - 1] + "…"
