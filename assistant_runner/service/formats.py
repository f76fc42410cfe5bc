"""Response formats: whether a schema is one, and whether an answer fits it."""

import json
from typing import Any

from assistant_runner.schemas import fault_of, flaw_in
from assistant_runner.service.failures import bad_request


def check_format(value: Any, path: str) -> None:
    """ApiError if a `json_schema` format carries something that is no JSON Schema."""
    if not isinstance(value, dict) or value.get("type") != "json_schema":
        return
    inner = value["json_schema"]
    if fault := fault_of(inner.get("schema") or {}):
        raise bad_request(
            f"Invalid schema for response_format '{inner['name']}': {fault}",
            code="invalid_value",
            param=f"{path}.json_schema.schema",
        )


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
    try:
        flaw = flaw_in(value, schema)
    except Exception as error:  # a reference that leads nowhere
        return f"its schema cannot be applied: {type(error).__name__}"
    return None if flaw is None else f"at {flaw.json_path}: {flaw.message[:200]}"
