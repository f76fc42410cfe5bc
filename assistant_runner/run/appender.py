"""The message appender: a round's document and its results become one document.

It waits for all results, appends them in the order given, and passes every other field on
(rows S0.17, S1.25). Two forms of document: a run `{run, tool_outputs}` and a chat
`{messages, output?, ...}`.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from assistant_runner.errors import ProtocolError


def append_results(document: Mapping[str, Any], results: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The document with the results appended; ProtocolError if one is missing, foreign or double.

    `results` are function result documents; every call of the document must have exactly one.
    """
    asked = _asked_ids(document)
    given = [str(result["function_id"]) for result in results]
    missing = [call_id for call_id in asked if call_id not in given]
    foreign = [call_id for call_id in given if call_id not in asked]
    if missing or foreign or len(set(given)) != len(given):
        raise ProtocolError(
            f"results do not match the calls: asked for {asked}, got {given}",
            remedy="give exactly one result for each tool call of the round",
        )
    key = "tool_outputs" if "run" in document else "messages"
    return {**document, key: [*document.get(key, []), *results]}


def _asked_ids(document: Mapping[str, Any]) -> list[str]:
    if "run" in document:
        action = document["run"].get("required_action") or {}
        calls = (action.get("submit_tool_outputs") or {}).get("tool_calls") or []
        return [call["id"] for call in calls]
    message = (document.get("output") or {}).get("message") or _last_assistant(document)
    parts = message.get("content") or []
    converse = [
        part["toolUse"]["toolUseId"] for part in parts if isinstance(part, dict) and "toolUse" in part
    ]
    return converse or [call["id"] for call in message.get("tool_calls") or []]


def _last_assistant(document: Mapping[str, Any]) -> Mapping[str, Any]:
    for message in reversed(document.get("messages") or []):
        if message.get("role") == "assistant":
            return dict(message)
    return {}
