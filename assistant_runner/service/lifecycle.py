"""The run state machine as a table, and what each change sets (reference, section 9).

Pure: a run document and an event give the next document. Nothing here knows of stores, engines or
time; `now` is handed in, in whole Unix seconds. Terminal states never change again.
"""

from typing import Any, Literal

from assistant_runner.wire.runs import ACTIVE, TERMINAL

RunEventName = Literal[
    "start", "require_action", "submit", "complete", "truncate", "fail", "request_cancel", "cancel", "expire"
]

_ENDS = {"complete": "completed", "truncate": "incomplete", "fail": "failed", "expire": "expired"}

TRANSITIONS: dict[str, dict[str, str]] = {
    "queued": {
        "start": "in_progress",
        "request_cancel": "cancelling",
        "fail": "failed",
        "expire": "expired",
    },
    "in_progress": {
        "require_action": "requires_action",
        "request_cancel": "cancelling",
        **_ENDS,
    },
    "requires_action": {
        "submit": "queued",
        "request_cancel": "cancelling",
        "expire": "expired",
    },
    "cancelling": {"cancel": "cancelled", **_ENDS},
    **{status: {} for status in TERMINAL},
}
"""status → event → next status; what is not there is not allowed."""

NO_USAGE = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}

MESSAGE_REASONS = {"failed": "run_failed", "cancelled": "run_cancelled", "expired": "run_expired"}
"""Why the open message of a run that ended so is incomplete."""

STEP_STATUSES = {
    "completed": "completed",
    "incomplete": "completed",
    "failed": "failed",
    "cancelled": "cancelled",
    "expired": "expired",
}
"""What the open step becomes when its run ends."""


class IllegalTransition(Exception):
    """The run's status does not allow this event."""

    def __init__(self, status: str, event: str) -> None:
        super().__init__(f"a run in status {status!r} does not take {event!r}")
        self.status = status
        self.event = event


def allows(status: str, event: RunEventName) -> bool:
    return event in TRANSITIONS.get(status, {})


def advance(
    run: dict[str, Any],
    event: RunEventName,
    now: int,
    *,
    required_action: dict[str, Any] | None = None,
    last_error: dict[str, str] | None = None,
    incomplete_reason: str | None = None,
    usage: dict[str, int] | None = None,
) -> dict[str, Any]:
    """The run after an event; IllegalTransition if its status does not take it."""
    status = run["status"]
    target = TRANSITIONS.get(status, {}).get(event)
    if target is None:
        raise IllegalTransition(status, event)
    changed = {**run, "status": target, "required_action": None}
    if target == "in_progress":
        changed["started_at"] = now
    elif target == "requires_action":
        changed["required_action"] = required_action
    elif target in TERMINAL:
        changed["expires_at"] = None
        changed["usage"] = usage or dict(NO_USAGE)
        if target in ("completed", "incomplete"):
            changed["completed_at"] = now
        elif target == "failed":
            changed["failed_at"] = now
            changed["last_error"] = last_error
        elif target == "cancelled":
            changed["cancelled_at"] = now
        if target == "incomplete":
            changed["incomplete_details"] = {"reason": incomplete_reason}
    return changed


def end_step(
    step: dict[str, Any],
    run_status: str,
    now: int,
    *,
    last_error: dict[str, str] | None = None,
    usage: dict[str, int] | None = None,
) -> dict[str, Any]:
    """An open step after its run ended, or after its own work did (`run_status` completed)."""
    status = STEP_STATUSES[run_status]
    changed = {**step, "status": status, "usage": usage or step["usage"]}
    stamp = {"completed": "completed_at", "failed": "failed_at", "cancelled": "cancelled_at"}.get(
        status, "expired_at"
    )
    changed[stamp] = now
    if status == "failed":
        changed["last_error"] = last_error
    return changed


def end_message(message: dict[str, Any], now: int, *, reason: str | None = None) -> dict[str, Any]:
    """An open message when it is done, or cut (`reason`: max_tokens, content_filter, run_...)."""
    if reason is None:
        return {**message, "status": "completed", "completed_at": now}
    return {
        **message,
        "status": "incomplete",
        "incomplete_at": now,
        "incomplete_details": {"reason": reason},
    }


def is_active(status: str) -> bool:
    return status in ACTIVE
