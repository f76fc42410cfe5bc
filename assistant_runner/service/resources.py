"""Tool resources of assistants, threads and runs: which files and vector stores they name.

The `vector_stores` shortcut of create bodies makes a store on the way (reference, section 4.1).
"""

from assistant_runner.service import stores
from assistant_runner.service.core import Core
from assistant_runner.service.failures import not_found
from assistant_runner.service.store.base import Document


def resolved(core: Core, world: str, resources: Document | None) -> Document:
    """The resources as they are stored and shown; ApiError 404 for what does not exist."""
    shown: Document = {}
    for name, inner in (resources or {}).items():
        if inner is None:
            continue
        if name == "code_interpreter":
            file_ids = list(dict.fromkeys(inner.get("file_ids") or []))
            for file_id in file_ids:
                if not core.store.exists("file", world, file_id):
                    raise not_found("file", file_id)
            shown[name] = {"file_ids": file_ids}
        elif name == "file_search":
            store_ids = list(inner.get("vector_store_ids") or [])
            for store_id in store_ids:
                if not core.store.exists("vector_store", world, store_id):
                    raise not_found("vector_store", store_id)
            for body in inner.get("vector_stores") or []:
                store_ids.append(stores.create_store(core, world, body).id)
            shown[name] = {"vector_store_ids": store_ids}
    return shown


def without_deleted(core: Core, world: str, document: Document) -> Document:
    """An assistant or thread without the files that were deleted since (reference, section 8.3)."""
    resources = document.get("tool_resources") or {}
    file_ids = (resources.get("code_interpreter") or {}).get("file_ids")
    if not file_ids:
        return document
    kept = [file_id for file_id in file_ids if core.store.exists("file", world, file_id)]
    if len(kept) == len(file_ids):
        return document
    return {**document, "tool_resources": {**resources, "code_interpreter": {"file_ids": kept}}}
