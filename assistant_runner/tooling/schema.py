"""Turn a plain typed function, or a class with a `run` method, into a `Tool`.

The schema on the wire is strict (reference, section 7.1): every property required, no others allowed,
optional ones nullable. A null for a parameter that has a default means the default. Descriptions come
from `Annotated[str, "words"]`, a pydantic `Field`, or the docstring's `Args:` or `:param:` lines.
Sources: rows S1.6, S2.5, S4.2 to S4.11 of the feature table.
"""

import inspect
import re
import textwrap
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Annotated, Any, TypeVar, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model
from pydantic.errors import PydanticSchemaGenerationError, PydanticUserError
from pydantic.fields import FieldInfo

from assistant_runner.errors import ConfigurationError
from assistant_runner.tooling.contract import Approval, Effects, Tool, ToolContext, ToolFailure

NAME_PATTERN = re.compile(r"[a-zA-Z0-9_-]{1,64}")
OPTIONS_ATTRIBUTE = "__assistant_runner_tool__"
SCALARS = ("string", "integer", "number", "boolean")
DecoratedT = TypeVar("DecoratedT", bound=Callable[..., Any] | type)


@dataclass(frozen=True, slots=True)
class ToolOptions:
    """What the decorator may say of a tool; None means: as the function or the default has it."""

    name: str | None = None
    description: str | None = None
    when_to_use: str | None = None
    input_description: str | None = None
    output_description: str | None = None
    output_schema: Mapping[str, Any] | None = None
    effects: Effects | None = None
    approval: Approval | None = None
    timeout_s: float | None = None
    retries: int | None = None
    select: str | None = None
    output_cap: int | None = None
    fetches: bool | None = None

    def given(self) -> dict[str, Any]:
        """The options that were said."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in values.items() if value is not None}


def tool(
    decorated: DecoratedT | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    when_to_use: str | None = None,
    input_description: str | None = None,
    output_description: str | None = None,
    output_schema: Mapping[str, Any] | None = None,
    effects: Effects | None = None,
    approval: Approval | None = None,
    timeout_s: float | None = None,
    retries: int | None = None,
    select: str | None = None,
    output_cap: int | None = None,
    fetches: bool | None = None,
) -> Any:
    """The decorated function or class itself, marked as a tool; works with and without options.

    `when_to_use` stands after the description (row S4.4). `select`: a JMESPath expression into the
    result. `fetches`: the result holds text that strangers wrote. Times in seconds.
    """
    options = ToolOptions(
        name=name,
        description=description,
        when_to_use=when_to_use,
        input_description=input_description,
        output_description=output_description,
        output_schema=output_schema,
        effects=effects,
        approval=approval,
        timeout_s=timeout_s,
        retries=retries,
        select=select,
        output_cap=output_cap,
        fetches=fetches,
    )

    def mark(target: DecoratedT) -> DecoratedT:
        setattr(target, OPTIONS_ATTRIBUTE, options)
        return target

    return mark if decorated is None else mark(decorated)


def options_of(candidate: Any) -> ToolOptions | None:
    """The decorator's options, or None if the object is not marked."""
    found = getattr(candidate, OPTIONS_ATTRIBUTE, None)
    return found if isinstance(found, ToolOptions) else None


def check_name(name: str, source: str = "") -> str:
    """The name; ConfigurationError if the wire does not allow it (rows S0.5, S4.3)."""
    if not NAME_PATTERN.fullmatch(name):
        where = f" ({source})" if source else ""
        raise ConfigurationError(
            f"{name!r} is no tool name{where}: 1 to 64 characters of a-z, A-Z, 0-9, _ and -",
            remedy="rename the tool",
            tool=name,
        )
    return name


def tool_from(candidate: Any, *, source: str = "") -> Tool:
    """The tool that a function, a class with `run`, an instance of one, or a ready Tool stands for."""
    if isinstance(candidate, Tool):
        return candidate
    if inspect.isclass(candidate) or (not inspect.isroutine(candidate) and hasattr(candidate, "run")):
        return tool_from_class(candidate, source=source)
    if callable(candidate):
        return tool_from_function(candidate, source=source)
    raise ConfigurationError(
        f"{candidate!r} is no tool: neither a function nor a class with a run method",
        remedy="name a function",
        source=source,
    )


