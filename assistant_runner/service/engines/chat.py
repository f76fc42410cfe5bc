"""The `chat` engine: Chat Completions, streamed, on OpenAI, Azure and every compatible server.

What is sent is the protocol's core; what comes back is read with forgiveness (see `fragments`), since
local servers and gateways each bend the protocol their own way.
"""

import json
import re
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping, Sequence
from typing import Any, Unpack

from assistant_runner.service.engines.asking import Asker, AskerOptions, timeout_of
from assistant_runner.service.engines.base import (
    Abilities,
    CallDelta,
    EngineError,
    Finish,
    FinishReason,
    Notice,
    RefusalDelta,
    TextDelta,
    TurnCall,
    TurnEvent,
    TurnMessage,
    TurnRequest,
)
from assistant_runner.service.engines.catalog import supports_tools
from assistant_runner.service.engines.client import (
    Failure,
    Refused,
    documents_of,
    filter_details,
    from_error_object,
)
from assistant_runner.service.engines.fragments import CallMerger, calls_in_text, is_object, may_open_call
from assistant_runner.service.engines.history import in_blocks
from assistant_runner.service.engines.providers import Provider
from assistant_runner.wire.runs import Usage
from assistant_runner.wire.tools import FunctionTool, NamedToolChoice, ResponseFormat, ToolChoice

FINISH_REASONS: Mapping[str, FinishReason] = {
    "stop": "stop",
    "end_turn": "stop",
    "eos": "stop",
    "eos_token": "stop",
    "stop_sequence": "stop",
    "tool_calls": "tool_calls",
    "tool_use": "tool_calls",
    "function_call": "tool_calls",
    "length": "length",
    "max_tokens": "length",
    "model_length": "length",
    "content_filter": "content_filter",
    "safety": "content_filter",
    "recitation": "content_filter",
}
"""By the reason in small letters; one that is not known is a stop."""
FAILURES = frozenset({"error", "abort", "network_error", "insufficient_system_resource"})
"""Reasons of gateways and servers whose model broke off: what came so far is no answer."""
LIKE_A_CALL = re.compile(
    r"<tool_call>|<function=|<\|python_tag\|>|\[TOOL_CALLS\]|<\|tool_call"
    r"|\"name\"\s*:\s*\"[\w.-]+\"\s*,\s*\"(?:arguments|parameters)\""
)
AS_TEXT = "the model wrote a tool call as text that could not be taken for one"
THINK = ("<think>", "</think>")


class ChatEngine:
    """Turns by Chat Completions. `supports`: what discovery learned about tools, by model."""

    name = "chat"
    uses_model = True

    def __init__(
        self,
        provider: Provider,
        *,
        supports: Mapping[str, bool] | None = None,
        **options: Unpack[AskerOptions],
    ) -> None:
        self._asker = Asker(provider, **options)
        self._endpoint = provider.endpoint
        self._supports = dict(supports or {})

    @property
    def label(self) -> str:
        return self._asker.label(self.name)

    @property
    def default_model(self) -> str | None:
        """The model of an assistant that names none."""
        return self._asker.names.default

    def abilities(self, model: str) -> Abilities:
        resolved = self._asker.names.resolve(model)
        known = self._supports.get(resolved)
        tools = known if known is not None else supports_tools(resolved) is not False
        own = self._endpoint.kind != "compatible"
        return Abilities(tools=tools, strict=own, parallel=True, vision=True, json_schema=True)

    async def models(self) -> Sequence[Mapping[str, Any]]:
        return await self._asker.models(self._supports)

    async def aclose(self) -> None:
        await self._asker.aclose()

    def turn(self, request: TurnRequest) -> AsyncIterator[TurnEvent]:
        return self._asker.ask(request, self._once)

    async def _once(
        self, request: TurnRequest, model: str, dropped: frozenset[str]
    ) -> AsyncGenerator[TurnEvent, None]:
        body = chat_body(request, model, kind=self._endpoint.kind, strict="strict" not in dropped)
        for parameter in dropped:
            body.pop(parameter, None)
        stream: Any = await self._asker.client.chat.completions.create(
            **body, stream=True, timeout=timeout_of(request)
        )
        try:
            reader = ChatReader(request, self._endpoint.kind == "compatible")
            done = False
            async for chunk in documents_of(stream.response, self._endpoint):
                done = chunk is None
                if chunk is None:
                    break
                if chunk.get("error"):
                    raise Refused(from_error_object(chunk["error"], endpoint=self._endpoint, model=model))
                for event in reader.take(chunk):
                    yield event
            for event in reader.close(self._endpoint.site, done=done):
                yield event
        finally:
            await stream.close()


