"""The official SDK, opened for a provider; its errors put into our words; our own retries.

The SDK's retries are off: ours stay inside the run's deadline, obey every form of `Retry-After`, and
tell the user what is waited for. Nothing is repeated once a piece of the answer went out. The SDK
rides on httpx2; a test may hand in its own transport.
"""

import asyncio
import contextlib
import json
import logging
import ssl
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import httpx2
import openai
from openai import AsyncAzureOpenAI, AsyncOpenAI, Omit

from assistant_runner.endpoints import Endpoint
from assistant_runner.errors import ConfigurationError
from assistant_runner.masking import mask
from assistant_runner.retries import RetryPolicy, hint_in_words, reset_hint, wait_hint
from assistant_runner.service.engines.base import EngineError, Notice, TurnEvent
from assistant_runner.service.engines.providers import Provider
from assistant_runner.wire.sse import Frame, SseParser

logger = logging.getLogger(__name__)

CONNECT_S = 10.0
LONGEST_S = 600.0
"""A turn without a deadline of its own gets this one, in seconds."""
POLICY = RetryPolicy(attempts=5, longest_s=120.0)
EXCERPT = 200
READ_OUT_S = 0.2
LONGEST_WORDS = 400
QUOTA_CODES = frozenset({"insufficient_quota", "billing_hard_limit_reached", "billing_not_active", "402"})
FILTER_CODES = frozenset({"content_filter", "content_policy_violation", "ResponsibleAIPolicyViolation"})
DROPPABLE = frozenset(
    {
        *("temperature", "top_p", "parallel_tool_calls", "reasoning_effort", "reasoning", "reasoning.effort"),
        *("stream_options", "include", "strict", "max_completion_tokens"),
    }
)
"""Parameters that an answer can do without; a model that refuses one is asked again without it."""

TokenSource = Callable[[], Awaitable[str]]


def open_client(
    provider: Provider,
    *,
    transport: httpx2.AsyncBaseTransport | None = None,
    token_source: TokenSource | None = None,
) -> AsyncOpenAI:
    """The SDK's client for a provider; ConfigurationError for a bad certificate file or proxy."""
    endpoint = provider.endpoint
    if provider.entra_scope and token_source is None:
        token_source = entra_tokens(provider.entra_scope)
    signs_itself = (
        token_source is None
        and not endpoint.api_version
        and (provider.key is None or endpoint.kind == "azure")
    )
    http_client = _http_client(provider, transport, KeyHeader(provider.key) if signs_itself else None)
    headers: dict[str, Any] = dict(provider.headers)
    if endpoint.kind != "openai":
        headers |= {"OpenAI-Organization": Omit(), "OpenAI-Project": Omit()}
    if endpoint.api_version:
        return AsyncAzureOpenAI(
            base_url=endpoint.base_url,
            api_version=endpoint.api_version,
            api_key=provider.key if token_source is None else None,
            azure_ad_token_provider=token_source,
            default_headers=headers,
            http_client=http_client,
            max_retries=0,
        )
    return AsyncOpenAI(
        base_url=endpoint.base_url,
        api_key=token_source or provider.key or "none",
        default_headers=headers,
        http_client=http_client,
        max_retries=0,
    )


class KeyHeader(httpx2.Auth):
    """Azure's keys go into `api-key`, on every path and through every gateway; no key, no header."""

    def __init__(self, key: str | None) -> None:
        self._key = key

    def auth_flow(self, request: httpx2.Request) -> Generator[httpx2.Request, httpx2.Response, None]:
        request.headers.pop("Authorization", None)
        if self._key is not None:
            request.headers["api-key"] = self._key
        yield request


