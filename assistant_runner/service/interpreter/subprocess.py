"""Python code in a process of its own: isolated mode, a folder of its own, limits, a deadline.

It keeps honest code from doing harm by accident; it is no wall against code that means harm. That
is why code that a language model wrote runs only when the operator says so.
"""

import asyncio
import contextlib
import os
import shutil
import signal
import stat
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

OUTPUT_LIMIT = 1_000_000
MEMORY_LIMIT = 1024 * 1024 * 1024
FILE_LIMIT = 64 * 1024 * 1024
FILES_LIMIT = 20
NAME_LIMIT = 200
"""Bytes of a file's name before its ending: file systems hold 255 in all."""
SUFFIX_LIMIT = 10

_PRELUDE = """\
import sys, traceback, ast
source = sys.stdin.buffer.read().decode("utf-8")
try:
    tree = ast.parse(source, "<code>")
    last = None
    if tree.body and isinstance(tree.body[-1], ast.Expr):
        last = ast.Expression(tree.body.pop().value)
    names = {"__name__": "__main__"}
    exec(compile(tree, "<code>", "exec"), names)
    if last is not None:
        value = eval(compile(last, "<code>", "eval"), names)
        if value is not None:
            print(value if isinstance(value, str) else repr(value))
except SystemExit:
    raise
except BaseException as error:
    sys.stdout.flush()
    kind, value, trace = sys.exc_info()
    while trace is not None and trace.tb_frame.f_code.co_filename != "<code>":
        trace = trace.tb_next
    traceback.print_exception(kind, value, trace, file=sys.stdout)
"""


class InterpreterFailed(Exception):
    """The code could not be started at all."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the code printed, its errors included, and the files that it made: name and bytes."""

    logs: str
    made: tuple[tuple[str, bytes], ...] = ()


async def interpret(code: str, *, files: Sequence[tuple[str, Path]] = (), timeout_s: float = 30.0) -> Outcome:
    """What came of the code; a last expression is printed as in a notebook.

    `files`: name and place of files that are copied into the folder where the code runs. The code may
    call that folder /mnt/data, as models do.
    """
    folder = Path(tempfile.mkdtemp(prefix="assistant-runner-code-"))
    try:
        given = await asyncio.to_thread(_lay_out, folder, files)
        logs = await _run(code.replace("/mnt/data", str(folder)), folder, timeout_s)
        logs = logs.replace(str(folder), "/mnt/data")
        return Outcome(logs, await asyncio.to_thread(_made, folder, given))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _lay_out(folder: Path, files: Sequence[tuple[str, Path]]) -> dict[str, int]:
    """Copies files into the folder; their names and times."""
    for name, place in files:
        if place.is_file():
            shutil.copyfile(place, _free(folder, name))
    return {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}


def _free(folder: Path, name: str) -> Path:
    """A place for a file of this name: shorter if no folder can hold it, numbered if it is taken."""
    plain = Path("".join(letter for letter in name if letter.isprintable())).name
    plain = plain if plain.strip(". ") else "file"
    stem, dot, suffix = plain.rpartition(".")
    if not dot or len(suffix) > SUFFIX_LIMIT:
        stem, dot, suffix = plain, "", ""
    stem = stem.encode()[:NAME_LIMIT].decode("utf-8", "ignore")
    place, number = folder / f"{stem}{dot}{suffix}", 1
    while place.exists():
        number += 1
        place = folder / f"{stem} ({number}){dot}{suffix}"
    return place


def _made(folder: Path, given: dict[str, int]) -> tuple[tuple[str, bytes], ...]:
    """New and changed plain files at the top of the folder, the first few."""
    found: list[tuple[str, bytes]] = []
    for path in sorted(folder.iterdir()):
        if len(found) == FILES_LIMIT:
            break
        status = path.lstat()
        is_new = given.get(path.name) != status.st_mtime_ns
        if stat.S_ISREG(status.st_mode) and is_new and status.st_size <= FILE_LIMIT:
            found.append((path.name, path.read_bytes()))
    return tuple(found)


async def _run(code: str, folder: Path, timeout_s: float) -> str:
    try:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-I",
            "-c",
            _PRELUDE,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            cwd=folder,
            env={"PATH": os.defpath, "HOME": str(folder), "TMPDIR": str(folder), "PYTHONIOENCODING": "utf-8"},
            start_new_session=True,
            preexec_fn=_limits(timeout_s),
        )
    except OSError as error:
        raise InterpreterFailed(f"Python cannot be started: {error}") from error
    try:
        async with asyncio.timeout(timeout_s):
            return await _converse(process, code)
    except TimeoutError:
        return f"The code was stopped after {timeout_s:g} seconds."
    finally:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()


async def _converse(process: asyncio.subprocess.Process, code: str) -> str:
    assert process.stdin is not None
    assert process.stdout is not None
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        process.stdin.write(code.encode("utf-8", "replace"))
        await process.stdin.drain()
    process.stdin.close()
    kept = bytearray()
    cut = False
    while piece := await process.stdout.read(65536):
        room = OUTPUT_LIMIT - len(kept)
        kept += piece[:room]
        cut = cut or len(piece) > room
    text = kept.decode("utf-8", "replace")
    return f"{text}\n[cut after {OUTPUT_LIMIT} bytes]" if cut else text


def _limits(timeout_s: float) -> Callable[[], None] | None:
    """Sets limits in the child; None where the platform has none."""
    if sys.platform == "win32":
        return None
    import resource

    seconds = int(timeout_s) + 1

    def apply() -> None:
        signal.alarm(seconds + 1)  # ends the code though we may have been killed
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
        resource.setrlimit(resource.RLIMIT_FSIZE, (FILE_LIMIT, FILE_LIMIT))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY_LIMIT, MEMORY_LIMIT))

    return apply
