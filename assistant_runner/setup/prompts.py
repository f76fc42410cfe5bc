"""Prompt files: a named template with tools, called with inputs (rows S2.7 and S2.8).

`NAME.prompt` begins with front matter between two lines `---` (`system`, `model`, `tools`, `config`,
`input.schema` in Picoschema or JSON Schema, `input.default`), then comes the template: `{{name}}`,
`{{#if name}}…{{else}}…{{/if}}`, `{{#each list}}…{{this}}…{{/each}}`, dotted names, `{{! notes }}`.
The template is not a program: it can only put in what it was given, and put in text is never read as a
template again.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import Field

from assistant_runner.errors import UsageError, near_words
from assistant_runner.schemas import fault_of, flaw_in
from assistant_runner.setup.checking import Entry, check
from assistant_runner.setup.document import FileInvalid, Mapped, Node, Place, Problem, place_of
from assistant_runner.setup.parsing import parse_text
from assistant_runner.setup.strict import text_enums

SUFFIX = ".prompt"
FOLDERS = (".", "prompts")
_OPEN = re.compile(r"---[ \t]*\r?\n")
_FRONT = re.compile(r"\A---[ \t]*\r?\n(.*?)^---[ \t]*\r?$\n?", re.DOTALL | re.MULTILINE)
_TAG = re.compile(r"\{\{\{?(\s*!--.*?--\s*|\s*![^}]*|[^{}]*)\}?\}\}", re.DOTALL)
_NAME = re.compile(r"[@A-Za-z_][\w.@-]*")
_SCALARS = ("string", "number", "integer", "boolean", "null", "any")


class _InputEntry(Entry):
    schema_: Any = Field(default=None, alias="schema")
    default: dict[str, Any] = {}


class _FrontMatter(Entry):
    model: str | None = None
    system: str | None = None
    description: str | None = None
    tools: list[str] = []
    input: _InputEntry = Field(default_factory=_InputEntry)
    output: Any = None
    config: dict[str, Any] = {}
    name: str | None = None
    variant: str | None = None
    metadata: dict[str, Any] = {}


@dataclass(frozen=True, slots=True)
class PromptTemplate:
    """A prompt file as read. `schema`: a JSON Schema of the inputs, None if the file has none."""

    name: str
    path: Path
    template: str
    model: str | None = None
    system: str | None = None
    tools: tuple[str, ...] = ()
    schema: Mapping[str, Any] | None = None
    defaults: Mapping[str, Any] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)

    @property
    def inputs(self) -> tuple[str, ...]:
        """The names of the inputs that it knows."""
        if self.schema is not None:
            return tuple(self.schema.get("properties") or {})
        return tuple(dict.fromkeys(_names_in(self.template)))


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt, rendered: what to ask, and with what."""

    text: str
    system: str | None
    tools: tuple[str, ...]
    model: str | None
    template: PromptTemplate

    @property
    def tool_addresses(self) -> list[str]:
        """The tools, with paths read from the prompt file's folder."""
        folder = self.template.path.resolve().parent
        return [str(folder / one) if ".py" in one or "/" in one else one for one in self.tools]


def load_prompt(
    name_or_path: str, inputs: Mapping[str, Any], *, cwd: Path | None = None, folder: Path | None = None
) -> Prompt:
    """The prompt with its inputs put in.

    A name is looked for as `NAME.prompt` in `cwd`, its `prompts` folder, and `folder`. UsageError names
    a missing input, one that is not known, or one that does not fit; FileInvalid a file that is wrong.
    """
    template = read_prompt(find_prompt(name_or_path, cwd=cwd, folder=folder))
    values = check_inputs(template, inputs)
    return Prompt(
        render(template.template, values).strip(),
        render(template.system, values) if template.system else None,
        template.tools,
        template.model,
        template,
    )


def find_prompt(name_or_path: str, *, cwd: Path | None = None, folder: Path | None = None) -> Path:
    """The file of a prompt; UsageError with the nearest name if there is none."""
    here = cwd or Path.cwd()
    if (path := here / name_or_path).is_file():
        return path
    places = [here / one for one in FOLDERS] + ([folder] if folder else [])
    for place in places:
        if (path := place / f"{name_or_path}{SUFFIX}").is_file():
            return path
    known = sorted({path.stem for place in places if place.is_dir() for path in place.glob(f"*{SUFFIX}")})
    near = near_words(name_or_path, known)
    there = f"; did you mean {near[0]!r}?" if near else f"; there are: {', '.join(known) or 'none'}"
    raise UsageError(
        f"no prompt {name_or_path!r}{there}",
        remedy=f"write {name_or_path}{SUFFIX} here or in prompts/, or give a path",
    )


