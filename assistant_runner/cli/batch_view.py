"""How a batch looks: a live line at a terminal, plain lines off it, a table at the end. All on stderr."""

import sys
import time
from typing import TYPE_CHECKING, Any, Self

from assistant_runner.errors import printable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

PLAIN_EVERY_S = 10.0


def amount(seconds: float | None) -> str:
    """`1:02:03`, `4:05`, `7 s`; `?` if nobody knows."""
    if seconds is None:
        return "?"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    hours, rest = divmod(whole, 3600)
    minutes, left = divmod(rest, 60)
    return f"{hours}:{minutes:02}:{left:02}" if hours else f"{minutes}:{left:02}"


def line_of(progress: dict[str, Any]) -> str:
    """One line that says where the batch stands."""
    total = progress["total"]
    parts = [f"{progress['done']:,}{f' of {total:,}' if total is not None else ''} rows"]
    if progress["failed"]:
        parts.append(f"{progress['failed']:,} failed")
    if progress["unpassed"]:
        parts.append(f"{progress['unpassed']:,} did not pass")
    if progress["paused"]:
        parts.append(f"{progress['paused']:,} wait for a person")
    if progress["state"] == "running":
        parts.append(f"{progress['running']} running (limit {progress['limit']})")
    parts.append(f"{progress['rows_per_s']:g} rows/s")
    if progress["tokens"]:
        parts.append(f"{progress['tokens']:,} tokens")
    if progress["cost"] is not None:
        parts.append(f"cost {progress['cost']:.4f}")
    if progress["refused"]:
        parts.append(f"{progress['refused']} refused for rate")
    if progress["state"] == "running":
        parts.append(f"{amount(progress['left_s'])} left")
    return ", ".join(parts)


def summary_table(progress: dict[str, Any]) -> "Table":
    """The end of a batch in a few rows."""
    from rich.table import Table  # rich is for terminals only: elsewhere nobody pays for it
    from rich.text import Text

    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(style="dim")
    table.add_column(justify="right")
    answered = progress["done"] - progress["failed"] - progress["paused"]
    table.add_row("answered", f"{answered:,}")
    for name, words in (
        ("failed", "failed"),
        ("unpassed", "did not pass their checks"),
        ("paused", "wait for a person"),
        ("left", "left for another run"),
        ("kept", "finished before"),
        ("copied", "copied from equal rows"),
        ("refused", "requests refused for rate"),
    ):
        if progress[name]:
            style = "red" if name in ("failed", "unpassed") else None
            table.add_row(words, Text(f"{progress[name]:,}", style=style or ""))
    for kind, count in sorted(progress["errors"].items(), key=lambda item: -item[1]):
        table.add_row(f"  {kind}", f"{count:,}")
    for kind, count in progress["troubles"].items():
        table.add_row(f"trouble: {kind}", f"{count:,}")
    if progress["tokens"]:
        table.add_row("tokens", f"{progress['tokens']:,}")
    if progress["cost"] is not None:
        table.add_row("cost", f"{progress['cost']:.4f}")
    table.add_row("time", f"{amount(progress['elapsed_s'])} ({progress['rows_per_s']:g} rows/s)")
    return table


class _Closing:
    """A talk is left at the end, however the end came."""

    def close(self) -> None:
        return None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class PlainTalk(_Closing):
    """Lines for logs: where it stands every ten seconds, and the summary."""

    def __init__(self, *, quiet: bool = False, every_s: float = PLAIN_EVERY_S) -> None:
        self._quiet = quiet
        self._every_s = every_s
        self._told_at = time.monotonic()

    def say(self, message: str) -> None:
        print(printable(f"batch: {message}"), file=sys.stderr)

    def tell(self, progress: dict[str, Any]) -> None:
        if self._quiet:
            return
        if progress["state"] != "running":
            print(f"batch: {progress['state']}: {line_of(progress)}", file=sys.stderr)
            for kind, count in sorted(progress["errors"].items(), key=lambda item: -item[1]):
                print(f"batch:   {kind}: {count}", file=sys.stderr)
        elif time.monotonic() - self._told_at >= self._every_s:
            self._told_at = time.monotonic()
            print(f"batch: {line_of(progress)}", file=sys.stderr)


class LiveTalk(_Closing):
    """A bar and a line that are drawn anew, at a terminal."""

    def __init__(self, console: "Console") -> None:
        from rich.live import Live

        self._console = console
        self._live = Live(console=console, refresh_per_second=4, transient=True)
        self._started = False

    def say(self, message: str) -> None:
        from rich.text import Text

        self._console.print(Text(printable(f"batch: {message}"), style="yellow"))

    def tell(self, progress: dict[str, Any]) -> None:
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        if progress["state"] == "running":
            if not self._started:
                self._live.start()
                self._started = True
            bar = ProgressBar(
                total=progress["total"] or 100,
                completed=progress["done"] + progress["left"],
                pulse=progress["total"] is None,
            )
            view = Table.grid()  # a bar ends without a line break: what follows it would not be seen
            view.add_row(bar)
            view.add_row(Text(line_of(progress)))
            self._live.update(view)
            return
        self.close()
        self._console.print(summary_table(progress))

    def close(self) -> None:
        if self._started:
            self._live.stop()
            self._started = False


def talk_for(*, plain: bool, quiet: bool) -> PlainTalk | LiveTalk:
    """A live view at a terminal unless told otherwise."""
    if plain or quiet or not sys.stderr.isatty():
        return PlainTalk(quiet=quiet)
    from rich.console import Console

    return LiveTalk(Console(stderr=True))
