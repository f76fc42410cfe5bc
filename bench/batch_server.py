"""A small Assistants v2 backend on loopback that can be slow, full or broken on purpose.

Only what a batch needs: a thread with its run, streamed. Options as query of the prompt are none: the
whole server is one plan. `python bench/batch_server.py --latency 0.5` prints its base URL.
"""

import argparse
import asyncio
import itertools
import json
import random
import threading
import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import uvicorn

Send = Callable[[dict[str, Any]], Awaitable[None]]


@dataclass
class Plan:
    """`room`: runs at once, more are refused; `per_second`: runs begun in any second; faults are shares."""

    latency_s: float = 0.0
    room: int | None = None
    per_second: int | None = None
    retry_after_s: float | None = 1.0
    server_errors: float = 0.0
    resets: float = 0.0
    seed: int = 1


@dataclass
class Seen:
    """What the server met."""

    refused: int = 0
    faults: int = 0
    most_at_once: int = 0
    answered: Counter[str] = field(default_factory=Counter)
    refused_at: list[float] = field(default_factory=list)


class BatchServer:
    """The ASGI app; `seen` counts."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.seen = Seen()
        self._running = 0
        self._begun: deque[float] = deque()
        self._numbers = itertools.count()
        self._random = random.Random(plan.seed)

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Send) -> None:
        if scope["type"] == "lifespan":
            while True:
                kind = (await receive())["type"].removeprefix("lifespan.")
                await send({"type": f"lifespan.{kind}.complete"})
                if kind == "shutdown":
                    return
        body = b""
        while True:
            message = await receive()
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        if scope["path"].endswith("/threads/runs"):
            await self._thread_and_run(json.loads(body), send)
        elif "/assistants/" in scope["path"]:
            await _answer(send, 200, assistant(scope["path"].rsplit("/", 1)[1]))
        else:
            await _answer(send, 404, {"error": {"message": f"no {scope['path']}", "type": "x", "code": None}})

    async def _thread_and_run(self, body: dict[str, Any], send: Send) -> None:
        plan, now = self.plan, time.monotonic()
        while self._begun and self._begun[0] <= now - 1:
            self._begun.popleft()
        full = plan.room is not None and self._running >= plan.room
        if full or (plan.per_second is not None and len(self._begun) >= plan.per_second):
            self.seen.refused += 1
            self.seen.refused_at.append(now)
            wait = (
                [] if plan.retry_after_s is None else [(b"retry-after", f"{plan.retry_after_s:g}".encode())]
            )
            error = {"message": "too many", "type": "requests", "code": "rate_limit_exceeded"}
            await _answer(send, 429, {"error": error}, wait)
            return
        if self._random.random() < plan.server_errors:
            self.seen.faults += 1
            await _answer(send, 500, {"error": {"message": "oh", "type": "server_error", "code": None}})
            return
        self._begun.append(now)
        self._running += 1
        self.seen.most_at_once = max(self.seen.most_at_once, self._running)
        try:
            await self._stream(body, send)
        finally:
            self._running -= 1

    async def _stream(self, body: dict[str, Any], send: Send) -> None:
        number = next(self._numbers)
        prompt = body["thread"]["messages"][0]["content"]
        run = {
            "id": f"run_{number}",
            "object": "thread.run",
            "created_at": 1,
            "assistant_id": body["assistant_id"],
            "thread_id": f"thread_{number}",
            "status": "queued",
            "model": "gpt-test",
            "instructions": "",
            "tools": [],
            "metadata": {},
            "usage": None,
        }
        message = {
            "id": f"msg_{number}",
            "object": "thread.message",
            "created_at": 1,
            "thread_id": run["thread_id"],
            "run_id": run["id"],
            "assistant_id": run["assistant_id"],
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "text", "text": {"value": f"re: {prompt}", "annotations": []}}],
            "attachments": [],
            "metadata": {},
        }
        usage = {"prompt_tokens": 6, "completion_tokens": 4, "total_tokens": 10}
        await send(
            {
                "type": "http.response.start",
                "status": 200,
                "headers": [(b"content-type", b"text/event-stream")],
            }
        )
        await send(
            {"type": "http.response.body", "body": _event("thread.run.created", run), "more_body": True}
        )
        if self.plan.latency_s:
            await asyncio.sleep(self.plan.latency_s)
        self.seen.answered[prompt] += 1
        end = _event("thread.message.completed", message)
        end += _event("thread.run.completed", {**run, "status": "completed", "usage": usage})
        await send({"type": "http.response.body", "body": end + b"event: done\ndata: [DONE]\n\n"})


def assistant(assistant_id: str) -> dict[str, Any]:
    return {
        "id": assistant_id,
        "object": "assistant",
        "created_at": 1,
        "name": "Test",
        "description": None,
        "model": "gpt-test",
        "instructions": "v1",
        "tools": [],
        "metadata": {},
    }


def _event(name: str, document: dict[str, Any]) -> bytes:
    return f"event: {name}\ndata: {json.dumps(document)}\n\n".encode()


async def _answer(
    send: Send, status: int, document: dict[str, Any], headers: list[tuple[bytes, bytes]] | None = None
) -> None:
    start = [(b"content-type", b"application/json"), *(headers or [])]
    await send({"type": "http.response.start", "status": status, "headers": start})
    await send({"type": "http.response.body", "body": json.dumps(document).encode()})


class Served:
    """The app on a free port of loopback, in a thread; `url` is the base URL."""

    def __init__(self, plan: Plan) -> None:
        self.app = BatchServer(plan)
        config = uvicorn.Config(
            self.app, host="127.0.0.1", port=0, log_level="error", access_log=False, backlog=2048
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, daemon=True)

    def __enter__(self) -> "Served":
        self._thread.start()
        while not self._server.started:
            time.sleep(0.005)
        port = self._server.servers[0].sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{port}/v1"
        return self

    def __exit__(self, *exc: object) -> None:
        self._server.should_exit = True
        self._thread.join()

    @property
    def seen(self) -> Seen:
        return self.app.seen


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--latency", type=float, default=0.0)
    options.add_argument("--room", type=int)
    options.add_argument("--per-second", type=int)
    given = options.parse_args()
    with Served(Plan(given.latency, given.room, given.per_second)) as server:
        print(server.url, flush=True)
        threading.Event().wait()


if __name__ == "__main__":
    main()
