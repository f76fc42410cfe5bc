"""The service behind a real port with the script of `model.json`, every exchange recorded.

`python -m tests.clients.served [PORT]` serves until interrupted, for driving a client by hand; it
writes refused requests and answers of a wrong shape to stderr.
"""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import uvicorn

from assistant_runner.service.app import Service
from assistant_runner.service.engines.script import ScriptEngine
from assistant_runner.service.settings import ServiceSettings
from assistant_runner.service.store.sqlite import SqliteStore
from tests.clients.recording import Recorder, flaw_of

HERE = Path(__file__).parent
KEY = "client-key"


@dataclass(frozen=True)
class Served:
    """Where the service listens, and what was said."""

    url: str
    recorder: Recorder


@asynccontextmanager
async def served(port: int = 0, **tls: str) -> AsyncIterator[Served]:
    """A service that asks for the key KEY; `tls` are uvicorn's `ssl_keyfile` and `ssl_certfile`."""
    engine = ScriptEngine.from_document(json.loads((HERE / "model.json").read_text(encoding="utf-8")))
    store = SqliteStore.open(":memory:")
    service = Service(store=store, engine=engine, settings=ServiceSettings(api_keys=(KEY,)))
    recorder = Recorder(service.app)
    async with service:
        options = {"log_level": "error", "lifespan": "off", "access_log": False}
        server = uvicorn.Server(uvicorn.Config(recorder, port=port, **options, **tls))  # type: ignore[arg-type]
        task = asyncio.create_task(server.serve())
        while not server.started:  # noqa: ASYNC110 (the server offers no event)
            await asyncio.sleep(0.002)
        listening = server.servers[0].sockets[0].getsockname()[1]
        try:
            yield Served(f"{'https' if tls else 'http'}://127.0.0.1:{listening}", recorder)
        finally:
            await service.pause()
            server.should_exit = True
            await task
    store.close()


async def _by_hand(port: int, **tls: str) -> None:
    async with served(port, **tls) as here:
        print(here.url, file=sys.stderr, flush=True)
        shown = 0
        while True:
            await asyncio.sleep(0.2)
            exchanges = here.recorder.exchanges
            while shown < len(exchanges) and (exchanges[shown].ended or exchanges[shown].left):
                one = exchanges[shown]
                shown += 1
                if one.status != 200:
                    print(one, one.request[:1000], one.body[:1000], file=sys.stderr, flush=True)
                if flaw := flaw_of(one):
                    print("FLAW", one, flaw, file=sys.stderr, flush=True)


if __name__ == "__main__":
    keys = dict(zip(("ssl_keyfile", "ssl_certfile"), sys.argv[2:], strict=False))
    asyncio.run(_by_hand(int(sys.argv[1]) if len(sys.argv) > 1 else 0, **keys))
