"""A thread's items in the order that every model API demands: a block of calls, then its outputs.

A call without an output gets one that says so, an output without a call is left out, nothing stands
between them and nothing is sent twice (case-065). Chat Completions and Responses both refuse a history
that breaks this (responses reference, section 5.1).
"""

from collections.abc import Sequence
from dataclasses import dataclass

from assistant_runner.service.engines.base import TurnCall, TurnItem, TurnMessage, TurnOutput

INTERRUPTED = '{"error": "interrupted: this call was never answered"}'


@dataclass(frozen=True, slots=True)
class CallBlock:
    """The calls of one turn with one output each, in the same order."""

    calls: tuple[TurnCall, ...]
    outputs: tuple[TurnOutput, ...]


def in_blocks(items: Sequence[TurnItem]) -> list[TurnMessage | CallBlock]:
    """Messages and call blocks, oldest first; each call answered exactly once."""
    answers: dict[str, TurnOutput] = {}
    for item in items:
        if isinstance(item, TurnOutput):
            answers.setdefault(item.tool_call_id, item)
    blocks: list[TurnMessage | CallBlock] = []
    pending: list[TurnCall] = []
    seen: set[str] = set()

    def close() -> None:
        if pending:
            outputs = [answers.get(call.id) or TurnOutput(call.id, INTERRUPTED) for call in pending]
            blocks.append(CallBlock(tuple(pending), tuple(outputs)))
            pending.clear()

    for item in items:
        if isinstance(item, TurnCall):
            if item.id not in seen:
                seen.add(item.id)
                pending.append(item)
        else:
            close()
            if isinstance(item, TurnMessage):
                blocks.append(item)
    close()
    return blocks