def tool_from_function(
    function: Callable[..., Any],
    *,
    source: str = "",
    options: ToolOptions | None = None,
    flatten: bool = False,
) -> Tool:
    """A tool with the function's name, docstring and parameters; ConfigurationError says what lacks.

    `flatten`: a single parameter that is a model gives its fields as the tool's parameters (S4.2).
    """
    said = (options or options_of(function) or ToolOptions()).given()
    name = check_name(said.pop("name", None) or getattr(function, "__name__", ""), source)
    words, notes = read_docstring(inspect.getdoc(function) or "")
    description = said.pop("description", words).strip()
    if not description:
        raise ConfigurationError(
            f"tool {name} has no description{_at(source)}",
            remedy="write a docstring: the model reads its first paragraph",
            tool=name,
        )
    signature = _Signature.read(function, name, notes, said.get("input_description", ""), source)
    if flatten and (model := signature.single_model()) is not None:
        parameters, handler = _schema_of(model, name, source), signature.model_handler(function, model)
        scalar = None
    else:
        parameters, handler = _schema_of(signature.model, name, source), signature.handler(function)
        scalar = signature.single_scalar(parameters) if flatten else None
    return Tool(
        name=name,
        description=description,
        parameters=parameters,
        handler=handler,
        strict=True if is_strict(parameters) else None,
        takes_context=signature.context is not None,
        scalar=scalar,
        source=source,
        effects_declared="effects" in said,
        **said,
    )


def tool_from_class(candidate: Any, *, source: str = "") -> Tool:
    """A tool of a class (made without arguments) or instance with a `run` method (row S4.2).

    A `run` that takes one bare value is called with the value (row S4.9); one that takes a single
    pydantic model or dataclass is called with it, and its fields are the tool's parameters.
    """
    label = candidate.__name__ if inspect.isclass(candidate) else type(candidate).__name__
    if not callable(getattr(candidate, "run", None)):
        raise ConfigurationError(
            f"{label} has no run method{_at(source)}", remedy="give the class a method run", tool=label
        )
    try:
        instance: Any = candidate() if inspect.isclass(candidate) else candidate
    except Exception as error:
        raise ConfigurationError(
            f"{label} cannot be made without arguments{_at(source)}: {type(error).__name__}: {error}",
            remedy="name an instance instead of the class",
            tool=label,
        ) from None
    options = options_of(candidate) or options_of(type(candidate)) or ToolOptions()
    said = options.given()
    said.setdefault("name", snake_case(label))
    if "description" not in said and (words := read_docstring(inspect.getdoc(candidate) or "")[0]):
        said["description"] = words
    return tool_from_function(instance.run, source=source, options=ToolOptions(**said), flatten=True)


def snake_case(name: str) -> str:
    """`ReserveMeetingRoom` gives `reserve_meeting_room`."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


def read_docstring(text: str) -> tuple[str, dict[str, str]]:
    """The first paragraph on one line, and a description per parameter (Google or Sphinx form)."""
    paragraphs = re.split(r"\n\s*\n", text.strip(), maxsplit=1)
    head = re.split(r"\n\s*(?=:param\b|Args:|Arguments:|Parameters:)", paragraphs[0], maxsplit=1)[0]
    notes = {
        found["name"]: " ".join(found["text"].split())
        for found in re.finditer(
            r"^\s*:param\s+(?:[^:\n]*\s)?(?P<name>\w+):(?P<text>.*(?:\n(?!\s*:|\s*\n).*)*)",
            text,
            re.MULTILINE,
        )
    }
    block = re.search(
        r"^(?:Args|Arguments|Parameters):[ \t]*\n((?:[ \t]+.*\n?|[ \t]*\n)*)", text, re.MULTILINE
    )
    if block:
        body = textwrap.dedent(block[1])
        for found in re.finditer(r"^\*{0,2}(\w+)\s*(?:\([^)\n]*\))?:(.*(?:\n[ \t]+.*)*)", body, re.MULTILINE):
            notes[found[1]] = " ".join(found[2].split())
    return " ".join(head.split()), notes


def is_strict(schema: Any) -> bool:
    """Whether every object of the schema is closed and requires all its properties."""
    if isinstance(schema, list):
        return all(is_strict(entry) for entry in schema)
    if not isinstance(schema, Mapping):
        return True
    kinds = schema.get("type")
    if kinds == "object" or (isinstance(kinds, list) and "object" in kinds) or "properties" in schema:
        names = set(schema.get("properties", {}))
        if schema.get("additionalProperties") is not False or names != set(schema.get("required", ())):
            return False
    inner = [*schema.get("properties", {}).values(), *schema.get("$defs", {}).values()]
    inner += [schema[word] for word in ("items", "anyOf", "allOf", "oneOf", "prefixItems") if word in schema]
    return bool(schema) and all(is_strict(entry) for entry in inner)


def tighten(schema: Mapping[str, Any], definitions: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """A pydantic schema as the wire wants it: closed, all required, no titles, references inlined.

    A reference that leads back to itself stays a reference under `$defs`.
    """
    known = dict(definitions if definitions is not None else schema.get("$defs", {}))
    kept: dict[str, Any] = {}
    result = _tighten(schema, known, (), kept)
    if kept and definitions is None:
        result["$defs"] = kept
    return result


def _tighten(
    schema: Mapping[str, Any], known: Mapping[str, Any], above: tuple[str, ...], kept: dict[str, Any]
) -> dict[str, Any]:
    result: dict[str, Any] = {}
    if "$ref" in schema:
        key = str(schema["$ref"]).rsplit("/", 1)[-1]
        if key in above or key in kept:
            if key not in kept:
                kept[key] = {}
                kept[key] = _tighten(known[key], known, (*above, key), kept)
            return {"$ref": f"#/$defs/{key}"}
        target = _tighten(known[key], known, (*above, key), kept)
        target.update({word: value for word, value in schema.items() if word == "description"})
        return target
    for word, value in schema.items():
        match word:
            case "title" | "default" | "$defs" | "discriminator":
                continue
            case "properties":
                result[word] = {name: _tighten(entry, known, above, kept) for name, entry in value.items()}
            case "items" | "additionalProperties" if isinstance(value, Mapping):
                result[word] = _tighten(value, known, above, kept)
            case "anyOf" | "allOf" | "oneOf" | "prefixItems":
                result["anyOf" if word == "oneOf" else word] = [
                    _tighten(entry, known, above, kept) for entry in value
                ]
            case _:
                result[word] = value
    if result.get("type") == "object" and "properties" in result:
        required = set(schema.get("required", ()))
        result["properties"] = {
            name: entry if name in required else nullable(entry)
            for name, entry in result["properties"].items()
        }
        result["required"] = list(result["properties"])
        result["additionalProperties"] = False
    return _flat_choice(result)


def nullable(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The schema with null allowed as well."""
    result = dict(schema)
    kinds = result.get("type")
    if isinstance(kinds, str) and "enum" not in result and "const" not in result:
        result["type"] = [kinds, "null"] if kinds != "null" else kinds
    elif isinstance(kinds, list):
        result["type"] = kinds if "null" in kinds else [*kinds, "null"]
    elif "anyOf" in result:
        if {"type": "null"} not in result["anyOf"]:
            result["anyOf"] = [*result["anyOf"], {"type": "null"}]
    elif result:
        words = {word: result.pop(word) for word in ("description",) if word in result}
        return {**words, "anyOf": [result, {"type": "null"}]}
    return result


