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
from dataclasses import dataclass
from enum import Enum
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
NO_SESSION = re.compile(r"(?i)session.*(terminated|not found|expired|unknown|invalid)|no valid session")


class _Gone(Enum):
    """Why a call has no answer: the connection ended under it, or the server knows the session no more."""

    LOST = "it may have been done"
    FORGOTTEN = "it was not done"


@asynccontextmanager
async def open_mcp(
    entry: McpEntry, *, environ: Mapping[str, str], folder: Path | None = None
) -> AsyncIterator[list[Tool]]:
    """The server's tools while it is open; ConfigurationError if it cannot be reached or lacks a tool.

    A server that ends meanwhile is started (or connected to) again by the next call.
    """
    server = Server(entry, environ, folder or Path.cwd())
    try:
        listed = await server.open()
        yield _chosen(entry, server, listed)
    finally:
        await server.close()


@dataclass(eq=False)
class Connection:
    """One life of a server: the client, what it listed, and whether its end was seen.

    It lives in a task of its own: the client's task groups would wrap every error of whoever uses the
    tools, and would have to be left by the task that entered them.
    """

    client: Any
    listed: list[Any]
    ended: asyncio.Event


class Server:
    """A server that is open, through more than one life if need be."""

    def __init__(self, entry: McpEntry, environ: Mapping[str, str], folder: Path) -> None:
        self.entry = entry
        self._environ = environ
        self._folder = folder
        self._keepers: dict[asyncio.Task[None], asyncio.Event] = {}
        self._current: Connection | None = None
        self._starting: asyncio.Task[Connection] | None = None

    async def open(self) -> list[Any]:
        """Connects; the tools as the server lists them. ConfigurationError if it cannot be reached."""
        self._current = await self._connect()
        return self._current.listed

    async def call(self, name: str, arguments: Mapping[str, Any], *, reads: bool) -> Any:
        """The result of a call; ToolFailure if the server refused it, or ended and did not come back.

        A call that never reached the server, or one that only reads, is made again, once.
        """
        connection = await self._alive()
        answer = await self._ask(connection, name, arguments)
        if answer is _Gone.LOST and not reads:
            raise ToolFailure(
                "its MCP server ended before it answered, so whether the call was done is not known",
                hint="look before you make it again; the next call starts the server again",
            )
        if isinstance(answer, _Gone):
            answer = await self._ask(await self._alive(), name, arguments)
        if isinstance(answer, _Gone):
            raise ToolFailure(
                "its MCP server ended twice before it answered", hint="this call may be what ends it"
            )
        return answer

    async def close(self) -> None:
        """Ends the server, and what is left of its earlier lives."""
        if self._starting is not None:
            self._starting.cancel()
        for closing in self._keepers.values():
            closing.set()
        keepers = set(self._keepers)
        if not keepers:
            return
        _, left = await asyncio.wait(keepers, timeout=CLOSING_S)
        for keeper in left:
            keeper.cancel()
        if left:
            await asyncio.wait(left, timeout=CLOSING_S)

    async def _ask(self, connection: Connection, name: str, arguments: Mapping[str, Any]) -> Any:
        """The result, or why there is none; ToolFailure if the server refused the call."""
        from mcp import MCPError
        from mcp.types import CONNECTION_CLOSED

        try:
            return await connection.client.call_tool(name, dict(arguments))
        except MCPError as error:
            forgotten = self.entry.url is not None and NO_SESSION.search(error.message)
            if not forgotten and error.code != CONNECTION_CLOSED:
                raise ToolFailure(f"the server refused the call: {error}", fetched=True) from None
            connection.ended.set()
            return _Gone.FORGOTTEN if forgotten else _Gone.LOST

    async def _alive(self) -> Connection:
        """The connection, made anew if its end was seen; ToolFailure if that fails."""
        assert self._current is not None
        if not self._current.ended.is_set():
            return self._current
        if self._starting is None:  # calls that find the end at once wait for the same new start
            way = "connected to" if self.entry.url else "started"
            log.warning("the MCP server %s has ended: it is %s again", self.entry.name, way)
            self._starting = asyncio.create_task(self._connect())
            self._starting.add_done_callback(self._started)
        try:
            return await asyncio.shield(self._starting)
        except ConfigurationError as error:
            raise ToolFailure(
                f"its MCP server has ended and does not come back: {error.message}",
                hint="the other tools are not affected",
            ) from None

    def _started(self, starting: asyncio.Task[Connection]) -> None:
        self._starting = None
        if not starting.cancelled() and starting.exception() is None:
            self._current = starting.result()

    async def _connect(self) -> Connection:
        """A new life, in a task that stays until it is closed; earlier ones are let go."""
        for earlier in self._keepers.values():
            earlier.set()
        opened: asyncio.Future[Connection] = asyncio.get_running_loop().create_future()
        closing = asyncio.Event()
        keeper = asyncio.create_task(_keep_open(self.entry, self._environ, self._folder, opened, closing))
        self._keepers[keeper] = closing
        keeper.add_done_callback(self._left)
        return await opened

    def _left(self, keeper: asyncio.Task[None]) -> None:
        self._keepers.pop(keeper, None)
        if not keeper.cancelled():
            keeper.exception()  # a server that fails while it is closed changes nothing


