"""The `responses` engine: the Responses API on the official SDK, streamed.

Stateless by default (`store: false`: the thread is ours). Reasoning items are carried from round to
round of one run with their encrypted content and replayed before the calls that they led to. With
`store` the provider keeps the turns of a run and only new items are sent. Facts: responses reference.
"""

import json
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping, Sequence
from typing import Any, Unpack

from assistant_runner.endpoints import Endpoint
from assistant_runner.service.engines.asking import Asker, AskerOptions, timeout_of
from assistant_runner.service.engines.base import (
    Abilities,
    Annotate,
    ApprovalRequest,
    CallDelta,
    Carry,
    EngineError,
    Finish,
    HostedActivity,
    Notice,
    RefusalDelta,
    TextDelta,
    TurnCall,
    TurnEvent,
    TurnItem,
    TurnMessage,
    TurnOutput,
    TurnRequest,
)
from assistant_runner.service.engines.catalog import reasons, supports_tools
from assistant_runner.service.engines.client import (
    Failure,
    Refused,
    check_stream,
    filter_details,
    from_error_object,
)
from assistant_runner.service.engines.history import CallBlock, in_blocks
from assistant_runner.service.engines.providers import Provider
from assistant_runner.wire.base import UnknownVariant
from assistant_runner.wire.runs import Usage
from assistant_runner.wire.tools import (
    HOSTED_TOOLS,
    AssistantTool,
    CodeInterpreterTool,
    FileSearchTool,
    FunctionTool,
    NamedToolChoice,
    ResponseFormat,
    ToolChoice,
)

SMALLEST_LIMIT = 16
"""`max_output_tokens` below this is refused (responses reference, sections 2 and 9)."""
HOSTED_ITEMS = frozenset({"file_search_call", "code_interpreter_call", "web_search_call", "mcp_call"})
KEPT_ITEMS = HOSTED_ITEMS | {"reasoning", "mcp_list_tools", "mcp_approval_request", "compaction"}
HOSTED = frozenset({"code_interpreter", "file_search"})


class ResponsesEngine:
    """Turns by the Responses API.

    `store`: the provider keeps the turns. `hosted`: which of code_interpreter and file_search the
    provider runs itself (its own files and vector stores, not the service's).
    """

    name = "responses"
    uses_model = True

    def __init__(
        self,
        provider: Provider,
        *,
        store: bool = False,
        hosted: frozenset[str] = frozenset(),
        **options: Unpack[AskerOptions],
    ) -> None:
        self._asker = Asker(provider, **options)
        self._endpoint = provider.endpoint
        self._store = store
        self._hosted = hosted & HOSTED

    @property
    def label(self) -> str:
        return self._asker.label(self.name)

    @property
    def default_model(self) -> str | None:
        """The model of an assistant that names none."""
        return self._asker.names.default

    def abilities(self, model: str) -> Abilities:
        tools = supports_tools(self._asker.names.resolve(model)) is not False
        return Abilities(
            tools=tools,
            strict=True,
            parallel=True,
            vision=True,
            json_schema=True,
            file_search="file_search" in self._hosted,
            code_interpreter="code_interpreter" in self._hosted,
            hosted=frozenset(HOSTED_TOOLS if tools else ()),
        )

    async def models(self) -> Sequence[Mapping[str, Any]]:
        return await self._asker.models({})

    async def aclose(self) -> None:
        await self._asker.aclose()

    def turn(self, request: TurnRequest) -> AsyncIterator[TurnEvent]:
        return self._asker.ask(request, self._once)

    async def _once(
        self, request: TurnRequest, model: str, dropped: frozenset[str]
    ) -> AsyncGenerator[TurnEvent, None]:
        carry = {} if "carry" in dropped or not isinstance(request.carry, dict) else request.carry
        body = responses_body(request, model, self._endpoint, store=self._store, carry=carry)
        for parameter in dropped:
            body.pop(parameter.partition(".")[0], None)
        if "strict" in dropped:
            for tool in body.get("tools", ()):
                tool.pop("strict", None)
        stream: Any = await self._asker.client.responses.create(
            **body, stream=True, timeout=timeout_of(request)
        )
        try:
            reader = ResponsesReader(self._endpoint, model, carry, store=self._store, sent=len(request.items))
            whole = await check_stream(stream.response, self._endpoint)
            if whole is not None:
                reader.take_whole(whole)
            else:
                async for item in stream:
                    for event in reader.take(item):
                        yield event
            for event in reader.close():
                yield event
        finally:
            await stream.close()


