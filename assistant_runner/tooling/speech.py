"""What tools print: it is talk, and stdout is for data alone.

The command line puts `PartedStdout` in the place of stdout. Whatever runs in a tool's context (its thread,
its task, the import of its module) then prints to stderr, while everything else prints as before.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TextIO

_IN_A_TOOL: ContextVar[bool] = ContextVar("in_a_tool", default=False)


@contextmanager
def tool_speaks(speaks: bool = True) -> Iterator[None]:
    """What is printed inside comes from a tool (or, with False, from us again)."""
    token = _IN_A_TOOL.set(speaks)
    try:
        yield
    finally:
        _IN_A_TOOL.reset(token)


class PartedStdout:
    """A stream that is stderr for tools and the given one for everybody else."""

    def __init__(self, stdout: TextIO) -> None:
        self._stdout = stdout

    def __getattr__(self, name: str) -> Any:
        return getattr(sys.stderr if _IN_A_TOOL.get() else self._stdout, name)
