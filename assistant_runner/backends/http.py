"""Assistants v2 over HTTP: one client for every server that speaks it, in three forms.

`openai`: `/v1/...`, bearer. `azure`: `/openai/...?api-version=`, header `api-key` or bearer.
`foundry` (Foundry Agent Service classic): `/api/projects/NAME/...?api-version=v1`, bearer, no beta
header (reference, section 1). The client brings base URL, signature, time limits and what carries
the requests; this module brings paths, bodies, events, errors and retries.

Reads and changes that are the same twice are repeated freely; a create or a submission only when
the first attempt provably did not arrive or was refused for its rate (case-016): what is in doubt
raises OutcomeUnknown, and the run loop looks before it repeats.
"""

from __future__ import annotations  # `Page[...]` is a class to be made: not for an annotation

import asyncio
import contextlib
import json
import logging
import time
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import cache
from typing import Any, Literal, Self, TypeVar
from urllib.parse import urlencode

from pydantic import ValidationError

from assistant_runner.backends.client import Client, fields_of
from assistant_runner.backends.failures import from_answer, from_transport, not_the_protocol
from assistant_runner.backends.ids import path_id
from assistant_runner.backends.multipart import form_data
from assistant_runner.backends.transport import (
    DecodingError,
    Fields,
    HttpError,
    Request,
    Response,
    TransportError,
    UnsupportedProtocol,
)
from assistant_runner.errors import (
    BackendError,
    BackendUnreachable,
    NotFound,
    OutcomeUnknown,
    ProtocolError,
    RateLimited,
)
from assistant_runner.masking import mask, mask_header
from assistant_runner.retries import Pacer, RetryPolicy, wait_hint
from assistant_runner.wire.assistants import Assistant, AssistantCreate, AssistantModify
from assistant_runner.wire.base import Deleted, Metadata, Page, RequestBody, WireObject
from assistant_runner.wire.files import (
    File,
    FileBatch,
    FileBatchCreate,
    ModelList,
    VectorStore,
    VectorStoreCreate,
    VectorStoreFile,
    VectorStoreFileCreate,
    VectorStoreModify,
)
from assistant_runner.wire.jsons import request_bytes
from assistant_runner.wire.runs import (
    Run,
    RunCreate,
    RunStep,
    ThreadAndRunCreate,
    ToolOutput,
    ToolOutputsSubmit,
)
from assistant_runner.wire.sse import Frame, SseParser
from assistant_runner.wire.stream import StreamEvent, parse_event
from assistant_runner.wire.threads import (
    Message,
    MessageCreate,
    MetadataModify,
    Thread,
    ThreadCreate,
    ThreadModify,
)

log = logging.getLogger(__name__)

Form = Literal["openai", "azure", "foundry"]
WireT = TypeVar("WireT", bound=WireObject)
Stream = AbstractAsyncContextManager[AsyncIterator[StreamEvent]]

LOGGED = 2000
"""Characters of a request's body that a log shows."""

BETA = {"OpenAI-Beta": "assistants=v2"}
READ_OUT_S = 0.2
KEYS_SERVED_ONCE = "x-idempotency-key"
POLL_HINT = "openai-poll-after-ms"
DEFAULT_VERSIONS: Mapping[Form, str | None] = {
    "openai": None,
    "azure": "2025-03-01-preview",
    "foundry": "v1",
}
AGAIN = frozenset({408, 409, 500, 502, 503, 504, 529})
"""Statuses after which a repeatable request is tried again; 429 is tried again always."""


