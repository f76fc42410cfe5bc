"""The way in: address families, keys, beta header, limits, request ids, errors, the access log.

Three forms of address lead to the same routes (reference, section 1; real clients): `/v1/...`,
Azure's `/openai/...?api-version=` (also `/openai/v1/...`) and Foundry's `/api/projects/NAME/...`.
Only the first asks for the beta header, and only below /assistants and /threads.
"""

import asyncio
import hashlib
import logging
import re
import secrets
import sqlite3
import time

from starlette.exceptions import HTTPException
from starlette.routing import Match, Router
from starlette.types import Message, Receive, Scope, Send

from assistant_runner.service.core import Core
from assistant_runner.service.failures import ApiError
from assistant_runner.service.store.base import Conflict
from assistant_runner.service.web import (
    Call,
    CutShort,
    Handler,
    Result,
    TooLarge,
    TooSlow,
    read_body,
    send_body,
)
from assistant_runner.wire.jsons import answer_bytes

access_log = logging.getLogger("assistant_runner.access")
logger = logging.getLogger("assistant_runner.service")
OUT_OF_ORDER = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_READONLY)
"""What a full or broken disk makes of a write: no bug of ours."""

BETA = "assistants=v2"
REPEATABLE = (b"x-idempotency-key", b"supported")
"""Tells clients that a create with an Idempotency-Key may be sent again."""
_SLASHES = re.compile("//+")
_HUB = re.compile(
    "/agents/v1.0/subscriptions/[^/]+/resourceGroups/[^/]+/providers/[^/]+/workspaces/[^/]+(?=/)",
    re.IGNORECASE,
)
"""How the first previews of Azure's agents packages named a project."""


class Endpoint:
    """One route: reads the body, runs the handler, sends its answer. `streamed`: the handler reads."""

    def __init__(
        self, core: Core, handler: Handler, *, streamed: bool = False, creates: bool = False
    ) -> None:
        self._core = core
        self._handler = handler
        self._streamed = streamed
        self._creates = creates

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = b"" if self._streamed else await read_body(receive, self._core.settings.body_limit)
        if not self._core.ready:
            raise _stopping()
        key = _header(scope, b"idempotency-key") if self._creates else None
        call = Call(self._core, scope, receive, body, key=key)
        if key is None or self._streamed:  # who reads the body itself looks at the key after it
            result = await self._handler(call)
        else:
            result = await self._once(call)
        await result.send(call, send)

    async def _once(self, call: Call) -> Result:
        """The answer that the call's Idempotency-Key stands for; it is served only the first time.

        Handlers do not wait between their checks and their writes, so two requests with one key
        cannot both be served.
        """
        digest = hashlib.sha256(call.body).hexdigest()
        earlier = call.recall(digest)
        if earlier is not None:
            return earlier
        result = await self._handler(call)
        call.remember(digest, result)
        return result


