"""The lock file: what an apply made where, so that the next one finds it and makes nothing twice.

TOML, one block per assistant, vector store and file, sorted and set apart by empty lines, so that git
merges two people's changes. It holds ids and hashes, never content. It is written whole, by rename,
after every step; `pending` blocks say what was begun and not yet known to be done.
"""

import contextlib
import hashlib
import json
import os
import tempfile
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from assistant_runner.errors import ConfigurationError

LOCK_NAME = "assistant-runner.lock"
VERSION = 1
_HEAD = (
    "# What `assistant-runner assistant apply` made. Commit this file; do not edit it.\n"
    "# Lost or broken? Delete it and apply again: assistants are found again by their metadata.\n"
    f"version = {VERSION}\n"
)


@dataclass(slots=True)
class AssistantRecord:
    """`made`: created by us (else adopted, and never deleted). `fields`: per field the hashes of what
    was wanted and of what the backend then showed."""

    id: str
    made: bool = True
    file: str = ""
    fields: dict[str, tuple[str, str]] = field(default_factory=dict)


@dataclass(slots=True)
class StoreRecord:
    """A vector store of ours; `options` is a hash of its chunking and expiry."""

    id: str
    options: str = ""


@dataclass(slots=True)
class FileRecord:
    """An uploaded file; `users` are the identities of the assistants that need it."""

    id: str
    bytes: int = 0
    users: set[str] = field(default_factory=set)


@dataclass(slots=True)
class BackendRecords:
    """All of one backend. Keys: identities of assistants; for files `sha256:HASH/NAME`.

    `pending`: what was begun, such as `upload sha256:HASH/NAME`, and since when (Unix seconds).
    """

    assistants: dict[str, AssistantRecord] = field(default_factory=dict)
    stores: dict[str, StoreRecord] = field(default_factory=dict)
    files: dict[str, FileRecord] = field(default_factory=dict)
    pending: dict[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class Lock:
    """The records of all backends, and the file they are kept in."""

    path: Path
    backends: dict[str, BackendRecords] = field(default_factory=dict)

    def of(self, label: str) -> BackendRecords:
        """The records of a backend by its label."""
        return self.backends.setdefault(label, BackendRecords())

    def save(self) -> None:
        """Write the file, whole or not at all. An empty lock removes the file."""
        text = render(self)
        try:
            if text is None:
                self.path.unlink(missing_ok=True)
                return
            self.path.parent.mkdir(parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(prefix=".assistant-runner-", dir=self.path.parent)
            try:
                with os.fdopen(handle, "w", encoding="utf-8") as stream:
                    stream.write(text)
                    stream.flush()
                    os.fsync(stream.fileno())
                os.chmod(name, 0o644)
                os.replace(name, self.path)
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(name)
                raise
        except OSError as error:
            raise ConfigurationError(
                f"{self.path}: cannot be written: {error.strerror or error}",
                remedy="make the folder writable: without the lock an apply cannot tell what it made",
            ) from None


def read_lock(path: Path) -> Lock:
    """The lock of a path, empty if there is none; ConfigurationError if it cannot be understood."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return Lock(path)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path}: cannot be read: {error}", remedy="correct or remove it") from None
    try:
        document = tomllib.loads(text)
        version = document.get("version")
        if version != VERSION:
            raise ConfigurationError(
                f"{path}: version {version!r} of the lock is not known to this program (it knows {VERSION})",
                remedy="use a newer assistant-runner",
            )
        backends = {label: _records(one) for label, one in document.get("backend", {}).items()}
    except (tomllib.TOMLDecodeError, KeyError, TypeError, AttributeError, ValueError) as error:
        words = "has an unresolved merge" if "<<<<<<<" in text else f"is not a lock: {error}"
        raise ConfigurationError(
            f"{path}: {words}",
            remedy="resolve it, or delete it: assistants are found again by their metadata",
        ) from None
    return Lock(path, backends)


def _records(data: dict[str, Any]) -> BackendRecords:
    return BackendRecords(
        assistants={
            key: AssistantRecord(
                id=one["id"],
                made=one.get("made", True),
                file=one.get("file", ""),
                fields={name: (pair[0], pair[1]) for name, pair in one.get("field", {}).items()},
            )
            for key, one in data.get("assistant", {}).items()
        },
        stores={
            key: StoreRecord(one["id"], one.get("options", "")) for key, one in data.get("store", {}).items()
        },
        files={
            key: FileRecord(one["id"], one.get("bytes", 0), set(one.get("users", [])))
            for key, one in data.get("file", {}).items()
        },
        pending={key: int(one["since"]) for key, one in data.get("pending", {}).items()},
    )


def render(lock: Lock) -> str | None:
    """The text of a lock, None if it holds nothing."""
    blocks: list[tuple[str, list[str]]] = []
    for label, records in lock.backends.items():
        for key, one in records.assistants.items():
            lines = [
                f"id = {_quote(one.id)}",
                f"made = {str(one.made).lower()}",
                f"file = {_quote(one.file)}",
            ]
            lines += [
                f"field.{name} = [{_quote(w)}, {_quote(s)}]" for name, (w, s) in sorted(one.fields.items())
            ]
            blocks.append((_table(label, "assistant", key), lines))
        for key, store in records.stores.items():
            lines = [f"id = {_quote(store.id)}", f"options = {_quote(store.options)}"]
            blocks.append((_table(label, "store", key), lines))
        for key, file in records.files.items():
            lines = [f"id = {_quote(file.id)}", f"bytes = {file.bytes}", "users = ["]
            lines += [f"  {_quote(user)}," for user in sorted(file.users)] + ["]"]
            blocks.append((_table(label, "file", key), lines))
        for key, since in records.pending.items():
            blocks.append((_table(label, "pending", key), [f"since = {since}"]))
    if not blocks:
        return None
    return _HEAD + "".join(f"\n[{table}]\n" + "\n".join(lines) + "\n" for table, lines in sorted(blocks))


def _table(label: str, kind: str, key: str) -> str:
    return f"backend.{_quote(label)}.{kind}.{_quote(key)}"


def _quote(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


@contextlib.contextmanager
def guarded(lock_path: Path, folder: Path, *, timeout_s: float = 30.0) -> Iterator[Lock]:
    """The lock, held against other processes of this machine; ConfigurationError after `timeout_s`.

    The guard lies in `folder` (the state folder), not beside the user's files.
    """
    from filelock import FileLock, Timeout  # only an apply waits its turn

    folder.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    folder.mkdir(exist_ok=True, mode=0o700)  # who can open a lock can hold it
    digest = hashlib.sha256(str(lock_path.resolve()).encode()).hexdigest()[:16]
    guard = FileLock(folder / f"{digest}.guard")
    try:
        with guard.acquire(timeout=timeout_s):
            yield read_lock(lock_path)
    except Timeout:
        raise ConfigurationError(
            f"{lock_path}: another apply holds it for more than {timeout_s:g} s",
            remedy="wait for the other one to end",
        ) from None


def digest(value: Any) -> str:
    """A short hash of JSON data; equal data, equal hash."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
