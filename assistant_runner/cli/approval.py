"""Asking the person at the terminal whether a call may run.

The question goes to the terminal device and the answer comes from there: standard input is data, and
a piped prompt must never be read as an answer (case-118). Where there is no terminal, nobody is asked.
"""

import asyncio
import json
from contextlib import AbstractContextManager
from typing import Any, Protocol, TextIO

from assistant_runner.tooling.gate import ApprovalQuestion, Approve, Decision

DEVICE = "/dev/tty"
ARGUMENT_CHARACTERS = 500


class Pausable(Protocol):
    """Whatever moves on the screen while we ask."""

    def paused(self) -> AbstractContextManager[None]: ...


def terminal_approver(no_input: bool | None, screen: Pausable) -> Approve | None:
    """An approver at the controlling terminal; None if there is none or `--no-input` was given."""
    if no_input:
        return None
    try:  # two streams: a terminal cannot be sought in, as one text stream for both would want
        reader = open(DEVICE, encoding="utf-8", errors="replace")  # noqa: SIM115
        writer = open(DEVICE, "w", encoding="utf-8", errors="replace")  # noqa: SIM115
    except OSError:
        return None
    return TerminalApprover(reader, writer, screen)


class TerminalApprover:
    """Asks one question at a time; `a` approves this tool until the command ends."""

    def __init__(self, reader: TextIO, writer: TextIO, screen: Pausable) -> None:
        self._reader = reader
        self._writer = writer
        self._screen = screen
        self._turn = asyncio.Lock()
        self._always: set[str] = set()

    async def __call__(self, question: ApprovalQuestion) -> Decision:
        async with self._turn:
            if question.tool in self._always:
                return Decision("yes")
            with self._screen.paused():
                answer = await self._ask(question)
        if answer in ("a", "always"):
            self._always.add(question.tool)
        if answer in ("y", "yes", "a", "always"):
            return Decision("yes")
        return Decision("no", answer if answer not in ("", "n", "no") else "")

    async def _ask(self, question: ApprovalQuestion) -> str:
        self._writer.write(f"{question.reason}\n  {question.tool}({shown(question.arguments)})\n")
        self._writer.write("Run it? [y]es, [n]o, [a]lways: ")
        self._writer.flush()
        await self._typed()
        return self._reader.readline().strip().lower()

    async def _typed(self) -> None:
        """Wait for a line without a thread, so that an interrupt ends the wait at once."""
        loop, typed = asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(self._reader, typed.set)
        try:
            await typed.wait()
        finally:
            loop.remove_reader(self._reader)


def shown(arguments: Any) -> str:
    """Arguments as a person may safely read them: control characters escaped, cut when long."""
    text = json.dumps(arguments, ensure_ascii=False)
    text = "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)
    return (
        text
        if len(text) <= ARGUMENT_CHARACTERS
        else f"{text[:ARGUMENT_CHARACTERS]}… ({len(text)} characters)"
    )