class HttpBackend:
    """A Backend (see base.py) on a client, which it owns and closes.

    `pacer`, if someone sets it, decides when a request goes, and one that was refused for its rate again.
    `label` is for people. `sleep` waits between attempts. `create_keys`: creates and submissions carry
    an `Idempotency-Key`; a server that says `x-idempotency-key: supported` is sent them again freely,
    because it serves each key once.
    """

    def __init__(
        self,
        client: Client,
        *,
        label: str,
        form: Form = "openai",
        api_version: str | None = None,
        retries: RetryPolicy | None = None,
        create_keys: bool = True,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.pacer: Pacer | None = None
        self._client = client
        self._label = label
        self._form = form
        version = api_version or DEFAULT_VERSIONS[form]
        self._query = {"api-version": version} if version and form != "openai" else {}
        self._version = urlencode(self._query)
        headers = BETA if form != "foundry" else {}
        self._fields = fields_of(headers)
        self._json_fields = fields_of({**headers, "Content-Type": "application/json"})
        self._retries = retries or RetryPolicy()
        self._create_keys = create_keys
        self._serves_keys_once = False
        self._sleep = sleep

    @property
    def label(self) -> str:
        return self._label

    @property
    def form(self) -> Form:
        return self._form

    # -- assistants -----------------------------------------------------------------------------

    async def create_assistant(self, body: AssistantCreate) -> Assistant:
        return await self._create(Assistant, "assistants", body)

    async def retrieve_assistant(self, assistant_id: str) -> Assistant:
        return await self._get(Assistant, f"assistants/{path_id('assistant_id', assistant_id)}")

    async def modify_assistant(self, assistant_id: str, body: AssistantModify) -> Assistant:
        return await self._modify(Assistant, f"assistants/{path_id('assistant_id', assistant_id)}", body)

    async def delete_assistant(self, assistant_id: str) -> Deleted:
        return await self._delete(f"assistants/{path_id('assistant_id', assistant_id)}", assistant_id)

    async def list_assistants(
        self, *, limit: int = 100, order: str = "desc", after: str | None = None
    ) -> Page[Assistant]:
        return await self._get(_page_of(Assistant), "assistants", limit=limit, order=order, after=after)

    # -- threads and messages -------------------------------------------------------------------

    async def create_thread(self, body: ThreadCreate) -> Thread:
        return await self._create(Thread, "threads", body)

    async def retrieve_thread(self, thread_id: str) -> Thread:
        return await self._get(Thread, _thread(thread_id))

    async def modify_thread(self, thread_id: str, body: ThreadModify) -> Thread:
        return await self._modify(Thread, _thread(thread_id), body)

    async def delete_thread(self, thread_id: str) -> Deleted:
        return await self._delete(_thread(thread_id), thread_id)

    async def create_message(self, thread_id: str, body: MessageCreate) -> Message:
        return await self._create(Message, f"{_thread(thread_id)}/messages", body)

    async def list_messages(
        self,
        thread_id: str,
        *,
        limit: int = 100,
        order: str = "desc",
        after: str | None = None,
        run_id: str | None = None,
    ) -> Page[Message]:
        if run_id is not None:
            path_id("run_id", run_id)
        path = f"{_thread(thread_id)}/messages"
        return await self._get(_page_of(Message), path, limit=limit, order=order, after=after, run_id=run_id)

    # -- runs -----------------------------------------------------------------------------------

    def stream_thread_and_run(self, body: ThreadAndRunCreate) -> Stream:
        return self._stream("threads/runs", body)

    def stream_run(self, thread_id: str, body: RunCreate) -> Stream:
        return self._stream(f"{_thread(thread_id)}/runs", body)

    def stream_submit(self, *, thread_id: str, run_id: str, outputs: Sequence[ToolOutput]) -> Stream:
        body = ToolOutputsSubmit(tool_outputs=list(outputs))
        return self._stream(f"{_run(thread_id, run_id)}/submit_tool_outputs", body)

    async def create_thread_and_run(self, body: ThreadAndRunCreate) -> Run:
        return await self._create(Run, "threads/runs", body)

    async def create_run(self, thread_id: str, body: RunCreate) -> Run:
        return await self._create(Run, f"{_thread(thread_id)}/runs", body)

    async def retrieve_run(self, *, thread_id: str, run_id: str) -> tuple[Run, float | None]:
        response = await self._request("GET", _run(thread_id, run_id))
        run = self._parse(Run, response)
        return run, _poll_hint(response.headers.get(POLL_HINT))

    async def list_runs(
        self, thread_id: str, *, limit: int = 20, order: str = "desc", after: str | None = None
    ) -> Page[Run]:
        return await self._get(
            _page_of(Run), f"{_thread(thread_id)}/runs", limit=limit, order=order, after=after
        )

    async def modify_run(self, *, thread_id: str, run_id: str, metadata: Metadata) -> Run:
        return await self._modify(Run, _run(thread_id, run_id), MetadataModify(metadata=metadata))

    async def cancel_run(self, *, thread_id: str, run_id: str) -> Run:
        """The run as the cancel left it, usually `cancelling`: the caller waits for `cancelled`."""
        path = f"{_run(thread_id, run_id)}/cancel"
        return self._parse(Run, await self._request("POST", path, repeatable=True))

    async def submit_tool_outputs(self, *, thread_id: str, run_id: str, outputs: Sequence[ToolOutput]) -> Run:
        body = ToolOutputsSubmit(tool_outputs=list(outputs))
        return await self._create(Run, f"{_run(thread_id, run_id)}/submit_tool_outputs", body)

    async def submit_tool_approvals(
        self, *, thread_id: str, run_id: str, approvals: Sequence[Mapping[str, Any]]
    ) -> Run:
        """Answers `submit_tool_approval` of the classic agent service: `{tool_call_id, approve}` each."""
        response = await self._request(
            "POST",
            f"{_run(thread_id, run_id)}/submit_tool_outputs",
            document={"tool_approvals": [dict(approval) for approval in approvals]},
            repeatable=False,
        )
        return self._parse(Run, response)

    async def list_run_steps(
        self, *, thread_id: str, run_id: str, limit: int = 100, order: str = "asc", after: str | None = None
    ) -> Page[RunStep]:
        path = f"{_run(thread_id, run_id)}/steps"
        return await self._get(_page_of(RunStep), path, limit=limit, order=order, after=after)

    # -- files and vector stores ----------------------------------------------------------------

    async def upload_file(
        self, *, filename: str, content: bytes, purpose: str = "assistants", content_type: str | None = None
    ) -> File:
        kind, body = form_data(
            {"purpose": purpose},
            filename=filename,
            content=content,
            content_type=content_type or "application/octet-stream",
        )
        return self._parse(File, await self._request("POST", "files", form=(kind, body), repeatable=False))

    async def retrieve_file(self, file_id: str) -> File:
        return await self._get(File, f"files/{path_id('file_id', file_id)}")

    async def list_files(
        self, *, purpose: str | None = None, limit: int = 1000, after: str | None = None
    ) -> Page[File]:
        return await self._get(_page_of(File), "files", purpose=purpose, limit=limit, after=after)

    async def delete_file(self, file_id: str) -> Deleted:
        return await self._delete(f"files/{path_id('file_id', file_id)}", file_id)

    async def file_content(self, file_id: str) -> bytes:
        return (await self._request("GET", f"files/{path_id('file_id', file_id)}/content")).content

    async def create_vector_store(self, body: VectorStoreCreate) -> VectorStore:
        return await self._create(VectorStore, "vector_stores", body)

    async def retrieve_vector_store(self, vector_store_id: str) -> VectorStore:
        return await self._get(VectorStore, _store(vector_store_id))

    async def modify_vector_store(self, vector_store_id: str, body: VectorStoreModify) -> VectorStore:
        return await self._modify(VectorStore, _store(vector_store_id), body)

    async def delete_vector_store(self, vector_store_id: str) -> Deleted:
        return await self._delete(_store(vector_store_id), vector_store_id)

    async def list_vector_stores(
        self, *, limit: int = 100, order: str = "desc", after: str | None = None
    ) -> Page[VectorStore]:
        return await self._get(_page_of(VectorStore), "vector_stores", limit=limit, order=order, after=after)

    async def add_vector_store_file(
        self, vector_store_id: str, body: VectorStoreFileCreate
    ) -> VectorStoreFile:
        return await self._create(VectorStoreFile, f"{_store(vector_store_id)}/files", body)

    async def retrieve_vector_store_file(self, *, vector_store_id: str, file_id: str) -> VectorStoreFile:
        path = f"{_store(vector_store_id)}/files/{path_id('file_id', file_id)}"
        return await self._get(VectorStoreFile, path)

    async def list_vector_store_files(
        self, vector_store_id: str, *, limit: int = 100, after: str | None = None
    ) -> Page[VectorStoreFile]:
        path = f"{_store(vector_store_id)}/files"
        return await self._get(_page_of(VectorStoreFile), path, limit=limit, after=after)

    async def remove_vector_store_file(self, *, vector_store_id: str, file_id: str) -> Deleted:
        return await self._delete(f"{_store(vector_store_id)}/files/{path_id('file_id', file_id)}", file_id)

    async def create_file_batch(self, vector_store_id: str, body: FileBatchCreate) -> FileBatch:
        return await self._create(FileBatch, f"{_store(vector_store_id)}/file_batches", body)

    async def retrieve_file_batch(self, *, vector_store_id: str, batch_id: str) -> FileBatch:
        path = f"{_store(vector_store_id)}/file_batches/{path_id('batch_id', batch_id)}"
        return await self._get(FileBatch, path)

    async def list_models(self) -> ModelList:
        return await self._get(ModelList, "models")

    # -- life -----------------------------------------------------------------------------------

    async def aclose(self) -> None:
        await self._client.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: Any) -> None:
        await self.aclose()

    # -- requests -------------------------------------------------------------------------------

    async def _get(self, kind: type[WireT], path: str, **query: Any) -> WireT:
        return self._parse(kind, await self._request("GET", path, query=query))

    async def _create(self, kind: type[WireT], path: str, body: RequestBody) -> WireT:
        return self._parse(
            kind, await self._request("POST", path, document=body.document(), repeatable=False)
        )

    async def _modify(self, kind: type[WireT], path: str, body: RequestBody) -> WireT:
        return self._parse(kind, await self._request("POST", path, document=body.document()))

    async def _delete(self, path: str, object_id: str) -> Deleted:
        try:
            return self._parse(Deleted, await self._request("DELETE", path))
        except _GoneOnRepeat:
            return Deleted(id=object_id, object="deleted")

    async def _request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, Any] | None = None,
        document: Any = None,
        form: tuple[str, bytes] | None = None,
        repeatable: bool = True,
    ) -> Response:
        """A 2xx answer, after as many attempts as are safe; an error of the tree otherwise."""
        key = uuid.uuid4().hex if self._create_keys and not repeatable else None
        request = self._build(method, path, query=query, document=document, form=form, key=key)
        return await self._attempts(request, repeatable=repeatable, stream=False)

    def _build(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, Any] | None = None,
        document: Any = None,
        form: tuple[str, bytes] | None = None,
        key: str | None = None,
    ) -> Request:
        """`form`: content type and body of an upload. `key`: that of a create."""
        fields: Fields = self._fields if method == "GET" else self._json_fields
        body = b"" if document is None else request_bytes(document)
        if form is not None:
            kind, body = form
            fields = {**fields, **fields_of({"Content-Type": kind})}
        if key is not None:
            fields = {**fields, b"idempotency-key": (b"Idempotency-Key", key.encode())}
        wanted = {name: value for name, value in (query or {}).items() if value is not None}
        encoded = urlencode({**self._query, **wanted}) if wanted else self._version
        return self._client.request(method, path, query=encoded, headers=fields, body=body)

    async def _attempts(self, request: Request, *, repeatable: bool, stream: bool) -> Response:
        attempt = 0
        while True:
            attempt += 1
            free = repeatable or (self._serves_keys_once and b"idempotency-key" in request.headers)
            if self.pacer is not None:
                await self.pacer.before_request(urgent=request.path.endswith("/cancel"))
            _log_request(request, attempt)
            sent = time.monotonic()
            try:
                response = await self._client.send(request)
                _log_answer(request, response, time.monotonic() - sent)
                self._serves_keys_once = KEYS_SERVED_ONCE in response.headers
                if response.is_success and stream:
                    return response
                try:
                    await response.read()
                finally:
                    await response.aclose()
            except TransportError as exc:
                error: BackendError = from_transport(exc, request, label=self._label, repeatable=repeatable)
                again = free or not isinstance(error, OutcomeUnknown)
                hint = None
                if not again or isinstance(exc, UnsupportedProtocol):
                    raise error from exc
            except HttpError as exc:  # a body that cannot be decoded
                raise ProtocolError(
                    f"{self._label}: {request.method} {request.path}: {mask(str(exc))}",
                    remedy="check the base URL, and that no proxy stands in between",
                ) from exc
            else:
                if response.is_success:
                    return response
                error = from_answer(response, label=self._label, form=self._form, repeatable=repeatable)
                if isinstance(error, NotFound) and attempt > 1 and request.method == "DELETE":
                    raise _GoneOnRepeat
                if not _may_repeat(response, error, free):
                    raise error
                hint = _hint_of(response, error)
                if self.pacer is not None and isinstance(error, RateLimited):
                    if await self.pacer.refused(hint):
                        continue
                    raise error
            wait_s = self._retries.wait_s(attempt, hint)
            if wait_s is None:
                raise error
            log.info("%s; trying again in %.2f s", error.message, wait_s)
            await self._sleep(wait_s)

    def _parse(self, kind: type[WireT], response: Response) -> WireT:
        try:
            return kind.model_validate_json(response.content)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            where = ".".join(str(step) for step in first["loc"])
            why = f"{kind.__name__}{'.' if where else ''}{where}: {first['msg']}"
            if "json" not in response.headers.get("content-type", "json"):
                why = ""
            raise not_the_protocol(response, label=self._label, why=why) from None

    # -- streams --------------------------------------------------------------------------------

    @asynccontextmanager
    async def _stream(self, path: str, body: RequestBody) -> AsyncIterator[AsyncIterator[StreamEvent]]:
        """The events of a streaming create or submission. Errors before the first event are raised
        on entering; a way that breaks later raises BackendUnreachable from the iterator."""
        document = {**body.document(), "stream": True}
        key = uuid.uuid4().hex if self._create_keys else None
        request = self._build("POST", path, document=document, key=key)
        response = await self._attempts(request, repeatable=False, stream=True)
        events = self._events(response)
        try:
            yield events
        finally:
            await events.aclose()
            await response.aclose()

    async def _events(self, response: Response) -> AsyncGenerator[StreamEvent, None]:
        parser = SseParser()
        try:
            if "text/event-stream" not in response.headers.get("content-type", ""):
                yield await self._whole_run(response)
                return
            chunks = aiter(response)
            async for chunk in chunks:
                for frame in parser.feed(chunk):
                    event = self._event(frame, response)
                    if event is None:
                        await _read_out(chunks)
                        return
                    yield event
        except TransportError as error:
            raise BackendUnreachable(
                f"{self._label}: the stream broke: {mask(str(error)) or type(error).__name__}",
                remedy="the run may go on: read it again",
                stream_broke=True,
            ) from error
        except (ValueError, DecodingError) as error:
            raise ProtocolError(f"{self._label}: the stream cannot be read: {error}") from error
        last = parser.finish()
        if last and (event := self._last_event(last, response)):
            yield event

    async def _whole_run(self, response: Response) -> StreamEvent:
        """A server that cannot stream answers with the run: one event, as a stream would end."""
        await response.read()
        run = self._parse(Run, response)
        return StreamEvent(f"thread.run.{run.status}", run)

    def _last_event(self, frame: Frame, response: Response) -> StreamEvent | None:
        """The frame of a body without its closing blank line; a cut one is no event."""
        try:
            return self._event(frame, response)
        except ProtocolError:
            return None

    def _event(self, frame: Frame, response: Response) -> StreamEvent | None:
        """None ends the stream."""
        if frame.data.startswith("[DONE]"):
            return None
        if not frame.data.strip():
            return StreamEvent(frame.name, {})
        try:
            document = json.loads(frame.data)
            if not isinstance(document, dict):
                return StreamEvent(frame.name, {"data": document})
            return parse_event(frame.name or _name_of(document), document)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            where = ".".join(str(step) for step in first["loc"])
            why = f"event {frame.name}: {where}: {first['msg']}"
        except ValueError as error:
            why = f"event {frame.name}: no JSON: {error}"
        raise not_the_protocol(response, label=self._label, why=why)


