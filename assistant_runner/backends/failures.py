"""From what went wrong on the way, or was answered, to the error tree: once, here.

Error bodies: `{"error": {message, type, param, code}}`; Azure gateways leave fields out and write
numbers as text (reference, section 14). Anything else than that body is not the protocol: a proxy's
page, or a server that does not offer this API (case-014).
"""

import contextlib
import json
from collections.abc import Callable
from typing import Any

from assistant_runner.backends.transport import (
    ConnectError,
    ConnectTimeout,
    Field,
    PoolTimeout,
    ProxyError,
    Request,
    Response,
    TimedOut,
    TransportError,
    UnsupportedProtocol,
)
from assistant_runner.errors import (
    ApiGone,
    AuthenticationFailed,
    BackendError,
    BackendUnreachable,
    NotFound,
    OutcomeUnknown,
    ProtocolError,
    RateLimited,
    RequestRejected,
)
from assistant_runner.masking import SECRET_HEADERS, mask
from assistant_runner.retries import wait_hint
from assistant_runner.wire.failures import ErrorObject

GONE_REMEDY = (
    "use the built-in service (--backend embedded, the default), or serve the API yourself "
    "(assistant-runner serve) and give its address, or another base URL that offers Assistants v2"
)
SHOWN = 200
"""Characters of an answer that is not the protocol which an error shows."""

_NO_ROUTE_WORDS = ("invalid url", "unrecognized request url", "resource not found", "not found", "no route")
NEVER_ARRIVED = (ConnectError, ConnectTimeout, PoolTimeout, UnsupportedProtocol)
"""The request provably did not reach the server: repeating it cannot do anything twice."""


def read_error(response: Response) -> ErrorObject | None:
    """The protocol's error object of an answer; None if it carries something else."""
    try:
        document = response.json()
    except ValueError:
        return None
    return error_object(document)


def error_object(document: Any) -> ErrorObject | None:
    """The error of a JSON document, wrapped or bare; None if there is none."""
    if isinstance(document, list) and len(document) == 1:
        document = document[0]
    if not isinstance(document, dict):
        return None
    inner = document.get("error", document)
    if isinstance(inner, str):
        return ErrorObject(message=inner)
    if not isinstance(inner, dict) or not isinstance(inner.get("message"), str):
        return None
    return ErrorObject(
        message=inner["message"],
        type=_text(inner.get("type")),
        param=_text(inner.get("param")),
        code=inner["code"] if isinstance(inner.get("code"), str | int) else None,
    )


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def from_answer(response: Response, *, label: str, form: str, repeatable: bool) -> BackendError:
    """The error for an answer whose body has been read and whose status is not 2xx.

    `repeatable` False: a create or a submission, which a 5xx leaves in doubt.
    """
    request = response.request
    what = f"{request.method} {request.path}"
    error = read_error(response)
    status = response.status
    request_id = response.headers.get("x-request-id")
    if 300 <= status < 400 and "location" in response.headers:
        leads = _shown(response.headers["location"].partition("?")[0], request)
        return ProtocolError(
            f"{label} redirects {what} to {leads}; a key does not follow",
            remedy="correct the base URL",
            status_code=status,
        )
    if status == 407:
        return BackendUnreachable(
            f"the proxy before {label} wants a user and password",
            remedy="check the proxy (settings proxy, HTTPS_PROXY, NO_PROXY)",
            status_code=status,
        )
    if status in (404, 405, 410) and _is_no_route(request, error, status):
        return ApiGone(
            f"{label} does not offer the Assistants API: {status} for {what}"
            + ("" if status == 410 else "; OpenAI switched it off on 2026-08-26")
            + _azure_words(form, request),
            remedy=GONE_REMEDY,
            status_code=status,
            url=mask(request.url),
        )
    if status >= 500:
        words = _shown(error.message, request) if error else _excerpt(response)
        kind: Callable[..., BackendError] = BackendUnreachable if repeatable else OutcomeUnknown
        return kind(
            f"{label} answered {status} to {what}: {words}",
            remedy="try again later; if it goes on, ask whoever runs the backend",
            status_code=status,
            request_id=request_id,
        )
    if error is None and status in (401, 403, 429):  # a gateway's own words; the status says enough
        error = ErrorObject(message=_excerpt(response))
    if error is None:
        return not_the_protocol(response, label=label)
    message = f"{label} refused {what}: {_shown(error.message, request)}"
    code = None if error.code is None else str(error.code)
    facts: dict[str, Any] = {
        "status_code": status,
        "code": code,
        "param": error.param,
        "error_type": error.type,
        "request_id": request_id,
    }
    if status in (401, 403):
        return AuthenticationFailed(message, remedy=_key_remedy(form, status), **facts)
    if status == 404:
        if code == "DeploymentNotFound":
            return NotFound(message, remedy=_deployment_remedy(request), url=mask(request.url), **facts)
        return NotFound(message, remedy="check the id; it may belong to another backend or project", **facts)
    if status == 402:  # payment required: credits that are used up
        code = facts["code"] = "insufficient_quota"
    if status in (402, 429):
        hint = wait_hint(response.headers, error.message)
        return RateLimited(message, retry_after_s=hint, remedy=_limit_remedy(code, hint), **facts)
    return RequestRejected(message, **facts)


