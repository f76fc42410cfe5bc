"""A configuration file as a tree that remembers where everything was written.

Whatever the format, there are three kinds of node. No type is guessed: a plain YAML scalar is kept as it
was written (`Written`) together with what YAML 1.2 would make of it, and the schema of the place where it
stands decides which of the two is meant (case-080). Lines and columns count from 1.
Variables are expanded here: `${NAME}`, `${NAME:-default}`, `$$` for a dollar (case-081).
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assistant_runner.errors import ConfigurationError

KeyPath = tuple[str | int, ...]

_INT = re.compile(r"[-+]?[0-9]+")
_OCTAL = re.compile(r"0o[0-7]+")
_HEX = re.compile(r"0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_SPECIAL = re.compile(r"([-+]?\.(inf|Inf|INF))|(\.(nan|NaN|NAN))")
_VARIABLE = re.compile(r"\$\$|\$\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?P<default>:-(?P<value>[^}]*))?\}|\$\{")


class Written(str):
    """A scalar as it was written, where its type is open; `value` is what YAML 1.2 makes of it."""

    __slots__ = ("value",)
    value: Any

    def __new__(cls, text: str) -> "Written":
        """`Written("1.10")` is the text `1.10` and has the value 1.1."""
        made = super().__new__(cls, text)
        made.value = core_value(text)
        return made


def core_value(text: str) -> Any:
    """What the core schema of YAML 1.2 makes of a plain scalar: None, bool, int, float or the text."""
    if text in ("", "~", "null", "Null", "NULL"):
        return None
    if text in ("true", "True", "TRUE"):
        return True
    if text in ("false", "False", "FALSE"):
        return False
    if _INT.fullmatch(text):
        return int(text)
    if _OCTAL.fullmatch(text):
        return int(text[2:], 8)
    if _HEX.fullmatch(text):
        return int(text[2:], 16)
    if _FLOAT.fullmatch(text):
        return float(text)
    if _SPECIAL.fullmatch(text):
        return float(text.replace(".", "", 1))
    return text


@dataclass(frozen=True, slots=True)
class Place:
    """Where something was written; lines and columns from 1, 0 where a format does not tell."""

    file: Path
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        if not self.line:
            return str(self.file)
        return f"{self.file}:{self.line}:{self.column}" if self.column else f"{self.file}:{self.line}"


@dataclass(slots=True)
class Leaf:
    """A scalar: `Written` where the type is open, else str, int, float, bool or None."""

    value: Any
    place: Place


@dataclass(slots=True)
class Sequence:
    items: "list[Node]"
    place: Place


@dataclass(slots=True)
class Mapped:
    """A map; keys are text, each with the place of the key."""

    entries: "dict[str, tuple[Place, Node]]"
    place: Place

    def get(self, key: str) -> "Node | None":
        """The value under a key, None if there is none."""
        entry = self.entries.get(key)
        return entry[1] if entry else None


Node = Leaf | Sequence | Mapped


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong in a file; `key` is a dotted path such as `tools[2].timeout`."""

    place: Place
    key: str
    message: str

    def __str__(self) -> str:
        return f"{self.place}: {self.key}: {self.message}" if self.key else f"{self.place}: {self.message}"

    def document(self) -> dict[str, Any]:
        """For JSON error documents."""
        return {
            "file": str(self.place.file),
            "line": self.place.line or None,
            "column": self.place.column or None,
            "key": self.key or None,
            "message": self.message,
        }


class FileInvalid(ConfigurationError):
    """A file with problems: all of them at once (case-082). The fact `problems` lists them."""

    kind = "invalid_file"

    def __init__(self, problems: list[Problem], *, remedy: str | None = None) -> None:
        ordered = sorted(problems, key=lambda one: (str(one.place.file), one.place.line, one.place.column))
        count = f"{len(ordered)} problems:\n" if len(ordered) > 1 else ""
        super().__init__(
            count + "\n".join(str(one) for one in ordered),
            remedy=remedy or "correct the file; nothing was sent",
            problems=[one.document() for one in ordered],
        )
        self.problems = ordered


def dotted(path: KeyPath) -> str:
    """`("tools", 2, "timeout")` as `tools[2].timeout`."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else (f".{part}" if text else str(part))
    return text


def overlay(base: Node, over: Node, *, depth: int = 0) -> Node:
    """`over` upon `base`: maps key by key, everything else replaced (extends, profiles)."""
    if not (isinstance(base, Mapped) and isinstance(over, Mapped)):
        return over
    entries = dict(base.entries)
    for key, (place, node) in over.entries.items():
        below = entries.get(key)
        entries[key] = (place, overlay(below[1], node, depth=depth + 1) if below else node)
    return Mapped(entries, over.place)


def expand(node: Node, environ: Mapping[str, str], problems: list[Problem], at: KeyPath = ()) -> Node:
    """The tree with variables put in; what came from the environment has an open type.

    An unset variable without a default is a problem that names variable and place. Keys are never
    expanded. Callers leave out the parts that hold prose.
    """
    if isinstance(node, Mapped):
        return Mapped(
            {
                key: (place, expand(value, environ, problems, (*at, key)))
                for key, (place, value) in node.entries.items()
            },
            node.place,
        )
    if isinstance(node, Sequence):
        items = [expand(item, environ, problems, (*at, i)) for i, item in enumerate(node.items)]
        return Sequence(items, node.place)
    if not isinstance(node.value, str) or "$" not in node.value:
        return node
    text, used = expand_text(node.value, environ, problems, node.place, at)
    return Leaf(Written(text) if used and not isinstance(core_value(text), str) else text, node.place)


def expand_text(
    text: str, environ: Mapping[str, str], problems: list[Problem], place: Place, at: KeyPath = ()
) -> tuple[str, bool]:
    """The text with variables put in, and whether there were any. A lone `$` stays as it is."""
    used = False

    def put(match: re.Match[str]) -> str:
        nonlocal used
        if match[0] == "$$":
            return "$"
        used = True
        name = match["name"]
        if name is None:
            problems.append(
                Problem(
                    place,
                    dotted(at),
                    "'${' begins a variable, but no name and '}' follow; write $${ for the text",
                )
            )
            return match[0]
        value = environ.get(name)
        if match["default"] is not None:
            return value or str(match["value"])
        if value is None:
            problems.append(
                Problem(
                    place,
                    dotted(at),
                    f"the variable {name} is not set; set it, or write ${{{name}:-default}},"
                    f" or $${{{name}}} for the text itself",
                )
            )
            return ""
        return value

    return _VARIABLE.sub(put, text), used


def plain(node: Node) -> Any:
    """The tree as dicts, lists and scalars; open types stay `Written`."""
    if isinstance(node, Mapped):
        return {key: plain(value) for key, (_, value) in node.entries.items()}
    if isinstance(node, Sequence):
        return [plain(item) for item in node.items]
    return node.value


def place_of(node: Node, at: KeyPath) -> Place:
    """The place of the key that `at` ends with, else of the nearest thing above it."""
    place = node.place
    for part in at:
        if isinstance(node, Mapped) and isinstance(part, str) and part in node.entries:
            place, node = node.entries[part]
        elif isinstance(node, Sequence) and isinstance(part, int) and part < len(node.items):
            node = node.items[part]
            place = node.place
        else:
            break
    return place


def settle(value: Any) -> Any:
    """Open types decided by YAML 1.2 all the way down: for places that take any JSON."""
    if isinstance(value, Written):
        return value.value
    if isinstance(value, dict):
        return {key: settle(item) for key, item in value.items()}
    if isinstance(value, list):
        return [settle(item) for item in value]
    return value
