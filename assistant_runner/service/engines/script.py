"""The script engine: what the model does is written in a file, so that anyone can test a client.

The format is `{"format": 1, "scripts": {"NAME": {"turns": [TURN, ...]}, ...}}`; docs/script-engine.md
describes it whole. A run plays the script that its model names (`NAME`, or `PREFIX-NAME` with any
prefix), or that the last user message asks for at its end (`[flow:NAME]`). Words count as tokens.
"""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from assistant_runner.errors import ConfigurationError, near_words
from assistant_runner.service.engines.base import (
    Abilities,
    Annotate,
    BuiltinCall,
    CallDelta,
    EngineError,
    Finish,
    FinishReason,
    TextDelta,
    TurnCall,
    TurnEvent,
    TurnMessage,
    TurnOutput,
    TurnRequest,
)
from assistant_runner.wire.runs import Usage

Turn = dict[str, Any]

_FLOW = re.compile(r"\[flow:([^\]\s]+)\]\s*$")
_KINDS = ("tool_calls", "text", "echo", "builtin", "error")
_KEYS = frozenset(
    {*_KINDS, "repeat", "cite", "input", "query", "delay_s", "usage", "finish"},
)
_BUILTIN_KEYS = {"code_interpreter": "input", "file_search": "query"}


class ScriptEngine:
    """Plays turns from a script; no language model."""

    name = "script"
    uses_model = False

    def __init__(self, scripts: Mapping[str, Sequence[Turn]], label: str) -> None:
        self._scripts = dict(scripts)
        self.label = label

    @classmethod
    def load(cls, path: Path | str) -> "ScriptEngine":
        """The engine for a script file; ConfigurationError names file and place of what is wrong."""
        try:
            document = json.loads(Path(path).read_text(encoding="utf-8-sig"))
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigurationError(
                f"the script {path} cannot be read: {error}", remedy="name a script file", path=str(path)
            ) from None
        except ValueError as error:
            raise ConfigurationError(
                f"the script {path} is not JSON: {error}", remedy=f"correct {path}", path=str(path)
            ) from None
        return cls.from_document(document, origin=str(path))

    @classmethod
    def from_document(cls, document: Any, *, origin: str = "script") -> "ScriptEngine":
        """The engine for a script document; ConfigurationError if it is none."""
        scripts = _checked(document, origin)
        return cls(scripts, f"script {origin} (no language model)" if origin != "script" else "script")

    def abilities(self, model: str) -> Abilities:
        return Abilities(tools=True, strict=True, parallel=True, vision=True, json_schema=True)

    async def models(self) -> Sequence[Mapping[str, Any]]:
        return [{"id": name, "object": "model", "created": 0, "owned_by": "script"} for name in self._scripts]

    async def aclose(self) -> None:
        """Nothing to close."""

    async def turn(self, request: TurnRequest) -> AsyncIterator[TurnEvent]:
        turns = self._find(request)
        turn = turns[min(request.turn, len(turns) - 1)]
        if turn.get("delay_s"):
            await asyncio.sleep(turn["delay_s"])
        produced = ""
        finish: FinishReason = "stop"
        if "text" in turn or turn.get("echo"):
            text = _dump(request) if turn.get("echo") else _repeated(turn)
            limit = request.max_completion_tokens
            pieces = _words(text)
            if limit is not None and len(pieces) > limit:
                pieces = pieces[: max(0, limit)]
                finish = "length"
            produced = "".join(pieces)
            for piece in pieces:
                yield TextDelta(piece)
            if turn.get("cite") and finish == "stop":
                for event in _citation(request, len(produced)):
                    yield event
        if "error" in turn:
            raise EngineError(
                turn["error"].get("code", "server_error"), turn["error"].get("message", "the script says so")
            )
        if "builtin" in turn and finish == "stop":
            finish = "tool_calls"
            key = _BUILTIN_KEYS[turn["builtin"]]
            produced += turn[key]
            yield BuiltinCall(turn["builtin"], {key: turn[key]})
        if "tool_calls" in turn and finish != "length":
            finish = "tool_calls"
            for index, call in enumerate(turn["tool_calls"]):
                arguments = call.get("arguments_raw")
                if arguments is None:
                    arguments = json.dumps(call.get("arguments", {}), ensure_ascii=False)
                produced += f" {call['name']} {arguments}"
                yield CallDelta(index=index, name=call["name"])
                yield CallDelta(index=index, arguments=arguments)
        if "finish" in turn:
            finish = turn["finish"]
        yield Finish(finish, _usage(turn, request, produced))

    def _find(self, request: TurnRequest) -> Sequence[Turn]:
        last = next(
            (
                item
                for item in reversed(request.items)
                if isinstance(item, TurnMessage) and item.role == "user"
            ),
            None,
        )
        flow = _FLOW.search(last.text()) if last else None
        if flow:
            name = flow.group(1)
            if name in self._scripts:
                return self._scripts[name]
            raise EngineError(
                "invalid_prompt",
                f"the message asks for the script {name!r}; there are: {', '.join(sorted(self._scripts))}",
                kind="model_not_found",
            )
        model = request.model
        if model in self._scripts:
            return self._scripts[model]
        for position, letter in enumerate(model):  # the longest name wins: the first dash from the left
            if letter == "-" and model[position + 1 :] in self._scripts:
                return self._scripts[model[position + 1 :]]
        raise EngineError(
            "invalid_prompt",
            f"no script for the model {model!r}; there are: {', '.join(sorted(self._scripts))}",
            kind="model_not_found",
        )


