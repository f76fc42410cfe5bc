"""How long a plan of 100 assistants takes against a service on loopback, and of 1,000 files unchanged.

    python bench/setup_plan.py

Goals: the plan under 1 s; 1,000 files of 10 kB hashed and skipped under 1 s. Prints seconds and ratios.
"""

import asyncio
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import uvicorn

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from assistant_runner.backends.client import Client
from assistant_runner.backends.connect import direct_transport
from assistant_runner.backends.http import HttpBackend
from assistant_runner.service.app import Service
from assistant_runner.service.engines.script import ScriptEngine
from assistant_runner.service.settings import ServiceSettings
from assistant_runner.service.store.sqlite import SqliteStore
from assistant_runner.setup.apply import Applier
from assistant_runner.setup.desired import hash_file
from assistant_runner.setup.load import load_assistant_file
from assistant_runner.setup.lock import LOCK_NAME, read_lock
from assistant_runner.setup.planned import PlanOptions
from assistant_runner.setup.tools import definitions_from

ASSISTANT = """\
name: Assistant {n}
model: gpt-6-luna
instructions: |
  You are assistant {n}.
  Answer with the tools you have.
temperature: 0.5
tools:
  - get_weather
  - get_wiki_url
  - type: function
    function:
      name: book_{n}
      description: Book a table
      parameters: {{type: object, properties: {{people: {{type: integer}}}}, required: [people]}}
metadata: {{team: maps, version: 1.10}}
"""


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """A service on loopback, in a thread with a loop of its own."""
    ready, urls, servers = threading.Event(), [], []

    async def main() -> None:
        store = SqliteStore.open(folder / "store.sqlite3")
        engine = ScriptEngine.from_document({"format": 1, "scripts": {"a": {"turns": [{"text": "a"}]}}})
        service = Service(store=store, engine=engine, settings=ServiceSettings(data_folder=folder))
        async with service:
            config = uvicorn.Config(service.app, port=0, log_level="error", lifespan="off", access_log=False)
            server = uvicorn.Server(config)
            task = asyncio.create_task(server.serve())
            while not server.started:  # noqa: ASYNC110 (the server offers no event)
                await asyncio.sleep(0.002)
            urls.append(f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}/v1")
            servers.append(server)
            ready.set()
            await task
        store.close()

    thread = threading.Thread(target=lambda: asyncio.run(main()))
    thread.start()
    ready.wait()
    yield urls[0]
    servers[0].should_exit = True
    thread.join()


async def plan(url: str, path: Path, *, apply: bool = False) -> bool:
    """Whether the plan is empty; everything that `assistant plan` does after its imports."""
    specs = load_assistant_file(path, environ={})
    async with HttpBackend(Client(direct_transport(), url), label=url) as backend:
        folder = path if path.suffix == "" else path.parent
        applier = Applier(backend, read_lock(folder / LOCK_NAME))
        found = await applier.plan(specs, PlanOptions(define=definitions_from()))
        if apply:
            await applier.carry_out(found)
        return found.is_empty


async def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        assistants = root / "assistants"
        assistants.mkdir()
        for n in range(100):
            (assistants / f"{n:03}.yaml").write_text(ASSISTANT.format(n=n))
        files = root / "files"
        (files / "data").mkdir(parents=True)
        for n in range(1000):
            (files / "data" / f"{n:04}.txt").write_bytes(f"{n:05}".encode() * 2000)
        (files / "assistant.yaml").write_text(
            "name: Files\nmodel: m\ntools: [file_search: {files: ['data/*.txt']}]\n"
        )
        with served(root / "served") as url:
            await timed("apply 100 assistants", None, plan(url, assistants, apply=True))
            for _ in range(3):
                await timed("plan 100 assistants, nothing changed", 1.0, plan(url, assistants))
            await timed("apply 1,000 files of 10 kB", None, plan(url, files / "assistant.yaml", apply=True))
            for _ in range(3):
                await timed("plan 1,000 files, nothing changed", 1.0, plan(url, files / "assistant.yaml"))
        [spec] = load_assistant_file(files / "assistant.yaml", environ={})
        started = time.perf_counter()
        for use in spec.search_files:
            hash_file(use)
        show("of which hashing 1,000 files", None, time.perf_counter() - started)


async def timed(words: str, goal_s: float | None, work: object) -> None:
    started, used = time.perf_counter(), time.process_time()
    await work  # type: ignore[misc]
    show(words, goal_s, time.perf_counter() - started, time.process_time() - used)


def show(words: str, goal_s: float | None, seconds: float, cpu_s: float | None = None) -> None:
    """`cpu_s`: of client and server together, which share this process."""
    ratio = f"  {seconds / goal_s:.2f} of the goal of {goal_s:g} s" if goal_s else ""
    cpu = f"  ({cpu_s:.3f} s of CPU)" if cpu_s is not None else ""
    print(f"{words:42} {seconds:7.3f} s{cpu}{ratio}")


if __name__ == "__main__":
    asyncio.run(main())
