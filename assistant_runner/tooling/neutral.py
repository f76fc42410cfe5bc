"""Documents of chat pipelines, turned into every provider's form and back (rows S0.1 to S0.12).

Neutral definitions: `{sl_type: function, name, description, parameters: [{name, type, description,
required, enum}]}` under `tools`, types upper case. Neutral messages carry `sl_role`. Converse documents
carry `toolUse`, `stopReason`, `usage`. Values pass through as they are, misspellings included.
Shapes: `function-generator.output`, `tool-calling.response-view`, `tool-calling.calls-view`,
`message-appender.chat-output`.
"""

import copy
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from assistant_runner.errors import ConfigurationError, UsageError, near_words

Document = dict[str, Any]

FORMS = ("neutral", "openai", "responses", "converse")
NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
TYPES = {"STRING": "string", "INTEGER": "integer", "NUMBER": "number", "BOOLEAN": "boolean"}
NEUTRAL_TYPES = {json_type: neutral for neutral, json_type in TYPES.items()}
ROLES = {"USER": "user", "ASSISTANT": "assistant", "SYSTEM": "system", "TOOL": "tool"}
GO_ON = frozenset({"tool_use", "tool_calls", "function_call", "requires_action"})
STOP = frozenset({"stop", "end_turn", "stop_sequence", "length", "max_tokens", "content_filter"})


@dataclass(frozen=True, slots=True)
class Definition:
    """One function in no provider's form: `parameters` is a JSON Schema of type object."""

    name: str
    description: str | None
    parameters: Mapping[str, Any]
    strict: bool | None = None


@dataclass(frozen=True, slots=True)
class Call:
    """One call; `arguments` is the raw text where the provider sends text, `json_arguments` its value."""

    id: str
    name: str
    arguments: str
    json_arguments: Any


@dataclass(frozen=True, slots=True)
class ModelTurn:
    """A model's answer: texts and calls in order; usage in tokens, latency in milliseconds."""

    text: str
    calls: tuple[Call, ...]
    stop_reason: str | None
    message: Mapping[str, Any]
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    total_tokens: int | None = None
    latency_ms: int | None = None

    @property
    def goes_on(self) -> bool:
        """True while the loop has calls to answer (row S0.25)."""
        return bool(self.calls) or (self.stop_reason or "") in GO_ON


@dataclass(frozen=True, slots=True)
class StepViews:
    """What a tool call step gives: the response with all messages, and the calls alone ([] if none)."""

    response: list[Document]
    calls: list[Document]
    notes: tuple[str, ...] = field(default_factory=tuple)


def convert(document: Any, to: str, *, notes: list[str] | None = None) -> Any:
    """A document of definitions, messages or a model's answer in another form.

    `to`: neutral, openai, responses or converse. Definitions come back as `{"tools": [...]}`, messages
    as `{"messages": [...]}`. What was left out is said in `notes`. UsageError for an unknown form,
    ConfigurationError that names the definition and the parameter for what cannot be turned.
    """
    if to not in FORMS:
        near = near_words(to, FORMS)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise UsageError(f"no form {to!r}{hint}", remedy=f"one of {', '.join(FORMS)}")
    said = [] if notes is None else notes
    messages = _messages_in(document)
    if messages is not None:
        return {"messages": [turned for message in messages for turned in write_message(message, to)]}
    definitions = read_definitions(document)
    return {"tools": [write_definition(definition, to, notes=said) for definition in definitions]}


# ---- definitions


def read_definitions(document: Any) -> list[Definition]:
    """The definitions of a document in any form, in order; two of one name are a ConfigurationError."""
    found = [read_definition(item) for item in _definitions_in(document)]
    if not found:
        raise ConfigurationError("there is no tool definition in this document", remedy="see docs/engines.md")
    seen: set[str] = set()
    for definition in found:
        if definition.name in seen:
            raise ConfigurationError(
                f"two tools are named {definition.name!r}",
                remedy="give each its own name",
                tool=definition.name,
            )
        seen.add(definition.name)
    return found


def merge_tools(*documents: Any) -> Document:
    """Several documents of definitions as one neutral `tools` payload, order kept (row S0.4)."""
    definitions = read_definitions(list(documents))
    return {"tools": [write_definition(definition, "neutral") for definition in definitions]}