def chat_body(request: TurnRequest, model: str, *, kind: str, strict: bool = True) -> dict[str, Any]:
    """The request's body. `kind` of the endpoint: newer names go to their inventors only. `strict` is
    sent to every server: those that lack it leave it alone, and one that refuses it is asked again."""
    own = kind != "compatible"
    body: dict[str, Any] = {"model": model, "messages": chat_messages(request, lenient=not own)}
    functions = [tool for tool in request.tools if isinstance(tool, FunctionTool)]
    if functions:
        body["tools"] = [_function(tool, strict=strict) for tool in functions]
        if request.tool_choice != "auto":
            body["tool_choice"] = _choice(request.tool_choice)
        if not request.parallel_tool_calls:
            body["parallel_tool_calls"] = False
    wanted = _format(request.response_format)
    if wanted is not None:
        body["response_format"] = wanted
    if request.temperature not in (None, 1):
        body["temperature"] = request.temperature
    if request.top_p not in (None, 1):
        body["top_p"] = request.top_p
    if request.reasoning_effort is not None:
        body["reasoning_effort"] = request.reasoning_effort
    if request.max_completion_tokens is not None:
        body["max_completion_tokens" if own else "max_tokens"] = request.max_completion_tokens
    body["stream_options"] = {"include_usage": True}
    return body


def chat_messages(request: TurnRequest, *, lenient: bool) -> list[dict[str, Any]]:
    """The thread as chat messages; calls join the assistant's message that they came with.

    `lenient`: arguments that are no JSON object are wrapped, since many servers parse the history.
    """
    messages: list[dict[str, Any]] = []
    if request.instructions.strip():
        messages.append({"role": "system", "content": request.instructions})
    for block in in_blocks(request.items):
        if isinstance(block, TurnMessage):
            messages.append({"role": block.role, "content": _content(block)})
            continue
        calls = [_call(call, lenient=lenient) for call in block.calls]
        if messages and messages[-1]["role"] == "assistant" and "tool_calls" not in messages[-1]:
            messages[-1]["tool_calls"] = calls
        else:
            content = "" if lenient else None  # llama-cpp-python takes text only
            messages.append({"role": "assistant", "content": content, "tool_calls": calls})
        messages += [
            {"role": "tool", "tool_call_id": output.tool_call_id, "content": output.output}
            for output in block.outputs
        ]
    return messages


def _content(message: TurnMessage) -> str | list[dict[str, Any]]:
    if message.role == "assistant" or all(part.get("type") == "text" for part in message.content):
        return message.text()
    parts: list[dict[str, Any]] = []
    for part in message.content:
        if part.get("type") == "text":
            parts.append({"type": "text", "text": part["text"]["value"]})
        elif part.get("type") == "image_url":
            parts.append({"type": "image_url", "image_url": dict(part["image_url"])})
    return parts


def _call(call: TurnCall, *, lenient: bool) -> dict[str, Any]:
    arguments = call.arguments or "{}"
    if lenient and not is_object(arguments):
        arguments = json.dumps({"raw_arguments": arguments}, ensure_ascii=False)
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": arguments}}