def responses_body(
    request: TurnRequest, model: str, endpoint: Endpoint, *, store: bool, carry: Mapping[str, Any]
) -> dict[str, Any]:
    """The request's body. Instructions and tools are sent each time: they are never stored state."""
    body: dict[str, Any] = {"model": model, "store": store}
    previous = carry.get("response_id") if store else None
    if previous:
        body["previous_response_id"] = previous
        body["input"] = _new_outputs(_without_hosted(request, request.items[int(carry.get("sent", 0)) :]))
    else:
        body["input"] = _input(_without_hosted(request, request.items), carry.get("kept") or {})
    if request.instructions.strip():
        body["instructions"] = request.instructions
    tools = [_tool(tool, request) for tool in request.tools]
    include: list[str] = []
    if tools:
        body["tools"] = tools
        if request.tool_choice != "auto":
            body["tool_choice"] = _choice(request.tool_choice)
        if not request.parallel_tool_calls:
            body["parallel_tool_calls"] = False
        kinds = {tool["type"] for tool in tools}
        include += ["file_search_call.results"] if "file_search" in kinds else []
        include += ["code_interpreter_call.outputs"] if "code_interpreter" in kinds else []
    if not store and reasons(model):
        include.append("reasoning.encrypted_content")
    if include:
        body["include"] = include
    wanted = _format(request.response_format)
    if wanted is not None:
        body["text"] = {"format": wanted}
    if request.temperature not in (None, 1):
        body["temperature"] = request.temperature
    if request.top_p not in (None, 1):
        body["top_p"] = request.top_p
    if request.reasoning_effort is not None:
        body["reasoning"] = {"effort": request.reasoning_effort}
    if request.max_completion_tokens is not None:
        body["max_output_tokens"] = max(SMALLEST_LIMIT, request.max_completion_tokens)
    if endpoint.kind == "openai":
        body["stream_options"] = {"include_obfuscation": False}
    return body


def _new_outputs(items: Sequence[TurnItem]) -> list[dict[str, Any]]:
    """What the provider does not have yet: outputs and approvals of the calls that it keeps."""
    asked = {item.id for item in items if isinstance(item, TurnCall) and item.type == "mcp"}
    outputs = [item for item in items if isinstance(item, TurnOutput)]
    return [_approval(item) if item.tool_call_id in asked else _output(item) for item in outputs]


