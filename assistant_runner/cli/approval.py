"""Asking the person at the terminal: whether a call may run, whether one is to be made again.

The question goes to the terminal device and the answer comes from there: standard input is data, and
a piped prompt must never be read as an answer (case-118). Where there is no terminal, nobody is asked.
"""

import asyncio
import contextlib
import json
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol, TextIO

from assistant_runner.errors import printable

if TYPE_CHECKING:
    from assistant_runner.tooling.gate import ApprovalQuestion, Approve, Decision

DEVICE = "/dev/tty"
ARGUMENT_CHARACTERS = 500


class Terminal:
    """The controlling terminal, for one question at a time."""

    def __init__(self, reader: TextIO, writer: TextIO) -> None:
        self._reader = reader
        self._writer = writer
        self._turn = asyncio.Lock()

    async def ask(self, text: str) -> str:
        """The line that was typed, trimmed and in lower case; "" at the end of input.

        What was typed before the question is no answer to it.
        """
        async with self._turn:
            self._forget_typed()
            self._writer.write(printable(text))
            self._writer.flush()
            await self._typed()
            return self._reader.readline().strip().lower()

    def _forget_typed(self) -> None:
        import termios

        with contextlib.suppress(termios.error):
            termios.tcflush(self._reader, termios.TCIFLUSH)

    async def _typed(self) -> None:
        """Wait for a line without a thread, so that an interrupt ends the wait at once."""
        loop, typed = asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(self._reader, typed.set)
        try:
            await typed.wait()
        finally:
            loop.remove_reader(self._reader)


def open_terminal() -> Terminal | None:
    """The terminal; None if this process has none."""
    try:  # two streams: a terminal cannot be sought in, as one text stream for both would want
        reader = open(DEVICE, encoding="utf-8", errors="replace")  # noqa: SIM115
        writer = open(DEVICE, "w", encoding="utf-8", errors="replace")  # noqa: SIM115
    except OSError:
        return None
    return Terminal(reader, writer)


class Pausable(Protocol):
    """Whatever moves on the screen while we ask."""

    def paused(self) -> AbstractContextManager[None]: ...


def terminal_approver(no_input: bool | None, screen: Pausable) -> "Approve | None":
    """An approver at the terminal; None if there is none or `--no-input` was given.

    `a` approves that tool until the command ends; any other word than yes is the reason of a no.
    """
    from assistant_runner.tooling.gate import Decision

    terminal = None if no_input else open_terminal()
    if terminal is None:
        return None
    always: set[str] = set()
    turn = asyncio.Lock()

    async def approve(question: "ApprovalQuestion") -> "Decision":
        async with turn:  # calls that wait for theirs have been answered too when the answer is: always
            if question.tool in always:
                return Decision("yes")
            with screen.paused():
                answer = await terminal.ask(
                    f"{question.reason}\n  {question.tool}({shown(question.arguments)})\n"
                    "Run it? [y]es, [n]o, [a]lways: "
                )
            if answer in ("a", "always"):
                always.add(question.tool)
        if answer in ("y", "yes", "a", "always"):
            return Decision("yes")
        return Decision("no", answer if answer not in ("", "n", "no") else "")

    return approve


def shown(arguments: Any) -> str:
    """Arguments as a person may safely read them: control characters escaped, cut when long."""
    text = json.dumps(arguments, ensure_ascii=False)
    text = "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)
    if len(text) <= ARGUMENT_CHARACTERS:
        return text
    return f"{text[:ARGUMENT_CHARACTERS]}… ({len(text)} characters)"
