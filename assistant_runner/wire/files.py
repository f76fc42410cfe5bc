"""Files, vector stores, models (reference, sections 4.8 to 4.12 and 5)."""

from typing import Any, Literal

from assistant_runner.wire.base import Metadata, Number, RequestBody, WireObject
from assistant_runner.wire.tools import ChunkingStrategy

Attributes = dict[str, str | bool | int | float]


class File(WireObject):
    id: str
    object: Literal["file"] = "file"
    bytes: int
    created_at: int
    filename: str
    purpose: str
    status: str
    expires_at: int | None = None
    status_details: str | None = None


class FileCounts(WireObject):
    in_progress: int
    completed: int
    failed: int
    cancelled: int
    total: int


class ExpiresAfter(WireObject):
    anchor: Literal["last_active_at"] = "last_active_at"
    days: int


class VectorStore(WireObject):
    id: str
    object: Literal["vector_store"] = "vector_store"
    created_at: int
    name: str
    usage_bytes: int
    file_counts: FileCounts
    status: str
    expires_after: ExpiresAfter | None = None
    expires_at: int | None = None
    last_active_at: int | None = None
    metadata: Metadata | None = None


class VectorStoreFileError(WireObject):
    code: str
    message: str


class VectorStoreFile(WireObject):
    id: str
    object: Literal["vector_store.file"] = "vector_store.file"
    created_at: int
    vector_store_id: str
    usage_bytes: int
    status: str
    last_error: VectorStoreFileError | None = None
    chunking_strategy: ChunkingStrategy | None = None
    attributes: Attributes | None = None


class FileBatch(WireObject):
    id: str
    object: str = "vector_store.files_batch"
    created_at: int
    vector_store_id: str
    status: str
    file_counts: FileCounts


class SearchResult(WireObject):
    file_id: str
    filename: str
    score: Number
    attributes: Attributes | None = None
    content: list[dict[str, Any]]


class SearchPage(WireObject):
    object: str = "vector_store.search_results.page"
    search_query: list[str]
    data: list[SearchResult]
    has_more: bool = False
    next_page: str | None = None


class FileContentPage(WireObject):
    object: str = "vector_store.file_content.page"
    data: list[dict[str, Any]]
    has_more: bool = False
    next_page: str | None = None


class VectorStoreModify(RequestBody):
    name: str | None = None
    expires_after: ExpiresAfter | None = None
    metadata: Metadata | None = None


class VectorStoreCreate(VectorStoreModify):
    file_ids: list[str] | None = None
    description: str | None = None
    chunking_strategy: ChunkingStrategy | None = None


class VectorStoreFileCreate(RequestBody):
    file_id: str
    chunking_strategy: ChunkingStrategy | None = None
    attributes: Attributes | None = None


class VectorStoreFileModify(RequestBody):
    attributes: Attributes | None


class FileBatchCreate(RequestBody):
    """Exactly one of `file_ids` and `files`."""

    file_ids: list[str] | None = None
    files: list[VectorStoreFileCreate] | None = None
    chunking_strategy: ChunkingStrategy | None = None
    attributes: Attributes | None = None


class VectorStoreSearch(RequestBody):
    query: str | list[str]
    rewrite_query: bool | None = None
    max_num_results: int | None = None
    filters: dict[str, Any] | None = None
    ranking_options: dict[str, Any] | None = None


class Model(WireObject):
    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: str


class ModelList(WireObject):
    object: Literal["list"] = "list"
    data: list[Model]