def read_prompt(path: Path) -> PromptTemplate:
    """The file, checked; nothing is put in yet."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: cannot be read: {error}", remedy="name a prompt file") from None
    match = _FRONT.match(text)
    if not match:
        if _OPEN.match(text):
            problem = Problem(Place(path, 1, 1), "", "front matter begins here, and no line --- ends it")
            raise FileInvalid([problem])
        _check_template(text, path, 1)
        return PromptTemplate(path.stem, path, text)
    nodes = parse_text("\n" + match[1], path)  # the first line is the ---
    node: Node = nodes[0] if nodes else Mapped({}, Place(path, 2, 1))
    problems: list[Problem] = []
    front = check(_FrontMatter, node, (), problems)
    body = text[match.end() :]
    schema = None
    if front is not None:
        where = place_of(node, ("input", "schema"))
        try:
            schema = picoschema(text_enums(front.input.schema_))
        except ValueError as error:
            problems.append(Problem(where, "input.schema", str(error)))
        if schema is not None and (fault := fault_of(schema)):
            problems.append(Problem(where, "input.schema", fault))
    if problems or front is None:
        raise FileInvalid(problems)
    _check_template(body, path, text[: match.end()].count("\n") + 1)
    return PromptTemplate(
        path.stem,
        path,
        body,
        front.model,
        front.system,
        tuple(front.tools),
        schema,
        front.input.default,
        front.config,
    )


# --- inputs ----------------------------------------------------------------------------------------


def picoschema(schema: Any) -> dict[str, Any] | None:
    """The JSON Schema of a Picoschema (a JSON Schema comes back as it is); ValueError if it is neither."""
    if schema is None:
        return None
    if isinstance(schema, str):
        return {"type": "object", "properties": {"input": _pico_type(schema)}, "required": ["input"]}
    if not isinstance(schema, dict):
        raise ValueError(f"expected a map of names and types; found {type(schema).__name__}")
    if schema.get("type") == "object" or "$schema" in schema:
        return schema
    if "properties" in schema and isinstance(schema["properties"], dict):
        return {"type": "object", **schema}
    return _pico_object(schema)


def _pico_object(fields: Mapping[str, Any]) -> dict[str, Any]:
    properties: dict[str, Any] = {}
    required: list[str] = []
    extra: Any = False
    for key, value in fields.items():
        match = re.fullmatch(
            r"([^\s?(]+)(\?)?\s*(?:\(\s*(\w+|\*)\s*(?:,\s*(.*?))?\s*\))?", str(key), re.DOTALL
        )
        if not match:
            raise ValueError(f"{key!r} is not a name such as: city, city?, cities(array, where to look)")
        name, optional, kind, description = match.groups()
        if name == "*" or kind == "*":
            extra = _pico_value(value)
            continue
        one = _pico_field(kind, value)
        if description:
            one["description"] = description
        properties[name] = one
        if optional is None:
            required.append(name)
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": extra}


def _pico_field(kind: str | None, value: Any) -> dict[str, Any]:
    if kind is None:
        return _pico_value(value)
    if kind == "array":
        return {"type": "array", "items": _pico_value(value)}
    if kind == "enum":
        if not isinstance(value, list):
            raise ValueError("an enum needs a list of values")
        return {"enum": value}
    if kind == "object":
        return _pico_value(value)
    raise ValueError(f"{kind!r} is not one of array, enum, object")


def _pico_value(value: Any) -> dict[str, Any]:
    if isinstance(value, dict):
        return _pico_object(value)
    return _pico_type(str(value))


def _pico_type(text: str) -> dict[str, Any]:
    kind, _, description = (part.strip() for part in text.partition(","))
    if kind not in _SCALARS:
        near = near_words(kind, _SCALARS)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise ValueError(f"{kind!r} is not a type; there are {', '.join(_SCALARS)}{hint}")
    found: dict[str, Any] = {} if kind == "any" else {"type": kind}
    return {**found, "description": description} if description else found


def check_inputs(template: PromptTemplate, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """The inputs with defaults, in the types that the schema wants; UsageError names what is wrong.

    Text from a command line becomes a number, a truth value, a list or a map where the schema wants one.
    """
    known = template.inputs
    strangers = [name for name in inputs if name not in known]
    schema = template.schema
    if strangers and not (schema and schema.get("additionalProperties", False)):
        near = near_words(strangers[0], known)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise UsageError(
            f"{template.name}: unknown input {', '.join(map(repr, strangers))}{hint}",
            remedy=f"it takes: {', '.join(known) or 'no inputs'}",
        )
    properties = (schema or {}).get("properties") or {}
    values = {**template.defaults}
    for name, value in inputs.items():
        values[name] = _convert(name, value, properties.get(name) or {}, template.name)
    required = (schema.get("required") or []) if schema else known
    missing = [name for name in required if name not in values]
    if missing:
        raise UsageError(
            f"{template.name}: missing input {', '.join(map(repr, missing))}",
            remedy="give it: " + " ".join(f"-p {name}=..." for name in missing),
            missing=missing,
        )
    if schema and (flaw := flaw_in(values, schema)):
        where = ".".join(map(str, flaw.absolute_path)) or "inputs"
        raise UsageError(f"{template.name}: {where}: {flaw.message}", remedy="correct the input")
    return values


def _convert(name: str, value: Any, schema: Mapping[str, Any], prompt: str) -> Any:
    kinds = schema.get("type")
    wanted = {kinds} if isinstance(kinds, str) else set(kinds or [])
    if not isinstance(value, str) or "string" in wanted or not wanted:
        return value
    try:
        return json.loads(value)
    except ValueError:
        raise UsageError(
            f"{prompt}: {name}: expected {' or '.join(sorted(wanted))}; found {value!r}",
            remedy="lists and maps are written as JSON",
        ) from None


# --- the template ----------------------------------------------------------------------------------


def _names_in(template: str) -> list[str]:
    names = []
    for match in _TAG.finditer(template):
        word = match[1].strip()
        if word.startswith(("!", "/")) or word == "else":
            continue
        word = re.sub(r"^#(if|unless|each)\s+", "", word)
        root = word.split(".")[0]
        if root and root != "this" and not root.startswith(("@", "#")):
            names.append(root)
    return names


def _check_template(template: str, path: Path, first_line: int) -> None:
    try:
        render(template, _Anything())
    except _TemplateError as error:
        line = first_line + template[: error.position].count("\n")
        raise FileInvalid([Problem(Place(path, line), "", str(error))]) from None
    except RecursionError:
        raise FileInvalid([Problem(Place(path, first_line), "", "nested too deeply")]) from None


class _Anything(dict[str, Any]):
    """Inputs for a first look at a template: every name is there."""

    def __contains__(self, key: object) -> bool:
        return True

    def __getitem__(self, key: str) -> Any:
        return _Anything()

    def __bool__(self) -> bool:
        return True


class _TemplateError(ValueError):
    def __init__(self, message: str, position: int) -> None:
        super().__init__(message)
        self.position = position


def render(template: str, values: Mapping[str, Any]) -> str:
    """The template with the values put in; ValueError for a tag that is not known or not closed."""
    output, end, closed = _render(template, 0, [values], None)
    if closed is not None:
        raise _TemplateError(f"{{{{{closed}}}}} closes nothing", end)
    return output


def _render(
    template: str, position: int, scopes: list[Any], block: str | None, *, silent: bool = False
) -> tuple[str, int, str | None]:
    """The text up to the end or to the tag that closes the block; where it ended, and with what tag."""
    parts: list[str] = []
    while match := _TAG.search(template, position):
        parts.append(template[position : match.start()])
        tag, position = match[1].strip(), match.end()
        if tag.startswith("!"):
            continue
        if tag == "else" or tag.startswith("/"):
            if block is None or (tag != "else" and tag[1:].strip() != block):
                return "".join(parts), match.start(), tag
            return "".join(parts), position, tag
        if tag.startswith("#"):
            text, position = _render_block(template, match, position, scopes, silent=silent)
            parts.append(text)
            continue
        if not _NAME.fullmatch(tag):
            raise _TemplateError(f"{{{{{tag}}}}} is not a name; helpers are not known here", match.start())
        parts.append("" if silent else _text(_look_up(tag, scopes)))
    parts.append(template[position:])
    return "".join(parts), len(template), None


def _render_block(
    template: str, match: re.Match[str], position: int, scopes: list[Any], *, silent: bool
) -> tuple[str, int]:
    kind, _, name = match[1].strip()[1:].partition(" ")
    name = name.strip()
    if kind not in ("if", "unless", "each") or not _NAME.fullmatch(name):
        raise _TemplateError(
            f"{{{{{match[1]}}}}} is not known here; there are #if, #unless, #each", match.start()
        )
    value = _look_up(name, scopes)
    if kind == "each" and isinstance(value, list | tuple | dict) and not isinstance(value, _Anything):
        items = list(value.values()) if isinstance(value, dict) else list(value)
        keys = list(value) if isinstance(value, dict) else list(range(len(items)))
        rounds = [
            [*scopes, {"this": item, "@index": i, "@key": key, **(item if isinstance(item, dict) else {})}]
            for i, (item, key) in enumerate(zip(items, keys, strict=True))
        ]
    else:
        rounds = [scopes] if bool(value) != (kind == "unless") else []
    text, end, closed = _render(
        template, position, rounds[0] if rounds else scopes, kind, silent=silent or not rounds
    )
    shown = text if rounds else ""
    for scope in rounds[1:]:
        shown += _render(template, position, scope, kind, silent=silent)[0]
    if closed == "else":
        otherwise, end, closed = _render(template, end, scopes, kind, silent=silent or bool(rounds))
        shown = shown if rounds else otherwise
    if closed != f"/{kind}":
        raise _TemplateError(f"{{{{#{kind} {name}}}}} is not closed by {{{{/{kind}}}}}", match.start())
    return shown, end


def _look_up(name: str, scopes: list[Any]) -> Any:
    first, *rest = name.split(".")
    value: Any = None
    for scope in reversed(scopes):
        if first in scope:
            value = scope[first]
            break
    for part in rest:
        value = value[part] if isinstance(value, Mapping) and part in value else None
    return value


def _text(value: Any) -> str:
    if value is None or isinstance(value, _Anything):
        return ""
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False)
