"""Dynamic tools: made while the program runs, from JSON Schema and a function (rows S4.1, S4.11, S4.12).

The function takes the arguments as one value: a dict for an object schema, the bare value for any
other. A schema that is no object is wrapped in an object with the one property `value` on the wire,
because the protocol wants objects there, and unwrapped for the call (row S4.9).
"""

import json
from collections.abc import Callable, Mapping
from typing import Any

from assistant_runner.errors import ConfigurationError
from assistant_runner.schemas import fault_of
from assistant_runner.tooling.contract import Approval, Effects, Handler, Tool, ToolKind
from assistant_runner.tooling.schema import SCALARS, check_name
from assistant_runner.tooling.strict import is_strict

VALUE = "value"
Schema = Mapping[str, Any] | str
"""A JSON Schema, or its text."""


def dynamic_tool(
    name: str,
    description: str,
    function: Callable[[Any], Any],
    *,
    input_schema: Schema,
    output_schema: Schema | None = None,
    when_to_use: str = "",
    input_description: str = "",
    output_description: str = "",
    effects: Effects = "read",
    approval: Approval = "policy",
    timeout_s: float | None = None,
    retries: int = 0,
) -> Tool:
    """A tool of a function from arguments to a value; ConfigurationError names what lacks (row S2.5)."""
    parameters, scalar = read_parameters(input_schema, name, words=input_description)

    def call(**arguments: Any) -> Any:
        return function(arguments if scalar is None else arguments[scalar])

    return described_tool(
        name,
        description,
        call,
        parameters=parameters,
        kind="dynamic",
        scalar=scalar,
        when_to_use=when_to_use,
        input_description=input_description,
        output_description=output_description,
        output_schema=None if output_schema is None else read_schema(output_schema, name),
        effects=effects,
        approval=approval,
        timeout_s=timeout_s,
        retries=retries,
        source="dynamic",
    )


def described_tool(
    name: str,
    description: str,
    handler: Handler,
    *,
    parameters: Mapping[str, Any],
    kind: ToolKind,
    **fields: Any,
) -> Tool:
    """A tool from its description; name and description are checked, `strict` is as the schema allows."""
    check_name(name, fields.get("source", ""))
    if not description.strip():
        raise ConfigurationError(
            f"tool {name} has no description", remedy="say in a sentence what it does", tool=name
        )
    strict = True if is_strict(parameters) else None
    return Tool(
        name=name,
        description=description.strip(),
        parameters=parameters,
        handler=handler,
        kind=kind,
        strict=strict,
        **fields,
    )


def read_schema(schema: Schema, name: str) -> dict[str, Any]:
    """The schema as a dict; ConfigurationError if its text is no JSON or it is no JSON Schema."""
    if isinstance(schema, str):
        try:
            schema = json.loads(schema)
        except ValueError as error:
            raise ConfigurationError(
                f"tool {name}: its schema is no JSON: {error}", remedy="correct the schema", tool=name
            ) from None
    if not isinstance(schema, Mapping) or not schema:
        raise ConfigurationError(
            f"tool {name}: it has no input schema", remedy='give one, such as {"type": "object"}', tool=name
        )
    plain = dict(schema)
    if fault := fault_of(plain):
        raise ConfigurationError(
            f"tool {name}: its schema is no JSON Schema: {fault}", remedy="correct it", tool=name
        )
    return plain


def read_parameters(schema: Schema, name: str, *, words: str = "") -> tuple[dict[str, Any], str | None]:
    """The parameters on the wire, and the name of the one property that wraps a bare value, if any.

    A map without `type` is the short form: names with their types or schemas, all required.
    """
    if isinstance(schema, Mapping) and _is_short_form(schema):
        schema = {
            "type": "object",
            "properties": {
                key: {"type": entry} if isinstance(entry, str) else entry for key, entry in schema.items()
            },
            "required": list(schema),
            "additionalProperties": False,
        }
    plain = {} if schema in ({}, "", "{}") else read_schema(schema, name)
    if not plain or plain.get("type") == "object" or "properties" in plain:
        plain.setdefault("type", "object")
        plain.setdefault("properties", {})
        if not plain["properties"] and "additionalProperties" not in plain:
            plain["additionalProperties"] = False
            plain.setdefault("required", [])
        return plain, None
    if words and "description" not in plain:
        plain["description"] = words
    shared: dict[str, Any] = {word: plain.pop(word) for word in ("$defs", "definitions") if word in plain}
    wrapped = {
        **shared,
        "type": "object",
        "properties": {VALUE: plain},
        "required": [VALUE],
        "additionalProperties": False,
    }
    return wrapped, VALUE


def _is_short_form(schema: Mapping[str, Any]) -> bool:
    """Whether a map has names of parameters rather than words of JSON Schema; one may be called `type`."""
    words = {*SCALARS, "array", "object"}
    keywords = {"properties", "enum", "const", "anyOf", "oneOf", "allOf", "$ref", "items", "required"}
    keywords |= {"description", "title", "default", "format", "pattern", "additionalProperties"}
    others = set(schema) - {"type"}
    if not others or keywords & others:
        return False
    if "type" in schema:
        return all(
            isinstance(entry, Mapping) or (isinstance(entry, str) and entry in words)
            for entry in schema.values()
        )
    return all(isinstance(entry, Mapping | str) for entry in schema.values())