def read_definition(item: Mapping[str, Any]) -> Definition:
    """One definition in any form; ConfigurationError with the offending name or type."""
    inner: Mapping[str, Any] = item
    for key in ("function", "toolSpec"):
        if isinstance(item.get(key), Mapping):
            inner = item[key]
    name = inner.get("name")
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise ConfigurationError(
            f"the tool name {name!r} is not 1 to 64 of a-z, A-Z, 0-9, _ and -",
            remedy="rename the tool",
            tool=name,
        )
    raw = inner.get("parameters")
    if raw is None and isinstance(inner.get("inputSchema"), Mapping):
        raw = inner["inputSchema"].get("json")
    strict = inner.get("strict")
    description = inner.get("description")
    if isinstance(raw, list):
        schema = _schema_of(name, raw, strict=strict is True)
    elif isinstance(raw, Mapping) or raw is None:
        schema = copy.deepcopy(dict(raw)) if raw else {"type": "object", "properties": {}}
    else:
        raise ConfigurationError(f"{name}: parameters are neither a list nor a schema", remedy="correct them")
    return Definition(
        name,
        description if isinstance(description, str) else None,
        schema,
        strict if isinstance(strict, bool) else None,
    )


def write_definition(definition: Definition, to: str, *, notes: list[str] | None = None) -> Document:
    """One definition in a provider's form; `strict` is left out, and said, where there is none."""
    described: Document = (
        {"description": definition.description} if definition.description is not None else {}
    )
    schema = copy.deepcopy(dict(definition.parameters))
    strict: Document = {} if definition.strict is None else {"strict": definition.strict}
    if to == "openai":
        return {
            "type": "function",
            "function": {"name": definition.name, **described, **strict, "parameters": schema},
        }
    if to == "responses":
        return {
            "type": "function",
            "name": definition.name,
            **described,
            "strict": bool(definition.strict),
            "parameters": schema,
        }
    if to == "converse":
        if definition.strict and notes is not None:
            notes.append(f"{definition.name}: strict is left out, this form has none")
        return {"toolSpec": {"name": definition.name, **described, "inputSchema": {"json": schema}}}
    parameters = _parameters_of(definition)
    return {
        "sl_type": "function",
        "name": definition.name,
        **described,
        **strict,
        "parameters": parameters,
    }


def _definitions_in(document: Any) -> Iterable[Mapping[str, Any]]:
    if isinstance(document, list):
        for item in document:
            yield from _definitions_in(item)
    elif isinstance(document, Mapping):
        for holder in ("toolConfig", "run"):
            if isinstance(document.get(holder), Mapping):
                document = document[holder]
        if isinstance(document.get("tools"), list):
            yield from _definitions_in(document["tools"])
        elif document.get("type") in {"code_interpreter", "file_search", "web_search", "mcp"}:
            return
        elif document.get("name") is not None or "function" in document or "toolSpec" in document:
            yield document


def _schema_of(tool: str, parameters: Sequence[Any], *, strict: bool) -> Document:
    properties: Document = {}
    required: list[str] = []
    for parameter in parameters:
        if not isinstance(parameter, Mapping) or not isinstance(parameter.get("name"), str):
            raise ConfigurationError(f"{tool}: a parameter without a name", remedy="name it", tool=tool)
        name, kind = parameter["name"], parameter.get("type")
        json_type = TYPES.get(str(kind).upper())
        if json_type is None:
            raise ConfigurationError(
                f"{tool}: {name}: the type {kind!r} is none of {', '.join(TYPES)}",
                remedy="lists and objects need a JSON Schema: write the definition in the openai form",
                tool=tool,
            )
        needed = bool(parameter.get("required", False))
        schema: Document = {"type": json_type if needed or not strict else [json_type, "null"]}
        for key in ("description", "enum"):
            if key in parameter:
                schema[key] = copy.deepcopy(parameter[key])
        if strict and not needed and "enum" in schema and None not in schema["enum"]:
            schema["enum"] = [*schema["enum"], None]
        properties[name] = schema
        if needed or strict:
            required.append(name)
    schema = {"type": "object", "properties": properties, "required": required}
    return {**schema, "additionalProperties": False} if strict else schema


