"""How a row ended: its result row, and what an error says of the backend and of all other rows."""

from collections.abc import Mapping
from typing import Any, Literal

from assistant_runner.batch.rows import Row
from assistant_runner.errors import (
    ApiGone,
    AssistantRunnerError,
    AuthenticationFailed,
    BackendError,
    BackendUnreachable,
    HumanNeeded,
    OutcomeUnknown,
    RateLimited,
    RequestRejected,
    RunFailed,
    RunTimedOut,
)
from assistant_runner.run.dispatch import UNKNOWN_OUTCOME
from assistant_runner.run.request import RunResult


def head(row: Row) -> dict[str, Any]:
    """What every result row begins with."""
    return {"index": row.index, "line": row.line, "id": row.id, "key": row.key}


def _blank(row: Row) -> dict[str, Any]:
    """A result row with every name that one may have, so that whoever reads rows finds them in each."""
    return head(row) | {
        "status": None,
        "answer": None,
        "error": None,
        "thread_id": None,
        "run_id": None,
        "run_status": None,
        "assistant_id": None,
        "model": None,
        "rounds": None,
        "tool_calls": [],
        "usage": None,
        "warnings": [],
    }


def answered_row(row: Row, result: RunResult) -> dict[str, Any]:
    """A result row with an answer."""
    document = result.document()
    unknown = [call["name"] for call in document["tool_calls"] if is_unknown(call)]
    warnings = [f"{name}: the outcome of this call is unknown, its process was killed" for name in unknown]
    return _blank(row) | {
        "status": "ok",
        "answer": document["answer"],
        "thread_id": document["thread_id"],
        "run_id": document["run_id"],
        "run_status": document["status"],
        "assistant_id": document["assistant_id"],
        "model": document["model"],
        "rounds": document["rounds"],
        "tool_calls": document["tool_calls"],
        "usage": document["usage"],
        "warnings": [*document["warnings"], *warnings],
    }


def is_unknown(call: Mapping[str, Any]) -> bool:
    """Whether a killed process began this call, and it was not made again because it may have written."""
    output = call.get("output")
    return bool(call["is_error"]) and isinstance(output, Mapping) and output.get("error") == UNKNOWN_OUTCOME


def failed_row(
    row: Row, error: AssistantRunnerError, *, run_id: str | None, thread_id: str | None
) -> dict[str, Any]:
    """A result row without one; `paused` if a person can still bring it."""
    facts: dict[str, Any] = dict(error.document()["error"])  # type: ignore[call-overload]
    return _blank(row) | {
        "status": "paused" if isinstance(error, HumanNeeded) else "failed",
        "error": facts,
        "thread_id": facts.get("thread_id") or thread_id,
        "run_id": facts.get("run_id") or run_id,
        "model": facts.get("model"),
        "usage": facts.get("usage"),
    }


def invalid_row(row: Row) -> dict[str, Any]:
    """A result row for a record that cannot be asked: nothing was sent."""
    return _blank(row) | {
        "status": "invalid",
        "error": {
            "kind": "row",
            "message": f"line {row.line}: {row.problem}".replace(
                f"line {row.line}: line {row.line} ", f"line {row.line} "
            ),
            "remedy": "correct the row and run the same command again",
            "exit_status": 2,
        },
        "duration_s": 0.0,
        "started_at": None,
        "attempts": 0,
        "content_hash": row.content_hash,
    }


def is_refusal(error: AssistantRunnerError) -> bool:
    """429, or a run that failed because the model behind it was asked too often."""
    return isinstance(error, RateLimited) or _run_error_code(error) == "rate_limit_exceeded"


def is_quota_used_up(error: AssistantRunnerError) -> bool:
    return getattr(error, "code", None) == "insufficient_quota" or (
        isinstance(error, RunFailed) and _run_error_code(error) == "insufficient_quota"
    )


def _run_error_code(error: AssistantRunnerError) -> str | None:
    last = error.facts.get("last_error") if isinstance(error, RunFailed) else None
    code = last.get("code") if isinstance(last, Mapping) else getattr(last, "code", None)
    return str(code) if code else None


def is_out_of_reach(error: AssistantRunnerError) -> bool:
    """No way to the backend at all; an answer, or a way that broke in the middle, is this row's matter."""
    return (
        isinstance(error, BackendUnreachable)
        and not isinstance(error, OutcomeUnknown)
        and not error.facts.get("status_code")
        and not error.facts.get("stream_broke")
    )


def trouble_of(error: AssistantRunnerError) -> Literal["server", "unreachable", "timeout"] | None:
    """What trouble of the backend this error shows; None if it is the row's own."""
    if isinstance(error, RunTimedOut):
        return "timeout"
    if isinstance(error, ApiGone | AuthenticationFailed):
        return None
    if isinstance(error, BackendUnreachable):
        return "server" if error.facts.get("status_code") else "unreachable"
    if isinstance(error, RequestRejected):
        return "server" if error.status_code >= 500 else None
    if isinstance(error, BackendError) or _run_error_code(error) == "server_error":
        return "server"
    return None
