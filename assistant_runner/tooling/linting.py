"""Tools judged as a model would see them (`tools lint`; rows S4.4 to S4.8).

An error is what breaks or misleads; a warning is what makes a model choose or fill badly; a note is
advice. The profile `pangu` is stricter: no nesting, lower-case names, at most five parameters.
"""

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from assistant_runner.tooling.contract import Tool

Level = Literal["error", "warning", "note"]
Profile = Literal["default", "pangu"]
MANY_PARAMETERS = 5
DEEP = 2
LONG_DESCRIPTION = 1024
SHORT_DESCRIPTION = 12


@dataclass(frozen=True, slots=True)
class Finding:
    """One remark about one tool."""

    tool: str
    level: Level
    message: str


def lint(tools: Iterable[Tool], *, profile: Profile = "default") -> list[Finding]:
    """Remarks about each tool, then about tools that are easily taken for each other."""
    found = list(tools)
    findings = [finding for tool in found for finding in _lint_one(tool, profile)]
    return [*findings, *_clashes(found)]


def _lint_one(tool: Tool, profile: Profile) -> list[Finding]:
    remarks: list[tuple[Level, str]] = []
    properties: Mapping[str, Any] = tool.parameters.get("properties", {})
    if len(tool.description) < SHORT_DESCRIPTION:
        remarks.append(("warning", f"the description {tool.description!r} says little"))
    if len(tool.definition().function.description or "") > LONG_DESCRIPTION:
        remarks.append(("warning", f"the description is longer than {LONG_DESCRIPTION} characters"))
    if not tool.when_to_use:
        remarks.append(("note", "nothing says when to use it (when_to_use)"))
    if len(properties) > MANY_PARAMETERS:
        remarks.append(
            ("warning", f"{len(properties)} parameters; more than {MANY_PARAMETERS} are often filled badly")
        )
    for name, schema in properties.items():
        if not schema.get("description") and "enum" not in schema:
            remarks.append(("warning", f"the parameter {name} has no description"))
        if not name[:1].islower():
            level: Level = "error" if profile == "pangu" else "warning"
            remarks.append((level, f"the parameter {name} does not begin with a lower-case letter"))
        if depth_of(schema) > (0 if profile == "pangu" else DEEP):
            remarks.append(("warning", f"the parameter {name} is nested {depth_of(schema)} levels deep"))
        if not schema.get("type") and not {"anyOf", "enum", "const", "$ref"} & set(schema):
            remarks.append(("warning", f"the parameter {name} takes anything"))
    if tool.retries and tool.effects == "write":
        remarks.append(("warning", "its retries are never used: what writes is not repeated"))
    if tool.strict is None and properties:
        remarks.append(("note", "the schema is not strict: an optional property or an open object"))
    if profile == "pangu" and not (tool.input_description or tool.output_description):
        remarks.append(("note", "neither input nor output is described"))
    return [Finding(tool.name, level, words) for level, words in remarks]


def depth_of(schema: Any) -> int:
    """How many objects or arrays stand inside each other; 0 for a plain value."""
    if not isinstance(schema, Mapping):
        return 0
    inner = [
        *schema.get("properties", {}).values(),
        *schema.get("anyOf", ()),
        schema.get("items"),
        schema.get("additionalProperties"),
    ]
    below = max((depth_of(entry) for entry in inner), default=0)
    kinds = schema.get("type")
    nested = "properties" in schema or "items" in schema or kinds in ("object", "array")
    return below + 1 if nested else below


def _clashes(tools: list[Tool]) -> list[Finding]:
    findings = []
    for index, one in enumerate(tools):
        for other in tools[index + 1 :]:
            if one.name.casefold().replace("-", "_") == other.name.casefold().replace("-", "_"):
                findings.append(Finding(one.name, "error", f"its name differs from {other.name} in little"))
            elif difflib.SequenceMatcher(None, one.description, other.description).ratio() > 0.9:
                findings.append(Finding(one.name, "warning", f"it is described almost like {other.name}"))
    return findings
