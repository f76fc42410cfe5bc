"""Error answers of the service: status, type, code, param, message (reference, section 14)."""

from typing import Any

from assistant_runner.wire.checks import Flaw, listing

NOUNS = {
    "assistant": "assistant",
    "thread": "thread",
    "thread.message": "message",
    "thread.run": "run",
    "thread.run.step": "run step",
    "vector_store": "vector store",
    "vector_store.file": "vector store file",
    "vector_store.files_batch": "file batch",
}


class ApiError(Exception):
    """Ends a request with an error body."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        type: str = "invalid_request_error",
        code: str | None = None,
        param: str | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.type = type
        self.code = code
        self.param = param
        self.headers = headers or {}

    def document(self) -> dict[str, Any]:
        return {"error": {"message": self.message, "type": self.type, "param": self.param, "code": self.code}}


def bad_request(message: str, *, code: str | None = None, param: str | None = None) -> ApiError:
    return ApiError(400, message, code=code, param=param)


def of_flaw(flaw: Flaw) -> ApiError:
    return ApiError(400, flaw.message, code=flaw.code, param=flaw.param)


def not_found(kind: str, identifier: str) -> ApiError:
    """404 in the words that clients know: `No thread found with id 'thread_x'.`"""
    if kind == "file":
        return ApiError(404, f"No such File object: {identifier}", param="id")
    return ApiError(404, f"No {NOUNS[kind]} found with id '{identifier}'.")


def wrong_prefix(param: str, value: str, prefix: str) -> ApiError:
    word = prefix.rstrip("_-")
    return bad_request(
        f"Invalid '{param}': '{value}'. Expected an ID that begins with '{word}'.",
        code="invalid_value",
        param=param,
    )


def unknown_word(param: str, value: str, words: tuple[str, ...]) -> ApiError:
    return bad_request(
        f"Invalid '{param}': '{value}'. Supported values are: {listing(words)}.",
        code="invalid_value",
        param=param,
    )


def messages_locked(thread_id: str, run_id: str) -> ApiError:
    return bad_request(f"Can't add messages to {thread_id} while a run {run_id} is active.")


def deletion_locked(thread_id: str, run_id: str) -> ApiError:
    return bad_request(f"Can't delete messages from {thread_id} while a run {run_id} is active.")


def runs_locked(thread_id: str, run_id: str) -> ApiError:
    return bad_request(f"Thread {thread_id} already has an active run {run_id}.")


def outputs_refused(status: str) -> ApiError:
    return bad_request(f'Runs in status "{status}" do not accept tool outputs.')


def outputs_mismatch(expected: list[str], got: list[str]) -> ApiError:
    return bad_request(f"Expected tool outputs for call_ids {expected!r}, got {got!r}")


def wrong_submission(action: str) -> ApiError:
    """Outputs where approvals are asked for, or approvals where outputs are."""
    wanted = "tool_approvals" if action == "submit_tool_approval" else "tool_outputs"
    return bad_request(
        f"The run waits for {action!r}: submit '{wanted}'.", code="invalid_value", param=wanted
    )


def cancel_refused(status: str) -> ApiError:
    return bad_request(f"Cannot cancel run with status '{status}'.")