def _http_client(
    provider: Provider, transport: httpx2.AsyncBaseTransport | None, auth: httpx2.Auth | None
) -> httpx2.AsyncClient:
    timeout = httpx2.Timeout(LONGEST_S, connect=CONNECT_S)
    if transport is not None:
        return httpx2.AsyncClient(transport=transport, timeout=timeout, auth=auth)
    context = None  # plain HTTP has nothing to verify, and loading certificates costs more than a local turn
    if provider.ca_file or provider.endpoint.base_url.startswith("https://"):
        context = httpx2.create_ssl_context()  # the usual authorities; SSL_CERT_FILE counts near by too
    if provider.ca_file and context is not None:
        try:
            context.load_verify_locations(cafile=provider.ca_file)
        except (OSError, ssl.SSLError) as error:
            raise ConfigurationError(
                f"ca_file {provider.ca_file}: {error}", remedy="give a PEM file with the certificate"
            ) from None
    try:
        return httpx2.AsyncClient(
            timeout=timeout,
            auth=auth,
            verify=context or False,
            proxy=provider.proxy,
            trust_env=not provider.endpoint.is_local,
            follow_redirects=False,  # a key must not follow to another host
            limits=httpx2.Limits(max_connections=200, max_keepalive_connections=50),
        )
    except (ValueError, ImportError) as error:
        raise ConfigurationError(f"proxy: {error}", remedy="correct the proxy's URL") from None
    except httpx2.InvalidURL:  # its words may hold a part of the proxy's password
        raise ConfigurationError(
            "the proxy's URL cannot be read", remedy="correct proxy, HTTPS_PROXY or HTTP_PROXY"
        ) from None


def entra_tokens(scope: str) -> TokenSource:
    """Tokens of Microsoft Entra for a scope; azure-identity keeps and renews them."""
    try:
        from azure.identity.aio import DefaultAzureCredential, get_bearer_token_provider

        source: TokenSource = get_bearer_token_provider(DefaultAzureCredential(), scope)
    except ImportError:
        raise ConfigurationError(
            "no key for Azure, and signing in with Entra needs the extra: azure",
            remedy="set AZURE_OPENAI_API_KEY, or pip install 'assistant-runner[azure]'",
        ) from None

    async def token() -> str:
        try:
            return await source()
        except Exception as error:  # azure-identity's tree is not ours to name without importing it
            raise EngineError(
                "server_error",
                f"no Entra token for {scope}: {type(error).__name__}; sign in (az login), set "
                "AZURE_CLIENT_ID and its fellows, or set AZURE_OPENAI_API_KEY",
                kind="authentication",
            ) from None

    return token


@dataclass(frozen=True, slots=True)
class Failure:
    """An error in our words; `repeat`: trying again can help; `hint_s`: the wait that was asked for.

    `drop`: a parameter that the model refuses and an answer can do without.
    """

    error: EngineError
    repeat: bool = False
    hint_s: float | None = None
    drop: str | None = None


