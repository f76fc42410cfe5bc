"""Values against JSON Schemas (draft 2020-12; formats are not judged), by the library `jsonschema`.

It is loaded when the first value is checked: a run without tool calls does not pay for it. A reference
never leaves its schema: left to itself, the library would fetch what a stranger's schema points to.
"""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

if TYPE_CHECKING:
    import jsonschema


def flaw_in(value: Any, schema: Mapping[str, Any]) -> "jsonschema.ValidationError | None":
    """What fits worst, or None if the value fits."""
    import jsonschema

    worst: jsonschema.ValidationError | None = jsonschema.exceptions.best_match(
        _validator(schema).iter_errors(value)
    )
    return worst


def fits(value: Any, schema: Mapping[str, Any], root: Mapping[str, Any]) -> bool:
    """Whether the value fits; references of the schema are into `root`, of which it is a part."""
    fitting: bool = _validator(root).evolve(schema=schema).is_valid(value)
    return fitting


def fault_of(schema: Mapping[str, Any]) -> str | None:
    """Why this is no JSON Schema that can be used, or None if it is one."""
    import jsonschema

    try:
        jsonschema.Draft202012Validator.check_schema(schema)
    except jsonschema.SchemaError as error:
        return str(error.message)
    lost = (reference for reference in _references(schema) if not _leads_somewhere(reference, schema))
    return next((f"{reference!r} leads nowhere" for reference in lost), None)


def _validator(schema: Mapping[str, Any]) -> Any:
    import jsonschema
    from referencing import Registry

    return jsonschema.Draft202012Validator(dict(schema), registry=Registry())


def _references(schema: Any) -> Iterator[str]:
    if isinstance(schema, Mapping):
        for word, value in schema.items():
            if word in ("$ref", "$dynamicRef") and isinstance(value, str):
                yield value
            elif word not in ("enum", "const", "default", "examples"):
                yield from _references(value)
    elif isinstance(schema, list):
        for entry in schema:
            yield from _references(entry)


def _leads_somewhere(reference: str, schema: Mapping[str, Any]) -> bool:
    """Whether a JSON pointer finds something in the schema; an anchor is not looked for."""
    if not reference.startswith("#/"):
        return reference.startswith("#")
    target: Any = schema
    for word in unquote(reference).split("/")[1:]:
        word = word.replace("~1", "/").replace("~0", "~")
        if isinstance(target, list) and word.isdigit() and int(word) < len(target):
            target = target[int(word)]
        elif isinstance(target, Mapping) and word in target:
            target = target[word]
        else:
            return False
    return True
