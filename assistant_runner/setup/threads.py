"""Threads carried from one place to another: dumps of the old API in, JSON lines in and out.

An import keeps order, roles and texts, and says what it could not keep: times (the original ones go
into the messages' metadata), annotations, attachments and image files, whose ids mean nothing elsewhere.
It is done once: a ledger in the state folder knows what became what, so that a second import of the same
file adds nothing, and one that was cut off goes on where it was.
"""

import hashlib
import itertools
import json
import os
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from assistant_runner.backends.base import Backend
from assistant_runner.errors import ConfigurationError, NotFound
from assistant_runner.setup.finding import all_pages
from assistant_runner.wire.threads import Message, MessageCreate, Thread, ThreadCreate

MAX_CHARACTERS = 256_000
MAX_PAIRS = 16
_ROLES = ("user", "assistant")


@dataclass(slots=True)
class ThreadDump:
    """One thread as a dump has it, oldest message first. `lost`: what cannot be carried over, and why."""

    source: str
    metadata: dict[str, str] = field(default_factory=dict)
    messages: list[MessageCreate] = field(default_factory=list)
    read: int = 0
    lost: list[str] = field(default_factory=list)

    @property
    def text_hash(self) -> str:
        """SHA-256 over roles and texts in order, as they are sent."""
        return hash_texts((one.role, _sent_text(one)) for one in self.messages)


@dataclass(slots=True)
class ThreadReport:
    """What became of one thread. `status`: imported, resumed, extended, already there, would be imported."""

    source: str
    status: str
    thread_id: str | None
    read: int
    written: int
    sha256: str
    sha256_there: str | None = None
    in_order: bool | None = None
    lost: list[str] = field(default_factory=list)

    @property
    def is_whole(self) -> bool:
        """What the backend shows is what was sent, in order."""
        return self.sha256_there is None or self.sha256 == self.sha256_there

    def document(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "source": self.source,
            "status": self.status,
            "thread_id": self.thread_id,
            "messages_read": self.read,
            "messages_written": self.written,
            "texts_sha256": self.sha256,
            "texts_sha256_on_backend": self.sha256_there,
            "in_order": self.in_order,
            "not_carried_over": self.lost,
        }


def hash_texts(texts: Iterable[tuple[str, str]]) -> str:
    """SHA-256 over (role, text) pairs in order."""
    digest = hashlib.sha256()
    for role, text in texts:
        digest.update(f"{role}\x1f{text}\x1e".encode("utf-8", "surrogatepass"))
    return digest.hexdigest()


def _sent_text(message: MessageCreate) -> str:
    if isinstance(message.content, str):
        return message.content
    return "\n".join(part.text for part in message.content if part.type == "text")


def _shown_text(message: Message) -> str:
    return "\n".join(part.text.value for part in message.content if part.type == "text")  # type: ignore[union-attr]


# --- reading dumps ---------------------------------------------------------------------------------


@dataclass(slots=True)
class _Found:
    threads: dict[str, dict[str, Any]] = field(default_factory=dict)
    messages: dict[str, list[tuple[int, dict[str, Any]]]] = field(default_factory=dict)
    others: dict[str, int] = field(default_factory=dict)
    count: int = 0


def read_threads(documents: Sequence[Any], *, name: str = "dump") -> tuple[list[ThreadDump], list[str]]:
    """The threads of a dump, and in words what is none. `name` stands for a thread without an id."""
    found = _Found()
    for document in documents:
        _collect(document, found, None)
    dumps = []
    for source in dict.fromkeys([*found.threads, *found.messages]):
        dump = ThreadDump(source or name)
        dump.metadata = _metadata(found.threads.get(source, {}).get("metadata"), dump.lost, "thread")
        for _, message in _in_order(found.messages.get(source, []), dump.lost):
            dump.read += 1
            _convert(message, dump)
        dumps.append(dump)
    strangers = [f"{count} × {kind}" for kind, count in found.others.items()]
    return dumps, strangers


def _collect(document: Any, found: _Found, thread: str | None) -> None:
    """Sort what a dump holds into threads, messages and others."""
    if isinstance(document, list):
        for one in document:
            _collect(one, found, thread)
        return
    if not isinstance(document, dict):
        found.others[type(document).__name__] = found.others.get(type(document).__name__, 0) + 1
        return
    kind, ident = document.get("object"), str(document.get("id") or document.get("thread_id") or "")
    if isinstance(document.get("data"), list):
        # A page of messages comes newest first unless its times say otherwise.
        page = document["data"]
        _collect(list(reversed(page)) if _looks_newest_first(page) else page, found, thread)
    elif isinstance(document.get("thread"), dict):
        inner = document["thread"]
        _collect(inner, found, None)
        _collect(document.get("messages") or [], found, str(inner.get("id") or ""))
    elif kind == "thread" or (ident.startswith("thread_") and "role" not in document):
        found.threads[ident] = document
        found.messages.setdefault(ident, [])
        _collect(document.get("messages") or [], found, ident)
    elif "role" in document and "content" in document:
        key = str(document.get("thread_id") or thread or "")
        found.count += 1
        found.messages.setdefault(key, []).append((found.count, document))
    elif isinstance(document.get("messages"), list | dict):
        _collect(document["messages"], found, ident or thread)
    elif isinstance(document.get("items"), list):
        _collect(document["items"], found, ident or thread)
    else:
        word = str(kind or document.get("type") or "object")
        found.others[word] = found.others.get(word, 0) + 1


