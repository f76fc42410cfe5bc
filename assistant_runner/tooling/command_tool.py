"""A tool that is a program in any language: arguments as JSON on stdin, the result on stdout.

No shell, so nothing in an argument is ever interpreted; an environment of its own, so that no key of
ours leaks; a group of its own, so that a timeout ends its children too.
"""

import asyncio
import contextlib
import json
import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from assistant_runner.tooling.contract import Tool, ToolContext, ToolFailure
from assistant_runner.tooling.dynamic import read_parameters
from assistant_runner.tooling.entries import CommandEntry, entry_tool

ALWAYS_PASSED = ("PATH", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR", "TEMP", "SYSTEMROOT")
MAX_OUTPUT_BYTES = 20_000_000
ERROR_CHARACTERS = 400
KILLED_S = 2.0
POLL_S = 0.1
LAST_WORDS_S, LAST_WORDS = 1.0, 4
"""How long, and in how many steps, what a program wrote is read on after its end while something that it
started holds its pipes; a step that brings nothing is the last one."""


def command_tool(entry: CommandEntry, *, folder: Path) -> Tool:
    """The tool; the program is looked for when it is called."""
    cwd = folder / Path(entry.cwd).expanduser() if entry.cwd else folder
    _, scalar = read_parameters(entry.parameters, entry.name)

    async def call(context: ToolContext, /, **arguments: Any) -> Any:
        given = arguments if scalar is None else arguments[scalar]
        return await run_command(entry, given, cwd=cwd, environ=context.environ)

    return entry_tool(entry, call, kind="command", effects="write", source=f"command {entry.command[0]}")


async def run_command(entry: CommandEntry, arguments: Any, *, cwd: Path, environ: Mapping[str, str]) -> Any:
    """What the program wrote: JSON where it is an object or an array, else text; ToolFailure with its
    status and the end of its stderr (or of its stdout, if that is all it said) otherwise."""
    passed = {name: environ[name] for name in (*ALWAYS_PASSED, *entry.env) if name in environ}
    try:
        process = await asyncio.create_subprocess_exec(
            *entry.command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            cwd=cwd,
            env=passed,
            start_new_session=True,
        )
    except OSError as error:
        raise _not_started(entry, cwd, error) from None
    try:
        output, errors = await _talk(process, json.dumps(arguments, ensure_ascii=False).encode())
    except BaseException:
        await _end(process)
        raise
    finally:
        _close_pipes(process)
    if process.returncode:
        words = " ".join((errors.strip() or output).decode("utf-8", "replace").split())[-ERROR_CHARACTERS:]
        status = process.returncode
        how = f"exited with status {status}" if status > 0 else f"was ended by signal {-status}"
        raise ToolFailure(f"{entry.name} {how}" + (f": {words}" if words else ""))
    return _read(output)


def _not_started(entry: CommandEntry, cwd: Path, error: OSError) -> ToolFailure:
    if not cwd.is_dir():
        return ToolFailure(f"{entry.name}: its folder {cwd} is not there", permanent=True)
    words = f"{entry.name}: {entry.command[0]} cannot be started: {error.strerror or error}"
    return ToolFailure(words, permanent=True)


async def _talk(process: asyncio.subprocess.Process, given: bytes) -> tuple[bytes, bytes]:
    """What the program wrote by its end; what it left running may hold its pipes and is not waited for."""
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None

    async def write(stream: asyncio.StreamWriter) -> None:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # it may not read its stdin
            stream.write(given)
            await stream.drain()
        stream.close()

    output, errors = bytearray(), bytearray()
    talk = {
        asyncio.create_task(write(process.stdin)),
        asyncio.create_task(_read_all(process.stdout, output)),
        asyncio.create_task(_read_all(process.stderr, errors)),
    }
    try:
        while not await _is_over(talk, POLL_S) and process.returncode is None:
            pass  # `process.wait` would wait for the pipes, too
        for _ in range(LAST_WORDS):
            read = len(output) + len(errors)
            if await _is_over(talk, LAST_WORDS_S / LAST_WORDS) or read == len(output) + len(errors):
                break
        if process.returncode is None:
            await process.wait()
    finally:
        for part in talk:
            part.cancel()
    return bytes(output), bytes(errors)


async def _is_over(talk: set[asyncio.Task[None]], timeout_s: float) -> bool:
    """Whether all of it is done after this time; raises what one of them raised."""
    done, left = await asyncio.wait(talk, timeout=timeout_s, return_when=asyncio.FIRST_EXCEPTION)
    for part in done:
        part.result()
    return not left


async def _read_all(stream: asyncio.StreamReader, found: bytearray) -> None:
    while piece := await stream.read(65_536):
        found += piece
        if len(found) > MAX_OUTPUT_BYTES:
            raise ToolFailure(f"the command wrote more than {MAX_OUTPUT_BYTES // 1_000_000} MB")


def _close_pipes(process: asyncio.subprocess.Process) -> None:
    """Let go of pipes that a child of the program may still hold; nothing public does."""
    close = getattr(getattr(process, "_transport", None), "close", None)
    if callable(close):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            close()


async def _end(process: asyncio.subprocess.Process) -> None:
    """Kill the program and its children, and wait for the end that follows at once."""
    if process.returncode is not None:
        return
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if os.name == "posix":
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()
    with contextlib.suppress(TimeoutError, asyncio.CancelledError):
        await asyncio.wait_for(process.wait(), KILLED_S)


def _read(output: bytes) -> Any:
    output = output.removeprefix(b"\xef\xbb\xbf")
    text = output.strip()
    if text[:1] in (b"{", b"["):
        try:
            return json.loads(text)
        except ValueError:
            pass
    try:
        return output.decode("utf-8").rstrip("\n")
    except UnicodeDecodeError:
        return output
