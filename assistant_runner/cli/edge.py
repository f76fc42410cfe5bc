"""The edge between the process and the library: exit statuses, errors in words, signals, streams.

No traceback reaches a user: what we raise on purpose becomes its message, its remedy and its exit
status; anything else is a bug of ours and says how to report it (exit status 1).
"""

import errno
import gc
import os
import signal
import sys
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

import click

from assistant_runner.errors import AssistantRunnerError, ConfigurationError, UsageError, printable
from assistant_runner.tooling.speech import PartedStdout

if TYPE_CHECKING:
    import asyncio

NAME = "assistant-runner"
FROM_OUTSIDE = frozenset(
    getattr(errno, name)
    for name in ("ENOSPC", "EDQUOT", "EROFS", "EACCES", "EPERM", "EIO", "EFBIG", "EMFILE", "ENFILE")
    if hasattr(errno, name)
)
"""What a disk or the system refuses, wherever it meets us: no bug of ours."""

T = TypeVar("T")


def run_edge(app: click.Command, argv: list[str]) -> int:
    """The exit status of the command line: what its command returned, None is 0."""
    _open_missing_streams()
    stdout = sys.stdout
    sys.stdout = PartedStdout(stdout)
    try:
        return _run_edge(app, argv)
    finally:
        sys.stdout = stdout
        try:
            stdout.flush()
        except OSError:  # it has been told; Python would try once more at the exit, and leave with 120
            _silence_stdout()


def _run_edge(app: click.Command, argv: list[str]) -> int:
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # a narrow code page must not end a run (case-113)
            stream.reconfigure(errors="replace") if stream.isatty() else stream.reconfigure(encoding="utf-8")
    as_json = "--json" in argv or "--jsonl" in argv
    try:
        with app.make_context(NAME, argv, color=_colour()) as context:
            status = app.invoke(context)
        sys.stdout.flush()
    except SystemExit as leaving:
        return leaving.code if isinstance(leaving.code, int) else 1
    except click.exceptions.Exit as leaving:
        return leaving.exit_code
    except click.ClickException as error:
        return _tell_usage(error, as_json=as_json)
    except AssistantRunnerError as error:
        return tell_error(error, as_json=as_json)
    except click.Abort as abort:  # Ctrl-C or the end of input at a prompt, whose line is still open
        click.echo(err=True)
        return 130 if isinstance(abort.__context__, KeyboardInterrupt) else 1
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        _silence_stdout()
        return 141
    except UnicodeEncodeError as error:  # bytes of the command line that are no text
        words = UsageError(f"not UTF-8: {error.object[:60]!r}", remedy="give texts in UTF-8")
        return tell_error(words, as_json=as_json)
    except OSError as error:
        if error.errno == errno.ENOENT and error.filename is None:  # os.getcwd
            words = UsageError("the current folder is gone", remedy="change to one that is there")
            return tell_error(words, as_json=as_json)
        if error.errno not in FROM_OUTSIDE:
            return _tell_bug(error, as_json=as_json)
        return tell_error(_refused_by_system(error), as_json=as_json)
    except Exception as error:
        return _tell_bug(error, as_json=as_json)
    return status if isinstance(status, int) else 0


def _tell_usage(error: click.ClickException, *, as_json: bool) -> int:
    """What click found wrong with the command line, in our words; help if there was nothing at all."""
    context = getattr(error, "ctx", None)
    if type(error).__name__ == "NoArgsIsHelpError":  # click has it from 8.2 on
        click.echo(error.format_message(), err=True, color=_colour())
        return error.exit_code
    usage = " ".join(context.get_usage().split()) if context else f"Usage: {NAME} COMMAND"
    path = context.command_path if context else NAME
    words = UsageError(error.format_message(), remedy=f"{usage} (see {path} --help)")
    return tell_error(words, as_json=as_json)


def _colour() -> bool | None:
    """No colours where NO_COLOR says so (no-color.org); else at a terminal only."""
    return False if os.environ.get("NO_COLOR") else None


