"""A small HTTP server on loopback that answers byte for byte what a test says."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Reply:
    """`length`: False leaves the content-length out and closes the connection after the body."""

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    length: bool = True


@dataclass(frozen=True)
class Seen:
    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


Answer = Callable[[Seen], Reply]


@dataclass
class Server:
    """`url` has no slash at its end; `seen` are the requests so far."""

    port: int
    scheme: str
    seen: list[Seen] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.port}"


def page(html: str, *, status: int = 200, kind: str = "text/html; charset=utf-8") -> Reply:
    return Reply(status, html.encode(), {"content-type": kind})


def redirect(to: str, status: int = 302) -> Reply:
    return Reply(status, b"", {"location": to})


@asynccontextmanager
async def serve(answer: Answer, *, tls: ssl.SSLContext | None = None) -> AsyncIterator[Server]:
    """A server while it is needed; every connection is closed after one reply."""
    writers: set[asyncio.StreamWriter] = set()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.add(writer)
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            first, *lines = head.strip().split("\r\n")
            method, path, _ = first.split(" ", 2)
            headers = {
                name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)
            }
            body = await reader.readexactly(int(headers.get("content-length", "0")))
            server.seen.append(Seen(method, path, headers, body))
            reply = answer(server.seen[-1])
            out = [f"HTTP/1.1 {reply.status} Words", "connection: close"]
            out += [f"{name}: {value}" for name, value in reply.headers.items()]
            if reply.length:
                out.append(f"content-length: {len(reply.body)}")
            writer.write("\r\n".join(out).encode("latin-1") + b"\r\n\r\n" + reply.body)
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError, ssl.SSLError):
            pass
        finally:
            writer.close()
            writers.discard(writer)

    listening = await asyncio.start_server(handle, "127.0.0.1", 0, ssl=tls)
    server = Server(listening.sockets[0].getsockname()[1], "https" if tls else "http")
    try:
        yield server
    finally:
        listening.close()
        for writer in list(writers):
            writer.transport.abort()
        await asyncio.sleep(0)