async def _keep_open(
    entry: McpEntry,
    environ: Mapping[str, str],
    folder: Path,
    opened: "asyncio.Future[Connection]",
    closing: asyncio.Event,
) -> None:
    """Connect, hand the connection (or the error) to `opened`, and stay until `closing`."""
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
    opened: "asyncio.Future[Connection]",
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
    ended = asyncio.Event()
    async with AsyncExitStack() as stack:
        async with asyncio.timeout(entry.connect_timeout_s):
            target = await _target(entry, environ, folder, stack, said)
            client = await stack.enter_async_context(Client(_watched(target, ended)))
            connection = Connection(client, await _list(client), ended)
        opened.set_result(connection)
        await closing.wait()


@asynccontextmanager
async def _watched(transport: Any, ended: asyncio.Event) -> AsyncIterator[Any]:
    """The transport; `ended` is set as soon as nothing can come from it any more."""
    async with transport as (incoming, outgoing):
        yield _Incoming(incoming, ended), outgoing


class _Incoming:
    """A transport's stream of messages that tells of its end."""

    def __init__(self, stream: Any, ended: asyncio.Event) -> None:
        self._stream = stream
        self._ended = ended

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    async def __aenter__(self) -> Any:
        await self._stream.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> Any:
        self._ended.set()
        return await self._stream.__aexit__(*error)

    def __aiter__(self) -> Any:
        return self

    async def __anext__(self) -> Any:
        try:
            return await self._stream.__anext__()
        except StopAsyncIteration:
            self._ended.set()
            raise


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
    from mcp.client.streamable_http import streamable_http_client

    if not headers:
        return streamable_http_client(entry.url)
    import httpx2

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


def _chosen(entry: McpEntry, server: Server, listed: list[Any]) -> list[Tool]:
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
            found[name] = _tool(entry, server, tool, name)
        except ConfigurationError as error:
            if entry.tools is not None:
                raise
            log.warning("the MCP server %s: a tool is left out: %s", entry.name, error.message)
    return list(found.values())


def _tool(entry: McpEntry, server: Server, listed: Any, name: str) -> Tool:
    reads = bool(listed.annotations and listed.annotations.read_only_hint)
    effects: Effects = "read" if reads else entry.effects

    async def call(**arguments: Any) -> Any:
        return _content(await server.call(listed.name, arguments, reads=effects == "read"))

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


def _content(result: Any) -> Any:
    """The structured result, else the texts of the content; ToolFailure with the server's own words."""
    if result.is_error:
        words = " ".join(_texts(result.content))
        raise ToolFailure(words or "the server reports an error without words", fetched=bool(words))
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
