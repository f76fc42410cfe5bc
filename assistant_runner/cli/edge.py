"""The edge between the process and the library: exit statuses, errors in words, signals, streams.

No traceback reaches a user: what we raise on purpose becomes its message, its remedy and its exit
status; anything else is a bug of ours and says how to report it (exit status 1).
"""

import os
import signal
import sys
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

import typer

from assistant_runner.errors import AssistantRunnerError

if TYPE_CHECKING:
    import asyncio

T = TypeVar("T")


def run_edge(app: typer.Typer, argv: list[str]) -> int:
    """The exit status of the command line."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # a narrow code page must not end a run (case-113)
            stream.reconfigure(errors="replace") if stream.isatty() else stream.reconfigure(encoding="utf-8")
    try:
        app(argv, prog_name="assistant-runner", standalone_mode=True, color=_colour())
    except SystemExit as leaving:
        return leaving.code if isinstance(leaving.code, int) else 1
    except AssistantRunnerError as error:
        return tell_error(error, as_json="--json" in argv or "--jsonl" in argv)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        _silence_stdout()
        return 141
    except Exception as error:
        return _tell_bug(error)
    return 0


def _colour() -> bool | None:
    """No colours where NO_COLOR says so (no-color.org); else at a terminal only."""
    return False if os.environ.get("NO_COLOR") else None


def tell_error(error: AssistantRunnerError, *, as_json: bool) -> int:
    """Say the error on stderr (and as one JSON document on stdout if asked); its exit status."""
    typer.secho(f"error: {error.message}", err=True, fg="red", color=_colour())
    if error.remedy:
        typer.echo(f"  {error.remedy}", err=True)
    if partial := error.facts.get("partial"):
        typer.echo(f"  the answer so far, not whole: {partial}", err=True)
    if as_json:
        import json

        typer.echo(json.dumps(error.document(), ensure_ascii=False, default=str))
    return error.exit_status


def run_async(work: Coroutine[Any, Any, T], *, busy: bool = False) -> T:
    """Run the coroutine; the first SIGINT, SIGTERM or SIGHUP cancels it, the second leaves at once.

    Leaves with 130, 143 or 129 after the cancelled work has tidied up. `busy`: many runs at once; a
    quicker event loop and fewer collections of garbage take about a quarter off their time.
    """
    import asyncio  # not for --help

    caught: list[int] = []

    async def main() -> T:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None

        def stop(signum: int) -> None:
            if caught:
                os._exit(128 + signum)
            caught.append(signum)
            task.cancel()

        for signum in (signal.SIGINT, signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM)):
            try:
                loop.add_signal_handler(signum, stop, signum)
            except NotImplementedError:  # Windows: KeyboardInterrupt does it
                break
        return await work

    try:
        with asyncio.Runner(loop_factory=_quick_loop() if busy else None) as runner:
            return runner.run(main())
    except asyncio.CancelledError:
        raise SystemExit(128 + caught[0] if caught else 1) from None
    except BrokenPipeError:  # click would make it a plain 1
        _silence_stdout()
        raise SystemExit(141) from None


def _quick_loop() -> "Callable[[], asyncio.AbstractEventLoop] | None":
    """uvloop's, where there is one; what was imported so far is no garbage."""
    import gc

    gc.freeze()
    gc.set_threshold(20_000, 20, 50)
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


def _tell_bug(error: Exception) -> int:
    from assistant_runner.logs import masked

    words = masked(f"{type(error).__name__}: {error}", os.environ)
    typer.secho(f"internal error: {words}", err=True, fg="red", color=_colour())
    typer.echo(
        "  This is a bug in assistant-runner. Set ASSISTANT_RUNNER_TRACEBACK=1, run it again, and report "
        "what it prints (look it over for secrets first).",
        err=True,
    )
    if os.environ.get("ASSISTANT_RUNNER_TRACEBACK"):
        import traceback

        trace = "".join(traceback.format_exception(error))
        typer.echo(masked(trace, os.environ), err=True)
    return 1


def _silence_stdout() -> None:
    """Whoever read our stdout is gone: nothing more may be written there, not even at exit."""
    devnull = os.open(os.devnull, os.O_WRONLY)
    os.dup2(devnull, sys.stdout.fileno())
