"""A working tool with its test, as `tools new` writes it."""

import sys
from keyword import iskeyword
from pathlib import Path

from assistant_runner.errors import ConfigurationError, UsageError
from assistant_runner.tooling.schema import NAME_PATTERN

TOOL = '''"""The tool {name}: change what it takes, what it says and what it gives back."""

from typing import Annotated

from assistant_runner import tool


@tool(when_to_use="Use it when the user asks for a greeting.")
def {name}(who: Annotated[str, "The name of the person to greet"], loud: bool = False) -> str:
    """Greet a person by name"""
    words = f"Hello, {{who}}."
    return words.upper() if loud else words
'''
TEST = '''"""Tests of the tool {name}: run them with `python -m pytest test_{name}.py`."""

import asyncio
from pathlib import Path

import httpx

from assistant_runner.tooling.contract import ToolContext
from assistant_runner.tooling.gate import ToolGate
from assistant_runner.tooling.registry import load_tools

TOOL = load_tools(["./{name}.py:{name}"], cwd=Path(__file__).parent)["{name}"]


def call(**arguments):
    async def run():
        async with httpx.AsyncClient() as http:
            context = ToolContext("call_1", http, environ={{}}, deadline_s=10)
            return await ToolGate().call(TOOL, arguments, context)

    return asyncio.run(run())


def test_it_greets_by_name():
    assert call(who="Ada", loud=None).content == "Hello, Ada."


def test_it_refuses_a_call_without_a_name():
    assert "missing who" in call(loud=True).content
'''


def write_tool(name: str, folder: Path) -> tuple[Path, Path]:
    """The tool's file and its test's, written; existing files are never overwritten."""
    if not NAME_PATTERN.fullmatch(name) or not name.isidentifier() or iskeyword(name):
        raise UsageError(
            f"{name!r} is no name for a tool",
            remedy="use letters, digits and _, beginning with a letter, and no word of Python",
        )
    if name in sys.stdlib_module_names:
        raise UsageError(
            f"{name}.py would stand in the way of Python's own module {name}", remedy="choose another name"
        )
    paths = (folder / f"{name}.py", folder / f"test_{name}.py")
    for path in paths:
        if path.exists():
            raise UsageError(f"{path} exists already", remedy="choose another name or folder")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path, text in zip(paths, (TOOL, TEST), strict=True):
            path.write_text(text.format(name=name), encoding="utf-8")
    except OSError as error:
        raise ConfigurationError(f"{folder}: {error.strerror}", remedy="choose another folder") from None
    return paths