def _looks_newest_first(page: list[Any]) -> bool:
    times = [one.get("created_at") for one in page if isinstance(one, dict)]
    known = [time for time in times if isinstance(time, int | float)]
    return len(known) < 2 or known[0] >= known[-1]


def _in_order(
    messages: list[tuple[int, dict[str, Any]]], lost: list[str]
) -> list[tuple[int, dict[str, Any]]]:
    """Oldest first: by time where all have one, as the dump has them where they are equal or missing."""
    times = [one["created_at"] for _, one in messages if isinstance(one.get("created_at"), int | float)]
    if len(times) < len(messages):
        if times:
            lost.append("the order by time: some messages have none; the order of the dump is kept")
        return messages
    if len(times) > 1 and times[0] != times[-1] and all(a >= b for a, b in itertools.pairwise(times)):
        messages = messages[::-1]
    return sorted(messages, key=lambda one: one[1]["created_at"])


def _metadata(data: Any, lost: list[str], what: str) -> dict[str, str]:
    pairs = {str(key): str(value) for key, value in (data or {}).items()} if isinstance(data, dict) else {}
    kept = {key: value for key, value in pairs.items() if len(key) <= 64 and len(value) <= 512}
    if len(kept) < len(pairs):
        lost.append(f"metadata of the {what}: a key or value is too long")
    return kept


def _convert(message: Mapping[str, Any], dump: ThreadDump) -> None:
    ident = str(message.get("id") or f"message {dump.read}")
    role = message.get("role")
    if role not in _ROLES:
        dump.lost.append(f"{ident}: role {role}; the protocol has user and assistant")
        return
    parts = _parts(message.get("content"), ident, dump.lost)
    if message.get("attachments"):
        dump.lost.append(f"{ident}: {len(message['attachments'])} attachments, whose files are elsewhere")
    if not parts:
        dump.lost.append(f"{ident}: nothing in it to carry over")
        return
    metadata = _metadata(message.get("metadata"), dump.lost, f"message {ident}")
    for key, value in (
        ("imported_id", message.get("id")),
        ("imported_created_at", message.get("created_at")),
    ):
        if value is not None and len(metadata) < MAX_PAIRS:
            metadata[key] = str(value)
    content: Any = parts[0]["text"] if len(parts) == 1 and parts[0]["type"] == "text" else parts
    dump.messages.append(
        MessageCreate.model_validate({"role": role, "content": content, "metadata": metadata})
    )


def _parts(content: Any, ident: str, lost: list[str]) -> list[dict[str, Any]]:
    if isinstance(content, str):
        return _text_parts(content, ident, lost)
    parts: list[dict[str, Any]] = []
    for part in content if isinstance(content, list) else []:
        kind = part.get("type") if isinstance(part, dict) else None
        if kind in ("text", "input_text", "output_text"):
            text = part.get("text")
            value = text.get("value") if isinstance(text, dict) else text
            annotations = (
                text.get("annotations") if isinstance(text, dict) else part.get("annotations")
            ) or []
            if annotations:
                lost.append(f"{ident}: {len(annotations)} annotations; their marks stay in the text")
            parts += _text_parts(str(value or ""), ident, lost)
        elif kind == "refusal":
            parts += _text_parts(str(part.get("refusal") or ""), ident, lost)
        elif kind == "image_url":
            url = part.get("image_url")
            parts.append({"type": "image_url", "image_url": url if isinstance(url, dict) else {"url": url}})
        else:
            lost.append(f"{ident}: a part of type {kind}, whose content is not in the dump")
    return parts


def _text_parts(text: str, ident: str, lost: list[str]) -> list[dict[str, Any]]:
    if not text.strip():
        return []
    if len(text) > MAX_CHARACTERS:
        lost.append(f"{ident}: is {len(text)} characters long, so it is split into several parts")
    pieces = [text[start : start + MAX_CHARACTERS] for start in range(0, len(text), MAX_CHARACTERS)]
    return [{"type": "text", "text": piece} for piece in pieces]