async def _read_out(chunks: AsyncIterator[bytes]) -> None:
    """Read to the end of a body that should be over: only then its connection serves again."""
    with contextlib.suppress(TimeoutError, HttpError):
        async with asyncio.timeout(READ_OUT_S):
            async for _ in chunks:
                pass


class _GoneOnRepeat(Exception):
    """A repeated DELETE that finds nothing has done its work."""


@cache
def _page_of(kind: type[WireT]) -> type[Page[WireT]]:
    return Page[kind]  # type: ignore[valid-type]


def _log_request(request: Request, attempt: int) -> None:
    if log.isEnabledFor(logging.DEBUG):
        pairs = [(name.decode(), value.decode()) for name, (_, value) in request.headers.items()]
        headers = " ".join(f"{name}={mask_header(name, value)}" for name, value in pairs)
        again = f" (attempt {attempt})" if attempt > 1 else ""
        log.debug("> %s %s%s %s %s", request.method, request.url, again, headers, _start_of(request))


def _log_answer(request: Request, response: Response, took_s: float) -> None:
    if log.isEnabledFor(logging.DEBUG):
        request_id = response.headers.get("x-request-id", "")
        kind = response.headers.get("content-type", "")
        log.debug("< %s %s %s %.3f s %s", response.status, request.path, kind, took_s, request_id)


