"""A service on loopback with a real server, and the official SDK as its client."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
import uvicorn

from assistant_runner.service.app import Service
from assistant_runner.service.engines.base import Engine
from assistant_runner.service.engines.script import ScriptEngine
from assistant_runner.service.settings import ServiceSettings
from assistant_runner.service.store.sqlite import SqliteStore

BETA = {"OpenAI-Beta": "assistants=v2"}


def script(**scripts: list[dict[str, Any]]) -> dict[str, Any]:
    """A script document; `_` in a keyword stands for `-` in the script's name."""
    return {
        "format": 1,
        "scripts": {name.replace("_", "-"): {"turns": turns} for name, turns in scripts.items()},
    }


def functions(*names: str) -> list[dict[str, Any]]:
    return [{"type": "function", "function": {"name": name}} for name in names]


class HandClock:
    """A clock that moves only when it is told to."""

    def __init__(self, now: float = 1_750_000_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now

    def pass_s(self, seconds: float) -> None:
        self.now += seconds


@dataclass
class Frame:
    event: str
    data: Any


@dataclass
class Running:
    """A service behind a real server, with plain HTTP and the SDK to reach it."""

    service: Service
    url: str
    http: httpx.AsyncClient
    key: str

    @cached_property
    def sdk(self) -> openai.AsyncOpenAI:
        """Made when it is asked for: a client reads certificates, which takes longer than most tests."""
        return openai.AsyncOpenAI(base_url=f"{self.url}/v1", api_key=self.key, max_retries=0, timeout=20)

    async def aclose(self) -> None:
        if "sdk" in self.__dict__:
            await self.sdk.close()

    async def post(self, path: str, body: Any = None, **options: Any) -> httpx.Response:
        return await self.http.post(path, json={} if body is None else body, **options)

    async def get(self, path: str, **options: Any) -> httpx.Response:
        return await self.http.get(path, **options)

    async def assistant(self, **fields: Any) -> dict[str, Any]:
        answer = await self.post("/assistants", {"model": "plain", **fields})
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def ask(self, model: str, *, words: str = "hi", **fields: Any) -> dict[str, Any]:
        """A new thread and a run on it, as created."""
        tools = fields.pop("assistant_tools", [])
        assistant = await self.assistant(tools=tools)
        body = {
            "assistant_id": assistant["id"],
            "model": model,
            "thread": {"messages": [{"role": "user", "content": words}]},
            **fields,
        }
        answer = await self.post("/threads/runs", body)
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def settled(self, run: dict[str, Any], *, polls: int = 500) -> dict[str, Any]:
        for _ in range(polls):
            answer = await self.get(f"/threads/{run['thread_id']}/runs/{run['id']}")
            if answer.json()["status"] not in ("queued", "in_progress", "cancelling"):
                return answer.json()
            await asyncio.sleep(0.01)
        raise AssertionError(f"not settled: {answer.text}")

    async def stream(self, path: str, body: dict[str, Any]) -> list[Frame]:
        async with self.http.stream("POST", path, json={**body, "stream": True}) as answer:
            text = (await answer.aread()).decode()
            assert answer.status_code == 200, text
        return frames_of(text)

    async def steps(self, run: dict[str, Any], **params: Any) -> list[dict[str, Any]]:
        path = f"/threads/{run['thread_id']}/runs/{run['id']}/steps"
        answer = await self.get(path, params={"order": "asc", **params})
        return answer.json()["data"]

    async def messages(self, run: dict[str, Any], **params: Any) -> list[dict[str, Any]]:
        answer = await self.get(f"/threads/{run['thread_id']}/messages", params={"order": "asc", **params})
        return answer.json()["data"]


def frames_of(text: str) -> list[Frame]:
    frames = []
    for block in text.split("\n\n"):
        lines = dict(line.split(": ", 1) for line in block.split("\n") if line and not line.startswith(":"))
        if lines:
            data = lines["data"]
            frames.append(Frame(lines["event"], data if data == "[DONE]" else json.loads(data)))
    return frames


async def until(condition: Callable[[], Any]) -> None:
    """Waits for something that offers no event."""
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


@asynccontextmanager
async def running(
    document: dict[str, Any] | None = None,
    *,
    engine: Engine | None = None,
    store: SqliteStore | None = None,
    clock: Callable[[], float] | None = None,
    key: str = "none",
    **settings: Any,
) -> AsyncIterator[Running]:
    """A service for a script document, or for another engine, on a free port of loopback."""
    engine = engine or ScriptEngine.from_document(document or script(plain=[{"text": "Hello there."}]))
    store = store or SqliteStore.open(":memory:")
    options = {"clock": clock} if clock else {}
    service = Service(store=store, engine=engine, settings=ServiceSettings(**settings), **options)
    async with service:
        config = uvicorn.Config(service.app, port=0, log_level="error", lifespan="off", access_log=False)
        server = uvicorn.Server(config)
        task = asyncio.create_task(server.serve())
        while not server.started:  # noqa: ASYNC110 (the server offers no event)
            await asyncio.sleep(0.002)
        port = server.servers[0].sockets[0].getsockname()[1]
        url = f"http://127.0.0.1:{port}"
        headers = {**BETA, "Authorization": f"Bearer {key}"}
        async with httpx.AsyncClient(base_url=f"{url}/v1", headers=headers, timeout=20, verify=False) as http:
            server_side = Running(service, url, http, key)
            try:
                yield server_side
            finally:
                await server_side.aclose()
                await service.pause()
                server.should_exit = True
                await task
    store.close()


Start = Callable[..., AbstractAsyncContextManager[Running]]


@pytest.fixture
def start() -> Start:
    return running


@pytest.fixture
def data_folder(tmp_path: Path) -> Path:
    return tmp_path / "data"
