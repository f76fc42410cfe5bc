"""How a run ends, whoever ends it: its worker, a cancel call, the clock, a restart.

One transaction closes the open message, the open step and the run and unlocks the thread; then the
listeners hear it in the order of the grammar (streaming reference, section 4).
"""

from typing import Any

from assistant_runner.service import lifecycle
from assistant_runner.service.core import Core
from assistant_runner.service.lifecycle import RunEventName
from assistant_runner.service.store.base import Document, Row

STEP_CODES = frozenset({"server_error", "rate_limit_exceeded"})
RUN_CODES = STEP_CODES | {"invalid_prompt"}
ENGINE_KINDS = frozenset(
    {
        *("authentication", "unreachable", "tls", "timeout", "quota", "rate_limit", "content_filter"),
        *(
            "model_not_found",
            "model_retired",
            "context_length",
            "unsupported",
            "bad_answer",
            "cut",
            "no_route",
        ),
    }
)
"""Finer words than the protocol's codes, from which a client can tell who has to act."""


def conclude(
    core: Core,
    row: Row,
    event: RunEventName,
    *,
    content: list[Document] | None = None,
    last_error: dict[str, str] | None = None,
    incomplete_reason: str | None = None,
    message_reason: str | None = None,
    step_usage: dict[str, int] | None = None,
) -> None:
    """Ends the run of a row that was just read inside the caller's transaction or before.

    `content`: the parts of the open message so far. `message_reason`: why an open message of an
    incomplete run was cut. IllegalTransition and Conflict as the row demands.
    """
    store, now, run_id = core.store, core.now(), row.id
    events: list[tuple[str, Document]] = []
    with store.transaction():
        run = lifecycle.advance(
            row.doc,
            event,
            now,
            last_error=last_error,
            incomplete_reason=incomplete_reason,
            usage=row.extra.get("used"),
        )
        status = run["status"]
        step_row = open_step(core, run_id)
        if step_row is not None:
            message_row = open_message(core, row.parent, step_row)
            if message_row is not None:
                if content is not None:
                    message_row.doc = {**message_row.doc, "content": content}
                reason = lifecycle.MESSAGE_REASONS.get(status, message_reason)
                message_row.doc = lifecycle.end_message(message_row.doc, now, reason=reason)
                store.update(message_row)
                events.append((f"thread.message.{message_row.doc['status']}", message_row.doc))
            step_error = last_error
            if step_error and step_error["code"] not in STEP_CODES:
                step_error = {**step_error, "code": "server_error"}
            usage = step_usage or step_row.extra.get("usage")
            step_row.doc = lifecycle.end_step(step_row.doc, status, now, last_error=step_error, usage=usage)
            store.update(step_row)
            events.append((f"thread.run.step.{step_row.doc['status']}", step_row.doc))
        row.doc = run
        row.extra = {key: row.extra[key] for key in ("turn", "used") if key in row.extra}
        store.update(row)
        store.deactivate(run_id)
    events.append((f"thread.run.{status}", run))
    for name, document in events:
        core.hub.publish(run_id, name, document)
    core.hub.finish(run_id)


def open_step(core: Core, run_id: str) -> Row | None:
    """The step of a run that is still in progress: the newest, or the calls of its turn if the provider
    ran tools of its own after them."""
    for limit in (1, 100):
        for row in core.store.scan("thread.run.step", run_id, limit=limit):
            if row.doc["status"] == "in_progress":
                return row
    return None


def open_message(core: Core, thread_id: str, step_row: Row) -> Row | None:
    """The message that an open step is writing."""
    details: dict[str, Any] = step_row.doc["step_details"]
    if details["type"] != "message_creation":
        return None
    row = core.store.get("thread.message", thread_id, details["message_creation"]["message_id"])
    return row if row is not None and row.doc["status"] == "in_progress" else None


def last_error(code: str, message: str, kind: str | None = None) -> dict[str, str]:
    """A `last_error` with a code that the protocol has; an engine's finer word stands beside it."""
    error = {"code": code if code in RUN_CODES else "server_error", "message": message}
    return {**error, "kind": kind} if kind in ENGINE_KINDS else error
