"""Files (reference, sections 2, 4.12). Bytes go to the data folder, the object to the store."""

import asyncio
import hashlib
import json
import os
from pathlib import Path
from typing import Any

from starlette.datastructures import UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import Request

from assistant_runner.service import documents, stores
from assistant_runner.service.core import Core
from assistant_runner.service.failures import ApiError, bad_request, not_found
from assistant_runner.service.ids import new_id
from assistant_runner.service.store.base import Document, Row
from assistant_runner.service.web import Answer, Bytes, Call, Result, limited
from assistant_runner.wire.checks import Flaw, integer, one_of

KIND = "file"
PARTS = ("file", "purpose", "expires_after[anchor]", "expires_after[seconds]")
PURPOSES = ("assistants", "batch", "fine-tune", "vision", "user_data", "evals")
_DAYS_30_S = 2_592_000


async def create(call: Call) -> Result:
    """Takes a multipart upload in pieces; `purpose` and `file` in any order.

    An Idempotency-Key stands for name, purpose, expiry and content, whatever the multipart boundary.
    """
    core = call.core
    content_type = next((v for k, v in call.scope["headers"] if k == b"content-type"), b"").decode("latin-1")
    if not content_type.lower().startswith("multipart/form-data"):
        raise bad_request("Expected a multipart/form-data body with the parts 'file' and 'purpose'.")
    request = Request(call.scope, limited(call.receive, core.settings.upload_limit + 65536))
    parser = _Parts(request.headers, request.stream(), max_files=1, max_fields=20)
    try:
        form = await parser.parse()
        if not parser.is_whole:
            raise bad_request("The multipart body ends before its last boundary.")
        upload, purpose = form.get("file"), form.get("purpose")
        if not isinstance(upload, UploadFile):
            raise _missing("file")
        if not isinstance(purpose, str):
            raise _missing("purpose")
        _check("purpose", purpose, one_of(*PURPOSES))
        unknown = [key for key in form if key not in PARTS]
        if unknown:
            name = unknown[0][:80]
            raise bad_request(f"Unknown parameter: '{name}'.", code="unknown_parameter", param=name)
        expires_s = _expiry(form)
        identifier = new_id(KIND)
        place = core.shelf.place(identifier)
        size, content_digest = await asyncio.to_thread(_keep, upload.file, place)
    except MultiPartException as error:
        raise bad_request(f"The multipart body cannot be read: {error.message}") from None
    finally:
        parser.close()
    now = core.now()
    said = [_plain_name(upload.filename), purpose, expires_s, content_digest]
    digest = hashlib.sha256(json.dumps(said).encode()).hexdigest()
    try:
        earlier = call.recall(digest)  # from here on nothing waits: of two uploads with one key one is kept
    except ApiError:
        place.unlink()
        raise
    if earlier is not None:
        place.unlink()
        return earlier
    document = {
        "id": identifier,
        "object": "file",
        "bytes": size,
        "created_at": now,
        "filename": _plain_name(upload.filename),
        "purpose": purpose,
        "status": "processed",
        "expires_at": None if expires_s is None else now + expires_s,
        "status_details": None,
    }
    core.store.insert(KIND, call.world, identifier, document, tag=purpose)
    answer = Answer(document)
    call.remember(digest, answer)
    return answer


class _Parts(MultiPartParser):
    """The parser, which also knows whether the body was whole and closes what it opened."""

    is_whole = False

    def on_end(self) -> None:
        super().on_end()
        self.is_whole = True

    def close(self) -> None:
        for file in self._files_to_close_on_error:
            file.close()


def _plain_name(filename: str | None) -> str:
    """The last part of an upload's name; a name that is none becomes `file`."""
    name = Path(filename or "").name
    return name if name.strip(". ") else "file"


def _keep(source: Any, target: Path) -> tuple[int, str]:
    """Copies an upload to its place, whole or not at all; the number of bytes and their SHA-256."""
    source.seek(0)
    beside = target.with_suffix(".part")
    digest = hashlib.sha256()
    with beside.open("wb") as file:
        while piece := source.read(1 << 20):
            digest.update(piece)
            file.write(piece)
        size = file.tell()
    os.replace(beside, target)
    return size, digest.hexdigest()


def _missing(name: str) -> ApiError:
    return bad_request(
        f"Missing required parameter: '{name}'.", code="missing_required_parameter", param=name
    )


def _check(name: str, value: Any, check: Any) -> None:
    try:
        check(value, name)
    except Flaw as flaw:
        raise bad_request(flaw.message, code=flaw.code, param=flaw.param) from None


def _expiry(form: Any) -> int | None:
    anchor, seconds = form.get("expires_after[anchor]"), form.get("expires_after[seconds]")
    if anchor is None and seconds is None:
        return None
    if anchor is None:
        raise _missing("expires_after[anchor]")
    if seconds is None:
        raise _missing("expires_after[seconds]")
    _check("expires_after[anchor]", anchor, one_of("created_at"))
    value: Any = int(seconds) if str(seconds).isascii() and str(seconds).isdigit() else seconds
    _check("expires_after[seconds]", value, integer(least=3600, most=_DAYS_30_S))
    return int(value)


def _row(call: Call) -> Row:
    identifier = call.identifier(KIND, "file_id")
    row = call.row(KIND, call.world, identifier)
    if _lapsed(call, [row]):
        raise not_found(KIND, identifier)
    return row


def _lapsed(call: Call, rows: list[Row]) -> bool:
    """Whether files of these were to expire by now; those are removed."""
    now = call.core.clock()
    over = [row.id for row in rows if row.doc["expires_at"] is not None and now >= row.doc["expires_at"]]
    for identifier in over:
        remove(call.core, call.world, identifier)
    return bool(over)


async def retrieve(call: Call) -> Answer:
    return Answer(_row(call).doc)


async def list_all(call: Call) -> Answer:
    while True:
        rows, has_more = call.page(KIND, call.world, most=10_000, default=10_000, tag=call.param("purpose"))
        if not _lapsed(call, rows):
            return Answer(documents.listing([row.doc for row in rows], has_more))


async def content(call: Call) -> Bytes:
    row = _row(call)
    path = call.core.shelf.place(row.id)
    if not path.is_file():
        raise not_found(KIND, row.id)
    return Bytes(path, row.doc["filename"])


async def delete(call: Call) -> Answer:
    """Takes the file out of every vector store too."""
    identifier = call.identifier(KIND, "file_id")
    if not remove(call.core, call.world, identifier):
        raise not_found(KIND, identifier)
    return Answer(documents.deleted(identifier, KIND))


def remove(core: Core, world: str, identifier: str) -> bool:
    with core.store.transaction():
        if not core.store.delete(KIND, world, identifier):
            return False
        for store_id in core.store.parents_of("vector_store.file", identifier):
            stores.detach(core, world, store_id, identifier)
    core.shelf.place(identifier).unlink(missing_ok=True)
    return True


def file_document(core: Core, world: str, identifier: str) -> Document | None:
    row = core.store.get(KIND, world, identifier)
    return None if row is None else row.doc
