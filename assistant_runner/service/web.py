"""Requests and answers of the routes: what an endpoint is given, and what it may give back.

An endpoint is a coroutine from `Call` to `Answer`, `Stream` or `Bytes`; ApiError ends it early.
Bodies are read whole before it runs, so that nothing inside it waits between a check and a write.
"""

import asyncio
import hashlib
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote

from starlette.types import Message, Receive, Scope, Send

from assistant_runner.service.core import Core
from assistant_runner.service.documents import listing
from assistant_runner.service.failures import bad_request, not_found, of_flaw, unknown_word, wrong_prefix
from assistant_runner.service.ids import PREFIXES
from assistant_runner.service.sse import DONE, Listener, frame
from assistant_runner.service.store.base import Document, Row, UnknownCursor
from assistant_runner.wire.checks import Check, Flaw
from assistant_runner.wire.jsons import answer_bytes
from assistant_runner.wire.runs import SETTLED

BODY_WAIT_S = 60.0
"""How long the next piece of a body may take."""

Headers = list[tuple[bytes, bytes]]

INCLUDE = "step_details.tool_calls[*].file_search.results[*].content"


@dataclass(slots=True)
class Answer:
    """A JSON answer."""

    document: Any
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)

    async def send(self, call: "Call", send: Send) -> None:
        body = answer_bytes(self.document)
        await send_body(send, self.status, body, b"application/json", self.headers)


@dataclass(slots=True)
class Bytes:
    """The bytes of a file."""

    path: Path
    filename: str

    async def send(self, call: "Call", send: Send) -> None:
        size = self.path.stat().st_size
        await send(
            {
                "type": "http.response.start",
                "status": 200,
                "headers": [
                    (b"content-type", b"application/octet-stream"),
                    (b"content-length", str(size).encode()),
                    (b"content-disposition", disposition(self.filename)),
                ],
            }
        )
        with self.path.open("rb") as file:
            while size > 0:
                piece = await asyncio.to_thread(file.read, 1 << 20)
                if not piece:
                    break
                size -= len(piece)
                await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b""})


def disposition(filename: str) -> bytes:
    """The header that names a file: in ASCII for old clients, and as it is (RFC 6266)."""
    plain = "".join(letter if letter.isprintable() and letter not in '"\\' else "_" for letter in filename)
    value = f'attachment; filename="{plain}"'.encode("ascii", "replace")
    if plain.isascii():
        return value
    return value + f"; filename*=UTF-8''{quote(plain, safe='', errors='replace')}".encode("ascii")


