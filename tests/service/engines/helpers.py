"""What the tests of the engines share: requests, tools, and a run played to its end."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from assistant_runner.service.engines.base import (
    CallDelta,
    Carry,
    Engine,
    Finish,
    TextDelta,
    TurnCall,
    TurnEvent,
    TurnItem,
    TurnMessage,
    TurnOutput,
    TurnRequest,
)
from assistant_runner.wire.tools import FunctionDefinition, FunctionTool

STRING = {"type": "string"}
INTEGER = {"type": "integer"}


def user(text: str) -> TurnMessage:
    return TurnMessage("user", [{"type": "text", "text": {"value": text, "annotations": []}}])


def assistant(text: str) -> TurnMessage:
    return TurnMessage("assistant", [{"type": "text", "text": {"value": text, "annotations": []}}])


def tool(
    name: str, description: str = "", /, *, required: Sequence[str] | None = None, **properties: Any
) -> FunctionTool:
    parameters = {
        "type": "object",
        "properties": properties,
        "required": list(properties if required is None else required),
    }
    return FunctionTool(
        function=FunctionDefinition(name=name, description=description, parameters=parameters)
    )


def request(*items: TurnItem | str, **changes: Any) -> TurnRequest:
    turned = [user(item) if isinstance(item, str) else item for item in items]
    base = TurnRequest(run_id="run_1", turn=0, model="gpt-5-mini", instructions="", items=turned)
    return replace(base, **changes)


@dataclass
class Turn:
    """The events of a turn, put together."""

    events: list[TurnEvent]
    text: str = ""
    calls: list[tuple[str, str]] = field(default_factory=list)
    ids: list[str | None] = field(default_factory=list)
    finish: Finish | None = None
    carry: Any = None


async def play(engine: Engine, wanted: TurnRequest) -> Turn:
    """One turn of an engine."""
    turn = Turn([event async for event in engine.turn(wanted)])
    pieces: dict[int, list[Any]] = {}
    for event in turn.events:
        if isinstance(event, TextDelta):
            turn.text += event.text
        elif isinstance(event, CallDelta):
            entry = pieces.setdefault(event.index, ["", "", None])
            entry[0] += event.name or ""
            entry[1] += event.arguments
            entry[2] = entry[2] or event.id
        elif isinstance(event, Carry):
            turn.carry = event.value
        elif isinstance(event, Finish):
            turn.finish = event
    assert isinstance(turn.events[-1], Finish)
    assert sorted(pieces) == list(range(len(pieces)))
    turn.calls = [(name, arguments) for name, arguments, _ in pieces.values()]
    turn.ids = [entry[2] for entry in pieces.values()]
    return turn


Answer = Callable[[str, Mapping[str, Any]], Any]


async def play_run(
    engine: Engine, first: TurnRequest, answer: Answer
) -> tuple[list[list[tuple[str, dict[str, Any]]]], str]:
    """Rounds of calls and the last text; calls are answered by `answer`. At most eight turns."""
    rounds: list[list[tuple[str, dict[str, Any]]]] = []
    items = list(first.items)
    choice = first.tool_choice
    carry: Any = None
    for number in range(8):
        turn = await play(engine, replace(first, items=items, turn=number, tool_choice=choice, carry=carry))
        choice, carry = "auto" if choice != "none" else choice, turn.carry
        if not turn.calls:
            return rounds, turn.text
        calls = [(name, json.loads(arguments)) for name, arguments in turn.calls]
        rounds.append(calls)
        ids = [given or f"call_{number}_{index}" for index, given in enumerate(turn.ids)]
        items += [TurnCall(i, name, raw) for i, (name, raw) in zip(ids, turn.calls, strict=True)]
        items += [
            TurnOutput(i, json.dumps(answer(name, arguments), ensure_ascii=False))
            for i, (name, arguments) in zip(ids, calls, strict=True)
        ]
    raise AssertionError("the engine calls tools for ever")
