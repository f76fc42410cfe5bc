"""Turn a plain typed function, or a class with a `run` method, into a `Tool`.

The schema on the wire is strict (reference, section 7.1): every property required, no others allowed,
optional ones nullable. A null for what has a default means the default, in nested objects too.
Descriptions come from `Annotated[str, "words"]`, a pydantic `Field`, or the docstring (Google, NumPy or
Sphinx form).
Sources: rows S1.6, S2.5, S4.2 to S4.11 of the feature table.
"""

import inspect
import re
import textwrap
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import partial
from typing import Annotated, Any, TypeVar, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model
from pydantic.errors import PydanticSchemaGenerationError, PydanticUserError
from pydantic.fields import FieldInfo
from pydantic_core import SchemaError, to_jsonable_python

from assistant_runner.errors import ConfigurationError
from assistant_runner.schemas import fault_of
from assistant_runner.tooling.contract import Approval, Effects, Tool, ToolContext, ToolFailure
from assistant_runner.tooling.strict import checked_later, is_strict, tighten, without_absent

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
    if inspect.ismodule(candidate):
        raise ConfigurationError(
            f"{candidate.__name__} is a module, no tool",
            remedy=f"name a function in it: {candidate.__name__}:NAME",
            source=source,
        )
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
    _check_options(said, name, source)
    signature = _Signature.read(function, name, notes, said.get("input_description", ""), source)
    if flatten and (model := signature.single_model()) is not None:
        parameters, raw = _schemas_of(model, name, source)
        handler, scalar = signature.model_handler(function, model, raw), None
    else:
        parameters, raw = _schemas_of(signature.model, name, source)
        handler = signature.handler(function, raw)
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


def _check_options(said: Mapping[str, Any], name: str, source: str) -> None:
    """ConfigurationError for an option that has no such value: nobody else would notice a slip of the pen."""
    choices = {"effects": get_args(Effects), "approval": get_args(Approval)}
    lowest = {"timeout_s": 0.001, "retries": 0, "output_cap": 1}
    for option, value in said.items():
        words = ""
        if option in choices and value not in choices[option]:
            words = f"one of {', '.join(choices[option])}"
        if option in lowest and (not isinstance(value, int | float) or value < lowest[option]):
            words = f"a number of at least {lowest[option]}"
        if option == "output_schema" and (fault := fault_of(value)):
            words = f"a JSON Schema ({fault})"
        if words:
            raise ConfigurationError(
                f"tool {name}: {option} is {value!r}{_at(source)}", remedy=f"give {words}", tool=name
            )


def tool_from_class(candidate: Any, *, source: str = "") -> Tool:
    """A tool of a class (made without arguments) or instance with a `run` method (row S4.2).

    A `run` that takes one bare value is called with the value (row S4.9); one that takes a single
    pydantic model is called with it, and its fields are the tool's parameters.
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
    """The first paragraph on one line, and a description per parameter (Google, NumPy or Sphinx form)."""
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
    block = re.search(r"^Parameters\n-{3,}[ \t]*\n((?:(?!.*\n-{3,}).*(?:\n|$))*)", text, re.MULTILINE)
    if block:
        for found in re.finditer(
            r"^([\w*, ]+?)(?:[ \t]*:.*)?\n((?:[ \t]+.*(?:\n|$))+)", block[1], re.MULTILINE
        ):
            words = " ".join(found[2].split())
            notes.update({name.strip(" *"): words for name in found[1].split(",")})
    return " ".join(head.split()), notes


def _at(source: str) -> str:
    return f" ({source})" if source else ""


def _schemas_of(model: type[BaseModel], name: str, source: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The schema on the wire, and pydantic's own."""
    try:
        raw = model.model_json_schema(by_alias=True)
    except PydanticUserError as error:
        raise ConfigurationError(
            f"tool {name}: a parameter has no JSON Schema{_at(source)}: {error.message}",
            remedy="use types that JSON can hold",
            tool=name,
        ) from None
    schema = checked_later(tighten(raw))
    schema.setdefault("properties", {})
    schema.setdefault("required", [])
    schema["additionalProperties"] = False
    schema.pop("description", None)
    return schema, raw


