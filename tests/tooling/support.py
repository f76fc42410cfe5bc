"""What the tool tests share: a context without a world, and a short way through the gate."""

from collections.abc import Callable, Mapping
from typing import Any

import httpx

from assistant_runner.tooling.contract import Summarise, ToolContext, ToolOutcome
from assistant_runner.tooling.gate import ToolGate
from assistant_runner.tooling.schema import tool_from


def refuse(request: httpx.Request) -> httpx.Response:
    raise AssertionError(f"no request was expected: {request.url}")


def make_context(
    answer: Callable[[httpx.Request], httpx.Response] = refuse,
    *,
    environ: Mapping[str, str] | None = None,
    deadline_s: float = 5.0,
    question: str = "",
    summarise: Summarise | None = None,
    http: httpx.AsyncClient | None = None,
    thread_id: str = "thread_1",
    tool_call_id: str = "call_1",
    reads_on: bool = False,
) -> ToolContext:
    """A context whose HTTP requests are answered by a function."""
    client = http or httpx.AsyncClient(transport=httpx.MockTransport(answer), follow_redirects=True)
    return ToolContext(
        tool_call_id=tool_call_id,
        http=client,
        environ=environ or {},
        deadline_s=deadline_s,
        question=question,
        summarise=summarise,
        thread_id=thread_id,
        reads_on=reads_on,
    )


async def call(function: Any, arguments: Any = None, **world: Any) -> ToolOutcome:
    """The outcome of one call of a function through a plain gate."""
    return await ToolGate().call(tool_from(function), arguments or {}, make_context(**world))
