"""The tools of an assistant file, loaded: what this machine runs, and what the model is offered.

Addresses are relative to the file that names them. What the entry changes (timeout, selector, approval
and so on) is put over the tool. A tool that cannot be loaded is a problem with its place.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from assistant_runner.errors import ConfigurationError
from assistant_runner.setup.desired import Definitions
from assistant_runner.setup.document import FileInvalid, Problem
from assistant_runner.setup.model import AssistantSpec, LocalTool, ToolUse
from assistant_runner.tooling.contract import Tool
from assistant_runner.tooling.entries import ENTRY_MODELS, build_tool
from assistant_runner.tooling.mcp_tools import SEPARATOR, open_mcp
from assistant_runner.tooling.registry import Toolbox, load_tools

_RENAMED = {"timeout": "timeout_s", "output": "select"}


@asynccontextmanager
async def open_spec_tools(
    spec: AssistantSpec, *, environ: Mapping[str, str], folder: Path | None = None
) -> AsyncIterator[Toolbox]:
    """All tools of a spec that run here, those of its MCP servers too, which are open meanwhile.

    FileInvalid names every entry that cannot be loaded. `folder`: the user's tool folder.
    """
    async with AsyncExitStack() as stack:
        opened: dict[str, Sequence[Tool]] = {}
        problems: list[Problem] = []
        for use in spec.tools:
            if use.kind != "mcp":
                continue
            try:
                where = use.place.file.resolve().parent
                server = open_mcp(use.entry, environ=environ, folder=where)
                opened[use.key] = await stack.enter_async_context(server)
            except ConfigurationError as error:
                problems.append(_problem(use, error))
        yield _collect(spec, folder, opened, problems)


def load_spec_tools(spec: AssistantSpec, *, folder: Path | None = None) -> Toolbox:
    """As `open_spec_tools` without MCP servers, whose tools are left out."""
    opened: dict[str, Sequence[Tool]] = {use.key: [] for use in spec.tools if use.kind == "mcp"}
    return _collect(spec, folder, opened, [])


def _collect(
    spec: AssistantSpec, folder: Path | None, opened: Mapping[str, Sequence[Tool]], problems: list[Problem]
) -> Toolbox:
    box = Toolbox()
    for use in spec.tools:
        try:
            for tool in opened[use.key] if use.key in opened else tools_of(use, folder=folder):
                box.add(tool)
        except ConfigurationError as error:
            problems.append(_problem(use, error))
    if problems:
        raise FileInvalid(problems, remedy="correct the entry or the tool; nothing was sent")
    return box


def tools_of(use: ToolUse, *, folder: Path | None = None) -> Sequence[Tool]:
    """The tools of one entry; none for hosted tools, bare functions and MCP servers that are not open."""
    where = use.place.file.resolve().parent
    if use.kind in ENTRY_MODELS and use.kind != "mcp":
        return [build_tool(use.entry, folder=where)]
    if use.kind != "local":
        return []
    entry: LocalTool = use.entry
    changes = {
        _RENAMED.get(name, name): value
        for name, value in entry.model_dump(exclude_none=True, exclude={"tool"}).items()
    }
    return [replace(tool, **changes) for tool in load_tools([entry.tool], folder=folder, cwd=where).values()]


def definitions_from(
    folder: Path | None = None, *, boxes: Mapping[str, Toolbox] | None = None
) -> Definitions:
    """For planning: what the model is offered for each entry. `boxes`: open toolboxes by identity."""

    def define(spec: AssistantSpec, use: ToolUse) -> Sequence[Mapping[str, Any]]:
        if use.kind == "mcp":
            box = (boxes or {}).get(spec.identity)
            if box is None:
                raise FileInvalid([Problem(use.place, use.key, "the MCP server is not open")])
            tools = [tool for name, tool in box.items() if name.startswith(f"{use.entry.name}{SEPARATOR}")]
        else:
            tools = _loaded(use, folder)
        return [tool.definition().document() for tool in tools]

    return define


def _loaded(use: ToolUse, folder: Path | None) -> list[Tool]:
    try:
        return list(tools_of(use, folder=folder))
    except ConfigurationError as error:
        raise FileInvalid([_problem(use, error)], remedy=error.remedy) from None


def _problem(use: ToolUse, error: ConfigurationError) -> Problem:
    return Problem(use.place, use.key, error.message)