class Refused(Exception):
    """Carries a Failure out of the reading of a stream."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.error.message)
        self.failure = failure


Once = Callable[[frozenset[str]], AsyncGenerator[TurnEvent, None]]
"""One try of a turn; is handed the parameters to leave out."""


async def with_retries(
    once: Once,
    *,
    endpoint: Endpoint,
    model: str,
    deadline_s: float | None,
    secrets: Sequence[str] = (),
    policy: RetryPolicy = POLICY,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> AsyncIterator[TurnEvent]:
    """The events of a turn that is tried again where that is safe; each wait is told by a Notice.

    `secrets` are cut out of what a failure says.
    """
    ends_at = clock() + (LONGEST_S if deadline_s is None else deadline_s)
    dropped: set[str] = set()
    attempt = 1
    while True:
        told = False
        tries = once(frozenset(dropped))
        try:
            async for event in tries:
                told = told or not isinstance(event, Notice)
                yield event
            return
        except Refused as refused:
            failure = refused.failure
        except (openai.OpenAIError, httpx2.HTTPError, json.JSONDecodeError, UnicodeDecodeError) as error:
            failure = translate(error, endpoint=endpoint, model=model)
        except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
            logger.debug("an answer that could not be read", exc_info=error)
            words = f"{endpoint.site} sent an answer that is not in this API's shape ({type(error).__name__})"
            failure = Failure(EngineError("server_error", words, kind="bad_answer"), repeat=True)
        finally:
            await tries.aclose()
        failure.error.message = mask(failure.error.message, secrets)
        if told:
            raise failure.error
        if failure.drop and failure.drop not in dropped:
            dropped.add(failure.drop)
            yield Notice(
                "the provider no longer has what this run kept there: sending the whole history"
                if failure.drop == "carry"
                else f"{model} does not take {failure.drop}: asking again without it"
            )
            continue
        wait = policy.wait_s(attempt, failure.hint_s) if failure.repeat else None
        if wait is None:
            raise _with_hint(failure, policy)
        if wait > ends_at - clock():
            raise EngineError(
                failure.error.code,
                f"{failure.error.message} (the next try would be in {failure.hint_s or wait:.1f} s, "
                "after the run's deadline)",
                kind=failure.error.kind,
                retry_after_s=failure.hint_s,
            )
        yield Notice(f"waiting {wait:.{1 if wait >= 1 else 2}f} s: {failure.error.message}")
        await sleep(wait)
        attempt += 1


def _with_hint(failure: Failure, policy: RetryPolicy) -> EngineError:
    if failure.hint_s is not None and failure.hint_s > policy.longest_s:
        error = failure.error
        return EngineError(
            error.code,
            f"{error.message} (try again in {failure.hint_s:.0f} s)",
            kind=error.kind,
            retry_after_s=failure.hint_s,
        )
    return failure.error


def translate(error: Exception, *, endpoint: Endpoint, model: str) -> Failure:
    """An SDK's or transport's error as a Failure; no key and no body of a request is in its words."""
    if isinstance(error, openai.APIStatusError):
        return _from_status(error, endpoint, model)
    if isinstance(error, openai.APITimeoutError | httpx2.TimeoutException):
        return Failure(
            EngineError("server_error", f"{endpoint.site} did not answer in time", kind="timeout"),
            repeat=True,
        )
    if isinstance(error, openai.APIConnectionError | httpx2.TransportError):
        return _from_transport(error, endpoint)
    if isinstance(error, json.JSONDecodeError | UnicodeDecodeError | openai.APIResponseValidationError):
        return Failure(
            EngineError(
                "server_error",
                f"{endpoint.site} sent something in its stream that is no JSON",
                kind="bad_answer",
            ),
            repeat=True,
        )
    if isinstance(error, openai.APIError):  # an error inside a stream
        return from_error_object(error.body or error.message, endpoint=endpoint, model=model)
    return Failure(EngineError("server_error", f"{endpoint.site}: {type(error).__name__}: {error}"))


def from_error_object(error: Any, *, endpoint: Endpoint, model: str) -> Failure:
    """The Failure of an error inside a stream or a response: an object, or words alone.

    Gateways give the status that they would have answered with as its code.
    """
    body: Mapping[str, Any] = error if isinstance(error, Mapping) else {"message": str(error)}
    code = str(body.get("code") or body.get("type") or "server_error")
    words = str(body.get("message") or code)
    said = f"{endpoint.site}: {words}"
    if code in QUOTA_CODES:
        return Failure(EngineError("rate_limit_exceeded", _quota_words(endpoint, words), kind="quota"))
    if code in {"rate_limit_exceeded", "429", "too_many_requests"}:
        return Failure(
            EngineError("rate_limit_exceeded", said, kind="rate_limit", retry_after_s=hint_in_words(words)),
            repeat=True,
            hint_s=hint_in_words(words),
        )
    if code in FILTER_CODES:
        return Failure(EngineError("invalid_prompt", _filter_words(body, words), kind="content_filter"))
    if code in {"401", "403", "authentication_error", "invalid_api_key", "permission_error"}:
        return Failure(EngineError("server_error", said, kind="authentication"))
    if _is_too_long(code, body):
        return Failure(EngineError("invalid_prompt", said, kind="context_length"))
    refused = code.isdigit() and 400 <= int(code) < 500 and code not in {"408", "409"}
    if refused or code in {
        *("invalid_prompt", "invalid_request_error", "bio_policy"),
    }:
        return Failure(EngineError("invalid_prompt", said, kind="invalid_request"))
    return Failure(
        EngineError("server_error", said, kind="provider"), repeat=True, hint_s=hint_in_words(words)
    )


def _from_transport(error: Exception, endpoint: Endpoint) -> Failure:
    cause = error if isinstance(error, httpx2.TransportError) else error.__cause__ or error
    reason = str(cause) or type(cause).__name__
    text = reason.lower()
    if "certificate" in text or "ssl" in text or "tls" in text:
        words = f"{endpoint.site}: no secure connection: {reason}; give a private authority with ca_file"
        return Failure(EngineError("server_error", words, kind="tls"))
    if isinstance(cause, httpx2.ProxyError):
        return Failure(EngineError("server_error", f"the proxy refused: {reason}", kind="unreachable"))
    if isinstance(cause, httpx2.RemoteProtocolError | httpx2.ReadError):
        words = f"{endpoint.site} broke the connection in the middle of its answer: {reason}"
        return Failure(EngineError("server_error", words, kind="unreachable"), repeat=True)
    words = f"{endpoint.base_url} cannot be reached: {reason}"
    return Failure(EngineError("server_error", words, kind="unreachable"), repeat=True)


def _from_status(error: openai.APIStatusError, endpoint: Endpoint, model: str) -> Failure:
    response, status = error.response, error.status_code
    body: Mapping[str, Any] = error.body if isinstance(error.body, Mapping) else {}
    inner = body.get("error")
    if isinstance(inner, Mapping):
        body = inner
    words = str(body.get("message") or body.get("detail") or (inner if isinstance(inner, str) else ""))
    code = str(body.get("code") or "")
    hint = wait_hint(response.headers, words)
    words = _one_line(words)
    may_repeat = response.headers.get("x-should-retry") != "false"
    if 300 <= status < 400:
        location = response.headers.get("location", "nowhere").partition("?")[0]
        note = f"{endpoint.base_url} redirects to {location}: correct the base URL"
        return Failure(EngineError("server_error", note, kind="bad_answer"))
    if status == 407:
        return Failure(
            EngineError("server_error", "the proxy refused: it wants a user and password", kind="unreachable")
        )
    if not words:
        words = _excerpt(response)
        if "json" not in response.headers.get("content-type", "") and status not in {401, 403, 404, 429}:
            note = f"{endpoint.site} answered {status} with something that is not this API: {words}"
            kind = "unreachable" if status in {502, 503, 504} else "bad_answer"
            return Failure(EngineError("server_error", note, kind=kind), repeat=may_repeat and status >= 500)
    said = f"{endpoint.site} answered {status}: {words}"
    if status == 401 or status == 403:
        why = "the key is missing or wrong" if status == 401 else "the key may not do this"
        return Failure(EngineError("server_error", f"{said} ({why})", kind="authentication"))
    if status == 404:
        url = str(error.request.url.copy_with(query=None))
        return Failure(_not_found(url, endpoint, model, code, words))
    if status == 429 or status == 402:
        if (
            (status == 402 and hint is None)  # payment required: credits that are used up
            or code in QUOTA_CODES - {"402"}
            or str(body.get("type")) in QUOTA_CODES
            or "exceeded your current quota" in words
        ):
            return Failure(EngineError("rate_limit_exceeded", _quota_words(endpoint, words), kind="quota"))
        hint = hint if hint is not None else reset_hint(response.headers)
        limited = EngineError("rate_limit_exceeded", said, kind="rate_limit", retry_after_s=hint)
        return Failure(limited, repeat=may_repeat, hint_s=hint)
    if status in {408, 409} or status >= 500:
        return Failure(EngineError("server_error", said, kind="provider"), repeat=may_repeat, hint_s=hint)
    if code in FILTER_CODES or "content management policy" in words:
        return Failure(EngineError("invalid_prompt", _filter_words(body, words), kind="content_filter"))
    if _is_too_long(code, body):
        return Failure(EngineError("invalid_prompt", said, kind="context_length"))
    if "does not support tools" in words or "does not support function" in words:
        note = f"{said} (the model {model!r} cannot call tools: choose another, or ask without tools)"
        return Failure(EngineError("invalid_prompt", note, kind="unsupported"))
    drop = _refused_parameter(str(body.get("param") or ""), code, words)
    return Failure(EngineError("invalid_prompt", said, kind="invalid_request"), drop=drop)


def _is_too_long(code: str, body: Mapping[str, Any]) -> bool:
    """Whether the prompt is longer than the model reads: OpenAI's code, llama.cpp's type, vLLM's words."""
    named = "context_length_exceeded" in code or body.get("type") == "exceed_context_size_error"
    return named or "maximum context length" in str(body.get("message") or "")


