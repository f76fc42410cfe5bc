"""Files that code of a run made: kept as files of purpose `assistants_output` (reference, 8.2)."""

from assistant_runner.service.core import Core
from assistant_runner.service.ids import new_id


def keep_output(core: Core, world: str, name: str, content: bytes) -> str:
    """The id of the new file."""
    identifier = new_id("file")
    core.shelf.place(identifier).write_bytes(content)
    document = {
        "id": identifier,
        "object": "file",
        "bytes": len(content),
        "created_at": core.now(),
        "filename": name,
        "purpose": "assistants_output",
        "status": "processed",
        "expires_at": None,
        "status_details": None,
    }
    core.store.insert("file", world, identifier, document, tag="assistants_output")
    return identifier
