"""Runs a second through HTTP: zero-latency runs with one tool round each, streamed and polled.

usage: python bench/service.py [--runs 3000] [--clients 16] [--mode stream|poll] [--memory]

A server process of its own (script engine, SQLite in a temporary folder) and a plain socket client.
Prints runs per second of wall time and per second of the server's CPU time (the second figure says
what one core gives when the machine is shared), the time to the first event, and the server's memory.
"""

import argparse
import asyncio
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SCRIPT = {
    "format": 1,
    "scripts": {
        "round": {
            "turns": [
                {"tool_calls": [{"name": "get_weather", "arguments": {"city": "Oslo"}}]},
                {"text": "It rains in Oslo, and it will go on."},
            ]
        }
    },
}
TICKS = os.sysconf("SC_CLK_TCK")
CALL_ID = re.compile(rb'"required_action":\{.*?"id":"(call_\w+)"')
RUN_ID = re.compile(rb'"id":"(run_\w+)"')
THREAD_ID = re.compile(rb'"(?:thread_id|id)":"(thread_\w+)"')


class Connection:
    """One kept-alive HTTP/1.1 connection that reads just enough of HTTP."""

    def __init__(self, port: int) -> None:
        self.port = port

    async def open(self) -> None:
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port)

    def send(self, method: str, path: str, body: object = None) -> None:
        data = b"" if body is None else json.dumps(body).encode()
        head = (
            f"{method} /v1{path} HTTP/1.1\r\nHost: x\r\nOpenAI-Beta: assistants=v2\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
        )
        self.writer.write(head.encode() + data)

    async def answer(self) -> bytes:
        head = await self.reader.readuntil(b"\r\n\r\n")
        assert b" 200 " in head.split(b"\r\n", 1)[0], head
        if b"chunked" not in head:
            size = int(re.search(rb"content-length: (\d+)", head)[1])  # type: ignore[index]
            return await self.reader.readexactly(size)
        body = b""
        while True:
            size = int(await self.reader.readline(), 16)
            piece = await self.reader.readexactly(size + 2)
            if not size:
                return body
            if not body:
                self.first_at = time.perf_counter()
            body += piece[:-2]


async def one_run(link: Connection, assistant_id: str, stream: bool) -> float:
    """Seconds from the request to the first event (or to the created run)."""
    began = time.perf_counter()
    body = {
        "assistant_id": assistant_id,
        "stream": stream,
        "thread": {"messages": [{"role": "user", "content": "How is the weather?"}]},
    }
    link.send("POST", "/threads/runs", body)
    text = await link.answer()
    first_s = (link.first_at if stream else time.perf_counter()) - began
    run_id = RUN_ID.search(text)[1].decode()  # type: ignore[index]
    thread_id = THREAD_ID.search(text)[1].decode()  # type: ignore[index]
    path = f"/threads/{thread_id}/runs/{run_id}"
    while not stream and b'"status":"requires_action"' not in text:
        link.send("GET", path)
        text = await link.answer()
    call_id = CALL_ID.search(text)[1].decode()  # type: ignore[index]
    outputs = [{"tool_call_id": call_id, "output": "rain"}]
    link.send("POST", f"{path}/submit_tool_outputs", {"tool_outputs": outputs, "stream": stream})
    text = await link.answer()
    while not stream and b'"status":"completed"' not in text:
        link.send("GET", path)
        text = await link.answer()
    assert b"completed" in text
    return first_s


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def memory_mb(pid: int) -> float:
    [line] = [x for x in Path(f"/proc/{pid}/status").read_text().splitlines() if x.startswith("VmRSS")]
    return int(line.split()[1]) / 1024


async def measure(port: int, pid: int, runs: int, clients: int, stream: bool, memory: bool) -> None:
    link = Connection(port)
    await link.open()
    tool = {"type": "function", "function": {"name": "get_weather"}}
    link.send("POST", "/assistants", {"model": "round", "tools": [tool]})
    assistant_id = json.loads(await link.answer())["id"]
    firsts = [await one_run(link, assistant_id, stream) for _ in range(200)]
    print(f"first answer, one at a time: median {statistics.median(firsts) * 1000:.2f} ms")
    left = runs
    memory_at = [memory_mb(pid)]
    cpu, wall = cpu_s(pid), time.perf_counter()

    async def client() -> None:
        nonlocal left
        own = Connection(port)
        await own.open()
        while left > 0:
            left -= 1
            number = runs - left
            await one_run(own, assistant_id, stream)
            if memory and number % 5000 == 0:
                memory_at.append(memory_mb(pid))
                print(f"  {number} runs: {memory_at[-1]:.0f} MB", flush=True)

    await asyncio.gather(*(client() for _ in range(clients)))
    cpu, wall = cpu_s(pid) - cpu, time.perf_counter() - wall
    print(f"{runs} runs, {clients} clients, {'streamed' if stream else 'polled'}:")
    print(f"  {runs / wall:.0f} runs/s wall, {runs / cpu:.0f} runs/s of server CPU")
    print(f"  memory {memory_at[0]:.0f} MB before, {memory_mb(pid):.0f} MB after")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=3000)
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--mode", choices=("stream", "poll"), default="stream")
    parser.add_argument("--memory", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "script.json"
        script.write_text(json.dumps(SCRIPT))
        command = [sys.executable, "-m", "assistant_runner", "serve", "--engine", "script"]
        command += ["--script", str(script)]
        command += ["--port", "0", "--data", f"{folder}/data", "--json", "--log-level", "warning"]
        server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        try:
            assert server.stdout is not None
            ready = json.loads(server.stdout.readline())
            asyncio.run(
                measure(
                    ready["port"],
                    ready["pid"],
                    options.runs,
                    options.clients,
                    options.mode == "stream",
                    options.memory,
                )
            )
        finally:
            server.terminate()
            server.wait(10)


if __name__ == "__main__":
    main()