def _refused_parameter(param: str, code: str, words: str) -> str | None:
    unpaired = words.startswith(("No tool output found", "No tool call found"))
    if unpaired or code in {"invalid_encrypted_content", "previous_response_not_found"}:
        return "carry"
    if param in DROPPABLE and code in {"unsupported_parameter", "unsupported_value", "unknown_parameter", ""}:
        return param
    text = words.lower()
    if any(
        word in text for word in ("unsupported", "unrecognized", "not supported", "unknown", "extra inputs")
    ):
        return next((name for name in sorted(DROPPABLE, key=len, reverse=True) if name in text), None)
    return None


def _not_found(url: str, endpoint: Endpoint, model: str, code: str, words: str) -> EngineError:
    said, kind = f"{endpoint.site} answered 404: {words}", "model_not_found"
    if endpoint.kind == "azure" and (
        code in {"DeploymentNotFound", "deployment_not_found"} or "eployment" in words
    ):
        why = "on Azure `model` is the name of your deployment, not of a model; "
        why += f"{model!r} was asked for at {url}"
    elif code == "model_not_found" or "model" in words.lower():
        why = f"the model {model!r} was asked for; assistant-runner models lists what there is"
    else:
        why, kind = f"nothing answers at {url}: check the base URL", "no_route"
        if url.endswith("/responses"):
            why += "; a server without the Responses API is asked by --engine chat"
    return EngineError("invalid_prompt", f"{said} ({why})", kind=kind)