def _flat_choice(schema: dict[str, Any]) -> dict[str, Any]:
    """`anyOf: [{type: string}, {type: null}]` as `type: [string, null]`: shorter for the model."""
    choices = schema.get("anyOf")
    if not choices or len(choices) != 2 or choices[1] != {"type": "null"}:
        return schema
    first = choices[0]
    if not isinstance(first.get("type"), str) or "enum" in first or "const" in first:
        return schema
    rest = {word: value for word, value in schema.items() if word != "anyOf"}
    return {**first, "type": [first["type"], "null"], **rest}


def _at(source: str) -> str:
    return f" ({source})" if source else ""


def _schema_of(model: type[BaseModel], name: str, source: str) -> dict[str, Any]:
    try:
        schema = tighten(model.model_json_schema(by_alias=True))
    except PydanticUserError as error:
        raise ConfigurationError(
            f"tool {name}: a parameter has no JSON Schema{_at(source)}: {error.message}",
            remedy="use types that JSON can hold",
            tool=name,
        ) from None
    schema.setdefault("properties", {})
    schema.setdefault("required", [])
    schema["additionalProperties"] = False
    schema.pop("description", None)
    return schema


@dataclass(frozen=True, slots=True)
class _Parameter:
    name: str
    field: str
    annotation: Any
    default: Any
    allows_none: bool


