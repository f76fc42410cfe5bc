"""A configuration file as a tree that remembers where everything was written.

YAML 1.2, TOML and JSON become the same three kinds of node. No type is guessed: a plain YAML scalar is
kept as it was written (`Written`) together with what YAML 1.2 would make of it, and the schema of the
place where it stands decides which of the two is meant (case-080). Lines and columns count from 1.
Variables are expanded here: `${NAME}`, `${NAME:-default}`, `$$` for a dollar (case-081).
"""

import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from assistant_runner.errors import ConfigurationError

KeyPath = tuple[str | int, ...]
SUFFIXES = (".yaml", ".yml", ".toml", ".json")
MAX_BYTES = 10_000_000
MAX_NODES = 200_000

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


def parse_file(path: Path) -> list[Node]:
    """The documents of a file (several only in YAML); FileInvalid if it is not of its format.

    The suffix decides the format: .yaml, .yml, .toml, .json.
    """
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise ConfigurationError(
            f"{path}: cannot be read: {error.strerror or error}", remedy="name a file that exists"
        ) from None
    if len(raw) > MAX_BYTES:
        raise ConfigurationError(f"{path}: larger than {MAX_BYTES} bytes", remedy="is this the right file?")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        raise FileInvalid(
            [Problem(Place(path, line), "", f"not UTF-8: byte {raw[error.start]:#04x}")]
        ) from None
    return parse_text(text, path)


def parse_text(text: str, path: Path) -> list[Node]:
    """As `parse_file`, from text; `path` names it in messages and its suffix decides the format."""
    suffix = path.suffix.lower()
    if suffix == ".toml":
        return [_parse_toml(text, path)]
    if suffix == ".json":
        return [_parse_json(text, path)]
    if suffix in (".yaml", ".yml", ".lock", ".prompt", ""):
        return _parse_yaml(text, path)
    raise ConfigurationError(
        f"{path}: {suffix} is not a format of assistant files", remedy=f"use one of {', '.join(SUFFIXES)}"
    )


# --- YAML ------------------------------------------------------------------------------------------


def _parse_yaml(text: str, path: Path) -> list[Node]:
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError, YAMLError

    parser = YAML(typ="safe", pure=True)  # only nodes are made of it; faster without comments
    try:
        roots = list(parser.compose_all(text))
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = Place(path, mark.line + 1, mark.column + 1) if mark else Place(path)
        words = " ".join(part for part in (error.context, error.problem) if part) or "not YAML"
        raise FileInvalid([Problem(place, "", f"not valid YAML: {words}")]) from None
    except YAMLError as error:
        raise FileInvalid([Problem(Place(path), "", f"not valid YAML: {error}")]) from None
    builder = _YamlBuilder(path)
    built = [builder.build(root) for root in roots if root is not None]
    if builder.problems:
        raise FileInvalid(builder.problems)
    return [node for node in built if not (isinstance(node, Leaf) and node.value in ("", None))]


@dataclass(slots=True)
class _YamlBuilder:
    path: Path
    problems: list[Problem] = field(default_factory=list)
    open: set[int] = field(default_factory=set)
    count: int = 0

    def build(self, node: Any) -> Node:
        place = self.place(node)
        self.count += 1
        if self.count > MAX_NODES:
            raise FileInvalid([Problem(place, "", "the file grows too large when its aliases are expanded")])
        if id(node) in self.open:
            raise FileInvalid([Problem(place, "", "an alias that contains itself")])
        self.open.add(id(node))
        try:
            if node.id == "mapping":
                return self.mapping(node, place)
            if node.id == "sequence":
                return Sequence([self.build(item) for item in node.value], place)
            return self.leaf(node, place)
        finally:
            self.open.discard(id(node))

    def place(self, node: Any) -> Place:
        return Place(self.path, node.start_mark.line + 1, node.start_mark.column + 1)

    def leaf(self, node: Any, place: Place) -> Leaf:
        """Tags are the parser's own reading of plain scalars, or explicit ones of the file."""
        tag = str(node.ctag) if node.ctag else ""
        kind = tag.removeprefix("tag:yaml.org,2002:")
        if kind in ("int", "float", "bool", "null"):
            return Leaf(Written(node.value), place)
        if kind not in ("", "!", "None", "str", "timestamp", "merge", "value"):
            self.problems.append(Problem(place, "", f"the tag {tag} is not known here; remove it"))
        return Leaf(str(node.value), place)

    def mapping(self, node: Any, place: Place) -> Mapped:
        entries: dict[str, tuple[Place, Node]] = {}
        merged: list[Mapped] = []
        for key, value in node.value:
            where = self.place(key)
            if key.id != "scalar":
                self.problems.append(Problem(where, "", "a key must be text"))
                continue
            if key.value == "<<" and key.style is None:
                base = self.build(value)
                merged += [
                    one
                    for one in (base.items if isinstance(base, Sequence) else [base])
                    if isinstance(one, Mapped)
                ]
                continue
            if key.value in entries:
                first = entries[key.value][0].line
                self.problems.append(Problem(where, key.value, f"written twice (first in line {first})"))
            entries[key.value] = (where, self.build(value))
        for base in merged:
            for name, entry in base.entries.items():
                entries.setdefault(name, entry)
        return Mapped(entries, place)


# --- JSON ------------------------------------------------------------------------------------------

_JSON_TOKEN = re.compile(r'[ \t\r\n]*("(?:[^"\\]|\\.)*"|[-+0-9.eE]+|true|false|null|[\[\]{}:,])')


