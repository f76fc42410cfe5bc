"""Where tools are found, and the box that a run takes them from.

An address is a name (in the shipped `tools/`, the user's tool folder, or an entry point of the group
`assistant_runner.tools`), `path.py:name`, or `package.module:name`. A module that cannot be loaded is
a problem with file and line; it takes no other tool down. In a folder's module, what the decorator
marks is a tool; without any mark, the function named like the file; without that, every public
function that has a docstring.
"""

import hashlib
import importlib
import importlib.util
import inspect
import re
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar

from assistant_runner.errors import ConfigurationError, near_words
from assistant_runner.tooling.contract import Tool
from assistant_runner.tooling.schema import check_name, options_of, tool_from
from assistant_runner.tooling.selecting import check_selector
from assistant_runner.tooling.speech import tool_speaks
from assistant_runner.wire.tools import FunctionTool

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint, EntryPoints

PlaceT = TypeVar("PlaceT")
ENTRY_POINTS = "assistant_runner.tools"
IMPORTED = re.compile(rb"^\s*(?:from|import)\s+([A-Za-z_]\w*)", re.MULTILINE)
DEFAULT_NAMES = ("get_weather", "get_wiki_url", "get_webpage")


class Toolbox(Mapping[str, Tool]):
    """Tools by name, in the order they were added; may grow and change while a program runs.

    `changes` counts what was added and removed: as long as it stays, so do the definitions.
    """

    def __init__(self, tools: Iterable[Tool] = ()) -> None:
        self.changes = 0
        self._tools: dict[str, Tool] = {}
        for tool in tools:
            self.add(tool)

    def add(self, tool: Tool, *, replace: bool = False) -> None:
        """One more tool; ConfigurationError if the name is taken (unless it replaces) or not allowed."""
        check_name(tool.name, tool.source)
        if tool.select is not None:
            check_selector(tool.select, tool=tool.name)
        known = self._tools.get(tool.name)
        if known is not None and not replace:
            raise ConfigurationError(
                f"two tools are called {tool.name!r}: {known.source or 'one'} and {tool.source or 'another'}",
                remedy="rename one of them",
                tool=tool.name,
            )
        self._tools[tool.name] = tool
        self.changes += 1

    def remove(self, name: str) -> None:
        """No such tool any more; nothing happens if there was none."""
        if self._tools.pop(name, None) is not None:
            self.changes += 1

    def names(self) -> list[str]:
        """The names in order."""
        return list(self._tools)

    def definitions(self) -> list[FunctionTool]:
        """What the model is offered, in order."""
        return [tool.definition() for tool in self._tools.values()]

    def __getitem__(self, name: str) -> Tool:
        return self._tools[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._tools)

    def __len__(self) -> int:
        return len(self._tools)


@dataclass(frozen=True, slots=True)
class Catalogue:
    """All tools that can be found by name, and the modules that cannot be loaded, in words."""

    tools: Toolbox
    problems: tuple[str, ...]


def load_tools(
    addresses: Sequence[str] | None,
    *,
    shipped: bool = True,
    folder: Path | None = None,
    cwd: Path | None = None,
) -> Toolbox:
    """The tools at the addresses, in order; None means the default tools.

    Relative paths are read from `cwd`. ConfigurationError: an unknown name (with all that there are),
    a module that cannot be loaded (file and line), two tools of one name.
    """
    here = cwd or Path.cwd()
    folders = _folders(shipped=shipped, folder=folder)
    wanted = DEFAULT_NAMES if addresses is None else tuple(dict.fromkeys(addresses))
    with tool_speaks():
        return Toolbox(tool for address in wanted for tool in _load(address, folders, here))


def default_tools() -> Toolbox:
    """get_weather, get_wiki_url and get_webpage, as shipped."""
    return load_tools(None)


def find_tools(*, shipped: bool = True, folder: Path | None = None) -> Catalogue:
    """Every tool of the folders and the entry points, for listing; nothing is raised for a broken one."""
    box, problems = Toolbox(), list[str]()
    with tool_speaks():
        for place in _folders(shipped=shipped, folder=folder):
            for path in _module_files(place):
                _collect(box, problems, tools_of_file, path)
        for entry in _entry_points():
            _collect(box, problems, _tools_of_entry_point, entry)
    return Catalogue(box, tuple(problems))


