"""A provider that answers from a table, and a short way to call a shipped tool."""

from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx

from assistant_runner.tooling.contract import ToolOutcome
from assistant_runner.tooling.gate import ToolGate
from assistant_runner.tooling.registry import load_tools
from tests.tooling.support import make_context

Answer = Callable[[httpx.Request], httpx.Response]


class Stub:
    """Answers each request by the first function that gives something, and keeps the requests."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self.requests: list[httpx.Request] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        return self._answer(request)

    def asked(self, name: str) -> list[str]:
        """The values of a query parameter, request by request."""
        return [parse_qs(urlsplit(str(request.url)).query).get(name, [""])[0] for request in self.requests]


async def use(
    name: str, answer: Answer, *, environ: dict[str, str] | None = None, **arguments: Any
) -> ToolOutcome:
    """The outcome of one call of a shipped tool."""
    tool = load_tools([name])[name]
    return await ToolGate().call(tool, arguments, make_context(answer, environ=environ))