def _parse_json(text: str, path: Path) -> Node:
    try:
        json.loads(text)
    except json.JSONDecodeError as error:
        raise FileInvalid(
            [Problem(Place(path, error.lineno, error.colno), "", f"not valid JSON: {error.msg}")]
        ) from None
    except RecursionError:
        raise FileInvalid([Problem(Place(path), "", "nested too deeply")]) from None
    problems: list[Problem] = []
    node = _json_node(_json_tokens(text, path), problems)
    if problems:
        raise FileInvalid(problems)
    return node


def _json_tokens(text: str, path: Path) -> Iterator[tuple[str, Place]]:
    position, line, line_start = 0, 1, 0
    while match := _JSON_TOKEN.match(text, position):
        for index in range(position, match.start(1)):
            if text[index] == "\n":
                line, line_start = line + 1, index + 1
        yield match.group(1), Place(path, line, match.start(1) - line_start + 1)
        position = match.end()


def _json_node(tokens: Iterator[tuple[str, Place]], problems: list[Problem]) -> Node:
    """The next value; the text is known to be valid."""
    token, place = next(tokens)
    return _json_value(token, place, tokens, problems)


def _json_value(
    token: str, place: Place, tokens: Iterator[tuple[str, Place]], problems: list[Problem]
) -> Node:
    if token == "[":
        items: list[Node] = []
        for word, where in tokens:
            if word == "]":
                break
            if word != ",":
                items.append(_json_value(word, where, tokens, problems))
        return Sequence(items, place)
    if token != "{":
        return Leaf(json.loads(token), place)
    entries: dict[str, tuple[Place, Node]] = {}
    for word, where in tokens:
        if word == "}":
            break
        if word == ",":
            continue
        key = json.loads(word)
        next(tokens)
        if key in entries:
            problems.append(Problem(where, key, f"written twice (first in line {entries[key][0].line})"))
        entries[key] = (where, _json_node(tokens, problems))
    return Mapped(entries, place)


# --- TOML ------------------------------------------------------------------------------------------

_TOML_KEY = re.compile(
    r"""\s*((?:"[^"]*"|'[^']*'|[A-Za-z0-9_-]+)(?:\s*\.\s*(?:"[^"]*"|'[^']*'|[A-Za-z0-9_-]+))*)\s*="""
)
_TOML_TABLE = re.compile(r"\s*(\[\[?)\s*(.+?)\s*\]\]?\s*(?:#.*)?$")
_TOML_PART = re.compile(r""""[^"]*"|'[^']*'|[A-Za-z0-9_-]+""")


def _parse_toml(text: str, path: Path) -> Node:
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        found = re.search(r"at line (\d+), column (\d+)", str(error))
        place = Place(path, int(found[1]), int(found[2])) if found else Place(path)
        words = re.sub(r" \(at .*\)$", "", str(error))
        raise FileInvalid([Problem(place, "", f"not valid TOML: {words}")]) from None
    return _toml_node(data, (), _toml_places(text, path), Place(path, 1, 1))


def _toml_node(data: Any, at: KeyPath, places: Mapping[KeyPath, Place], nearest: Place) -> Node:
    here = places.get(at, nearest)
    if isinstance(data, dict):
        return Mapped(
            {
                key: (places.get((*at, key), here), _toml_node(value, (*at, key), places, here))
                for key, value in data.items()
            },
            here,
        )
    if isinstance(data, list):
        return Sequence([_toml_node(item, (*at, i), places, here) for i, item in enumerate(data)], here)
    return Leaf(data if isinstance(data, str | int | float | bool) else str(data), here)


def _toml_places(text: str, path: Path) -> dict[KeyPath, Place]:
    """Where keys and tables begin; what stands inside an inline value has the place of its key."""
    places: dict[KeyPath, Place] = {}
    table: KeyPath = ()
    counts: dict[KeyPath, int] = {}
    inside = ""
    depth = 0
    for number, line in enumerate(text.splitlines(), 1):
        if inside:
            inside = "" if inside in line else inside
            continue
        if depth <= 0 and (match := _TOML_TABLE.match(line)):
            table = _toml_table(match, counts)
            places.setdefault(table, Place(path, number, match.start(1) + 1))
            continue
        if depth <= 0 and (match := _TOML_KEY.match(line)):
            key = table
            for part in _TOML_PART.findall(match[1]):
                key = (*key, part.strip("\"'"))
                places.setdefault(key, Place(path, number, match.start(1) + 1))
            line = line[match.end() :]
        elif depth <= 0:
            continue
        for quote in ('"""', "'''"):
            if line.count(quote) % 2:
                inside = quote
        bare = re.sub(r'"(?:[^"\\]|\\.)*"|\'[^\']*\'|#.*', "", line)
        depth += sum(bare.count(c) for c in "[{") - sum(bare.count(c) for c in "]}")
    return places


def _toml_table(match: re.Match[str], counts: dict[KeyPath, int]) -> KeyPath:
    key: KeyPath = ()
    parts = [part.strip("\"'") for part in _TOML_PART.findall(match[2])]
    for index, part in enumerate(parts):
        key = (*key, part)
        last = index == len(parts) - 1
        if last and match[1] == "[[":
            counts[key] = counts.get(key, -1) + 1
        if key in counts:
            key = (*key, counts[key])
    return key


# --- what is done with trees -----------------------------------------------------------------------


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
