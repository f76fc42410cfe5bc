"""From what a user names to a file or an assistant, without what reading files costs: most runs have none.

A module of its own, so that a question to a named assistant does not import all that assistant files need.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from assistant_runner.backends.base import Backend
from assistant_runner.errors import NotFound, UsageError, near_words
from assistant_runner.wire.assistants import Assistant
from assistant_runner.wire.base import Page, WireObject
from assistant_runner.wire.tools import FunctionTool

if TYPE_CHECKING:
    from assistant_runner.setup.model import AssistantSpec

SUFFIXES = (".yaml", ".yml", ".toml", ".json")
FILE_STEM = "assistant"
FILE_NAMES = tuple(f"{FILE_STEM}{suffix}" for suffix in SUFFIXES)
MAX_PAGES = 200

ItemT = TypeVar("ItemT", bound=WireObject)


@dataclass(frozen=True, slots=True)
class ToolDifference:
    """Case-087. `missing`: the assistant offers them and no local tool answers; `unused`: the reverse."""

    missing: tuple[str, ...]
    unused: tuple[str, ...]


def lone_assistant_file(folder: Path) -> Path | None:
    """The `assistant.yaml` (.yml, .toml, .json) of a folder if there is exactly one."""
    found = [folder / name for name in FILE_NAMES if (folder / name).is_file()]
    return found[0] if len(found) == 1 else None


def find_spec(
    reference: str | None, *, cwd: Path, environ: Mapping[str, str], profile: str | None = None
) -> tuple["AssistantSpec | None", str]:
    """The assistant of a file that `reference` names, and a note for stderr; None if it is no file.

    None as reference: the lone assistant file of `cwd`. `FILE#NAME` picks one of several. A bare name
    is looked for in the lone file too. Nothing is sent anywhere.
    """
    if reference is None:
        lone = lone_assistant_file(cwd)
        if lone is None:
            return None, ""
        specs = _load(lone, environ=environ, profile=profile)
        spec = _one_of(specs, None, lone.name)
        return spec, f"assistant {spec.name!r} from {lone.name}"
    text, _, name = reference.partition("#")
    path = cwd / text
    if text and _is_path(text, path):
        specs = _load(path, environ=environ, profile=profile)
        return _one_of(specs, name or None, text), ""
    if reference.startswith("asst_"):
        return None, ""
    lone = lone_assistant_file(cwd)
    if lone is not None:
        for spec in _load(lone, environ=environ, profile=profile):
            if spec.name == reference:
                return spec, f"assistant {spec.name!r} from {lone.name}"
    return None, ""


def _load(path: Path, *, environ: Mapping[str, str], profile: str | None) -> "list[AssistantSpec]":
    from assistant_runner.setup.load import load_assistant_file

    return load_assistant_file(path, environ=environ, profile=profile)


def _is_path(text: str, path: Path) -> bool:
    return (
        path.is_file() or Path(text).suffix.lower() in SUFFIXES or "/" in text or "\\" in text or text == "."
    )


def _one_of(specs: "Sequence[AssistantSpec]", name: str | None, source: str) -> "AssistantSpec":
    if name is None and len(specs) == 1:
        return specs[0]
    names = [spec.name for spec in specs]
    if name is None:
        raise UsageError(
            f"{source} has {len(specs)} assistants: {', '.join(names)}",
            remedy=f"say which: --assistant '{source}#{names[0] if names else 'NAME'}'",
        )
    for spec in specs:
        if spec.name == name:
            return spec
    raise UsageError(
        f"{source} has no assistant {name!r}; it has: {', '.join(names)}", remedy="name one of these"
    )


async def find_assistant(backend: Backend, reference: str) -> Assistant:
    """The assistant with this id (also `asst_…:Name`) or name; NotFound, or UsageError if not unique."""
    if reference.startswith("asst_"):
        return await backend.retrieve_assistant(reference.split(":", 1)[0])
    return await _by_name(backend, reference)


async def every(first: Callable[[str | None], Awaitable[Page[ItemT]]]) -> AsyncIterator[ItemT]:
    """Everything that `first(after)` lists, page by page; stops at a cursor that does not move."""
    after: str | None = None
    for _ in range(MAX_PAGES):
        page = await first(after)
        for item in page.data:
            yield item
        cursor = page.last_id or (getattr(page.data[-1], "id", None) if page.data else None)
        if not page.has_more or not page.data or cursor == after:
            return
        after = cursor


async def all_pages(first: Callable[[str | None], Awaitable[Page[ItemT]]]) -> list[ItemT]:
    """Everything that `first(after)` lists, at once."""
    return [item async for item in every(first)]


async def _by_name(backend: Backend, name: str) -> Assistant:
    found = await all_pages(lambda after: backend.list_assistants(after=after))
    named = [one for one in found if one.name == name]
    if len(named) == 1:
        return named[0]
    if named:
        ids = ", ".join(f"{one.id}:{name}" for one in named)
        raise UsageError(f"{len(named)} assistants are named {name!r}: {ids}", remedy="name one by its id")
    names = sorted({one.name for one in found if one.name})
    near = near_words(name, names, count=3, cutoff=0.5)
    there = f"; near: {', '.join(near)}" if near else f"; there are: {', '.join(names[:10])}" if names else ""
    raise NotFound(
        f"no file and no assistant {name!r} on {backend.label}{there}",
        status_code=404,
        remedy="see: assistant-runner assistant list; or name a file such as ./assistant.yaml",
    )


def compare_tools(assistant: Assistant, local: Sequence[str]) -> ToolDifference:
    """The functions that the assistant offers beside the tools that are here (case-087)."""
    offered = [tool.function.name for tool in assistant.tools if isinstance(tool, FunctionTool)]
    return ToolDifference(
        missing=tuple(name for name in offered if name not in local),
        unused=tuple(name for name in local if name not in offered),
    )
