"""One look at a backend: what a plan needs to know, in as few requests as the lock allows."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from assistant_runner.backends.base import Backend
from assistant_runner.errors import NotFound
from assistant_runner.setup.finding import all_pages
from assistant_runner.setup.lock import BackendRecords
from assistant_runner.setup.model import AssistantSpec
from assistant_runner.wire.assistants import Assistant
from assistant_runner.wire.files import File, VectorStore


@dataclass(slots=True)
class Snapshot:
    """What the backend showed. `complete`: all assistants were listed, not only the known one."""

    assistants: list[Assistant]
    complete: bool
    files: dict[str, File] = field(default_factory=dict)
    stores: list[VectorStore] = field(default_factory=list)


async def observe(backend: Backend, specs: Sequence[AssistantSpec], records: BackendRecords) -> Snapshot:
    """One look at the backend, as small as the specs and the lock allow."""
    snapshot = await _observe_assistants(backend, specs, records)
    if any(spec.search_files or spec.interpreter_files for spec in specs) or _had_files(specs, records):
        files = await all_pages(lambda after: backend.list_files(limit=1000, after=after))
        snapshot.files = {one.id: one for one in files}
    if any(has_own_store(spec) for spec in specs):
        snapshot.stores = await all_pages(lambda after: backend.list_vector_stores(after=after))
    return snapshot


async def _observe_assistants(
    backend: Backend, specs: Sequence[AssistantSpec], records: BackendRecords
) -> Snapshot:
    if len(specs) == 1 and (record := records.assistants.get(specs[0].identity)):
        try:
            return Snapshot([await backend.retrieve_assistant(record.id)], complete=False)
        except NotFound:
            pass
    found = await all_pages(lambda after: backend.list_assistants(after=after))
    return Snapshot(found, complete=True)


def _had_files(specs: Sequence[AssistantSpec], records: BackendRecords) -> bool:
    identities = {spec.identity for spec in specs}
    return any(record.users & identities for record in records.files.values())


def has_own_store(spec: AssistantSpec) -> bool:
    entry = spec.tool("file_search")
    return bool(spec.search_files or (entry and entry.file_ids))
