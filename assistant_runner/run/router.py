"""Split a run's required action into calls to the tools we have.

A waiting run takes all its tool outputs in one submission, so every tool call leaves here exactly
once, in the order asked: routed, or rejected with words for the model. The model's text stays as it
came (`arguments`) and is parsed beside it (`json_arguments`).
Shapes: `required_action` of a run, Assistants API v2; views 1 and 2 of the Tool Call Router
(rows S1.11, S1.12).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from assistant_runner.errors import ProtocolError, UnsupportedActionError
from assistant_runner.tooling.arguments import (
    Rejection,
    plain_name,
    repair_arguments,
    repair_call,
    unknown_tool,
    unpack_parallel,
)
from assistant_runner.tooling.contract import Tool
from assistant_runner.wire.runs import Run, ToolCall


@dataclass(frozen=True, slots=True)
class RoutedCall:
    tool_call_id: str
    tool: Tool
    arguments: dict[str, Any]

    @property
    def name(self) -> str:
        return self.tool.name


@dataclass(frozen=True, slots=True)
class RejectedCall:
    """A call that no tool will see; `reason` is the output that the model gets."""

    tool_call_id: str
    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class BundledCall:
    """A made-up wrapper that bundles several calls: one id, one output (case-033).

    Its parts have ids of their own (`ID.1`, `ID.2`), by which the journal and their tools know them.
    """

    tool_call_id: str
    name: str
    parts: list[RoutedCall | RejectedCall]


Entry = RoutedCall | RejectedCall | BundledCall


@dataclass(frozen=True, slots=True)
class Routing:
    """Both views and one entry per call, in the order asked."""

    view_1: dict[str, Any]
    view_2: list[dict[str, Any]]
    entries: list[Entry]


def route(run: Run, tools: Mapping[str, Tool]) -> Routing:
    """The routing of a run in `requires_action`.

    UnsupportedActionError if it asks for anything but tool outputs; ProtocolError if it asks for
    nothing (case-009).
    """
    calls = required_calls(run)
    return Routing(
        view_1=router_view(run),
        view_2=[_call_document(call) for call in calls],
        entries=[_route_call(call, tools) for call in calls],
    )


def router_view(run: Run) -> dict[str, Any]:
    """View 1: `{run, tool_outputs: []}`."""
    return {"run": run.document(), "tool_outputs": []}


def required_calls(run: Run) -> list[ToolCall]:
    """The calls that the run waits for."""
    action = run.required_action
    if action is None:
        raise ProtocolError(
            f"run {run.id} has status requires_action but no required_action",
            remedy="read the run again; if it stays so, cancel it",
            run_id=run.id,
            thread_id=run.thread_id,
        )
    if action.type != "submit_tool_outputs" or action.submit_tool_outputs is None:
        raise UnsupportedActionError(
            f"run {run.id} asks for {action.type!r}; this version can only submit tool outputs",
            run_id=run.id,
            thread_id=run.thread_id,
            remedy="cancel the run, or use a newer version",
        )
    return action.submit_tool_outputs.tool_calls


def _call_document(call: ToolCall) -> dict[str, Any]:
    """One document of view 2; `json_arguments` is null where the text cannot be understood."""
    parsed = repair_arguments(call.function.arguments)
    return {
        "id": call.id,
        "type": call.type,
        "function": {
            "name": call.function.name,
            "arguments": call.function.arguments,
            "json_arguments": None if isinstance(parsed, Rejection) else parsed,
        },
    }


def _route_call(call: ToolCall, tools: Mapping[str, Tool]) -> Entry:
    name, raw = call.function.name, call.function.arguments
    bundle = None if name in tools else unpack_parallel(name, repair_arguments(raw))
    if isinstance(bundle, Rejection):
        return RejectedCall(call.id, name, bundle.reason)
    if bundle is not None:
        parts = [
            _route(f"{call.id}.{number}", part.name, part.arguments, tools)
            for number, part in enumerate(bundle, 1)
        ]
        return BundledCall(call.id, name, parts)
    return _route(call.id, name, raw, tools)


def _route(call_id: str, name: str, raw: Any, tools: Mapping[str, Tool]) -> RoutedCall | RejectedCall:
    tool = tools.get(name) or tools.get(plain_name(name))
    if tool is None:
        return RejectedCall(call_id, name, unknown_tool(name, tools).reason)
    arguments = repair_call(raw, tool)
    if isinstance(arguments, Rejection):
        return RejectedCall(call_id, name, f"{name}: {arguments.reason}")
    return RoutedCall(call_id, tool, arguments)