def _function(tool: FunctionTool, *, strict: bool) -> dict[str, Any]:
    function: dict[str, Any] = {
        "name": tool.function.name,
        "parameters": tool.function.parameters or {"type": "object", "properties": {}},
    }
    if tool.function.description:
        function["description"] = tool.function.description
    if strict and tool.function.strict is not None:
        function["strict"] = tool.function.strict
    return {"type": "function", "function": function}


def _choice(choice: ToolChoice) -> Any:
    if isinstance(choice, NamedToolChoice):
        if choice.function is None:
            raise EngineError(
                "invalid_prompt",
                f"tool_choice {choice.type!r} names a hosted tool; Chat Completions has functions only",
                kind="unsupported",
            )
        return {"type": "function", "function": {"name": choice.function.name}}
    return choice


def _format(wanted: ResponseFormat) -> dict[str, Any] | None:
    if isinstance(wanted, str) or wanted.type == "text":
        return None
    if wanted.type == "json_schema" and wanted.json_schema is not None:
        schema = wanted.json_schema.model_dump(mode="json", by_alias=True, exclude_none=True)
        return {"type": "json_schema", "json_schema": schema}
    return {"type": wanted.type}


def _get(value: Any, name: str) -> Any:
    """A field of a mapping; None if it is missing, or if this is no mapping."""
    return value.get(name) if isinstance(value, dict) else None