@dataclass(frozen=True, slots=True)
class _Signature:
    """What a function takes: its parameters as one pydantic model, and the name of its context."""

    parameters: tuple[_Parameter, ...]
    model: type[BaseModel]
    context: str | None
    tool: str

    @classmethod
    def read(
        cls, function: Callable[..., Any], name: str, notes: Mapping[str, str], first: str, source: str
    ) -> "_Signature":
        try:
            hints = typing.get_type_hints(function, include_extras=True)
        except Exception as error:
            raise ConfigurationError(
                f"tool {name}: a type cannot be read{_at(source)}: {error}",
                remedy="import the names that the annotations use",
                tool=name,
            ) from None
        parameters: list[_Parameter] = []
        columns: dict[str, Any] = {}
        context: str | None = None
        for parameter in inspect.signature(function).parameters.values():
            annotation = hints.get(parameter.name, inspect.Parameter.empty)
            if annotation is ToolContext or parameter.name == "context":
                context = parameter.name
                continue
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
                raise ConfigurationError(
                    f"tool {name}: parameter {parameter} cannot be given by name{_at(source)}",
                    remedy="use plain named parameters",
                    tool=name,
                )
            if annotation is inspect.Parameter.empty:
                raise ConfigurationError(
                    f"tool {name}: parameter {parameter.name!r} has no type{_at(source)}",
                    remedy=f"write {parameter.name}: str, or the type that it has",
                    tool=name,
                )
            note = notes.get(parameter.name) or (first if not parameters else "")
            entry, column = _column(parameter, annotation, note)
            parameters.append(entry)
            columns[entry.field] = column
        try:
            model = create_model(
                f"{name}_arguments", __config__=ConfigDict(extra="forbid", protected_namespaces=()), **columns
            )
        except (PydanticSchemaGenerationError, PydanticUserError, TypeError) as error:
            raise ConfigurationError(
                f"tool {name}: a parameter has a type without a schema{_at(source)}: {error}",
                remedy="use types that JSON can hold",
                tool=name,
            ) from None
        return cls(tuple(parameters), model, context, name)

    def handler(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Calls the function with values of its own types, made from JSON arguments."""
        parameters, context = self.parameters, self.context

        def values(arguments: dict[str, Any], given: ToolContext | None) -> dict[str, Any]:
            made = self.validate(self.model, arguments)
            result = {}
            for parameter in parameters:
                value = getattr(made, parameter.field)
                if value is None and not parameter.allows_none:
                    value = parameter.default
                result[parameter.name] = value
            if context is not None:
                result[context] = given
            return result

        return _wrap(function, values)

    def model_handler(self, function: Callable[..., Any], model: type[BaseModel]) -> Callable[..., Any]:
        """Calls the function with the one model that it takes."""
        [parameter] = self.parameters
        wanted = _bare(parameter.annotation)

        def values(arguments: dict[str, Any], given: ToolContext | None) -> dict[str, Any]:
            made: Any = self.validate(model, arguments)
            if is_dataclass(wanted):
                made = getattr(made, "value", made)
            result = {parameter.name: made}
            if self.context is not None:
                result[self.context] = given
            return result

        return _wrap(function, values)

    def validate(self, model: type[BaseModel], arguments: dict[str, Any]) -> BaseModel:
        try:
            return model.model_validate(arguments)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            where = ".".join(str(part) for part in first["loc"]) or "arguments"
            raise ToolFailure(
                f"{self.tool}: {where}: {first['msg']}", hint="correct it and call again"
            ) from None

    def single_model(self) -> type[BaseModel] | None:
        if len(self.parameters) != 1:
            return None
        wanted = _bare(self.parameters[0].annotation)
        return wanted if inspect.isclass(wanted) and issubclass(wanted, BaseModel) else None

    def single_scalar(self, schema: Mapping[str, Any]) -> str | None:
        if len(self.parameters) != 1:
            return None
        [(name, entry)] = schema["properties"].items()
        kinds = entry.get("type")
        return name if (kinds[0] if isinstance(kinds, list) else kinds) in SCALARS else None


def _wrap(
    function: Callable[..., Any], values: Callable[[dict[str, Any], ToolContext | None], dict[str, Any]]
) -> Callable[..., Any]:
    if inspect.iscoroutinefunction(function):

        async def call_async(*, context: ToolContext | None = None, **arguments: Any) -> Any:
            return await function(**values(arguments, context))

        return call_async

    def call(*, context: ToolContext | None = None, **arguments: Any) -> Any:
        return function(**values(arguments, context))

    return call


def _bare(annotation: Any) -> Any:
    return get_args(annotation)[0] if get_origin(annotation) is Annotated else annotation


def _column(parameter: inspect.Parameter, annotation: Any, note: str) -> tuple[_Parameter, Any]:
    """A parameter, and its column of the pydantic model: under a safe name, its own as the alias."""
    base, extras = annotation, []
    if get_origin(annotation) is Annotated:
        base, *metadata = get_args(annotation)
        for extra in metadata:
            if isinstance(extra, str):
                note = extra
            elif isinstance(extra, FieldInfo) and extra.description:
                note = extra.description
                extras.append(extra)
            else:
                extras.append(extra)
    has_default = parameter.default is not inspect.Parameter.empty
    allows_none = base is None or type(None) in get_args(base) or base is Any
    if has_default and parameter.default is not None:
        note = f"{note} (default: {parameter.default!r})".strip()
    column_type = base if not has_default or allows_none else base | None
    for extra in extras:
        column_type = Annotated[column_type, extra]
    field = f"argument_{parameter.name}"
    default = ... if not has_default else (parameter.default if allows_none else None)
    column = Field(default=default, alias=parameter.name, description=note or None)
    return (
        _Parameter(parameter.name, field, annotation, parameter.default, allows_none),
        (column_type, column),
    )
