"""YAML 1.2, TOML and JSON, read into nodes that know their lines and columns.

YAML is composed by ruamel.yaml, of which only the nodes are used; JSON is checked by the standard
library and walked again for the places; TOML is read by the standard library, and its keys are found
again line by line.
"""

import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from assistant_runner.errors import ConfigurationError
from assistant_runner.setup.document import (
    FileInvalid,
    KeyPath,
    Leaf,
    Mapped,
    Node,
    Place,
    Problem,
    Sequence,
    Written,
)
from assistant_runner.setup.finding import SUFFIXES

MAX_BYTES = 10_000_000
MAX_NODES = 200_000


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
    try:
        if suffix == ".toml":
            return [_parse_toml(text, path)]
        if suffix == ".json":
            return [_parse_json(text, path)]
        if suffix in (".yaml", ".yml", ".prompt"):
            return _parse_yaml(text, path)
    except RecursionError:
        raise FileInvalid([Problem(Place(path), "", "nested too deeply")]) from None
    raise ConfigurationError(
        f"{path}: {suffix} is not a format of assistant files", remedy=f"use one of {', '.join(SUFFIXES)}"
    )


def whole_text(text: str, place: Place, problems: list[Problem]) -> str:
    """The text with escaped surrogate pairs joined, as JSON writes them; half a pair is a problem."""
    if text.isascii() or not any("\ud800" <= letter <= "\udfff" for letter in text):
        return text
    try:
        return text.encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError:
        problems.append(Problem(place, "", "half of a surrogate pair, which is no character"))
        return text.encode("utf-8", "replace").decode("utf-8")


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
        return Leaf(whole_text(str(node.value), place, self.problems), place)

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
            name = whole_text(str(key.value), where, self.problems)
            if name in entries:
                first = entries[name][0].line
                self.problems.append(Problem(where, name, f"written twice (first in line {first})"))
            entries[name] = (where, self.build(value))
        for base in merged:
            for inherited, entry in base.entries.items():
                entries.setdefault(inherited, entry)
        return Mapped(entries, place)


# --- JSON ------------------------------------------------------------------------------------------

_JSON_TOKEN = re.compile(r'[ \t\r\n]*("(?:[^"\\]|\\.)*"|[-+0-9.eE]+|true|false|null|[\[\]{}:,])')


def _parse_json(text: str, path: Path) -> Node:
    def refuse(word: str) -> None:
        raise FileInvalid(
            [Problem(Place(path, 1 + text[: text.find(word)].count("\n")), "", f"{word} is no JSON")]
        )

    try:
        json.loads(text, parse_constant=refuse)
    except json.JSONDecodeError as error:
        raise FileInvalid(
            [Problem(Place(path, error.lineno, error.colno), "", f"not valid JSON: {error.msg}")]
        ) from None
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
        value = json.loads(token)
        return Leaf(whole_text(value, place, problems) if isinstance(value, str) else value, place)
    entries: dict[str, tuple[Place, Node]] = {}
    for word, where in tokens:
        if word == "}":
            break
        if word == ",":
            continue
        key = whole_text(json.loads(word), where, problems)
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
