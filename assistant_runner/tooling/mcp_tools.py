"""The tools of an MCP server, as tools of ours (extra `mcp`).

A server's tools are listed once when it is opened, named `<server>__<tool>`, and called through the
same gate as all others. A tool that is annotated as reading only reads; any other has the entry's
effects. What a server returns was written by strangers and counts as fetched text.
"""

import asyncio
import itertools
import logging
import re
import tempfile
from collections.abc import AsyncIterator, Container, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, TextIO

from assistant_runner.errors import ConfigurationError
from assistant_runner.tooling.command_tool import ALWAYS_PASSED
from assistant_runner.tooling.contract import Effects, Tool, ToolFailure
from assistant_runner.tooling.dynamic import described_tool, read_parameters
from assistant_runner.tooling.entries import McpEntry

log = logging.getLogger(__name__)

SEPARATOR = "__"
CLOSING_S = 5.0


@asynccontextmanager
async def open_mcp(
    entry: McpEntry, *, environ: Mapping[str, str], folder: Path | None = None
) -> AsyncIterator[list[Tool]]:
    """The server's tools while it is open; ConfigurationError if it cannot be reached or lacks a tool.

    The connection lives in a task of its own: the client's task groups would wrap every error of
    whoever uses the tools, and would have to be left by the task that entered them.
    """
    opened: asyncio.Future[list[Tool]] = asyncio.get_running_loop().create_future()
    closing = asyncio.Event()
    keeper = asyncio.create_task(_keep_open(entry, environ, folder or Path.cwd(), opened, closing))
    try:
        yield await opened
    finally:
        closing.set()
        await asyncio.wait({keeper}, timeout=CLOSING_S)
        if not keeper.done():
            keeper.cancel()
            await asyncio.wait({keeper}, timeout=CLOSING_S)
        if keeper.done() and not keeper.cancelled():
            keeper.exception()  # a server that fails while it is closed changes nothing


async def _keep_open(
    entry: McpEntry,
    environ: Mapping[str, str],
    folder: Path,
    opened: "asyncio.Future[list[Tool]]",
    closing: asyncio.Event,
) -> None:
    """Connect, hand the tools (or the error) to `opened`, and stay until `closing`."""
    with _words_of_a_program() as said:
        try:
            await _serve(entry, environ, folder, opened, closing, said)
        except BaseException as error:
            if opened.done():
                raise
            if isinstance(error, asyncio.CancelledError):
                opened.cancel()
                raise
            opened.set_exception(_as_configuration(entry, error, said))


async def _serve(
    entry: McpEntry,
    environ: Mapping[str, str],
    folder: Path,
    opened: "asyncio.Future[list[Tool]]",
    closing: asyncio.Event,
    said: TextIO,
) -> None:
    logging.getLogger("mcp").addHandler(logging.NullHandler())  # it tells of every odd line with a trace
    try:
        from mcp import Client
    except ImportError:
        raise ConfigurationError(
            f"the MCP server {entry.name} needs the extra mcp",
            remedy="pip install 'assistant-runner[mcp]'",
            server=entry.name,
        ) from None
    async with AsyncExitStack() as stack:
        async with asyncio.timeout(entry.connect_timeout_s):
            target = await _target(entry, environ, folder, stack, said)
            client = await stack.enter_async_context(Client(target))
            tools = _chosen(entry, client, await _list(client))
        opened.set_result(tools)
        await closing.wait()


def _as_configuration(entry: McpEntry, error: BaseException, said: TextIO) -> ConfigurationError:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, ConfigurationError):
        return error
    why = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    if isinstance(error, TimeoutError):
        why = f"no answer within {entry.connect_timeout_s:g} s"
    return ConfigurationError(
        f"the MCP server {entry.name} ({_where(entry)}) cannot be reached: {why}{_tail(said)}",
        remedy="check its command or url",
        server=entry.name,
    )


async def _target(
    entry: McpEntry, environ: Mapping[str, str], folder: Path, stack: AsyncExitStack, said: TextIO
) -> Any:
    """What the client connects to: a program to start, or a transport with our headers.

    What a program says on stderr goes to `said`: it is no talk of ours.
    """
    if entry.command is not None:
        from mcp import StdioServerParameters, stdio_client

        passed = {name: environ[name] for name in (*ALWAYS_PASSED, *entry.env) if name in environ}
        cwd = folder / entry.cwd if entry.cwd else folder
        program = StdioServerParameters(
            command=entry.command[0], args=entry.command[1:], env=passed, cwd=str(cwd)
        )
        return stdio_client(program, errlog=said)
    assert entry.url is not None
    headers = dict(entry.headers)
    for name, ref in entry.secret_headers.items():
        try:
            headers[name] = ref.prefix + ref.read(environ, tool=f"the MCP server {entry.name}")
        except ToolFailure as failure:
            raise ConfigurationError(failure.message, remedy="set it", server=entry.name) from None
    if not headers:
        return entry.url
    import httpx2
    from mcp.client.streamable_http import streamable_http_client

    http = await stack.enter_async_context(httpx2.AsyncClient(headers=headers, timeout=60))
    return streamable_http_client(entry.url, http_client=http)


