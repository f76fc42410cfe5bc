"""What a client and the service said to each other, and whether every answer was of its shape.

A wrapper around the service's ASGI application keeps each exchange. Answers are held against the
machine-readable reference: JSON bodies by the operation that was asked for, streams event by event.
"""

import json
import re
from dataclasses import dataclass, field
from typing import Any

import jsonschema
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from assistant_runner.service.gateway import split_family
from tests.service.conftest import frames_of
from tests.service.protocol import OPERATIONS, check_events, check_object, check_order

_ROUTES = [
    (entry["method"], re.compile(re.sub(r"\{\w+\}", "[^/]+", entry["path"]) + "$"), entry)
    for entry in sorted(OPERATIONS, key=lambda entry: entry["path"].count("{"))
]
_NOT_OF_THE_REFERENCE = {("GET", "/threads")}  # Foundry's form only


@dataclass
class Exchange:
    """One request and its answer. `left`: the client went away before the answer was whole."""

    method: str
    path: str
    query: str
    request_headers: dict[str, str]
    request: bytes = b""
    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    ended: bool = False
    left: bool = False

    def __str__(self) -> str:
        query = f"?{self.query}" if self.query else ""
        return f"{self.method} {self.path}{query} -> {self.status}"


class Recorder:
    """An ASGI application that passes everything on and remembers it."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self.exchanges: list[Exchange] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        exchange = Exchange(
            scope["method"], scope["path"], scope["query_string"].decode(), _named(scope["headers"])
        )
        self.exchanges.append(exchange)

        async def keep_request() -> Message:
            message = await receive()
            exchange.request += message.get("body", b"")
            if message["type"] == "http.disconnect" and not exchange.ended:
                exchange.left = True
            return message

        async def keep_answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                exchange.status = message["status"]
            else:
                exchange.body += message.get("body", b"")
                exchange.ended = not message.get("more_body", False)
            await send(message)
            if message["type"] == "http.response.start":
                exchange.headers = _named(message["headers"])

        await self._app(scope, keep_request, keep_answer)

    def refusals(self) -> list[str]:
        """Every request that was not answered with 200, as `METHOD path -> status`."""
        return [str(exchange) for exchange in self.exchanges if exchange.status != 200]

    def flaws(self) -> list[str]:
        """Every answer that the reference does not allow, in words."""
        return [f"{exchange}: {flaw}" for exchange in self.exchanges if (flaw := flaw_of(exchange))]


def flaw_of(exchange: Exchange) -> str | None:
    """What is wrong with an answer; None if nothing is."""
    try:
        _check(exchange)
    except (jsonschema.ValidationError, AssertionError, ValueError, KeyError) as error:
        words = getattr(error, "message", None) or str(error)
        place = "/".join(str(part) for part in getattr(error, "absolute_path", ()))
        return f"{place}: {words[:300]}"
    return None


def _check(exchange: Exchange) -> None:
    if exchange.status >= 400:
        check_object("error", json.loads(exchange.body))
        return
    inner, _ = split_family(exchange.path)
    assert inner is not None
    if exchange.headers.get("content-type", "").startswith("text/event-stream"):
        if not exchange.left:
            frames = frames_of(exchange.body.decode())
            check_events(frames)
            check_order(frames)
        return
    if (exchange.method, inner) in _NOT_OF_THE_REFERENCE:
        return
    found = [entry for method, route, entry in _ROUTES if method == exchange.method and route.match(inner)]
    assert found, "not a route of the reference"
    kind = found[0].get("response")
    if exchange.headers.get("content-type") == "application/json" and isinstance(kind, str):
        check_object(kind, json.loads(exchange.body))


def _named(headers: Any) -> dict[str, str]:
    return {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in headers}