def _parameters_of(definition: Definition) -> list[Document]:
    schema = definition.parameters
    required = schema.get("required") or []
    found: list[Document] = []
    for name, given in (schema.get("properties") or {}).items():
        kinds = given.get("type")
        kinds = kinds if isinstance(kinds, list) else [kinds]
        plain = [kind for kind in kinds if kind != "null"]
        neutral = NEUTRAL_TYPES.get(str(plain[0])) if len(plain) == 1 else None
        if neutral is None:
            raise ConfigurationError(
                f"{definition.name}: {name}: the neutral form has no type for {given.get('type')!r}",
                remedy=f"it has {', '.join(TYPES)}",
                tool=definition.name,
            )
        parameter: Document = {"name": name, "type": neutral}
        if "description" in given:
            parameter["description"] = given["description"]
        if "enum" in given:
            parameter["enum"] = [value for value in given["enum"] if value is not None or "null" not in kinds]
        parameter["required"] = name in required and "null" not in kinds
        found.append(parameter)
    return found


# ---- messages


def _messages_in(document: Any) -> list[Mapping[str, Any]] | None:
    """The messages of a document, or None if it holds definitions."""
    if isinstance(document, Mapping):
        if isinstance(document.get("messages"), list):
            return [message for message in document["messages"] if isinstance(message, Mapping)]
        if "sl_role" in document or ("role" in document and "content" in document):
            return [document]
        return None
    if isinstance(document, list) and document:
        found = [_messages_in(item) for item in document]
        if all(messages is not None for messages in found):
            return [message for messages in found for message in messages or ()]
    return None


def write_message(message: Mapping[str, Any], to: str) -> list[Document]:
    """One message in a provider's form; `responses` may need several items for it."""
    role, text, calls, results = _read_message(message)
    if to == "neutral":
        if results:
            return [
                {"sl_role": "TOOL", "function_id": id, "is_error": is_error, "content": content}
                for id, content, is_error in results
            ]
        return [
            {**{k: v for k, v in message.items() if k not in {"role", "sl_role"}}, "sl_role": role.upper()}
        ]
    if to == "converse":
        return [_converse_message(role, text, calls, results)]
    written: list[Document] = []
    if to == "responses":
        if text or not (calls or results):
            written.append({"role": role, "content": text})
        written += [
            {"type": "function_call", "call_id": c.id, "name": c.name, "arguments": c.arguments}
            for c in calls
        ]
        written += [
            {"type": "function_call_output", "call_id": id, "output": _as_text(content)}
            for id, content, _ in results
        ]
        return written
    if results:
        return [
            {"role": "tool", "tool_call_id": id, "content": _as_text(content)} for id, content, _ in results
        ]
    turned: Document = {"role": role, "content": text or (None if calls else "")}
    if calls:
        turned["tool_calls"] = [
            {"id": c.id, "type": "function", "function": {"name": c.name, "arguments": c.arguments}}
            for c in calls
        ]
    return [turned]


def _read_message(
    message: Mapping[str, Any],
) -> tuple[str, str, list[Call], list[tuple[str, Any, bool]]]:
    raw_role = message.get("sl_role") or message.get("role")
    role = ROLES.get(str(raw_role).upper())
    if role is None:
        raise ConfigurationError(
            f"a message has the role {raw_role!r}", remedy=f"one of {', '.join(ROLES)}", role=raw_role
        )
    content = message.get("content")
    if role == "tool":
        id = str(message.get("function_id") or message.get("tool_call_id") or "")
        return role, "", [], [(id, content, bool(message.get("is_error")))]
    texts: list[str] = []
    calls: list[Call] = []
    results: list[tuple[str, Any, bool]] = []
    for part in content if isinstance(content, list) else [{"text": content}] if content else []:
        if not isinstance(part, Mapping):
            texts.append(str(part))
        elif isinstance(part.get("toolUse"), Mapping):
            calls.append(_converse_call(part["toolUse"]))
        elif isinstance(part.get("toolResult"), Mapping):
            result = part["toolResult"]
            value = result.get("content")
            if isinstance(value, list) and len(value) == 1 and isinstance(value[0], Mapping):
                value = value[0].get("json", value[0].get("text"))
            results.append((str(result.get("toolUseId")), value, result.get("status") == "error"))
        elif isinstance(part.get("text"), Mapping):
            texts.append(str(part["text"].get("value") or ""))
        elif part.get("text") is not None:
            texts.append(str(part["text"]))
    calls += [_openai_call(call) for call in message.get("tool_calls") or ()]
    return role, "\n".join(texts), calls, results