def _quota_words(endpoint: Endpoint, words: str) -> str:
    return f"{endpoint.site}: the quota is used up: {words} (waiting does not help: check plan and billing)"


def _filter_words(body: Mapping[str, Any], words: str) -> str:
    details = filter_details(body)
    return f"the provider's content filter refused the prompt{f' ({details})' if details else ''}: {words}"


def filter_details(body: Any) -> str:
    """Categories that a content filter objected to, with their severity: `hate (high), violence (medium)`."""
    found: dict[str, str] = {}

    def walk(value: Any) -> None:
        if isinstance(value, Mapping):
            for key, item in value.items():
                if isinstance(item, Mapping) and (
                    item.get("filtered") is True or item.get("detected") is True
                ):
                    found[str(key)] = str(item.get("severity") or "detected")
                walk(item)
        elif isinstance(value, list):
            for item in value:
                walk(item)

    walk(body)
    return ", ".join(f"{category} ({severity})" for category, severity in found.items())


def _one_line(words: str) -> str:
    """A server's words on one line, cut: some send a page of their own validation."""
    line = " ".join(words.split())
    return f"{line[:LONGEST_WORDS]}…" if len(line) > LONGEST_WORDS else line


def _excerpt(response: httpx2.Response) -> str:
    try:
        text = " ".join(response.text.split())
    except (httpx2.ResponseNotRead, UnicodeDecodeError):
        return "(no text)"
    return (text[:EXCERPT] + "…" if len(text) > EXCERPT else text) or "(an empty body)"


async def documents_of(
    response: httpx2.Response, endpoint: Endpoint
) -> AsyncGenerator[dict[str, Any] | None, None]:
    """The documents of a stream as they come; None where the server says that this was all.

    A server that did not stream gives one document. An event named `error` is `{"error": ...}` whatever its
    form. Refused for anything else, such as a proxy's page; ValueError for an event that is no JSON.
    """
    whole = await check_stream(response, endpoint)
    if whole is not None:
        yield dict(whole)
        yield None
        return
    parser = SseParser()
    pieces = response.aiter_bytes()
    async for piece in pieces:
        for frame in parser.feed(piece):
            if frame.data.startswith("[DONE]"):
                await _read_out(pieces)
                yield None
                return
            document = _document(frame)
            if document is not None:
                yield document
    last = parser.finish()
    if last is not None and last.data.startswith("[DONE]"):
        yield None
    elif last is not None and (document := _document(last)) is not None:
        yield document


def _document(frame: Frame) -> dict[str, Any] | None:
    """What an event says; None for one that says nothing."""
    document = json.loads(frame.data) if frame.data.strip() else None
    if frame.name == "error" and not (isinstance(document, dict) and document.get("error")):
        return {"error": document or "an error without words"}
    return document if isinstance(document, dict) else None


async def _read_out(pieces: AsyncIterator[bytes]) -> None:
    """Read to the end of a body that should be over: only then its connection serves again."""
    with contextlib.suppress(TimeoutError, httpx2.HTTPError):
        async with asyncio.timeout(READ_OUT_S):
            async for _ in pieces:
                pass


async def check_stream(response: httpx2.Response, endpoint: Endpoint) -> Mapping[str, Any] | None:
    """None if the answer is a stream of events; the whole object if the server did not stream.

    Some gateways stream under another type. Refused for anything else, such as a proxy's page.
    """
    kind = response.headers.get("content-type", "")
    if "text/event-stream" in kind or not kind:
        return None
    await response.aread()
    try:
        document = response.json()
    except ValueError:
        document = None
    if isinstance(document, dict):
        return document
    if response.text.lstrip().startswith(("data:", "event:", ":")):
        return None
    words = (
        f"{endpoint.site} answered with {kind or 'no content type'}, not with this API: {_excerpt(response)}"
    )
    raise Refused(Failure(EngineError("server_error", words, kind="bad_answer")))