def tell_error(error: AssistantRunnerError, *, as_json: bool) -> int:
    """Say the error on stderr (and as one JSON document on stdout if asked); its exit status."""
    click.secho(printable(f"error: {error.message}"), err=True, fg="red", color=_colour())
    if error.remedy:
        click.echo(printable(f"  {error.remedy}"), err=True)
    if partial := error.facts.get("partial"):
        click.echo(printable(f"  the answer so far, not whole: {partial}"), err=True)
    if as_json:
        _print_document(error)
    return error.exit_status


def _print_document(error: AssistantRunnerError) -> None:
    import json

    try:
        click.echo(json.dumps(error.document(), ensure_ascii=False, default=str))
    except OSError:  # it may be this that the error is about
        _silence_stdout()


def begin_work() -> None:
    """Start-up is over: collect garbage again, but never look through what was imported.

    `__main__` stops the collector: while modules are imported it finds nothing, and its search costs
    about a tenth of the start.
    """
    if not gc.isenabled():
        gc.freeze()
        gc.enable()


def run_async(work: Coroutine[Any, Any, T], *, busy: bool = False) -> T:
    """Run the coroutine; the first SIGINT, SIGTERM or SIGHUP cancels it, the second leaves at once.

    Leaves with 130, 143 or 129 after the cancelled work has tidied up. `busy`: many runs at once; a
    quicker event loop and fewer collections of garbage take about a quarter off their time.
    """
    try:
        return _run_async(work, busy=busy)
    finally:
        work.close()  # an interrupt may come before it begins


def _run_async(work: Coroutine[Any, Any, T], *, busy: bool) -> T:
    import asyncio  # not for --help

    from assistant_runner.logs import say_warnings

    say_warnings(os.environ)
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
            if signum not in (signal.SIGINT, signal.SIGTERM) and signal.getsignal(signum) is signal.SIG_IGN:
                continue  # under `nohup` a terminal may close
            try:
                loop.add_signal_handler(signum, stop, signum)
            except NotImplementedError:  # Windows: KeyboardInterrupt does it
                break
        return await work

    begin_work()
    try:
        with asyncio.Runner(loop_factory=_quick_loop() if busy else None) as runner:
            return runner.run(main())
    except asyncio.CancelledError:
        raise SystemExit(128 + caught[0] if caught else 1) from None


def _quick_loop() -> "Callable[[], asyncio.AbstractEventLoop] | None":
    """uvloop's, where there is one; and fewer collections of garbage."""
    gc.set_threshold(20_000, 20, 50)
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


def _tell_bug(error: Exception, *, as_json: bool) -> int:
    from assistant_runner.logs import masked

    words = masked(f"internal error: {type(error).__name__}: {error}", os.environ)
    remedy = (
        "This is a bug in assistant-runner. Set ASSISTANT_RUNNER_TRACEBACK=1, run it again, and report "
        "what it prints (look it over for secrets first)."
    )
    click.secho(printable(words), err=True, fg="red", color=_colour())
    click.echo(f"  {remedy}", err=True)
    if as_json:
        _print_document(AssistantRunnerError(words, remedy=remedy))
    if os.environ.get("ASSISTANT_RUNNER_TRACEBACK"):
        import traceback

        trace = "".join(traceback.format_exception(error))
        click.echo(masked(trace, os.environ), err=True)
    return 1


def _open_missing_streams() -> None:
    """A caller may close standard streams (`2>&-`): Python then has None in their place."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115


def _refused_by_system(error: OSError) -> ConfigurationError:
    """The same in our words; what has no file's name was mostly meant for standard output."""
    where = f"{error.filename}: " if error.filename else ""
    return ConfigurationError(
        f"{where}{error.strerror}",
        remedy=f"make room where the output goes; {NAME} doctor looks at the folders",
    )


def _silence_stdout() -> None:
    """Nothing more may be written to stdout, not even at exit: its reader is gone, or its disk is full."""
    devnull = os.open(os.devnull, os.O_WRONLY)
    os.dup2(devnull, sys.stdout.fileno())