def _start_of(request: Request) -> str:
    if b"json" not in request.headers.get(b"content-type", (b"", b""))[1]:
        return ""
    text = request.body.decode("utf-8", "replace")
    return text if len(text) <= LOGGED else f"{text[:LOGGED]}…"


def _thread(thread_id: str) -> str:
    return f"threads/{path_id('thread_id', thread_id)}"


def _run(thread_id: str, run_id: str) -> str:
    """Thread, then run (case-048)."""
    return f"{_thread(thread_id)}/runs/{path_id('run_id', run_id)}"


def _store(vector_store_id: str) -> str:
    return f"vector_stores/{path_id('vector_store_id', vector_store_id)}"


def _may_repeat(response: Response, error: BackendError, free: bool) -> bool:
    """Whether this refusal may be tried again; the server's own `x-should-retry` wins."""
    told: str = response.headers.get("x-should-retry", "").lower()
    if told in ("true", "false"):
        return told == "true"
    if isinstance(error, RateLimited):
        return error.code != "insufficient_quota"
    return free and response.status in AGAIN


def _hint_of(response: Response, error: BackendError) -> float | None:
    return wait_hint(response.headers, error.message)


def _poll_hint(text: str | None) -> float | None:
    """Milliseconds in the header, seconds here; nonsense is no hint."""
    try:
        milliseconds = int(text) if text else -1
    except ValueError:
        return None
    return milliseconds / 1000 if milliseconds >= 0 else None


def _name_of(document: Mapping[str, Any]) -> str:
    """The event name of a frame that came without one, as far as its object tells."""
    kind = document.get("object")
    if not isinstance(kind, str):
        return ""
    if kind.endswith(".delta") or not isinstance(document.get("status"), str):
        return kind if kind.endswith(".delta") else f"{kind}.created"
    return f"{kind}.{document['status']}"
