"""What an engine costs per turn beyond the SDK, the planner per turn, and imports.

usage: python bench/engines.py [--turns 300]

The same recorded stream (60 pieces of text, one call) is read by the bare SDK and by our engines, from
memory, turn about. Prints medians in milliseconds of this process's own time, so that a busy machine
does not disturb the figures.
"""

import argparse
import asyncio
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import httpx2

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from assistant_runner.endpoints import normalise_endpoint
from assistant_runner.service.engines.chat import ChatEngine, chat_body
from assistant_runner.service.engines.client import open_client
from assistant_runner.service.engines.planner import PlannerEngine
from assistant_runner.service.engines.providers import Provider
from assistant_runner.service.engines.responses import ResponsesEngine, responses_body
from tests.service.engines.fake_openai import call_item, chunk, fragment, message_item, response_stream, sse
from tests.service.engines.helpers import STRING, request, tool

WORDS = "So it is. " * 30
QUESTION = "What is the weather and the wiki url of San Francisco? And what is the content of the wiki page?"
PROVIDER = Provider(normalise_endpoint("http://127.0.0.1:1/v1"))
TOOLS = [
    tool("get_weather", "Determine weather in my location", city=STRING),
    tool("get_wiki_url", "Get the wiki url of a given location", city=STRING),
    tool("get_webpage", "Reads a web page", url=STRING),
]


def transport(body: bytes) -> httpx2.MockTransport:
    headers = {"content-type": "text/event-stream"}
    return httpx2.MockTransport(lambda _: httpx2.Response(200, headers=headers, content=body))


async def compare(
    name: str, bare: Callable[[], Awaitable[None]], ours: Callable[[], Awaitable[None]], turns: int
) -> None:
    times: dict[str, list[float]] = {"bare": [], "ours": []}
    for number in range(turns + 10):
        for which, once in (("bare", bare), ("ours", ours)):
            begun = time.process_time()
            await once()
            if number >= 10:
                times[which].append((time.process_time() - begun) * 1000)
    sdk, engine = statistics.median(times["bare"]), statistics.median(times["ours"])
    print(f"{name:<10} SDK {sdk:6.2f} ms   engine {engine:6.2f} ms   overhead {engine - sdk:5.2f} ms a turn")


async def main(turns: int) -> None:
    wanted = request(QUESTION, tools=TOOLS)
    pieces = [chunk({"content": WORDS[start : start + 5]}) for start in range(0, len(WORDS), 5)]
    call = chunk({"tool_calls": [fragment(0, "call_a", "get_weather", '{"city": "Oslo"}')]})
    chat_bytes = sse(*pieces, call, chunk({}, "tool_calls"), chunk(usage={})).body
    item = call_item("call_a", "get_weather", '{"city": "Oslo"}')
    responses_bytes = response_stream(message_item(WORDS), item).body

    for name, body, engine_type in (
        ("chat", chat_bytes, ChatEngine),
        ("responses", responses_bytes, ResponsesEngine),
    ):
        client = open_client(PROVIDER, transport=transport(body))
        engine = engine_type(PROVIDER, transport=transport(body))

        chat_fields = chat_body(wanted, "m", kind="compatible")
        responses_fields = responses_body(wanted, "m", PROVIDER.endpoint, store=False, carry={})

        async def bare(client=client, name=name, chat=chat_fields, responses=responses_fields) -> None:
            if name == "chat":
                stream = await client.chat.completions.create(**chat, stream=True)
            else:
                stream = await client.responses.create(**responses, stream=True)
            async for _ in stream:
                pass

        async def ours(engine=engine) -> None:
            async for _ in engine.turn(wanted):
                pass

        await compare(name, bare, ours, turns)

    planner = PlannerEngine()
    times = []
    for _ in range(turns):
        begun = time.perf_counter()
        async for _ in planner.turn(wanted):
            pass
        times.append((time.perf_counter() - begun) * 1000)
    print(f"planner    {statistics.median(times):6.2f} ms a turn")


def imports() -> None:
    """What a module costs to import in a fresh process: the SDK is in the second and third alone."""
    for what in ("choose", "chat", "responses"):
        module = f"assistant_runner.service.engines.{what}"
        code = f"import time; t = time.perf_counter(); import {module}; print(time.perf_counter() - t)"
        command = [sys.executable, "-c", code]
        runs = [subprocess.run(command, capture_output=True, text=True, check=True) for _ in range(3)]
        print(f"import {what:<10} {min(float(run.stdout) for run in runs) * 1000:6.0f} ms")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=300)
    asyncio.run(main(parser.parse_args().turns))
    imports()