class Gateway:
    """The ASGI application of a service."""

    def __init__(self, core: Core, router: Router) -> None:
        self._core = core
        self._router = router
        self._worlds = {_digest(key): f"w:{_digest(key)[:16]}" for key in core.settings.api_keys}
        self._origins = frozenset(core.settings.cors_origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            return await _no_lifespan(receive, send)
        if scope["type"] != "http":
            return None
        started = time.perf_counter()
        request_id = f"req_{secrets.token_hex(16)}"
        status = 0

        async def send_with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] += [(b"x-request-id", request_id.encode()), REPEATABLE]
                if self._origins:
                    message["headers"] += self._cors_headers(scope)
            await send(message)

        try:
            await self._serve_while_open(scope, receive, send_with_id)
        except CutShort:
            status = status or 499
        except Exception as error:
            failure = _failure_of(error)
            if failure is None:
                logger.exception("%s: %s %s failed", request_id, scope["method"], scope["path"])
                failure = ApiError(
                    500,
                    "The server had an error while processing your request. "
                    f"(request id {request_id}; the server's log says more)",
                    type="server_error",
                )
            if status == 0:
                body = answer_bytes(failure.document())
                await send_body(send_with_id, failure.status, body, b"application/json", failure.headers)
        finally:
            if access_log.isEnabledFor(logging.INFO):
                took_ms = (time.perf_counter() - started) * 1000
                access_log.info(
                    "%s %s %s %.1f ms %s",
                    scope["method"],
                    _loggable(scope["path"]),
                    status,
                    took_ms,
                    request_id,
                )
        return None

    async def _serve_while_open(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves a request; ApiError 503 for one that the end of the service cuts short."""
        try:
            await self._serve(scope, receive, send)
        except asyncio.CancelledError:
            if self._core.ready:
                raise
            raise _stopping() from None

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        path: str = scope["path"]
        if path in ("/health", "/ready", "/healthz", "/readyz"):
            ready = not path.startswith("/ready") or self._core.ready
            document = {"status": "ok" if ready else "starting", "engine": self._core.engine.name}
            body = answer_bytes(document)
            return await send_body(send, 200 if ready else 503, body, b"application/json")
        if scope["method"] == "OPTIONS" and self._origins:
            return await send_body(send, 204, b"", b"text/plain")
        self._refuse_strangers(scope)
        inner, family = split_family(path)
        if inner is None:
            raise _unknown_route(scope)
        world = self._world_of(scope)
        if family == "v1" and inner.startswith(("/assistants", "/threads")):
            check_beta(_header(scope, b"openai-beta"))
        scope = {
            **scope,
            "path": inner,
            "raw_path": inner.encode("utf-8", "replace"),
            "root_path": "",
            "app": self,
        }
        scope["state"] = {"world": world, "family": family, "path": path}
        coding = _header(scope, b"content-encoding")
        if coding and coding.lower() != "identity":
            raise ApiError(
                415,
                f"Content-Encoding '{coding[:40]}' is not taken here; please send the body as it is.",
                code="unsupported_content_encoding",
            )
        try:
            return await self._router(scope, receive, send)
        except HTTPException as error:
            raise (_wrong_method(self._router, scope) if error.status_code == 405 else error) from None

    def _refuse_strangers(self, scope: Scope) -> None:
        """ApiError 403 for a web page that was not allowed, and for a name that is not this server's.

        Without keys the only wall is that others cannot reach the port; a page in a browser of this
        machine can, by a plain form post or by a name of its own that it lets point here.
        """
        settings = self._core.settings
        name = (_header(scope, b"host") or "").lower()
        bare = name.rpartition(":")[0] if name.rpartition(":")[2].isdigit() else name
        if settings.hosts and bare not in settings.hosts and could_be_public(bare):
            raise ApiError(
                403,
                f"This server is not called '{bare[:80]}'; with a key set, any name is taken.",
                param="Host",
            )
        origin = _header(scope, b"origin")
        if origin is None or settings.api_keys or origin in self._origins or "*" in self._origins:
            return
        raise ApiError(
            403,
            f"Pages of {origin[:80]} may not call this server; start it with --cors-origin {origin[:80]}.",
            param="Origin",
        )

    def _world_of(self, scope: Scope) -> str:
        """What the caller's key can see; ApiError 401 for a key that is none of ours."""
        if not self._worlds:
            return "w:"
        bearer = _header(scope, b"authorization") or ""
        word, _, token = bearer.partition(" ")
        given = [token.strip() if word.lower() == "bearer" else "", _header(scope, b"api-key") or ""]
        keys = [key for key in given if key]
        if not keys:
            raise ApiError(
                401,
                "You didn't provide an API key. You need to provide your API key in an Authorization header "
                "using Bearer auth (i.e. Authorization: Bearer YOUR_KEY), or in an api-key header.",
                code="invalid_api_key",
                headers={"www-authenticate": "Bearer"},
            )
        for key in keys:
            world = self._worlds.get(_digest(key))
            if world is not None:
                return world
        shown = f"{keys[0][:3]}***{keys[0][-2:]}" if len(keys[0]) > 8 else "***"
        raise ApiError(
            401,
            f"Incorrect API key provided: {shown}.",
            code="invalid_api_key",
            headers={"www-authenticate": "Bearer"},
        )

    def _cors_headers(self, scope: Scope) -> list[tuple[bytes, bytes]]:
        origin = _header(scope, b"origin")
        if origin is None or (origin not in self._origins and "*" not in self._origins):
            return []
        headers = [
            (b"access-control-allow-origin", origin.encode("latin-1")),
            (b"vary", b"Origin"),
            (b"access-control-expose-headers", b"x-request-id, openai-poll-after-ms"),
        ]
        if scope["method"] == "OPTIONS":
            asked = _header(scope, b"access-control-request-headers") or "*"
            headers += [
                (b"access-control-allow-methods", b"GET, POST, DELETE"),
                (b"access-control-allow-headers", asked.encode("latin-1")),
                (b"access-control-max-age", b"600"),
            ]
        return headers


def could_be_public(name: str) -> bool:
    """Whether somebody on the internet could own this name and let it point here: a name with a dot,
    no address, and not below a domain that is kept for private use."""
    if "." not in name or name.endswith((".localhost", ".internal", ".test")):
        return False
    return not name.replace(".", "").isdigit()


def split_family(path: str) -> tuple[str | None, str]:
    """The path below an address family and the family; None for a path of none.

    A doubled slash (a base URL that ends in one) counts as one. Below /openai, alone or in a Foundry
    project, may stand what SDKs put there: `v1`, or `deployments/NAME` by those given a deployment.
    """
    if "//" in path:
        path = _SLASHES.sub("/", path)
    inner: str | None = None
    family = ""
    if path.startswith("/v1/"):
        inner, family = path[3:], "v1"
    elif path.startswith("/openai/"):
        inner, family = _below_openai(path[7:]), "azure"
    elif path.startswith("/api/projects/"):
        name, slash, rest = path[14:].partition("/")
        if name and slash:
            inner = _below_openai(rest[6:]) if rest.startswith("openai/") else f"/{rest}"
            family = "foundry"
    elif hub := _HUB.match(path):
        inner, family = path[hub.end() :], "foundry"
    if inner is not None and len(inner) > 1 and inner.endswith("/"):
        inner = inner[:-1]
    return inner, family


def _below_openai(path: str) -> str:
    if path.startswith("/v1/"):
        return path[3:]
    if path.startswith("/deployments/"):
        _, slash, rest = path[13:].partition("/")
        return f"/{rest}" if slash else path
    return path


def check_beta(value: str | None) -> None:
    """ApiError 400 unless one of the betas of the header is ours."""
    if not value:
        raise ApiError(
            400,
            "You must provide the 'OpenAI-Beta' header to access the Assistants API. Please try again by "
            f"setting the header 'OpenAI-Beta: {BETA}'.",
            code="invalid_beta",
        )
    betas = [word.strip() for word in value.split(",")]
    if BETA in betas:
        return
    first = betas[0]
    name, equals, version = first.partition("=")
    if not equals:
        words = f"Invalid beta header provided: '{first[:80]}'. Expected '{BETA}'."
    elif name.strip() == "assistants":
        words = (
            f"Unsupported version of the Assistants API: '{version[:20]}'. This server speaks v2 only; "
            f"please set the header 'OpenAI-Beta: {BETA}'."
        )
    else:
        words = f"Unknown beta requested: '{name.strip()[:80]}'."
    raise ApiError(400, words, code="invalid_beta")


def _failure_of(error: Exception) -> ApiError | None:
    if isinstance(error, ApiError):
        return error
    if isinstance(error, TooLarge):
        return ApiError(413, "The request body is larger than this server takes.", code="request_too_large")
    if isinstance(error, TooSlow):
        return ApiError(408, "The request body did not arrive in time.", code="request_timeout")
    if isinstance(error, HTTPException):
        return ApiError(error.status_code, str(error.detail))
    if isinstance(error, Conflict):
        return ApiError(
            503,
            "The object was changed by another request at the same time; please try again.",
            type="server_error",
        )
    if isinstance(error, sqlite3.OperationalError) and error.sqlite_errorcode & 0xFF in OUT_OF_ORDER:
        logger.error("the store cannot be written: %s", error)
        return ApiError(500, f"The server cannot write its data: {error}.", type="server_error")
    if isinstance(error, sqlite3.OperationalError) and error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY:
        logger.error("the store is held by another program: %s", error)
        words = "The server's data is held by another program; please try again."
        return ApiError(503, words, type="server_error")
    return None


def _wrong_method(router: Router, scope: Scope) -> ApiError:
    matching = [route for route in router.routes if route.matches(scope)[0] is not Match.NONE]
    methods = sorted({method for route in matching for method in getattr(route, "methods", None) or ()})
    return ApiError(
        405,
        f"Method Not Allowed ({scope['method']}). Allowed here: {', '.join(methods)}.",
        code="method_not_allowed",
        headers={"allow": ", ".join(methods)},
    )


def _stopping() -> ApiError:
    words = "The service stops; please send the request again when it is back."
    return ApiError(503, words, type="server_error")


def _unknown_route(scope: Scope) -> ApiError:
    path = scope["path"]
    hint = ""
    if path.startswith(("/assistants", "/threads", "/files", "/vector_stores", "/models")):
        hint = " The base URL of this server ends in /v1."
    return ApiError(404, f"Invalid URL ({scope['method']} {path[:200]}).{hint}", code="unknown_url")


async def unknown_route(scope: Scope, receive: Receive, send: Send) -> None:
    """What stands where no route does: what we do not offer is named, never a page."""
    path = scope["state"]["path"]
    raise ApiError(
        404,
        f"Invalid URL ({scope['method']} {path[:200]}). This server offers assistants, threads, messages, "
        "runs, run steps, files, vector stores and models.",
        code="unknown_url",
    )


async def _no_lifespan(receive: Receive, send: Send) -> None:
    while True:
        message = await receive()
        if message["type"] == "lifespan.startup":
            await send({"type": "lifespan.startup.complete"})
        elif message["type"] == "lifespan.shutdown":
            await send({"type": "lifespan.shutdown.complete"})
            return


def _digest(key: str) -> str:
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).hexdigest()


def _header(scope: Scope, name: bytes) -> str | None:
    for key, value in scope["headers"]:
        if key == name:
            return value.decode("latin-1").strip()  # type: ignore[no-any-return]
    return None


def _loggable(path: str) -> str:
    return "".join(letter if letter.isprintable() else "?" for letter in path[:200])
