"""The tools of an assistant file, loaded: what this machine runs, and what the model is offered.

Addresses are relative to the file that names them. What the entry changes (timeout, selector, approval
and so on) is put over the tool. A tool that cannot be loaded is a problem with its place.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from assistant_runner.errors import ConfigurationError
from assistant_runner.setup.desired import Definitions
from assistant_runner.setup.document import FileInvalid, Problem
from assistant_runner.setup.model import AssistantSpec, LocalTool, ToolUse
from assistant_runner.tooling.contract import Tool
from assistant_runner.tooling.registry import Toolbox, load_tools

_RENAMED = {"timeout": "timeout_s", "output": "select"}


def load_spec_tools(spec: AssistantSpec, *, folder: Path | None = None) -> Toolbox:
    """The tools of a spec that run here, in order. FileInvalid names every one that cannot be loaded.

    `folder`: the user's tool folder. Hosted tools and bare functions have nothing to run here.
    """
    box = Toolbox()
    problems: list[Problem] = []
    for use in spec.tools:
        try:
            for tool in tools_of(use, folder=folder):
                box.add(tool)
        except ConfigurationError as error:
            problems += error.problems if isinstance(error, FileInvalid) else [_problem(use, error)]
    if problems:
        raise FileInvalid(problems, remedy="correct the entry or the tool; nothing was sent")
    return box


def tools_of(use: ToolUse, *, folder: Path | None = None) -> Sequence[Tool]:
    """The tools of one entry; none for hosted tools and bare functions."""
    if use.kind != "local":
        return []
    entry: LocalTool = use.entry
    found = load_tools([entry.tool], folder=folder, cwd=use.place.file.resolve().parent)
    changes = {
        _RENAMED.get(name, name): value
        for name, value in entry.model_dump(exclude_none=True, exclude={"tool"}).items()
    }
    return [replace(tool, **changes) for tool in found.values()]


def definitions_from(folder: Path | None = None) -> Definitions:
    """For planning: the definitions of an entry's tools, as the wire has them."""

    def define(spec: AssistantSpec, use: ToolUse) -> Sequence[Mapping[str, Any]]:
        try:
            return [tool.definition().document() for tool in tools_of(use, folder=folder)]
        except FileInvalid:
            raise
        except ConfigurationError as error:
            raise FileInvalid([_problem(use, error)], remedy=error.remedy) from None

    return define


def _problem(use: ToolUse, error: ConfigurationError) -> Problem:
    return Problem(use.place, use.key, error.message)