class ChatReader:
    """Reads chunks into turn events. `guess`: text may be a tool call (compatible servers only)."""

    def __init__(self, request: TurnRequest, guess: bool) -> None:
        self._offered = {t.function.name for t in request.tools if isinstance(t, FunctionTool)}
        self._guess = guess and bool(self._offered) and request.tool_choice != "none"
        self._single = not request.parallel_tool_calls
        self._merger = CallMerger()
        self._held = ""
        self._told: list[str] = []
        self._holding = guess
        self._thought = False
        self._said = False
        self._saw_choice = False
        self._reason: str | None = None
        self._usage: Usage | None = None
        self._filtered: list[Any] = []

    def take(self, chunk: Any) -> Iterator[TurnEvent]:
        """The events of one chunk."""
        counted = _get(chunk, "usage")
        if counted is not None:
            self._usage = _usage(counted) or self._usage
        if _get(chunk, "prompt_filter_results"):
            self._filtered.append(_get(chunk, "prompt_filter_results"))
        choices = _get(chunk, "choices")
        for choice in choices if isinstance(choices, list) else ():
            if _get(choice, "index") not in (None, 0):
                continue
            self._saw_choice = True
            if _get(choice, "content_filter_results"):
                self._filtered.append(_get(choice, "content_filter_results"))
            reason = _get(choice, "finish_reason")
            if reason:
                self._reason = str(reason)
            delta = _get(choice, "delta") or _get(choice, "message")  # a completion in one piece
            if delta is not None:
                yield from self._delta(delta)

    def _delta(self, delta: Any) -> Iterator[TurnEvent]:
        content = _get(delta, "content")
        if isinstance(content, list):
            content = "".join(str(_get(part, "text") or "") for part in content)
        if isinstance(content, str) and content:
            yield from self._text(content)
        refusal = _get(delta, "refusal")
        if isinstance(refusal, str) and refusal:
            self._said = True
            yield RefusalDelta(refusal)
        calls = _get(delta, "tool_calls")
        fragments = list(calls) if isinstance(calls, list) else []
        legacy = _get(delta, "function_call")
        if legacy and not fragments:  # llama-cpp-python says the same piece in both ways
            fragments.append({"index": 0, "function": legacy})
        for fragment in fragments:
            function = _get(fragment, "function") or fragment
            for piece in self._merger.take(
                index=_get(fragment, "index"),
                id=_get(fragment, "id"),
                name=_get(function, "name"),
                arguments=_get(function, "arguments"),
            ):
                yield from self._call(piece)

    def _call(self, piece: CallDelta) -> Iterator[TurnEvent]:
        if self._single and piece.index > 0:
            if piece.name:
                yield Notice(f"the model called {piece.name} in parallel although one call was asked for")
            return
        yield piece

    def _text(self, content: str) -> Iterator[TurnEvent]:
        if not self._holding:
            self._said = True
            if self._guess:
                self._told.append(content)
            yield TextDelta(content)
            return
        self._held += content
        start = self._held.lstrip()
        if start.startswith(THINK[0]):
            _, found, rest = start.partition(THINK[1])
            if not found:
                return
            start, self._thought = rest.lstrip(), True
        if self._thought:
            self._held = start
            if not start:
                return
        elif THINK[0].startswith(start) and len(start) < len(THINK[0]):
            return
        if self._guess and may_open_call(start):
            return
        self._holding = False
        if self._held:
            self._said = True
            self._told.append(self._held)
            yield TextDelta(self._held)
            self._held = ""

    def close(self, host: str, *, done: bool) -> Iterator[TurnEvent]:
        """The rest of the turn and its Finish; Refused if the stream was cut or empty.

        `done`: the server said that this was all.
        """
        if not self._saw_choice:
            words = f"{host} answered with no choices"
            details = filter_details(self._filtered)
            if details:
                raise Refused(
                    Failure(
                        EngineError("invalid_prompt", f"content filter: {details}", kind="content_filter")
                    )
                )
            raise Refused(Failure(EngineError("server_error", words, kind="bad_answer"), repeat=True))
        if self._reason is None and not self._is_whole(done):
            words = f"{host}: the stream ended in the middle of the answer"
            raise Refused(Failure(EngineError("server_error", words, kind="cut"), repeat=True))
        told = (self._reason or "stop").lower()
        if told in FAILURES:
            words = f"{host} broke the answer off: finish_reason {told!r}"
            raise Refused(Failure(EngineError("server_error", words, kind="cut"), repeat=True))
        if self._held:
            yield from self._release()
        elif self._guess and not self._merger.calls and LIKE_A_CALL.search("".join(self._told)):
            yield Notice(AS_TEXT)
        reason = FINISH_REASONS.get(told, "stop")
        if self._merger.nameless:
            words = f"{host}: the model made a tool call without a name"
            raise Refused(
                Failure(EngineError("server_error", words, kind="bad_answer"), repeat=not self._said)
            )
        if self._merger.calls and not (reason in {"length", "content_filter"} and not self._merger.complete):
            for piece in self._merger.close():
                yield from self._call(piece)
            reason = "tool_calls"
        elif reason == "tool_calls" and not self._merger.calls:
            reason = "stop"
        if reason == "content_filter":
            details = filter_details(self._filtered)
            yield Notice(
                f"the provider's content filter stopped the answer{f': {details}' if details else ''}"
            )
        yield Finish(reason, self._usage)

    def _is_whole(self, done: bool) -> bool:
        """Whether an answer without a finish reason has come to its end: the server said so, or its calls
        are whole, which some servers leave without any last word."""
        if self._merger.calls:
            return self._merger.complete and (done or all(call.written for call in self._merger.calls))
        return done and bool(self._said or self._held)

    def _release(self) -> Iterator[TurnEvent]:
        """Held text: the calls that it is, or the text."""
        calls = calls_in_text(self._held, self._offered) if self._guess and not self._merger.calls else None
        if calls is None:
            if self._guess and LIKE_A_CALL.search(self._held):
                yield Notice(AS_TEXT)
            self._said = True
            yield TextDelta(self._held)
            return
        yield Notice("the model wrote its tool call as text; it was taken as a call")
        for name, arguments in calls:
            for piece in self._merger.take(
                index=len(self._merger.calls), id=None, name=name, arguments=arguments
            ):
                yield from self._call(piece)


def _usage(value: Any) -> Usage | None:
    prompt, completion = _get(value, "prompt_tokens"), _get(value, "completion_tokens")
    if not isinstance(prompt, int) or not isinstance(completion, int):
        return None
    total = _get(value, "total_tokens")
    return Usage(
        prompt_tokens=prompt,
        completion_tokens=completion,
        total_tokens=total if isinstance(total, int) else prompt + completion,
    )
