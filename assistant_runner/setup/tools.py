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
from assistant_runner.tooling.entries import ENTRY_MODELS, build_tools
from assistant_runner.tooling.mcp_tools import open_mcp
from assistant_runner.tooling.registry import Toolbox, load_tools

_RENAMED = {"timeout": "timeout_s", "output": "select"}


class SpecTools(Toolbox):
    """The tools of a spec; `by_entry` has the names of those that came from each entry."""

    def __init__(self) -> None:
        super().__init__()
        self.by_entry: dict[str, list[str]] = {}


Found = dict[tuple[str, Path], Sequence[Tool]]
"""Tools that were loaded already, by address and folder: many assistants share them."""


@asynccontextmanager
async def open_spec_tools(
    spec: AssistantSpec,
    *,
    environ: Mapping[str, str],
    folder: Path | None = None,
    found: Found | None = None,
) -> AsyncIterator[SpecTools]:
    """All tools of a spec that run here, those of its MCP servers too, which are open meanwhile.

    FileInvalid names every entry that cannot be loaded. `folder`: the user's tool folder. `found` is
    handed from spec to spec by those who open many.
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
                opened[use.key] = []
        yield _collect(spec, folder, opened, problems, {} if found is None else found)


def load_spec_tools(spec: AssistantSpec, *, folder: Path | None = None) -> SpecTools:
    """As `open_spec_tools` without MCP servers, whose tools are left out."""
    opened: dict[str, Sequence[Tool]] = {use.key: [] for use in spec.tools if use.kind == "mcp"}
    return _collect(spec, folder, opened, [], {})


def _collect(
    spec: AssistantSpec,
    folder: Path | None,
    opened: Mapping[str, Sequence[Tool]],
    problems: list[Problem],
    found: Found,
) -> SpecTools:
    box = SpecTools()
    for use in spec.tools:
        try:
            tools = opened[use.key] if use.key in opened else tools_of(use, folder=folder, found=found)
            for tool in tools:
                box.add(tool)
            box.by_entry[use.key] = [tool.name for tool in tools]
        except ConfigurationError as error:
            problems.append(_problem(use, error))
    if problems:
        raise FileInvalid(problems, remedy="correct the entry or the tool; nothing was sent")
    return box


def tools_of(use: ToolUse, *, folder: Path | None = None, found: Found | None = None) -> Sequence[Tool]:
    """The tools of one entry; none for hosted tools, bare functions and MCP servers that are not open."""
    where = use.place.file.resolve().parent
    if use.kind in ENTRY_MODELS and use.kind != "mcp":
        return build_tools(use.entry, folder=where)
    if use.kind != "local":
        return []
    entry: LocalTool = use.entry
    changes = {
        _RENAMED.get(name, name): value
        for name, value in entry.model_dump(exclude_none=True, exclude={"tool"}).items()
    }
    found = {} if found is None else found
    key = (entry.tool, where)
    if key not in found:
        found[key] = tuple(load_tools([entry.tool], folder=folder, cwd=where).values())
    return [replace(tool, **changes) if changes else tool for tool in found[key]]


def definitions_from(
    folder: Path | None = None, *, boxes: Mapping[str, Toolbox] | None = None
) -> Definitions:
    """For planning: what the model is offered for each entry.

    `boxes`: opened tools by identity of the spec; what is not among them is loaded, but for MCP servers,
    which must be open.
    """
    found: Found = {}

    def define(spec: AssistantSpec, use: ToolUse) -> Sequence[Mapping[str, Any]]:
        box = (boxes or {}).get(spec.identity)
        if isinstance(box, SpecTools):
            tools: Sequence[Tool] = [box[name] for name in box.by_entry[use.key]]
        elif use.kind == "mcp":
            raise FileInvalid([Problem(use.place, use.key, "the MCP server is not open")])
        else:
            try:
                tools = tools_of(use, folder=folder, found=found)
            except ConfigurationError as error:
                raise FileInvalid([_problem(use, error)], remedy=error.remedy) from None
        return [tool.definition().document() for tool in tools]

    return define


def _problem(use: ToolUse, error: ConfigurationError) -> Problem:
    return Problem(use.place, use.key, error.message)