def not_the_protocol(response: Response, *, label: str, why: str = "") -> ProtocolError:
    """An answer that is no JSON object of the protocol: a proxy's page, a cut body, nonsense."""
    kind = response.headers.get("content-type", "no content type")
    detail = why or f"{kind}: {_excerpt(response)}"
    return ProtocolError(
        f"{label} answered {response.status} to {response.request.method} {response.request.path}"
        f" with something that is not Assistants v2 ({detail})",
        remedy="check the base URL, and that no proxy or login page stands in between",
        status_code=response.status,
    )


def from_transport(
    error: TransportError, request: Request, *, label: str, repeatable: bool
) -> BackendUnreachable:
    """The error for a way that broke; OutcomeUnknown if the request may have been carried out."""
    reason = mask(str(error)) or type(error).__name__
    what = f"{request.method} {request.path}"
    if isinstance(error, TimedOut):
        reason = f"timed out ({type(error).__name__}) {reason}".strip()
    if repeatable or isinstance(error, NEVER_ARRIVED):
        return BackendUnreachable(
            f"{label} cannot be reached: {reason} ({what})",
            remedy=_reach_remedy(error),
            url=mask(request.url),
        )
    return OutcomeUnknown(
        f"{label}: the connection was lost after {what} was sent: {reason}",
        remedy="the request may have been carried out: look at the thread before repeating it",
        url=mask(request.url),
    )


def _reach_remedy(error: TransportError) -> str:
    text = str(error).lower()
    if "wrong_version_number" in text or "record_layer_failure" in text:
        return "the server speaks no TLS there: write http:// instead of https://, or give its other port"
    if "certificate" in text or "ssl" in text:
        return "check the certificate; give a private authority with ca_file"
    if isinstance(error, ProxyError):
        return "check the proxy (settings proxy, HTTPS_PROXY, NO_PROXY)"
    return "check the base URL, that the server runs, and the network; assistant-runner doctor looks at each"


def _is_no_route(request: Request, error: ErrorObject | None, status: int) -> bool:
    """A 404 of the API itself, not of an object in it."""
    if error is None or status in (405, 410):
        return True
    words = error.message.lower().rstrip(".! ")
    if any(words.startswith(start) for start in _NO_ROUTE_WORDS):
        return (
            not request.path.rstrip("/")
            .rsplit("/", 1)[-1]
            .startswith(("asst_", "thread_", "run_", "msg_", "file", "vs_", "step_"))
        )
    return False


def _azure_words(form: str, request: Request) -> str:
    return f" (final URL {mask(request.url)})" if form != "openai" else ""


def _key_remedy(form: str, status: int) -> str:
    if status == 403:
        return "this key is known but may not do this: check its rights and the project"
    if form == "foundry":
        return "check the Entra token and its scope (az login; setting azure scope)"
    return "check the key: assistant-runner doctor shows where it comes from"


def _deployment_remedy(request: Request) -> str:
    model = ""
    with contextlib.suppress(ValueError, AttributeError):
        model = json.loads(request.body).get("model") or ""
    shown = f" (given: {model!r})" if model else ""
    return f"on this provider the model field is the name of your deployment{shown}: use that name"


def _limit_remedy(code: str | None, hint_s: float | None) -> str:
    if code == "insufficient_quota":
        return "the quota is used up: waiting does not help; check the plan and billing of the account"
    return f"try again in {hint_s:g} s" if hint_s else "try again later, or ask for fewer at a time"


def _excerpt(response: Response) -> str:
    text = " ".join(response.text.split())
    if not text:
        return "empty body"
    return _shown(text, response.request)[:SHOWN] + ("…" if len(text) > SHOWN else "")


def _shown(text: str, request: Request) -> str:
    """What a server says, without the key that it was sent: some repeat it in their answers."""
    sent = (value.decode().removeprefix("Bearer ") for _, value in _secret_fields(request))
    return mask(text, sent)


def _secret_fields(request: Request) -> list[Field]:
    return [field for name, field in request.headers.items() if name.decode() in SECRET_HEADERS]
