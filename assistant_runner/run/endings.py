"""Every ending is named: from a terminal run to nothing (completed) or to the error that says why."""

import re

from assistant_runner.errors import (
    AuthenticationFailed,
    BackendError,
    BackendUnreachable,
    RateLimited,
    RunCancelled,
    RunError,
    RunExpired,
    RunFailed,
    RunIncomplete,
)
from assistant_runner.masking import mask
from assistant_runner.wire.runs import Run

_INCOMPLETE_REMEDIES = {
    "max_completion_tokens": "raise --max-completion-tokens, or ask for less at a time",
    "max_prompt_tokens": "raise --max-prompt-tokens, or start a new thread",
    "content_filter": "the provider's content filter stopped the answer: rephrase the prompt",
}
_FAILED_REMEDIES = {
    "model_not_found": "name another model with --model; assistant-runner models lists what there is",
    "model_retired": "name another model with --model, or write an alias for it in the config",
    "no_route": "correct the engine's base URL: engine_base_url, OPENAI_BASE_URL or AZURE_OPENAI_ENDPOINT",
    "content_filter": "the provider's content filter refused the prompt: rephrase it",
    "context_length": "start a new thread, or limit what a run may read with --max-prompt-tokens",
    "unsupported": "choose a model that can, or ask without tools (--no-tools)",
}
_QUOTA = re.compile(r"insufficient_quota|(current|monthly) quota|quota is used up|billing", re.IGNORECASE)
"""Words of a quota, not of a rate: a refusal for rate may name a page such as `…/quotaincrease`."""


def quota_is_used_up(run: Run) -> bool:
    """Whether a run failed because nothing is left of the account's quota, so that waiting does not help."""
    error = run.last_error
    if run.status != "failed" or error is None or error.code != "rate_limit_exceeded":
        return False
    return (error.model_extra or {}).get("kind") == "quota" or _QUOTA.search(error.message) is not None


def ending_of(run: Run, *, partial: str = "", cut: str | None = None) -> RunError | BackendError | None:
    """The error of a terminal run, None if it completed. `partial` is the text it wrote so far, `cut` why
    its last message is not whole: a run has no word of its own for the content filter."""
    facts = {"run_id": run.id, "thread_id": run.thread_id}
    if run.status == "completed":
        return None
    if run.status == "failed":
        code = run.last_error.code if run.last_error else "unknown"
        words = mask(run.last_error.message) if run.last_error else "the backend gave no reason"
        kind = (run.last_error.model_extra or {}).get("kind") if run.last_error else None
        if kind == "authentication":
            return AuthenticationFailed(
                f"run {run.id} failed: {words}",
                status_code=401,
                remedy="check the engine's key and what it may do",
                status="failed",
                run_id=run.id,
                thread_id=run.thread_id,
            )
        if kind in ("unreachable", "tls", "timeout"):
            return BackendUnreachable(
                f"run {run.id} failed: {words}",
                remedy="check the engine's base URL, the server and the network",
                status="failed",
                last_error={"code": code, "message": words, "kind": kind},
                partial=partial,
                **facts,
            )
        if code == "rate_limit_exceeded":
            quota = quota_is_used_up(run)
            return RateLimited(
                f"run {run.id} failed: {code}: {words}",
                code="insufficient_quota" if quota else None,
                remedy="check plan and billing" if quota else "wait, then ask again",
                status="failed",
                run_id=run.id,
                thread_id=run.thread_id,
            )
        return RunFailed(
            f"run {run.id} failed: {code}: {words}",
            remedy=_FAILED_REMEDIES.get(str(kind), "see the engine's or backend's message"),
            status="failed",
            last_error={"code": code, "message": words},
            partial=partial,
            **facts,
        )
    if run.status == "incomplete":
        reason = (run.incomplete_details.reason if run.incomplete_details else None) or cut
        reason = reason or "no reason given"
        return RunIncomplete(
            f"run {run.id} is incomplete: {reason}",
            remedy=_INCOMPLETE_REMEDIES.get(reason, "the thread can be used again"),
            status="incomplete",
            reason=reason,
            partial=partial,
            **facts,
        )
    if run.status == "expired":
        return RunExpired(
            f"run {run.id} expired: it was not finished in the time the backend allows",
            remedy="ask again on the same thread; finished tool results are in the journal",
            status="expired",
            **facts,
        )
    if run.status == "cancelled":
        return RunCancelled(
            f"run {run.id} was cancelled",
            remedy="ask again; the thread is free",
            status="cancelled",
            **facts,
        )
    return RunError(
        f"run {run.id} ended in the status {run.status!r}, which this version does not know",
        status=run.status,
        **facts,
    )
