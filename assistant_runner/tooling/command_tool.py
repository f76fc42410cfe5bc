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
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None

    async def write(stream: asyncio.StreamWriter) -> None:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # it may not read its stdin
            stream.write(given)
            await stream.drain()
        stream.close()

    _, output, errors, _ = await asyncio.gather(
        write(process.stdin), _read_all(process.stdout), _read_all(process.stderr), process.wait()
    )
    return output, errors


async def _read_all(stream: asyncio.StreamReader) -> bytes:
    found = bytearray()
    while piece := await stream.read(65_536):
        found += piece
        if len(found) > MAX_OUTPUT_BYTES:
            raise ToolFailure(f"the command wrote more than {MAX_OUTPUT_BYTES // 1_000_000} MB")
    return bytes(found)


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