def _repeated(turn: Turn) -> str:
    return " ".join([turn["text"]] * turn.get("repeat", 1))


def _words(text: str) -> list[str]:
    """The text in pieces of one word each, every piece with the space before it."""
    return re.findall(r"\s*\S+|\s+$", text)


def _citation(request: TurnRequest, position: int) -> list[TurnEvent]:
    """A marker for the first result of the last file search, and its annotation."""
    searches = [item for item in request.items if isinstance(item, TurnCall) and item.type == "file_search"]
    if not searches:
        return []
    outputs = {item.tool_call_id: item.output for item in request.items if isinstance(item, TurnOutput)}
    try:
        results = json.loads(outputs.get(searches[-1].id, "{}"))["results"]
    except (ValueError, KeyError, TypeError):
        return []
    if not results:
        return []
    marker = f"【{len(searches) - 1}:0†{results[0]['file_name']}】"
    annotation = {
        "type": "file_citation",
        "text": marker,
        "start_index": position,
        "end_index": position + len(marker),
        "file_citation": {"file_id": results[0]["file_id"]},
    }
    return [TextDelta(marker), Annotate(annotation)]


def _dump(request: TurnRequest) -> str:
    """The whole request as JSON: what `echo` answers."""
    messages: list[dict[str, Any]] = []
    for item in request.items:
        if isinstance(item, TurnMessage):
            messages.append({"role": item.role, "content": item.text(), "parts": list(item.content)})
        elif isinstance(item, TurnCall):
            function = {"name": item.name, "arguments": item.arguments}
            call = {"id": item.id, "type": item.type, "function": function}
            if messages and messages[-1].get("tool_calls"):
                messages[-1]["tool_calls"].append(call)
            else:
                messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
        else:
            messages.append({"role": "tool", "tool_call_id": item.tool_call_id, "content": item.output})
    return json.dumps(
        {
            "model": request.model,
            "instructions": request.instructions,
            "messages": messages,
            "tools": [_plain(tool) for tool in request.tools],
            "tool_choice": _plain(request.tool_choice),
            "parallel_tool_calls": request.parallel_tool_calls,
            "response_format": _plain(request.response_format),
            "temperature": request.temperature,
            "top_p": request.top_p,
            "reasoning_effort": request.reasoning_effort,
            "max_completion_tokens": request.max_completion_tokens,
            "metadata": dict(request.metadata),
            "turn": request.turn,
        },
        ensure_ascii=False,
    )


def _plain(value: Any) -> Any:
    return value.model_dump(mode="json", exclude_unset=True) if hasattr(value, "model_dump") else value


