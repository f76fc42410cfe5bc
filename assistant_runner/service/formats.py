"""Response formats: whether a schema is one, and whether an answer fits it.

The library is loaded when the first format with a schema comes: most runs have none.
"""

import json
from typing import Any

from assistant_runner.service.failures import bad_request


def check_format(value: Any, path: str) -> None:
    """ApiError if a `json_schema` format carries something that is no JSON Schema."""
    if not isinstance(value, dict) or value.get("type") != "json_schema":
        return
    import jsonschema

    inner = value["json_schema"]
    try:
        jsonschema.Draft202012Validator.check_schema(inner.get("schema") or {})
    except (jsonschema.SchemaError, RecursionError) as error:
        words = error.message if isinstance(error, jsonschema.SchemaError) else "it is nested too deeply"
        raise bad_request(
            f"Invalid schema for response_format '{inner['name']}': {words}",
            code="invalid_value",
            param=f"{path}.json_schema.schema",
        ) from None


def answer_flaw(response_format: Any, text: str) -> str | None:
    """Why an answer does not fit its response format, in words; None if it does or needs not."""
    if not isinstance(response_format, dict) or response_format.get("type") not in (
        "json_object",
        "json_schema",
    ):
        return None
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        return f"it is not JSON: {error}"
    if response_format["type"] == "json_object":
        return None if isinstance(value, dict) else "it is not a JSON object"
    schema = response_format["json_schema"].get("schema")
    if not schema:
        return None
    import jsonschema
    from referencing import Registry

    try:  # with a registry of its own: the library would fetch what a client's schema points to
        jsonschema.Draft202012Validator(schema, registry=Registry()).validate(value)
    except jsonschema.ValidationError as error:
        return f"at {error.json_path}: {error.message[:200]}"
    except Exception as error:  # a reference that leads nowhere, a pattern that is none
        return f"its schema cannot be applied: {type(error).__name__}"
    return None