async def _list(client: Any) -> list[Any]:
    """All tools, page by page."""
    found: list[Any] = []
    cursor: str | None = None
    while True:
        page = await client.list_tools(cursor=cursor)
        found.extend(page.tools)
        cursor = page.next_cursor
        if not cursor:
            return found


def _chosen(entry: McpEntry, client: Any, listed: list[Any]) -> list[Tool]:
    names = [tool.name for tool in listed]
    if missing := [name for name in entry.tools or () if name not in names]:
        known = ", ".join(names) or "none"
        raise ConfigurationError(
            f"the MCP server {entry.name} has no tool {missing[0]!r}; there are: {known}",
            remedy="correct the list tools of its entry",
            server=entry.name,
        )
    found: dict[str, Tool] = {}
    for tool in listed:
        if entry.tools is not None and tool.name not in entry.tools:
            continue
        name = unused_name(wire_name(entry.name, tool.name), found)
        try:
            found[name] = _tool(entry, client, tool, name)
        except ConfigurationError as error:
            if entry.tools is not None:
                raise
            log.warning("the MCP server %s: a tool is left out: %s", entry.name, error.message)
    return list(found.values())


def _tool(entry: McpEntry, client: Any, listed: Any, name: str) -> Tool:
    async def call(**arguments: Any) -> Any:
        return await call_remote(client, listed.name, arguments)

    reads = bool(listed.annotations and listed.annotations.read_only_hint)
    effects: Effects = "read" if reads else entry.effects
    parameters, _ = read_parameters(dict(listed.input_schema), listed.name)
    return described_tool(
        name,
        (listed.description or "").strip() or listed.title or f"The tool {listed.name} of {entry.name}",
        call,
        parameters=parameters,
        kind="mcp",
        effects=effects,
        approval=entry.approval,
        timeout_s=entry.timeout_s,
        fetches=True,
        source=f"MCP server {entry.name}",
    )


async def call_remote(client: Any, name: str, arguments: Mapping[str, Any]) -> Any:
    """The structured result, else the texts of the content; ToolFailure with the server's own words."""
    from mcp import MCPError
    from mcp.types import CONNECTION_CLOSED

    try:
        result = await client.call_tool(name, dict(arguments))
    except MCPError as error:
        if error.code == CONNECTION_CLOSED:
            raise ToolFailure(
                "its MCP server has ended", hint="no tool of that server works any more"
            ) from None
        raise ToolFailure(f"the server refused the call: {error}") from None
    if result.is_error:
        raise ToolFailure(" ".join(_texts(result.content)) or "the server reports an error without words")
    if result.structured_content is not None:
        content = result.structured_content
        return content["result"] if set(content) == {"result"} else content
    texts = _texts(result.content)
    return texts[0] if len(texts) == 1 else texts


def wire_name(server: str, tool: str) -> str:
    """`<server>__<tool>` within the 64 characters that the wire allows."""
    return re.sub(r"[^a-zA-Z0-9_-]", "_", f"{server}{SEPARATOR}{tool}")[:64]


def unused_name(name: str, taken: Container[str]) -> str:
    """The name, or with a number at its end if two names became the same on the wire."""
    numbered = (f"{name[:60]}_{number}" for number in itertools.count(2))
    return name if name not in taken else next(other for other in numbered if other not in taken)


def _texts(content: Any) -> list[str]:
    return [_text(part) for part in content or ()]


def _text(part: Any) -> str:
    """The words of a part: a text, a text resource, the address of a resource."""
    if part.type == "resource":
        part = part.resource
    if isinstance(words := getattr(part, "text", None), str):
        return words
    if uri := getattr(part, "uri", None):
        return f"[resource: {uri}]"
    return f"[{part.type} left out]"


@contextmanager
def _words_of_a_program() -> Iterator[TextIO]:
    """A file without a name that takes what a program says on its stderr."""
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as file:
        yield file


def _tail(said: TextIO) -> str:
    """The last line that the program wrote to its stderr, if any."""
    said.seek(0)
    lines = [line.strip() for line in said.read()[-2000:].splitlines() if line.strip()]
    return f" ({lines[-1][:300]})" if lines else ""


def _where(entry: McpEntry) -> str:
    return entry.url or " ".join(entry.command or ())