def shipped_folder() -> Path:
    """The shipped tool modules: beside the package in a checkout, inside it in an installed wheel."""
    package = Path(__file__).resolve().parent.parent
    inside = package / "_shipped" / "tools"
    return inside if inside.is_dir() else package.parent / "tools"


def load_module(path: Path) -> ModuleType:
    """The module in a file, loaded once per content; ConfigurationError names file and line."""
    path = path.resolve()
    try:
        source = path.read_bytes()
    except OSError as error:
        raise ConfigurationError(
            f"{path}: cannot be read: {error.strerror or error}", remedy="name a Python file", path=str(path)
        ) from None
    digest = hashlib.sha256(str(path).encode() + b"\0" + source).hexdigest()[:16]
    name = f"_assistant_runner_tools_{digest}_{''.join(c if c.isalnum() else '_' for c in path.stem)}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ConfigurationError(f"{path} is no Python file", remedy="name a .py file", path=str(path))
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))  # modules beside it can be imported, as beside a script
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException as error:
        del sys.modules[name]
        if isinstance(error, KeyboardInterrupt):
            raise
        raise _broken(error, path) from None
    if (clash := _taken_for_another(path, source)) is not None:
        del sys.modules[name]
        raise clash
    return module


def _taken_for_another(path: Path, source: bytes) -> ConfigurationError | None:
    """The error of a file that imports a module beside it, and got one of that name from elsewhere."""
    for word in dict.fromkeys(IMPORTED.findall(source)):
        name = word.decode()
        beside, found = path.parent / f"{name}.py", getattr(sys.modules.get(name), "__file__", None)
        if name in sys.stdlib_module_names or not found or not beside.is_file():
            continue
        if Path(found).resolve() != beside:
            return ConfigurationError(
                f"{path} imports {name}, which is {found} in this program and not {beside}",
                remedy=f"rename one of the two, or make packages of their folders: package.{path.stem}:NAME",
                path=str(path),
            )
    return None


def tools_of_file(path: Path) -> list[Tool]:
    """The tools that a folder's module holds."""
    module = load_module(path)
    return [tool_from(candidate, source=str(path)) for candidate in _candidates(module, path.stem)]


def _candidates(module: ModuleType, stem: str) -> list[Any]:
    own = {
        name: value
        for name, value in vars(module).items()
        if not name.startswith("_")
        and (isinstance(value, Tool) or getattr(value, "__module__", None) == module.__name__)
    }
    marked = [
        value
        for value in own.values()
        if isinstance(value, Tool)
        or (options_of(value) is not None and callable(value))
        or _is_instance(value)
    ]
    if marked:
        return marked
    if inspect.isfunction(own.get(stem)):
        return [own[stem]]
    return [value for value in own.values() if inspect.isfunction(value) and inspect.getdoc(value)]


def _without_words(path: Path) -> str:
    """Which functions of the file would be tools if they had a docstring."""
    module = load_module(path)
    names = [
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and inspect.isfunction(value) and value.__module__ == module.__name__
    ]
    return f": {', '.join(names)} without a docstring" if names else ""


def _is_instance(value: Any) -> bool:
    """An object of a marked class that has a run method."""
    return not inspect.isclass(value) and options_of(type(value)) is not None and hasattr(value, "run")


def _load(address: str, folders: Sequence[Path], cwd: Path) -> list[Tool]:
    where, colon, name = address.rpartition(":")
    if colon and where and not (len(where) == 1 and where.isalpha()):
        return [_from_module(address, where, name, cwd)]
    if address.endswith(".py"):
        path = cwd / Path(address).expanduser()
        if not (found := tools_of_file(path)):
            raise ConfigurationError(
                f"{path} holds no tool{_without_words(path)}",
                remedy="write a function with types and a docstring",
                address=address,
            )
        return found
    return [_by_name(address, folders)]


def _from_module(address: str, where: str, name: str, cwd: Path) -> Tool:
    if where.endswith(".py") or "/" in where or "\\" in where:
        path = cwd / Path(where).expanduser()
        module, source = load_module(path), str(path)
    else:
        module, source = _import(where, cwd), where
    candidate: Any = module
    for part in name.split("."):
        candidate = getattr(candidate, part, None)
    if candidate is None:
        names = [word for word, value in vars(module).items() if callable(value) and not word.startswith("_")]
        near = near_words(name, names)
        raise ConfigurationError(
            f"{address}: {source} has no {name!r}" + (f"; did you mean {near[0]!r}?" if near else ""),
            remedy="name a function of the module",
            address=address,
        )
    return tool_from(candidate, source=address)