@dataclass(slots=True)
class Stream:
    """The events of a run from now on, ended by `[DONE]`. The run goes on when the client leaves."""

    thread_id: str
    run_id: str
    listener: Listener

    async def send(self, call: "Call", send: Send) -> None:
        headers = [
            (b"content-type", b"text/event-stream; charset=utf-8"),
            (b"cache-control", b"no-cache"),
            (b"x-accel-buffering", b"no"),
        ]
        hub, ping_s = call.core.hub, call.core.settings.ping_s
        gone = asyncio.create_task(self._wait_until_gone(call.receive))
        try:
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            await asyncio.sleep(0)  # an engine that answers at once gets its frames into the first write
            more = True
            while more:
                data = await self.listener.read(ping_s)
                more = not self.listener.is_drained
                await send({"type": "http.response.body", "body": data, "more_body": more})
        finally:
            hub.leave(self.run_id, self.listener)
            gone.cancel()

    async def _wait_until_gone(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self.listener.close()


Result = Answer | Bytes | Stream
Handler = Callable[["Call"], Awaitable[Result]]


class Call:
    """One request: who asks, for what. `world` is what the caller's key can see.

    `key`: its Idempotency-Key, where one is honoured.
    """

    def __init__(
        self, core: Core, scope: Scope, receive: Receive, body: bytes, *, key: str | None = None
    ) -> None:
        self.core = core
        self.key = key
        self.scope = scope
        self.receive = receive
        self.body = body
        self.world: str = scope["state"]["world"]
        self.path: Mapping[str, str] = scope["path_params"]
        self._query: dict[str, list[str]] | None = None

    # ---- what its Idempotency-Key stands for

    def recall(self, digest: str) -> Result | None:
        """The first answer to a request with this key; None for a new one or where there is no key.

        `digest` stands for what the request says; ApiError 400 if it said something else before.
        """
        if self.key is None:
            return None
        with self.core.store.transaction():
            known = self.core.store.recall(self.world, self._key_name)
        if known is None:
            return None
        if known["digest"] != digest:
            raise bad_request(
                "This Idempotency-Key was used with another request body.",
                code="invalid_value",
                param="Idempotency-Key",
            )
        if "run" in known:
            return rejoined(self.core, known["thread"], known["run"])
        return Answer(known["answer"], headers={"idempotent-replayed": "true"})

    def remember(self, digest: str, result: Result) -> None:
        """Keeps what this request was answered with, if it has a key."""
        if self.key is None or isinstance(result, Bytes):
            return
        value: Document = {"digest": digest}
        if isinstance(result, Stream):
            value |= {"thread": result.thread_id, "run": result.run_id}
        else:
            value["answer"] = result.document
        self.core.store.remember(self.world, self._key_name, value, self.core.clock())

    @property
    def _key_name(self) -> str:
        return hashlib.sha256(f"{self.scope['path']}\n{self.key}".encode("utf-8", "replace")).hexdigest()

    # ---- what was sent

    def query(self) -> dict[str, list[str]]:
        if self._query is None:
            self._query = {}
            text = self.scope["query_string"].decode("latin-1")
            for key, value in parse_qsl(text, keep_blank_values=True):
                self._query.setdefault(key, []).append(value)
        return self._query

    def param(self, name: str) -> str | None:
        """A query parameter; an empty one counts as not given."""
        values = self.query().get(name)
        return values[-1] or None if values else None

    def document(self, check: Check) -> Document:
        """The JSON body, checked; no body stands for an empty object."""
        value = self._parse()
        try:
            check(value, "")
        except Flaw as flaw:
            raise of_flaw(flaw) from None
        except RecursionError:
            raise bad_request("The request body is nested too deeply.") from None
        return value  # type: ignore[no-any-return]

    def _parse(self) -> Any:
        if not self.body.strip():
            return {}
        try:
            return json.loads(self.body.decode("utf-8-sig"), parse_constant=_no_constant)
        except (ValueError, RecursionError) as error:
            words = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
            raise bad_request(
                f"We could not parse the JSON body of your request: {words}. The API expects a JSON payload."
            ) from None

    def identifier(self, kind: str, param: str) -> str:
        """An id of the path; ApiError 400 if it has another kind's prefix."""
        value = self.path[param]
        check_prefix(kind, param, value)
        return value

    def include_content(self) -> bool:
        """Whether `include[]` asks for the content of search results; ApiError for any other word."""
        values = [entry for key in ("include[]", "include") for entry in self.query().get(key, [])]
        values = [word for value in values for word in value.split(",") if word]
        for value in values:
            if value != INCLUDE:
                raise unknown_word("include[]", value[:120], (INCLUDE,))
        return bool(values)

    # ---- what it names

    def row(self, kind: str, parent: str, identifier: str) -> Row:
        found = self.core.store.get(kind, parent, identifier)
        if found is None:
            raise not_found(kind, identifier)
        return found

    def thread_id(self) -> str:
        """The thread of the path, which exists."""
        identifier = self.identifier("thread", "thread_id")
        if not self.core.store.exists("thread", self.world, identifier):
            raise not_found("thread", identifier)
        return identifier

    def run_row(self, thread_id: str) -> Row:
        """The run of the path as it is now: one whose time is over has expired."""
        identifier = self.identifier("thread.run", "run_id")
        row = self.core.store.get("thread.run", thread_id, identifier)
        if row is None:
            raise not_found("thread.run", identifier)
        return self.lapsed(row)

    def lapsed(self, row: Row) -> Row:
        """The run, expired first if its time is over."""
        if row.doc["expires_at"] is None:
            return row
        active = self.core.store.active_run(row.parent)
        if active is not None and active.run_id == row.id and self.core.workers.lapse(active):
            return self.core.store.get("thread.run", row.parent, row.id) or row
        return row

    # ---- lists

    def page(
        self, kind: str, parent: str, *, most: int = 100, default: int = 20, tag: str | None = None
    ) -> tuple[list[Row], bool]:
        limit = self._limit(most, default)
        order = self.param("order") or "desc"
        if order not in ("asc", "desc"):
            raise unknown_word("order", order[:80], ("asc", "desc"))
        after, before = self.param("after"), self.param("before")
        for param, value in (("after", after), ("before", before)):
            if value is not None:
                check_prefix(kind, param, value)
        try:
            return self.core.store.page(
                kind,
                parent,
                limit=limit,
                order="asc" if order == "asc" else "desc",
                after=after,
                before=before,
                tag=tag,
            )
        except UnknownCursor as error:
            raise bad_request(
                f"Invalid '{error.param}': no such object in this list: '{error.identifier[:80]}'.",
                code="invalid_value",
                param=error.param,
            ) from None

    def list_answer(self, kind: str, parent: str, **narrowing: Any) -> Answer:
        rows, has_more = self.page(kind, parent, **narrowing)
        return Answer(listing([row.doc for row in rows], has_more))

    def _limit(self, most: int, default: int) -> int:
        text = self.param("limit")
        if text is None:
            return default
        try:
            limit = int(text)
        except ValueError:
            raise bad_request(
                f"Invalid type for 'limit': expected an integer, but got '{text[:80]}' instead.",
                code="invalid_type",
                param="limit",
            ) from None
        if limit < 1:
            raise bad_request(
                "Invalid 'limit': integer below minimum value. Expected a value >= 1, "
                f"but got {limit} instead.",
                code="integer_below_min_value",
                param="limit",
            )
        if limit > most:
            raise bad_request(
                f"Invalid 'limit': integer above maximum value. Expected a value <= {most}, "
                f"but got {limit} instead.",
                code="integer_above_max_value",
                param="limit",
            )
        return limit


def check_prefix(kind: str, param: str, value: str) -> None:
    """ApiError 400 if an id does not begin as ids of its kind do."""
    prefix = PREFIXES[kind]
    if value.startswith(prefix):
        return
    if prefix == PREFIXES["file"] and value.startswith(("file_", "assistant-", "file")):
        return
    raise wrong_prefix(param, value[:80], prefix)


async def send_body(
    send: Send, status: int, body: bytes, content_type: bytes, headers: Mapping[str, str] | None = None
) -> None:
    listed: Headers = [(b"content-type", content_type), (b"content-length", str(len(body)).encode())]
    if headers:
        listed += [
            (name.encode("latin-1"), value.encode("latin-1", "replace")) for name, value in headers.items()
        ]
    await send({"type": "http.response.start", "status": status, "headers": listed})
    await send({"type": "http.response.body", "body": body})


def rejoined(core: Core, thread_id: str, run_id: str) -> Stream:
    """A stream of a run that has begun before: how it stands now, then what still comes."""
    row = core.store.get("thread.run", thread_id, run_id)
    if row is None:
        raise not_found("thread.run", run_id)
    listener = core.hub.listen(run_id)
    listener.push(frame(f"thread.run.{row.doc['status']}", row.doc))
    if row.doc["status"] in SETTLED:
        core.hub.leave(run_id, listener)
        listener.push(DONE)
        listener.close()
    return Stream(thread_id, run_id, listener)


class CutShort(Exception):
    """The client left before its body was whole."""


class TooSlow(Exception):
    """The client stopped sending in the middle of its body."""


class TooLarge(Exception):
    """The body is larger than the limit."""


async def read_body(receive: Receive, limit: int) -> bytes:
    """The whole body; TooLarge, CutShort, TooSlow."""
    receive = patient(receive)
    message = await receive()
    if message["type"] == "http.disconnect":
        raise CutShort
    if not message.get("more_body"):
        body: bytes = message.get("body", b"")
        if len(body) > limit:
            raise TooLarge
        return body
    pieces = [message.get("body", b"")]
    size = len(pieces[0])
    while message.get("more_body"):
        message = await receive()
        if message["type"] == "http.disconnect":
            raise CutShort
        pieces.append(message.get("body", b""))
        size += len(pieces[-1])
        if size > limit:
            raise TooLarge
    return b"".join(pieces)


def patient(receive: Receive) -> Receive:
    """The same stream of body pieces; TooSlow when one does not come in time."""

    async def next_piece() -> Message:
        try:
            async with asyncio.timeout(BODY_WAIT_S):
                return await receive()
        except TimeoutError:
            raise TooSlow from None

    return next_piece


def limited(receive: Receive, limit: int) -> Receive:
    """The same stream of body pieces, ended by TooLarge or CutShort where it should be."""
    size = 0
    receive = patient(receive)

    async def next_piece() -> Message:
        nonlocal size
        message = await receive()
        if message["type"] == "http.disconnect":
            raise CutShort
        size += len(message.get("body", b""))
        if size > limit:
            raise TooLarge
        return message

    return next_piece


def _no_constant(word: str) -> Any:
    raise ValueError(f"{word} is not JSON")
