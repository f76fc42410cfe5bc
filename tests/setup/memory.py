"""A backend in memory for tests at the seam: counts what is asked, and can fail before or after a request."""

import itertools
from collections.abc import Sequence
from typing import Any

from assistant_runner.errors import BackendUnreachable, NotFound, RequestRejected
from assistant_runner.wire.assistants import Assistant, AssistantCreate, AssistantModify
from assistant_runner.wire.base import Deleted, Page
from assistant_runner.wire.files import (
    File,
    FileBatch,
    FileBatchCreate,
    FileCounts,
    VectorStore,
    VectorStoreCreate,
    VectorStoreFile,
)
from assistant_runner.wire.threads import Message, MessageCreate, Thread, ThreadCreate

WRITES = ("create_", "modify_", "delete_", "upload_", "remove_", "add_")


class Killed(Exception):
    """Stands for the end of the process between two requests."""


class MemoryBackend:
    """Assistants, files, vector stores, threads. `fail_at`: the number of the request that fails,
    counting from 1; `after` lets it happen first and loses the answer."""

    def __init__(self, label: str = "memory") -> None:
        self.label = label
        self.assistants: dict[str, Assistant] = {}
        self.files: dict[str, File] = {}
        self.contents: dict[str, bytes] = {}
        self.stores: dict[str, VectorStore] = {}
        self.inside: dict[str, dict[str, VectorStoreFile]] = {}
        self.threads: dict[str, Thread] = {}
        self.messages: dict[str, list[Message]] = {}
        self.calls: list[str] = []
        self.fail_at: int | None = None
        self.after = False
        self.error: type[Exception] = Killed
        self.unindexable: set[str] = set()
        self._ids = itertools.count(1)

    @property
    def writes(self) -> list[str]:
        return [call for call in self.calls if call.startswith(WRITES)]

    def _begin(self, name: str) -> None:
        self.calls.append(name)
        if self.fail_at == len(self.calls) and not self.after:
            self._fail()

    def _end(self) -> None:
        if self.fail_at == len(self.calls) and self.after:
            self._fail()

    def _fail(self) -> None:
        raise self.error("cut off") if self.error is not BackendUnreachable else BackendUnreachable("cut off")

    def _id(self, prefix: str) -> str:
        return f"{prefix}{next(self._ids):04d}"

    def _page(self, items: Sequence[Any], limit: int, after: str | None) -> Page[Any]:
        ids = [item.id for item in items]
        start = ids.index(after) + 1 if after else 0
        data = list(items)[start : start + limit]
        return Page(
            data=data,
            first_id=data[0].id if data else None,
            last_id=data[-1].id if data else None,
            has_more=start + limit < len(items),
        )

    def _get(self, found: dict[str, Any], key: str) -> Any:
        if key not in found:
            raise NotFound(f"No object with id {key!r}.", status_code=404)
        return found[key]

    async def create_assistant(self, body: AssistantCreate) -> Assistant:
        self._begin("create_assistant")
        defaults = {"name": None, "description": None, "instructions": None, "tools": [], "metadata": {}}
        defaults |= {"tool_resources": {}, "temperature": 1.0, "top_p": 1.0, "response_format": "auto"}
        data = defaults | {k: v for k, v in body.document().items() if v is not None}
        new = Assistant.model_validate({"id": self._id("asst_"), "created_at": 1, **data})
        self.assistants[new.id] = new
        self._end()
        return new

    async def retrieve_assistant(self, assistant_id: str) -> Assistant:
        self._begin("retrieve_assistant")
        found = self._get(self.assistants, assistant_id)
        self._end()
        return found

    async def modify_assistant(self, assistant_id: str, body: AssistantModify) -> Assistant:
        self._begin("modify_assistant")
        old = self._get(self.assistants, assistant_id)
        new = Assistant.model_validate({**old.document(), **body.document()})
        self.assistants[assistant_id] = new
        self._end()
        return new

    async def delete_assistant(self, assistant_id: str) -> Deleted:
        self._begin("delete_assistant")
        self._get(self.assistants, assistant_id)
        del self.assistants[assistant_id]
        self._end()
        return Deleted(id=assistant_id, object="assistant.deleted")

    async def list_assistants(
        self, *, limit: int = 100, order: str = "desc", after: str | None = None
    ) -> Page[Assistant]:
        self._begin("list_assistants")
        page = self._page(list(self.assistants.values())[::-1], limit, after)
        self._end()
        return page

    async def upload_file(
        self, *, filename: str, content: bytes, purpose: str = "assistants", content_type: str | None = None
    ) -> File:
        self._begin("upload_file")
        new = File(
            id=self._id("file-"),
            bytes=len(content),
            created_at=1,
            filename=filename,
            purpose=purpose,
            status="processed",
        )
        self.files[new.id] = new
        self.contents[new.id] = content
        self._end()
        return new

    async def list_files(
        self, *, purpose: str | None = None, limit: int = 1000, after: str | None = None
    ) -> Page[File]:
        self._begin("list_files")
        page = self._page(list(self.files.values()), limit, after)
        self._end()
        return page

    async def delete_file(self, file_id: str) -> Deleted:
        self._begin("delete_file")
        self._get(self.files, file_id)
        del self.files[file_id]
        for inside in self.inside.values():
            inside.pop(file_id, None)
        self._end()
        return Deleted(id=file_id, object="file")

    async def file_content(self, file_id: str) -> bytes:
        self._begin("file_content")
        content = self._get(self.contents, file_id)
        self._end()
        return content

    async def create_vector_store(self, body: VectorStoreCreate) -> VectorStore:
        self._begin("create_vector_store")
        new = VectorStore(
            id=self._id("vs_"),
            created_at=1,
            name=body.name or "",
            usage_bytes=0,
            status="completed",
            file_counts=FileCounts(in_progress=0, completed=0, failed=0, cancelled=0, total=0),
            metadata=body.metadata or {},
        )
        self.stores[new.id] = new
        self.inside[new.id] = {}
        self._end()
        return new

    async def list_vector_stores(
        self, *, limit: int = 100, order: str = "desc", after: str | None = None
    ) -> Page[VectorStore]:
        self._begin("list_vector_stores")
        page = self._page(list(self.stores.values()), limit, after)
        self._end()
        return page

    async def delete_vector_store(self, vector_store_id: str) -> Deleted:
        self._begin("delete_vector_store")
        self._get(self.stores, vector_store_id)
        del self.stores[vector_store_id], self.inside[vector_store_id]
        self._end()
        return Deleted(id=vector_store_id, object="vector_store.deleted")

    async def list_vector_store_files(
        self, vector_store_id: str, *, limit: int = 100, after: str | None = None
    ) -> Page[VectorStoreFile]:
        self._begin("list_vector_store_files")
        page = self._page(list(self._get(self.inside, vector_store_id).values()), limit, after)
        self._end()
        return page

    async def remove_vector_store_file(self, *, vector_store_id: str, file_id: str) -> Deleted:
        self._begin("remove_vector_store_file")
        self._get(self._get(self.inside, vector_store_id), file_id)
        del self.inside[vector_store_id][file_id]
        self._end()
        return Deleted(id=file_id, object="vector_store.file.deleted")

    async def create_file_batch(self, vector_store_id: str, body: FileBatchCreate) -> FileBatch:
        self._begin("create_file_batch")
        inside = self._get(self.inside, vector_store_id)
        for one in body.files or []:
            shown = self._get(self.files, one.file_id)
            if shown.bytes == 0:
                raise RequestRejected("empty", status_code=400)
            failed = shown.filename in self.unindexable
            inside[one.file_id] = VectorStoreFile.model_validate(
                {
                    "id": one.file_id,
                    "created_at": 1,
                    "vector_store_id": vector_store_id,
                    "usage_bytes": shown.bytes,
                    "status": "failed" if failed else "completed",
                    "last_error": {"code": "invalid_file", "message": "no text in it"} if failed else None,
                    "attributes": one.attributes,
                }
            )
        self._end()
        counts = FileCounts(in_progress=0, completed=len(inside), failed=0, cancelled=0, total=len(inside))
        return FileBatch(
            id=self._id("vsfb_"),
            created_at=1,
            vector_store_id=vector_store_id,
            status="completed",
            file_counts=counts,
        )

    async def create_thread(self, body: ThreadCreate) -> Thread:
        self._begin("create_thread")
        new = Thread(id=self._id("thread_"), created_at=1, metadata=body.metadata or {})
        self.threads[new.id] = new
        self.messages[new.id] = []
        for message in body.messages or []:
            self._message(new.id, message)
        self._end()
        return new

    async def retrieve_thread(self, thread_id: str) -> Thread:
        self._begin("retrieve_thread")
        return self._get(self.threads, thread_id)

    async def delete_thread(self, thread_id: str) -> Deleted:
        self._begin("delete_thread")
        del self.threads[thread_id]
        return Deleted(id=thread_id, object="thread.deleted")

    async def create_message(self, thread_id: str, body: MessageCreate) -> Message:
        self._begin("create_message")
        self._get(self.threads, thread_id)
        message = self._message(thread_id, body)
        self._end()
        return message

    def _message(self, thread_id: str, body: MessageCreate) -> Message:
        data = body.document()
        content = data["content"]
        parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
        shown = [
            {**part, "text": {"value": part["text"], "annotations": []}} if part["type"] == "text" else part
            for part in parts
        ]
        message = Message.model_validate(
            {
                "id": self._id("msg_"),
                "created_at": 1,
                "thread_id": thread_id,
                "status": "completed",
                "role": data["role"],
                "content": shown,
                "attachments": data.get("attachments") or [],
                "metadata": data.get("metadata") or {},
            }
        )
        self.messages[thread_id].append(message)
        return message

    async def list_messages(
        self,
        thread_id: str,
        *,
        limit: int = 100,
        order: str = "desc",
        after: str | None = None,
        run_id: str | None = None,
    ) -> Page[Message]:
        self._begin("list_messages")
        items = self._get(self.messages, thread_id)
        page = self._page(items if order == "asc" else items[::-1], limit, after)
        self._end()
        return page
