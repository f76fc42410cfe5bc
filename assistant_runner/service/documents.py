"""The service's own documents, built once with every key that the protocol always sends.

Plain dicts, not pydantic: they are made here, written to the store and sent as they are; the schema
in `fixtures/protocol/` is what holds them to their shape, in tests.
"""

from collections.abc import Mapping
from typing import Any

from assistant_runner.service.ids import new_id
from assistant_runner.wire.runs import TERMINAL
from assistant_runner.wire.tools import HOSTED_TOOLS

Document = dict[str, Any]

SECRET_FIELDS = ("authorization", "headers")
"""Fields of a hosted tool that no answer shows."""

DEFAULT_RANKING = {"ranker": "default_2024_08_21", "score_threshold": 0}


def shown_tools(tools: list[Document] | None) -> list[Document]:
    """Tools as answers show them: a file search carries the ranking it will use, an MCP tool no secret."""
    shown = []
    for tool in tools or []:
        if tool["type"] == "function":
            function = {"name": tool["function"]["name"], **tool["function"]}
            if function.get("strict") is None:
                function["strict"] = False
            shown.append({**tool, "function": {k: v for k, v in function.items() if v is not None}})
        elif tool["type"] == "file_search":
            options = {k: v for k, v in (tool.get("file_search") or {}).items() if v is not None}
            ranking = {**DEFAULT_RANKING, **(options.get("ranking_options") or {})}
            shown.append({"type": "file_search", "file_search": {**options, "ranking_options": ranking}})
        elif tool["type"] in HOSTED_TOOLS:
            shown.append({k: v for k, v in tool.items() if v is not None and k not in SECRET_FIELDS})
        else:
            shown.append({"type": tool["type"]})
    return shown


def tool_secrets(tools: list[Document] | None) -> dict[str, Document]:
    """What `shown_tools` keeps back, by the tool's place in the list: it stands beside the document."""
    found = {}
    for place, tool in enumerate(tools or []):
        if tool["type"] in HOSTED_TOOLS:
            found[str(place)] = {k: tool[k] for k in SECRET_FIELDS if tool.get(k)}
    return {place: secrets for place, secrets in found.items() if secrets}


def with_secrets(tools: list[Document], secrets: Mapping[str, Document] | None) -> list[Document]:
    """Shown tools with what was kept back: for the engine only."""
    return [{**tool, **(secrets or {}).get(str(place), {})} for place, tool in enumerate(tools)]


def assistant(body: Mapping[str, Any], *, now: int, tool_resources: Document) -> Document:
    return {
        "id": new_id("assistant"),
        "object": "assistant",
        "created_at": now,
        "name": body.get("name"),
        "description": body.get("description"),
        "model": body["model"],
        "instructions": body.get("instructions"),
        "tools": shown_tools(body.get("tools")),
        "tool_resources": tool_resources,
        "metadata": body.get("metadata") or {},
        "temperature": _or(body.get("temperature"), 1),
        "top_p": _or(body.get("top_p"), 1),
        "response_format": _or(body.get("response_format"), "auto"),
    }


def thread(*, now: int, metadata: Document | None, tool_resources: Document) -> Document:
    return {
        "id": new_id("thread"),
        "object": "thread",
        "created_at": now,
        "metadata": metadata or {},
        "tool_resources": tool_resources,
    }


def message(
    *,
    now: int,
    thread_id: str,
    role: str,
    content: list[Document],
    status: str = "completed",
    assistant_id: str | None = None,
    run_id: str | None = None,
    attachments: list[Document] | None = None,
    metadata: Document | None = None,
) -> Document:
    return {
        "id": new_id("thread.message"),
        "object": "thread.message",
        "created_at": now,
        "assistant_id": assistant_id,
        "thread_id": thread_id,
        "run_id": run_id,
        "status": status,
        "incomplete_details": None,
        "incomplete_at": None,
        "completed_at": now if status == "completed" else None,
        "role": role,
        "content": content,
        "attachments": attachments or [],
        "metadata": metadata or {},
    }


def message_content(content: str | list[Document]) -> list[Document]:
    """The parts of a request as answers show them: texts get their annotations."""
    if isinstance(content, str):
        return [text_part(content)]
    parts = []
    for part in content:
        word = part["type"]
        if word == "text":
            parts.append(text_part(part["text"]))
        else:
            parts.append({"type": word, word: {"detail": "auto", **_given(part[word])}})
    return parts


def text_part(value: str, annotations: list[Document] | None = None) -> Document:
    return {"type": "text", "text": {"value": value, "annotations": annotations or []}}


def run(
    body: Mapping[str, Any],
    *,
    now: int,
    expires_at: int,
    thread_id: str,
    assistant: Document,
    instructions: str,
    tool_resources: Document,
) -> Document:
    truncation = body.get("truncation_strategy") or {"type": "auto"}
    tools = body.get("tools")
    response_format = _or(body.get("response_format"), assistant.get("response_format"))
    return {
        "id": new_id("thread.run"),
        "object": "thread.run",
        "created_at": now,
        "assistant_id": assistant["id"],
        "thread_id": thread_id,
        "status": "queued",
        "started_at": None,
        "expires_at": expires_at,
        "cancelled_at": None,
        "failed_at": None,
        "completed_at": None,
        "required_action": None,
        "last_error": None,
        "model": body.get("model") or assistant["model"],
        "instructions": instructions,
        "tools": assistant["tools"] if tools is None else shown_tools(tools),
        "tool_resources": tool_resources,
        "metadata": body.get("metadata") or {},
        "temperature": _or(body.get("temperature"), assistant.get("temperature")),
        "top_p": _or(body.get("top_p"), assistant.get("top_p")),
        "max_completion_tokens": body.get("max_completion_tokens"),
        "max_prompt_tokens": body.get("max_prompt_tokens"),
        "truncation_strategy": {
            "type": truncation["type"],
            "last_messages": truncation.get("last_messages"),
        },
        "incomplete_details": None,
        "usage": None,
        "response_format": _or(response_format, "auto"),
        "tool_choice": _or(body.get("tool_choice"), "auto"),
        "parallel_tool_calls": _or(body.get("parallel_tool_calls"), True),
    }


def step(run: Document, details: Document, *, now: int) -> Document:
    return {
        "id": new_id("thread.run.step"),
        "object": "thread.run.step",
        "created_at": now,
        "run_id": run["id"],
        "assistant_id": run["assistant_id"],
        "thread_id": run["thread_id"],
        "type": details["type"],
        "status": "in_progress",
        "cancelled_at": None,
        "completed_at": None,
        "expired_at": None,
        "failed_at": None,
        "last_error": None,
        "step_details": details,
        "metadata": None,
        "usage": None,
    }


def deleted(identifier: str, kind: str) -> Document:
    return {"id": identifier, "object": "file" if kind == "file" else f"{kind}.deleted", "deleted": True}


def listing(documents: list[Document], has_more: bool) -> Document:
    return {
        "object": "list",
        "data": documents,
        "first_id": documents[0]["id"] if documents else None,
        "last_id": documents[-1]["id"] if documents else None,
        "has_more": has_more,
    }


def is_terminal(run: Document) -> bool:
    return run["status"] in TERMINAL


def _or(value: Any, default: Any) -> Any:
    return default if value is None else value


def _given(document: Document) -> Document:
    return {key: value for key, value in document.items() if value is not None}