def _converse_message(
    role: str, text: str, calls: Sequence[Call], results: Sequence[tuple[str, Any, bool]]
) -> Document:
    content: list[Document] = [{"text": text}] if text else []
    content += [
        {"toolUse": {"toolUseId": call.id, "name": call.name, "input": call.json_arguments}} for call in calls
    ]
    for id, value, is_error in results:
        inner = {"text": value} if isinstance(value, str) else {"json": value}
        result: Document = {"toolUseId": id, "content": [inner]}
        if is_error:
            result["status"] = "error"
        content.append({"toolResult": result})
    return {"role": "user" if role == "tool" else role, "content": content}


def _as_text(content: Any) -> str:
    """Content where only text is taken: text as it is, anything else as compact JSON (row S0.15)."""
    if isinstance(content, str):
        return content
    return json.dumps(content, ensure_ascii=False, separators=(",", ":"))


def _converse_call(use: Mapping[str, Any]) -> Call:
    value = use.get("input")
    return Call(str(use.get("toolUseId") or ""), str(use.get("name") or ""), _as_text(value), value)


def _openai_call(call: Mapping[str, Any]) -> Call:
    function = call.get("function") or {}
    raw = function.get("arguments")
    raw = raw if isinstance(raw, str) else _as_text(raw or {})
    try:
        value = json.loads(raw) if raw.strip() else {}
    except ValueError:
        value = None
    return Call(str(call.get("id") or ""), str(function.get("name") or ""), raw, value)


# ---- a model's answer


def read_turn(document: Mapping[str, Any] | Sequence[Any]) -> ModelTurn:
    """A model's answer in the Converse or the Chat Completions form; ConfigurationError for neither."""
    if isinstance(document, list) and len(document) == 1:
        document = document[0]
    if not isinstance(document, Mapping):
        raise ConfigurationError("this is no model's answer", remedy="give one JSON object")
    usage = document.get("usage") or {}
    metrics = document.get("metrics") or {}
    if isinstance(document.get("output"), Mapping):
        message = document["output"].get("message") or {}
        stop = document.get("stopReason")
    elif document.get("choices"):
        choice = document["choices"][0]
        message, stop = choice.get("message") or {}, choice.get("finish_reason")
    else:
        raise ConfigurationError(
            "this is no model's answer: neither output.message nor choices", remedy="see docs/engines.md"
        )
    _, text, calls, _ = _read_message({"role": "assistant", **message})
    return ModelTurn(
        text,
        tuple(calls),
        stop,
        message,
        usage.get("inputTokens", usage.get("prompt_tokens")),
        usage.get("outputTokens", usage.get("completion_tokens")),
        usage.get("totalTokens", usage.get("total_tokens")),
        metrics.get("latencyMs"),
    )


def step_views(response: Mapping[str, Any], messages: Sequence[Mapping[str, Any]]) -> StepViews:
    """The two views of a tool call step: the response with `messages` up to and including its own, and
    the calls (rows S0.6 to S0.8). Calls of OpenAI and Azure gain `json_arguments` beside the raw text."""
    turn = read_turn(response)
    own = {"role": "assistant", **turn.message}
    view: Document = {**response, "messages": [*(dict(message) for message in messages), own]}
    calls: list[Document] = []
    for part in turn.message.get("content") or ():
        if isinstance(part, Mapping) and "toolUse" in part:
            calls.append(dict(part))
    for raw, call in zip(turn.message.get("tool_calls") or (), turn.calls, strict=False):
        function = {**raw["function"], "json_arguments": call.json_arguments}
        calls.append({**raw, "function": function})
    return StepViews([view], calls)


def with_original(output: Mapping[str, Any], given: Any, *, depth: int | None = None) -> Document:
    """A step's output that carries its input under `original`, nested to `depth` levels (row S0.12).

    `depth` 0 is off; None keeps every level.
    """
    if depth == 0:
        return {key: value for key, value in output.items() if key != "original"}
    return {**output, "original": _capped(given, None if depth is None else depth - 1)}


def _capped(value: Any, depth: int | None) -> Any:
    if depth is None:
        return value
    if isinstance(value, list):
        return [_capped(item, depth) for item in value]
    if isinstance(value, Mapping):
        kept = {key: item for key, item in value.items() if key != "original" or depth > 0}
        if "original" in kept:
            kept["original"] = _capped(kept["original"], depth - 1)
        return kept
    return value
