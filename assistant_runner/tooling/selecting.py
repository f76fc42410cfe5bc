"""The part of a tool's result that becomes its output (rows S1.23, S1.24).

A selector is a JMESPath expression, of which a dotted path is the plainest: `entity`,
`entity.current`, `merge({place: entity.place}, entity.current)`. An HTTP reply is seen as its
document `{statusLine, headers, entity, _debug, original}`; without a selector its entity is taken.
"""

import json
from typing import Any

from assistant_runner.errors import ConfigurationError
from assistant_runner.tooling.contract import HttpReply, ToolFailure
from assistant_runner.tooling.encoding import to_plain

LOOK_CHARACTERS = 80


def check_selector(expression: str, *, tool: str) -> str:
    """The expression; ConfigurationError if it is none."""
    import jmespath
    from jmespath.exceptions import JMESPathError

    try:
        jmespath.compile(expression)
    except JMESPathError as error:
        first = str(error).splitlines()[0]
        raise ConfigurationError(
            f"tool {tool}: {expression!r} is no selector: {first}",
            remedy="use a dotted path or another JMESPath expression",
            tool=tool,
        ) from None
    return expression


def select(result: Any, expression: str | None) -> tuple[Any, tuple[str, ...]]:
    """The chosen part as plain data, and notes; ToolFailure if the selector finds nothing."""
    if expression is None:
        return to_plain(result)
    if isinstance(result, HttpReply):
        if expression == "entity":
            return to_plain(result.entity)
        result = result.document()
    import jmespath
    from jmespath.exceptions import JMESPathError

    plain, notes = to_plain(result)
    try:
        found = jmespath.search(expression, plain)
    except JMESPathError as error:
        raise ToolFailure(
            f"the output selector {expression!r} failed: {str(error).splitlines()[0]}"
        ) from None
    if found is None:
        where, part = _as_far_as(expression, plain)
        raise ToolFailure(f"the output selector {expression!r} found nothing; {where} {_looks(part)}")
    return found, notes


def _as_far_as(expression: str, plain: Any) -> tuple[str, Any]:
    """How far a dotted path leads: where, and what is there."""
    where, names = "the result", expression.split(".")
    for count, name in enumerate(names, start=1):
        if not isinstance(plain, dict) or plain.get(name) is None:
            break
        where, plain = ".".join(names[:count]), plain[name]
    return where, plain


def _looks(plain: Any) -> str:
    if isinstance(plain, dict) and plain:
        return f"has: {', '.join(plain)}"
    if isinstance(plain, list):
        return f"is a list of {len(plain)}"
    shown = plain[:LOOK_CHARACTERS] if isinstance(plain, str) else plain
    return f"is {json.dumps(shown, ensure_ascii=False)}"
