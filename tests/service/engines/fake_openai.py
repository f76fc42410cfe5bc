"""A fake of OpenAI's server on loopback: answers from a list, keeps what it was asked.

Raw HTTP/1.1, so that it can also do what no framework does: cut a stream, flush byte by byte, answer
with a proxy's page. Bodies are in the shapes that the providers send (recorded once, cleaned of names).
"""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlsplit

SSE = "text/event-stream; charset=utf-8"
JSON = "application/json"


@dataclass
class Asked:
    """One request: `body` is the decoded JSON."""

    method: str
    path: str
    query: dict[str, list[str]]
    headers: dict[str, str]
    body: Any


@dataclass
class Reply:
    """One answer. `cut`: the connection is broken before the body's end; `bytewise`: one byte a packet."""

    body: bytes = b""
    status: int = 200
    kind: str = JSON
    headers: Mapping[str, str] = field(default_factory=dict)
    cut: bool = False
    bytewise: bool = False


@dataclass
class FakeOpenAI:
    """`replies` are given in turn, the last one again and again; `/models` is answered from `models`."""

    replies: list[Reply]
    models: Sequence[Mapping[str, Any]] = ()
    asked: list[Asked] = field(default_factory=list)
    port: int = 0
    hang: bool = False

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    @property
    def bodies(self) -> list[Any]:
        return [asked.body for asked in self.asked]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                if self.hang:
                    await reader.read()
                lines = head.decode("latin-1").split("\r\n")
                method, target, _ = lines[0].split(" ")
                headers = {k.lower(): v.strip() for k, _, v in (ln.partition(":") for ln in lines[1:] if ln)}
                raw = await reader.readexactly(int(headers.get("content-length", "0")))
                parts = urlsplit(target)
                body = json.loads(raw) if raw else None
                self.asked.append(Asked(method, parts.path, parse_qs(parts.query), headers, body))
                if parts.path.endswith("/models"):
                    reply = json_reply({"object": "list", "data": list(self.models)})
                else:
                    reply = self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]
                if not await _send(writer, reply):
                    return
        except (asyncio.IncompleteReadError, asyncio.CancelledError, ConnectionError):
            return
        finally:
            writer.close()


async def _send(writer: asyncio.StreamWriter, reply: Reply) -> bool:
    lines = [f"HTTP/1.1 {reply.status} Whatever", f"content-type: {reply.kind}", "transfer-encoding: chunked"]
    lines += [f"{name}: {value}" for name, value in reply.headers.items()]
    writer.write(("\r\n".join(lines) + "\r\n\r\n").encode())
    size = 1 if reply.bytewise else max(1, len(reply.body))
    for start in range(0, len(reply.body), size):
        piece = reply.body[start : start + size]
        writer.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
        await writer.drain()
    if reply.cut:
        return False
    writer.write(b"0\r\n\r\n")
    await writer.drain()
    return True


@asynccontextmanager
async def fake_openai(
    *replies: Reply, models: Sequence[Mapping[str, Any]] = (), tls: ssl.SSLContext | None = None
) -> AsyncIterator[FakeOpenAI]:
    """A running fake."""
    fake = FakeOpenAI(list(replies) or [Reply(b"{}")], models)
    server = await asyncio.start_server(fake.serve, "127.0.0.1", 0, ssl=tls)
    fake.port = server.sockets[0].getsockname()[1]
    try:
        yield fake
    finally:
        server.close()


def json_reply(document: Any, status: int = 200, **headers: str) -> Reply:
    return Reply(
        json.dumps(document).encode(), status, JSON, {k.replace("_", "-"): v for k, v in headers.items()}
    )


def error_reply(
    status: int,
    message: str = "no",
    code: str | None = None,
    param: str | None = None,
    type: str | None = None,
    extra: Mapping[str, Any] | None = None,
    **headers: str,
) -> Reply:
    error = {"message": message, "type": type, "param": param, "code": code, **(extra or {})}
    return json_reply({"error": error}, status, **headers)


def html_reply(status: int = 200) -> Reply:
    return Reply(b"<html><body><h1>Proxy login</h1></body></html>", status, "text/html")


def sse(
    *events: Any, done: bool = True, named: bool = False, cut: bool = False, bytewise: bool = False
) -> Reply:
    """A stream: mappings as JSON data, strings as they stand."""
    text = ""
    for event in events:
        if named and isinstance(event, Mapping):
            text += f"event: {event['type']}\n"
        data = event if isinstance(event, str) else json.dumps(event, ensure_ascii=False)
        text += f"data: {data}\n\n"
    if done and not cut:
        text += "data: [DONE]\n\n"
    return Reply(text.encode(), 200, SSE, cut=cut, bytewise=bytewise)