@dataclass(frozen=True, slots=True)
class _Parameter:
    name: str
    field: str
    annotation: Any
    default: Callable[[], Any] | None


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
            if _is_context(parameter, annotation):
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
        config = ConfigDict(extra="forbid", protected_namespaces=(), regex_engine="python-re")
        try:
            model = create_model(f"{name}_arguments", __config__=config, **columns)
        except (PydanticSchemaGenerationError, PydanticUserError, SchemaError, TypeError) as error:
            words = " ".join(str(error).partition("\n\nFor further")[0].split())
            raise ConfigurationError(
                f"tool {name}: a parameter has a type without a schema{_at(source)}: {words}",
                remedy="use types that JSON can hold, as pydantic knows them",
                tool=name,
            ) from None
        return cls(tuple(parameters), model, context, name)

    def handler(self, function: Callable[..., Any], raw: Mapping[str, Any]) -> Callable[..., Any]:
        """Calls the function with values of its own types, made from JSON arguments."""

        def values(arguments: dict[str, Any]) -> dict[str, Any]:
            made = self.validate(self.model, arguments, raw)
            return {
                parameter.name: parameter.default()
                if parameter.default is not None and parameter.field not in made.model_fields_set
                else getattr(made, parameter.field)
                for parameter in self.parameters
            }

        return _wrap(function, values, self.context)

    def model_handler(
        self, function: Callable[..., Any], model: type[BaseModel], raw: Mapping[str, Any]
    ) -> Callable[..., Any]:
        """Calls the function with the one model that it takes."""
        [parameter] = self.parameters

        def values(arguments: dict[str, Any]) -> dict[str, Any]:
            return {parameter.name: self.validate(model, arguments, raw)}

        return _wrap(function, values, self.context)

    def validate(
        self, model: type[BaseModel], arguments: dict[str, Any], raw: Mapping[str, Any]
    ) -> BaseModel:
        try:
            return model.model_validate(without_absent(arguments, raw))
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
    function: Callable[..., Any], values: Callable[[dict[str, Any]], dict[str, Any]], context: str | None
) -> Callable[..., Any]:
    """The handler: it gets JSON arguments, after the context if the function has a parameter for it."""

    def filled(world: tuple[ToolContext, ...], arguments: dict[str, Any]) -> dict[str, Any]:
        return {**values(arguments), **({} if context is None else {context: world[0]})}

    if inspect.iscoroutinefunction(function):

        async def call_async(*world: ToolContext, **arguments: Any) -> Any:
            return await function(**filled(world, arguments))

        return call_async

    def call(*world: ToolContext, **arguments: Any) -> Any:
        return function(**filled(world, arguments))

    return call


def _is_context(parameter: inspect.Parameter, annotation: Any) -> bool:
    """Whether the parameter is for the ToolContext: by its type, or without one by the name `context`."""
    if annotation is inspect.Parameter.empty:
        return parameter.name == "context"
    return annotation is ToolContext or ToolContext in get_args(annotation)


def _bare(annotation: Any) -> Any:
    return get_args(annotation)[0] if get_origin(annotation) is Annotated else annotation


def _column(parameter: inspect.Parameter, annotation: Any, note: str) -> tuple[_Parameter, Any]:
    """A parameter, and its column of the pydantic model: under a safe name, its own as the alias.

    Its default stays outside the model, which would have to find it valid: it is only named there.
    """
    kind, extras = annotation, []
    if get_origin(annotation) is Annotated:
        kind, *extras = get_args(annotation)
    default: Callable[[], Any] | None = None
    if isinstance(parameter.default, FieldInfo):  # `limit: int = Field(10, ge=1)`
        note = parameter.default.description or note
        extras.extend(parameter.default.metadata)
        if not parameter.default.is_required():
            default = partial(parameter.default.get_default, call_default_factory=True)
    elif parameter.default is not inspect.Parameter.empty:
        default = partial(_same, parameter.default)
    for extra in extras:
        said = extra if isinstance(extra, str) else getattr(extra, "description", None)
        note = said if isinstance(said, str) and said else note
        kind = kind if isinstance(extra, str) else Annotated[kind, extra]
    field = f"argument_{parameter.name}"
    column = (
        Field(alias=parameter.name, description=note or None)
        if default is None
        else Field(
            default=None,
            alias=parameter.name,
            description=note or None,
            json_schema_extra={"default": to_jsonable_python(default(), fallback=str)},
        )
    )
    return _Parameter(parameter.name, field, annotation, default), (kind, column)


def _same(value: Any) -> Any:
    return value