def _input(items: Sequence[TurnItem], kept: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The thread as input items; carried items stand before the calls that they led to."""
    found: list[dict[str, Any]] = []
    for block in in_blocks(items):
        if isinstance(block, CallBlock):
            carried = [item for call in block.calls for item in kept.get(call.id) or ()]
            known = {item.get("id") for item in carried}
            found += carried
            found += [_call(call) for call in block.calls if call.id not in known]
            found += [
                _approval(output) if call.type == "mcp" else _output(output)
                for call, output in zip(block.calls, block.outputs, strict=True)
            ]
        else:
            found.append(_message(block))
    return found


def _call(call: TurnCall) -> dict[str, Any]:
    """A call of an earlier turn; type mcp is one that waited for approval."""
    record = {"name": call.name, "arguments": call.arguments or "{}"}
    if call.type == "mcp":
        label = call.server_label
        return {"type": "mcp_approval_request", "id": call.id, "server_label": label, **record}
    return {"type": "function_call", "call_id": call.id, **record}


def _approval(output: TurnOutput) -> dict[str, Any]:
    """A decision; whatever is not a plain yes is a no."""
    try:
        decision = json.loads(output.output)
    except ValueError:
        decision = None
    approve = isinstance(decision, dict) and decision.get("approve") is True
    return {
        "type": "mcp_approval_response",
        "approval_request_id": output.tool_call_id,
        "approve": approve,
    }


def _without_hosted(request: TurnRequest, items: Sequence[TurnItem]) -> list[TurnItem]:
    """The items less the calls that the provider ran: it gets those back as its own items.

    Calls of type mcp stay: they are approvals.
    """
    hosted = {
        item.id
        for item in items
        if isinstance(item, TurnCall)
        and item.type not in ("function", "mcp")
        and _is_hosted(item.type, request)
    }
    return [
        item
        for item in items
        if not (isinstance(item, TurnCall) and item.id in hosted)
        and not (isinstance(item, TurnOutput) and item.tool_call_id in hosted)
    ]


def _is_hosted(kind: str, request: TurnRequest) -> bool:
    return any(tool.type == kind for tool in request.tools if not isinstance(tool, FunctionTool))


def _output(output: TurnOutput) -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": output.tool_call_id, "output": output.output}


def _message(message: TurnMessage) -> dict[str, Any]:
    kind = "input_text" if message.role == "user" else "output_text"
    parts: list[dict[str, Any]] = []
    for part in message.content:
        if part.get("type") == "text":
            parts.append({"type": kind, "text": part["text"]["value"]})
        elif part.get("type") == "image_url" and message.role == "user":
            image = part["image_url"]
            parts.append(
                {"type": "input_image", "image_url": image["url"], "detail": image.get("detail") or "auto"}
            )
    return {"role": message.role, "content": parts}


def _tool(tool: AssistantTool, request: TurnRequest) -> dict[str, Any]:
    if isinstance(tool, FunctionTool):
        function: dict[str, Any] = {
            "type": "function",
            "name": tool.function.name,
            "parameters": tool.function.parameters or {"type": "object", "properties": {}},
            "strict": bool(tool.function.strict),
        }
        if tool.function.description:
            function["description"] = tool.function.description
        return function
    if isinstance(tool, FileSearchTool):
        search: dict[str, Any] = {"type": "file_search", "vector_store_ids": list(request.vector_store_ids)}
        options = tool.file_search
        if options and options.max_num_results:
            search["max_num_results"] = options.max_num_results
        if options and options.ranking_options:
            search["ranking_options"] = {"score_threshold": options.ranking_options.score_threshold}
        return search
    if isinstance(tool, CodeInterpreterTool):
        container: dict[str, Any] = {"type": "auto"}
        if request.file_ids:
            container["file_ids"] = list(request.file_ids)
        return {"type": "code_interpreter", "container": container}
    assert isinstance(tool, UnknownVariant)
    return tool.model_dump(mode="json", by_alias=True, exclude_none=True)


def _choice(choice: ToolChoice) -> Any:
    if isinstance(choice, NamedToolChoice):
        return (
            {"type": "function", "name": choice.function.name} if choice.function else {"type": choice.type}
        )
    return choice


def _format(wanted: ResponseFormat) -> dict[str, Any] | None:
    """The format flat, as this API has it."""
    if isinstance(wanted, str) or wanted.type == "text":
        return None
    if wanted.type == "json_schema" and wanted.json_schema is not None:
        inner = wanted.json_schema.model_dump(mode="json", by_alias=True, exclude_none=True)
        return {"type": "json_schema", **inner}
    return {"type": wanted.type}


class ResponsesReader:
    """Reads stream events into turn events."""

    def __init__(
        self, endpoint: Endpoint, model: str, carry: Mapping[str, Any], *, store: bool, sent: int
    ) -> None:
        self._endpoint = endpoint
        self._model = model
        self._carry = carry
        self._store = store
        self._sent = sent
        self._calls: dict[str, int] = {}
        self._written: dict[str, str] = {}
        self._ids: list[str] = []
        self._asked: list[str] = []
        self._kept: list[dict[str, Any]] = []
        self._final: Mapping[str, Any] | None = None
        self._said = False
        self._finished: set[str] = set()

    def take(self, event: Any) -> Iterator[TurnEvent]:
        """The events of one stream event; unknown ones are left alone."""
        kind = getattr(event, "type", None)
        if kind == "response.output_text.delta":
            if event.delta:
                self._said = True
                yield TextDelta(event.delta)
        elif kind == "response.refusal.delta":
            if event.delta:
                self._said = True
                yield RefusalDelta(event.delta)
        elif kind == "response.output_item.added":
            yield from self._added(_plain(event.item))
        elif kind == "response.function_call_arguments.delta":
            yield from self._arguments(str(event.item_id), event.delta or "")
        elif kind == "response.output_item.done":
            yield from self._done(_plain(event.item))
        elif kind == "response.output_text.annotation.added":
            annotation = annotation_of(_plain(event.annotation))
            if annotation is not None:
                yield Annotate(annotation)
        elif kind in {"response.completed", "response.incomplete", "response.failed"}:
            self._final = _plain(event.response) or None
        elif kind == "error":
            body = {"code": getattr(event, "code", None), "message": getattr(event, "message", None)}
            raise Refused(from_error_object(body, endpoint=self._endpoint, model=self._model))

    def take_whole(self, whole: Mapping[str, Any]) -> None:
        """A response that came in one piece; `close` tells what is in it."""
        if whole.get("error") and not whole.get("output"):
            self._refuse(whole["error"])
        self._final = whole

    def _missed(self, output: Sequence[Mapping[str, Any]]) -> Iterator[TurnEvent]:
        """What no event told: all of it if the server did not stream, or streams the end alone."""
        for item in output:
            if item.get("type") == "message" and not self._said:
                for part in item.get("content") or ():
                    if part.get("type") == "output_text" and part.get("text"):
                        yield TextDelta(part["text"])
                    elif part.get("type") == "refusal":
                        yield RefusalDelta(part.get("refusal") or "")
            if _key(item) not in self._finished:
                yield from self._done(item)

    def _added(self, item: Mapping[str, Any]) -> Iterator[TurnEvent]:
        if item.get("type") != "function_call":
            return
        key = _key(item)
        call_id = str(item.get("call_id") or "") or None
        index = self._calls.setdefault(key, len(self._calls))
        if key in self._written:
            return
        self._written[key] = item.get("arguments") or ""
        self._ids.append(call_id or "")
        yield CallDelta(index, name=str(item.get("name")), id=call_id, arguments=self._written[key])

    def _arguments(self, key: str, piece: str) -> Iterator[TurnEvent]:
        if key in self._calls and piece:
            self._written[key] += piece
            yield CallDelta(self._calls[key], arguments=piece)

    def _done(self, item: Mapping[str, Any]) -> Iterator[TurnEvent]:
        kind, key = str(item.get("type")), _key(item)
        self._finished.add(key)
        if kind == "function_call":
            yield from self._added(item)
            rest = str(item.get("arguments") or "").removeprefix(self._written.get(key, ""))
            if rest and not self._written.get(key):
                yield from self._arguments(key, rest)
            elif not self._written.get(key):
                yield from self._arguments(key, "{}")
        elif kind in KEPT_ITEMS:
            kept = {
                name: value
                for name, value in item.items()
                if value is not None and (name, kind) != ("status", "reasoning")
            }
            if kind != "reasoning" or kept.get("encrypted_content"):
                self._kept.append(kept)
            if kind == "mcp_approval_request":
                self._asked.append(str(item.get("id")))
                yield ApprovalRequest(
                    str(item.get("id")),
                    str(item.get("server_label")),
                    str(item.get("name")),
                    str(item.get("arguments") or "{}"),
                )
        activity = activity_of(item)
        if activity is not None:
            yield HostedActivity(activity)

    def _refuse(self, error: Any) -> None:
        body = error if isinstance(error, Mapping) else {"message": str(error)}
        raise Refused(from_error_object(body, endpoint=self._endpoint, model=self._model))

    def close(self) -> Iterator[TurnEvent]:
        """Carry and Finish; Refused if the stream was cut or the response failed."""
        final = self._final
        if final is None:
            words = f"{self._endpoint.site}: the stream ended in the middle of the answer"
            raise Refused(Failure(EngineError("server_error", words, kind="cut"), repeat=True))
        status = final.get("status")
        if status in {"failed", "cancelled"}:
            self._refuse(final.get("error") or {"message": f"the response ended as {status}"})
        yield from self._missed(final.get("output") or ())
        yield from self._keep(final)
        usage = _usage(final.get("usage"))
        reason = (final.get("incomplete_details") or {}).get("reason")
        if status == "incomplete" and reason == "content_filter":
            details = filter_details(final)
            yield Notice(
                f"the provider's content filter stopped the answer{f': {details}' if details else ''}"
            )
            yield Finish("content_filter", usage)
        elif status == "incomplete":
            yield Finish("length", usage)
        else:
            yield Finish("tool_calls" if self._calls or self._asked else "stop", usage)

    def _keep(self, final: Mapping[str, Any]) -> Iterator[Carry]:
        """What the next turn of this run needs; nothing after the last one."""
        ids = [*self._ids, *self._asked]
        if not ids:
            return
        if self._store:
            yield Carry({"response_id": final.get("id"), "sent": self._sent})
        elif self._kept:
            kept = dict(self._carry.get("kept") or {})
            kept[ids[0]] = self._kept
            yield Carry({"kept": kept})


def _key(item: Mapping[str, Any]) -> str:
    """What an item is known by in one response."""
    return str(item.get("id") or item.get("call_id"))


def annotation_of(annotation: Mapping[str, Any]) -> dict[str, Any] | None:
    """An annotation as the wire's messages have it; None for a kind that has no place there."""
    kind = annotation.get("type")
    start = annotation.get("start_index", annotation.get("index", 0))
    end = annotation.get("end_index", start)
    if kind == "file_citation":
        inner: dict[str, Any] = {"file_citation": {"file_id": annotation.get("file_id")}}
    elif kind in {"container_file_citation", "file_path"}:
        kind = "file_path"
        inner = {"file_path": {"file_id": annotation.get("file_id")}}
    elif kind == "url_citation":
        inner = {"url_citation": {"url": annotation.get("url"), "title": annotation.get("title")}}
    else:
        return None
    return {"type": kind, "text": "", "start_index": start, "end_index": end, **inner}


def activity_of(item: Mapping[str, Any]) -> dict[str, Any] | None:
    """A hosted tool's finished call as the wire's run steps have it; None for messages and the like."""
    kind = str(item.get("type"))
    if kind == "code_interpreter_call":
        outputs = [
            {"type": "logs", "logs": output.get("logs") or ""}
            if output.get("type") == "logs"
            else {"type": "image", "image": {"file_id": output.get("url") or ""}}
            for output in item.get("outputs") or ()
        ]
        record = {"input": item.get("code") or "", "outputs": outputs}
        return {"id": item.get("id"), "type": "code_interpreter", "code_interpreter": record}
    if kind == "file_search_call":
        results = [
            {
                "file_id": result.get("file_id"),
                "file_name": result.get("filename"),
                "score": result.get("score") or 0,
                "content": [{"type": "text", "text": result.get("text") or ""}],
            }
            for result in item.get("results") or ()
        ]
        return {"id": item.get("id"), "type": "file_search", "file_search": {"results": results}}
    if kind.endswith("_call") and kind != "function_call":
        name = kind.removesuffix("_call")
        inner = {key: value for key, value in item.items() if key not in {"id", "type"} and value is not None}
        return {"id": item.get("id"), "type": name, name: inner}
    return None


def _plain(value: Any) -> Any:
    """An SDK object as plain data."""
    dump = getattr(value, "model_dump", None)
    return dump(mode="json") if callable(dump) else value


def _usage(value: Any) -> Usage | None:
    if not isinstance(value, Mapping):
        return None
    read, written = value.get("input_tokens"), value.get("output_tokens")
    if not isinstance(read, int) or not isinstance(written, int):
        return None
    return Usage(prompt_tokens=read, completion_tokens=written, total_tokens=read + written)