def chunk(delta: Mapping[str, Any] | None = None, finish: str | None = None, **more: Any) -> dict[str, Any]:
    """One chunk of a chat completion; no delta and no finish: no choices."""
    choices = (
        []
        if delta is None and finish is None
        else [{"index": 0, "delta": dict(delta or {}), "finish_reason": finish, **more.pop("choice", {})}]
    )
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "m",
        "choices": choices,
        **more,
    }


USAGE = {"prompt_tokens": 11, "completion_tokens": 5, "total_tokens": 16}


def chat_text(*pieces: str, finish: str = "stop", **options: Any) -> Reply:
    """A chat stream of text pieces."""
    return sse(
        chunk({"role": "assistant", "content": ""}),
        *[chunk({"content": piece}) for piece in pieces],
        chunk({}, finish),
        chunk(usage=USAGE),
        **options,
    )


def chat_calls(*fragments: Mapping[str, Any], finish: str = "tool_calls") -> Reply:
    """A chat stream of tool call fragments, one a chunk."""
    return sse(
        chunk({"role": "assistant", "content": None}),
        *[chunk({"tool_calls": [fragment]}) for fragment in fragments],
        chunk({}, finish),
        chunk(usage=USAGE),
    )


def fragment(index: Any = None, id: Any = None, name: Any = None, arguments: Any = None) -> dict[str, Any]:
    """A tool call fragment; what is None is left out."""
    function = {k: v for k, v in {"name": name, "arguments": arguments}.items() if v is not None}
    found: dict[str, Any] = {"function": function, "type": "function"}
    if index is not None:
        found["index"] = index
    if id is not None:
        found["id"] = id
    return found


def response_object(
    output: Sequence[Mapping[str, Any]] = (), status: str = "completed", **more: Any
) -> dict[str, Any]:
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 1.0,
        "status": status,
        "error": None,
        "incomplete_details": None,
        "model": "m",
        "output": list(output),
        "tools": [],
        "tool_choice": "auto",
        "parallel_tool_calls": True,
        "usage": {
            "input_tokens": 11,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": 5,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": 16,
        },
        **more,
    }


def message_item(text: str) -> dict[str, Any]:
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "status": "completed",
        "content": [{"type": "output_text", "text": text, "annotations": []}],
    }


def call_item(call_id: str, name: str, arguments: str) -> dict[str, Any]:
    return {
        "id": f"fc_{call_id}",
        "type": "function_call",
        "call_id": call_id,
        "name": name,
        "arguments": arguments,
        "status": "completed",
    }


def response_events(
    *items: Mapping[str, Any], status: str = "completed", **more: Any
) -> list[dict[str, Any]]:
    """The stream events of a response with these output items."""
    events: list[dict[str, Any]] = [
        {"type": "response.created", "response": response_object(status="in_progress")},
        {"type": "response.in_progress", "response": response_object(status="in_progress")},
    ]
    for place, item in enumerate(items):
        begun = {**item, "status": "in_progress"}
        if item["type"] == "message":
            begun["content"] = []
        if item["type"] == "function_call":
            begun["arguments"] = ""
        events.append({"type": "response.output_item.added", "output_index": place, "item": begun})
        where = {"item_id": item.get("id"), "output_index": place, "content_index": 0}
        if item["type"] == "message":
            text = item["content"][0]["text"]
            for start in range(0, len(text), 5):
                delta = {"delta": text[start : start + 5], "logprobs": []}
                events.append({"type": "response.output_text.delta", **where, **delta})
        if item["type"] == "function_call":
            half = len(item["arguments"]) // 2
            for piece in (item["arguments"][:half], item["arguments"][half:]):
                events.append({"type": "response.function_call_arguments.delta", **where, "delta": piece})
        events.append({"type": "response.output_item.done", "output_index": place, "item": dict(item)})
    final = {"completed": "response.completed", "incomplete": "response.incomplete"}.get(
        status, "response.failed"
    )
    events.append({"type": final, "response": response_object(items, status, **more)})
    return [{**event, "sequence_number": number} for number, event in enumerate(events)]


def response_stream(*items: Mapping[str, Any], **options: Any) -> Reply:
    """A streamed response."""
    bytewise = bool(options.pop("bytewise", False))
    return sse(*response_events(*items, **options), named=True, done=False, bytewise=bytewise)
