"""Values against JSON Schemas (draft 2020-12; formats are not judged), by the library `jsonschema`.

It is loaded when the first value is checked: a run without tool calls does not pay for it.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import jsonschema


def flaw_in(value: Any, schema: Mapping[str, Any]) -> "jsonschema.ValidationError | None":
    """What fits worst, or None if the value fits."""
    import jsonschema

    validator = jsonschema.Draft202012Validator(dict(schema))
    worst: jsonschema.ValidationError | None = jsonschema.exceptions.best_match(validator.iter_errors(value))
    return worst


def fits(value: Any, schema: Mapping[str, Any], root: Mapping[str, Any]) -> bool:
    """Whether the value fits; references of the schema are into `root`, of which it is a part."""
    import jsonschema

    return jsonschema.Draft202012Validator(dict(root)).evolve(schema=schema).is_valid(value)


def fault_of(schema: Mapping[str, Any]) -> str | None:
    """Why this is no JSON Schema, or None if it is one."""
    import jsonschema

    try:
        jsonschema.Draft202012Validator.check_schema(schema)
    except jsonschema.SchemaError as error:
        return str(error.message)
    return None
