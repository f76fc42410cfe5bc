"""The real service behind the Backend seam: in process, over HTTP."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from assistant_runner.backends.embedded import open_embedded
from assistant_runner.backends.http import HttpBackend
from assistant_runner.service.engines.script import ScriptEngine
from assistant_runner.service.settings import ServiceSettings

SCRIPT = {"format": 1, "scripts": {"hello": {"turns": [{"text": "Hello."}]}}}


@asynccontextmanager
async def real_backend(folder: Path) -> AsyncIterator[HttpBackend]:
    """Our client on our service, in process; its data lie in the folder."""
    folder.mkdir(parents=True, exist_ok=True)  # noqa: ASYNC240
    engine, options = ScriptEngine.from_document(SCRIPT), ServiceSettings(data_folder=folder)
    async with open_embedded(folder / "store.sqlite3", engine, options) as backend:
        yield backend