def _usage(turn: Turn, request: TurnRequest, produced: str) -> Usage:
    given = turn.get("usage") or {}
    if "prompt_tokens" in given:
        prompt = given["prompt_tokens"]
    else:
        prompt = len(request.instructions.split())
        for item in request.items:
            if isinstance(item, TurnMessage):
                prompt += len(item.text().split())
            elif isinstance(item, TurnCall):
                prompt += 1 + len(item.arguments.split())
            else:
                prompt += len(item.output.split())
    completion = given.get("completion_tokens", len(produced.split()))
    total = given.get("total_tokens", prompt + completion)
    return Usage(prompt_tokens=prompt, completion_tokens=completion, total_tokens=total)


def _checked(document: Any, origin: str) -> dict[str, list[Turn]]:
    def fail(place: str, words: str) -> ConfigurationError:
        return ConfigurationError(
            f"{origin}: {place}: {words}", remedy="see docs/script-engine.md for the format", path=origin
        )

    if not isinstance(document, dict):
        raise fail("the document", "must be an object with 'format' and 'scripts'")
    if document.get("format") != 1:
        raise fail("format", f"must be 1, not {document.get('format')!r}")
    scripts = document.get("scripts")
    if not isinstance(scripts, dict) or not scripts:
        raise fail("scripts", "must be an object with at least one script")
    checked: dict[str, list[Turn]] = {}
    for name, script in scripts.items():
        turns = script.get("turns") if isinstance(script, dict) else None
        if not isinstance(turns, list) or not turns:
            raise fail(f"scripts.{name}.turns", "must be an array with at least one turn")
        for index, turn in enumerate(turns):
            words = _flaw(turn)
            if words:
                raise fail(f"scripts.{name}.turns[{index}]", words)
        checked[name] = turns
    return checked


def _flaw(turn: Any) -> str | None:
    """What is wrong with one turn, or None."""
    if not isinstance(turn, dict):
        return "must be an object"
    kinds = [kind for kind in _KINDS if kind in turn]
    if not kinds:
        return f"must have one of {', '.join(_KINDS)}"
    for key in turn:
        near = near_words(key, _KEYS, cutoff=0.75)
        if key not in _KEYS and near:
            return f"unknown key {key!r}; did you mean {near[0]!r}?"
    delay = turn.get("delay_s", 0)
    if isinstance(delay, bool) or not isinstance(delay, int | float) or delay < 0:
        return f"delay_s must be seconds, not {delay!r}"
    if "finish" in turn and turn["finish"] not in ("length", "content_filter", "stop", "tool_calls"):
        return f"finish must be length or content_filter, not {turn['finish']!r}"
    usage = turn.get("usage", {})
    if not isinstance(usage, dict) or not all(
        isinstance(value, int) and not isinstance(value, bool) for value in usage.values()
    ):
        return "usage must be an object of token counts"
    return next(filter(None, (_FLAWS[kind](turn) for kind in kinds)), None)


def _flaw_of_calls(turn: Turn) -> str | None:
    calls = turn["tool_calls"]
    if not isinstance(calls, list) or not calls:
        return "tool_calls must be an array with at least one call"
    for call in calls:
        if not isinstance(call, dict) or not isinstance(call.get("name"), str):
            return "every call needs a name"
        if "arguments_raw" in call and not isinstance(call["arguments_raw"], str):
            return f"arguments_raw of {call['name']} must be a string"
    return None


def _flaw_of_text(turn: Turn) -> str | None:
    if not isinstance(turn["text"], str):
        return "text must be a string"
    repeat = turn.get("repeat", 1)
    if isinstance(repeat, bool) or not isinstance(repeat, int) or repeat < 1:
        return f"repeat must be a number of times, not {repeat!r}"
    return None


def _flaw_of_builtin(turn: Turn) -> str | None:
    key = _BUILTIN_KEYS.get(turn["builtin"]) if isinstance(turn["builtin"], str) else None
    if key is None:
        return f"builtin must be code_interpreter or file_search, not {turn['builtin']!r}"
    return None if isinstance(turn.get(key), str) else f"a {turn['builtin']} turn needs {key!r}"


def _flaw_of_error(turn: Turn) -> str | None:
    error = turn["error"]
    if not isinstance(error, dict) or not isinstance(error.get("code", "server_error"), str):
        return "error must be an object with code and message"
    return None


_FLAWS = {
    "tool_calls": _flaw_of_calls,
    "text": _flaw_of_text,
    "echo": lambda turn: None,
    "builtin": _flaw_of_builtin,
    "error": _flaw_of_error,
}
