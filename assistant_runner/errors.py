"""What can go wrong, sorted by who has to act.

A message says what we saw, with the value; `remedy` says what to do; facts such as `run_id` are
attributes, never parsed out of text. A failing tool is not here: its error is its tool output.
Each class names the exit status that a command line gives it (the table of the design).
"""

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar


class AssistantRunnerError(Exception):
    """The root: everything we raise on purpose. `facts` are ids and values for JSON documents."""

    exit_status: ClassVar[int] = 1
    kind: ClassVar[str] = "internal_error"

    def __init__(self, message: str, *, remedy: str | None = None, **facts: object) -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy
        self.facts = facts

    def document(self) -> dict[str, object]:
        """The JSON error document: `{"error": {kind, message, remedy, exit_status, ...facts}}`."""
        return {
            "error": {
                "kind": self.kind,
                "message": self.message,
                "remedy": self.remedy,
                "exit_status": self.exit_status,
                **self.facts,
            }
        }


def printable(text: str) -> str:
    """The text as a terminal may show it: control characters but tabs and line ends are spelled out.

    Models, pages and backends write texts that people see: none of them may move the cursor, clear the
    screen or rename the window.
    """
    return text.replace("\r\n", "\n").translate(_CONTROLS)


_CONTROLS = {
    code: repr(chr(code))[1:-1] for code in (*range(0x20), *range(0x7F, 0xA0)) if chr(code) not in "\t\n"
}


def near_words(word: str, known: Iterable[str], *, count: int = 1, cutoff: float = 0.6) -> list[str]:
    """The known words that are most like this one, for `did you mean`; empty if none is."""
    from difflib import get_close_matches  # takes longer to import than this module

    return get_close_matches(word, list(known), n=count, cutoff=cutoff)


def error_of(document: Mapping[str, Any]) -> AssistantRunnerError:
    """The error of the inner part of an error document, with its kind and exit status."""
    facts = {key: value for key, value in document.items() if key not in _NO_FACTS}
    kind = type(
        "RecordedError",
        (AssistantRunnerError,),
        {"exit_status": int(document.get("exit_status", 1)), "kind": str(document.get("kind"))},
    )
    error: AssistantRunnerError = kind(str(document.get("message")), remedy=document.get("remedy"), **facts)
    return error


_NO_FACTS = ("kind", "message", "remedy", "exit_status")


class ConfigurationError(AssistantRunnerError):
    """The person running us: a config file, a key, a tool module."""

    exit_status = 3
    kind = "configuration"


class UsageError(ConfigurationError):
    """The command line or the call itself: an option, a missing or empty prompt."""

    exit_status = 2
    kind = "usage"


class BackendError(AssistantRunnerError):
    """The service or the way to it."""

    exit_status = 15
    kind = "backend"


class BackendUnreachable(BackendError):
    """No answer: refused, reset, name not found, TLS failure, timed out, or not this API at all."""

    kind = "backend_unreachable"


class ApiGone(BackendUnreachable):
    """The target does not offer the Assistants API (OpenAI switched it off on 2026-08-26; case-014)."""

    kind = "api_gone"


class OutcomeUnknown(BackendUnreachable):
    """The way broke after the request left: it may have been done. Look before repeating (case-016)."""


class ProtocolError(BackendError):
    """The backend answered something that is not the protocol."""

    kind = "protocol"


class RequestRejected(BackendError):
    """A 4xx answer; `status_code`, `code`, `param`, `error_type` come from the error body."""

    exit_status = 11
    kind = "request_rejected"

    def __init__(
        self,
        message: str,
        *,
        status_code: int,
        code: str | None = None,
        param: str | None = None,
        error_type: str | None = None,
        remedy: str | None = None,
        **facts: object,
    ) -> None:
        super().__init__(message, remedy=remedy, status_code=status_code, code=code, param=param, **facts)
        self.status_code = status_code
        self.code = code
        self.param = param
        self.error_type = error_type


class AuthenticationFailed(RequestRejected):
    """401 or 403: the key is missing, wrong, or may not do this."""

    exit_status = 4
    kind = "authentication"


class NotFound(RequestRejected):
    """404: no object with this id."""

    exit_status = 5
    kind = "not_found"


class RateLimited(RequestRejected):
    """429 after our retries, or the quota is used up; `retry_after_s` if the backend said."""

    exit_status = 9
    kind = "rate_limited"

    def __init__(
        self,
        message: str,
        *,
        status_code: int = 429,
        retry_after_s: float | None = None,
        code: str | None = None,
        param: str | None = None,
        error_type: str | None = None,
        remedy: str | None = None,
        **facts: object,
    ) -> None:
        super().__init__(
            message,
            status_code=status_code,
            code=code,
            param=param,
            error_type=error_type,
            remedy=remedy,
            **facts,
        )
        self.retry_after_s = retry_after_s


class RunError(AssistantRunnerError):
    """A run that ended without a result. `run_id` and `thread_id` are None if it never began."""

    exit_status = 11
    kind = "run"

    def __init__(
        self,
        message: str,
        *,
        run_id: str | None = None,
        thread_id: str | None = None,
        remedy: str | None = None,
        **facts: object,
    ) -> None:
        super().__init__(message, remedy=remedy, run_id=run_id, thread_id=thread_id, **facts)
        self.run_id = run_id
        self.thread_id = thread_id


class RunFailed(RunError):
    """Terminal status `failed`; `last_error` is among the facts."""

    kind = "run_failed"


class RunExpired(RunError):
    exit_status = 12
    kind = "run_expired"


class RunIncomplete(RunError):
    exit_status = 13
    kind = "run_incomplete"


class RunCancelled(RunError):
    exit_status = 14
    kind = "run_cancelled"


class RunGone(RunError):
    """The backend does not know a run any more that the journal remembers."""


class RunTimedOut(RunError):
    """Our own deadline, not the backend's."""

    exit_status = 10
    kind = "deadline"


class LimitReached(RunError):
    """Rounds, repeats, tokens or cost."""

    exit_status = 8
    kind = "limit_reached"


class ToolStopped(RunError):
    """A tool was refused or failed and the policy says stop."""

    exit_status = 7
    kind = "tool_stopped"


class HumanNeeded(RunError):
    """The run is paused: a question or an approval waits for a person."""

    exit_status = 6
    kind = "human_needed"


class UnsupportedActionError(RunError):
    """Us: this version does not know what the run asks for."""

    kind = "unsupported_action"
