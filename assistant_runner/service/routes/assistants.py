"""Assistants (reference, sections 2, 4.1)."""

from typing import Any

from assistant_runner.service import documents
from assistant_runner.service.documents import shown_tools, tool_secrets
from assistant_runner.service.failures import not_found
from assistant_runner.service.formats import check_format
from assistant_runner.service.resources import resolved, without_deleted
from assistant_runner.service.web import Answer, Call
from assistant_runner.wire.bodies import check_assistant_create, check_assistant_modify

KIND = "assistant"


async def create(call: Call) -> Answer:
    body = call.document(check_assistant_create)
    check_format(body.get("response_format"), "response_format")
    core = call.core
    with core.store.transaction():
        resources = resolved(core, call.world, body.get("tool_resources"))
        document = documents.assistant(body, now=core.now(), tool_resources=resources)
        core.store.insert(KIND, call.world, document["id"], document, extra=_extra(body))
    return Answer(document)


async def retrieve(call: Call) -> Answer:
    row = call.row(KIND, call.world, call.identifier(KIND, "assistant_id"))
    return Answer(without_deleted(call.core, call.world, row.doc))


async def list_all(call: Call) -> Answer:
    return call.list_answer(KIND, call.world)


async def modify(call: Call) -> Answer:
    """Omitted is unchanged; what is given replaces; null resets."""
    identifier = call.identifier(KIND, "assistant_id")
    body = call.document(check_assistant_modify)
    check_format(body.get("response_format"), "response_format")
    core = call.core
    with core.store.transaction():
        row = call.row(KIND, call.world, identifier)
        changed: dict[str, Any] = {}
        for name, value in body.items():
            if name == "tools":
                changed[name] = shown_tools(value)
            elif name == "tool_resources":
                changed[name] = resolved(core, call.world, value)
            elif name == "metadata":
                changed[name] = value or {}
            elif name in ("temperature", "top_p"):
                changed[name] = 1 if value is None else value
            elif name == "response_format":
                changed[name] = "auto" if value is None else value
            elif name == "model":
                changed[name] = value or row.doc["model"]
            elif name != "reasoning_effort":
                changed[name] = value
        row.doc = {**row.doc, **changed}
        row.extra = _extra(body, row.extra)
        core.store.update(row)
    return Answer(row.doc)


async def delete(call: Call) -> Answer:
    identifier = call.identifier(KIND, "assistant_id")
    if not call.core.store.delete(KIND, call.world, identifier):
        raise not_found(KIND, identifier)
    return Answer(documents.deleted(identifier, KIND))


def _extra(body: dict[str, Any], known: dict[str, Any] | None = None) -> dict[str, Any]:
    """What is kept beside an assistant and no answer shows: `effort`, and `secrets` of its tools."""
    extra = dict(known or {})
    if "reasoning_effort" in body:
        extra["effort"] = body["reasoning_effort"]
    if "tools" in body:
        extra["secrets"] = tool_secrets(body["tools"])
    return {key: value for key, value in extra.items() if value}