# --- the ledger ------------------------------------------------------------------------------------


@dataclass(slots=True)
class Ledger:
    """What was imported where: backend label → source → `{thread_id, messages}` (their hashes)."""

    path: Path
    entries: dict[str, dict[str, dict[str, Any]]] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path) -> "Ledger":
        """The ledger of a path, empty if there is none."""
        try:
            return cls(path, json.loads(path.read_text(encoding="utf-8")))
        except FileNotFoundError:
            return cls(path)
        except (OSError, ValueError) as error:
            raise ConfigurationError(
                f"{path}: cannot be read: {error}", remedy="remove it; threads may be imported again"
            ) from None

    def of(self, label: str) -> dict[str, dict[str, Any]]:
        """The entries of a backend."""
        return self.entries.setdefault(label, {})

    def save(self) -> None:
        """Write the file, whole or not at all."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=".threads-", dir=self.path.parent)
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            json.dump(self.entries, stream, ensure_ascii=False, indent=1)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(name, self.path)


# --- importing and exporting -----------------------------------------------------------------------


async def import_thread(
    backend: Backend, dump: ThreadDump, ledger: Ledger, *, again: bool = False
) -> ThreadReport:
    """The thread on the backend, with all its messages, once. `again`: a new thread in any case.

    ConfigurationError if the thread was imported before and its older messages have changed since.
    """
    entries = ledger.of(backend.label)
    hashes = [hash_texts([(one.role, _sent_text(one))]) for one in dump.messages]
    entry = None if again else entries.get(dump.source)
    status, done = "imported", 0
    there = await _messages_or_none(backend, str(entry["thread_id"])) if entry else None
    if entry is not None and there is not None:
        _check_same(dump, entry, hashes)
        done = len(entry["messages"]) if entry["done"] else len(there)
        status = "already there" if done >= len(hashes) else "extended" if entry["done"] else "resumed"
    else:
        entry = None
    if entry is None:
        thread = await backend.create_thread(ThreadCreate.of(metadata=_thread_metadata(dump)))
        entry = entries[dump.source] = {"thread_id": thread.id, "messages": hashes, "done": False}
        ledger.save()
    thread_id = str(entry["thread_id"])
    missing = dump.messages[done:]
    for message in missing:
        await backend.create_message(thread_id, message)
    if missing or not entry["done"]:
        entry |= {"messages": hashes, "done": True}
        ledger.save()
    shown = await list_messages(backend, thread_id) if missing or there is None else there
    texts = [(one.role, _shown_text(one)) for one in shown[: len(hashes)]]
    hash_there = hash_texts(texts)
    return ThreadReport(
        dump.source,
        status,
        thread_id,
        dump.read,
        len(missing),
        dump.text_hash,
        hash_there,
        hash_there == dump.text_hash,
        dump.lost,
    )


def _thread_metadata(dump: ThreadDump) -> dict[str, str]:
    metadata = dict(list(dump.metadata.items())[: MAX_PAIRS - 1])
    if len(dump.metadata) >= MAX_PAIRS:
        dump.lost.append("one pair of the thread's metadata, to make room for imported_from")
    return {**metadata, "imported_from": dump.source[:512]}


def _check_same(dump: ThreadDump, entry: Mapping[str, Any], hashes: list[str]) -> None:
    before = list(entry.get("messages") or [])
    common = min(len(before), len(hashes))
    if before[:common] != hashes[:common]:
        raise ConfigurationError(
            f"{dump.source} was imported as {entry['thread_id']}, and its messages are others now",
            remedy="import it as a new thread with --again",
        )


async def _messages_or_none(backend: Backend, thread_id: str) -> list[Message] | None:
    try:
        await backend.retrieve_thread(thread_id)
    except NotFound:
        return None
    return await list_messages(backend, thread_id)


async def list_messages(backend: Backend, thread_id: str) -> list[Message]:
    """All messages of a thread, oldest first."""
    return await all_pages(lambda after: backend.list_messages(thread_id, order="asc", after=after))


async def export_thread(backend: Backend, thread_id: str) -> tuple[Thread, list[Message]]:
    """A thread with all its messages, oldest first; NotFound if there is none."""
    thread = await backend.retrieve_thread(thread_id)
    return thread, await list_messages(backend, thread_id)


def export_lines(thread: Thread, messages: Sequence[Message]) -> Iterable[str]:
    """JSON lines: the thread, then its messages. `import` reads them back."""
    yield json.dumps(thread.document(), ensure_ascii=False)
    for message in messages:
        yield json.dumps(message.document(), ensure_ascii=False)


def export_hash(messages: Sequence[Message]) -> str:
    """SHA-256 over roles and texts in order."""
    return hash_texts((one.role, _shown_text(one)) for one in messages)