def _import(name: str, cwd: Path) -> ModuleType:
    """The module by its import name; the folder we run in counts, as it does for `python -m`."""
    added = str(cwd) not in sys.path
    if added:
        sys.path.insert(0, str(cwd))
    try:
        return importlib.import_module(name)
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and error.name and name.startswith(error.name):
            raise ConfigurationError(
                f"there is no module {error.name!r} (looked for {name!r})",
                remedy="install it, or name a file: path.py:name",
                address=name,
            ) from None
        raise _broken(error, Path(name)) from None
    finally:
        if added and str(cwd) in sys.path:
            sys.path.remove(str(cwd))


def _by_name(name: str, folders: Sequence[Path]) -> Tool:
    for place in reversed(folders):  # the user's own folder wins
        path = place / f"{name}.py"
        if path.is_file():
            for tool in tools_of_file(path):
                if tool.name == name:
                    return tool
    for entry in _entry_points():
        if entry.name == name:
            return _from_entry_point(entry)
    box, problems = Toolbox(), list[str]()
    for place in reversed(folders):
        for path in _module_files(place):
            _collect(box, problems, tools_of_file, path)
    for entry in _entry_points():  # its tool may be called otherwise than the entry
        _collect(box, problems, _tools_of_entry_point, entry)
    if name in box:
        return box[name]
    known = sorted(box.names())
    near = near_words(name, known)
    hint = f"; did you mean {near[0]}?" if near else ""
    broken = "".join(f"; not loaded: {problem}" for problem in problems)
    raise ConfigurationError(
        f"there is no tool {name!r}{hint}; there are: {', '.join(known) or 'none'}{broken}",
        remedy="name one of these, or a file: path.py:name",
        tool=name,
    )


def _collect(box: Toolbox, problems: list[str], load: Callable[[PlaceT], list[Tool]], place: PlaceT) -> None:
    try:
        for tool in load(place):
            if tool.name not in box:
                box.add(tool)
    except ConfigurationError as error:
        problems.append(error.message)


def _entry_points() -> "EntryPoints":
    from importlib.metadata import entry_points  # reads what all installed packages say of themselves

    return entry_points(group=ENTRY_POINTS)


def _tools_of_entry_point(entry: "EntryPoint") -> list[Tool]:
    return [_from_entry_point(entry)]


def _from_entry_point(entry: "EntryPoint") -> Tool:
    try:
        candidate = entry.load()
    except Exception as error:
        raise _broken(error, Path(entry.value)) from None
    return tool_from(candidate, source=f"entry point {entry.name} = {entry.value}")


def _folders(*, shipped: bool, folder: Path | None) -> list[Path]:
    places = [shipped_folder()] if shipped else []
    return [*places, folder] if folder is not None else places


def _module_files(place: Path) -> list[Path]:
    if not place.is_dir():
        return []
    return sorted(path for path in place.glob("*.py") if not path.name.startswith("_"))


def _import_name(path: Path) -> str:
    """What a file is called as a module of the package that it lies in."""
    names = [path.parent.name, path.stem]
    for folder in path.parents[1:]:
        if not (folder / "__init__.py").is_file():
            break
        names.insert(0, folder.name)
    return ".".join(names)


def _broken(error: BaseException, path: Path) -> ConfigurationError:
    """Where in the file it broke: the last line of the trace that lies in it, or the syntax error's."""
    line = error.lineno if isinstance(error, SyntaxError) and error.filename == str(path) else None
    if line is None:
        own = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
        line = own[-1].lineno if own else None
    where = f"{path}, line {line}" if line else str(path)
    words = error.msg if isinstance(error, SyntaxError) else " ".join(str(error).split())
    if isinstance(error, ConfigurationError):
        words = error.message
    remedy = "correct the module; the other tools are not affected"
    if isinstance(error, ImportError) and "relative import" in words:
        remedy = f"name it as a part of its package, from the folder above that: {_import_name(path)}:NAME"
    return ConfigurationError(
        f"{where}: {type(error).__name__}: {words}",
        remedy=remedy,
        path=str(path),
        line=line,
    )
