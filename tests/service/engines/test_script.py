"""The script engine reads its format whole (docs/script-engine.md)."""

import json
import time
from pathlib import Path
from typing import Any

import pytest

from assistant_runner.errors import ConfigurationError
from assistant_runner.service.engines.base import (
    BuiltinCall,
    CallDelta,
    EngineError,
    Finish,
    TextDelta,
    TurnEvent,
    TurnMessage,
    TurnRequest,
)
from assistant_runner.service.engines.script import ScriptEngine


def engine(*turns: dict[str, Any], **more: list[dict[str, Any]]) -> ScriptEngine:
    scripts = {"one": {"turns": list(turns) or [{"text": "one"}]}}
    scripts |= {name.replace("_", "-"): {"turns": found} for name, found in more.items()}
    return ScriptEngine.from_document({"format": 1, "scripts": scripts})


async def played(
    player: ScriptEngine, model: str = "one", words: str = "hi", **fields: Any
) -> list[TurnEvent]:
    message = TurnMessage("user", [{"type": "text", "text": {"value": words, "annotations": []}}])
    request = TurnRequest(
        run_id="run_a", model=model, instructions="", items=[message], **{"turn": 0, **fields}
    )
    return [event async for event in player.turn(request)]


def text_of(events: list[TurnEvent]) -> str:
    return "".join(event.text for event in events if isinstance(event, TextDelta))


@pytest.mark.parametrize(
    ("model", "words", "expected"),
    [
        ("one", "hi", "one"),
        ("conf-one", "hi", "one"),
        ("my-long-prefix-three-tools", "hi", "three"),
        ("three-tools", "hi", "three"),
        ("tools", "hi", "tools"),
        ("gpt-4o", "say it [flow:three-tools]", "three"),
        ("one", "say it [flow:three-tools]", "three"),
        ("one", "[flow:three-tools] is not at the end", "one"),
    ],
)
async def test_the_model_or_the_last_message_names_the_script(model: str, words: str, expected: str):
    player = engine(three_tools=[{"text": "three"}], tools=[{"text": "tools"}])

    assert text_of(await played(player, model, words)) == expected


@pytest.mark.parametrize(("model", "words"), [("gpt-4o", "hi"), ("one", "hi [flow:nothing]")])
async def test_an_unknown_script_is_an_error_that_lists_those_there_are(model: str, words: str):
    with pytest.raises(EngineError, match="there are: one"):
        await played(engine(), model, words)


async def test_past_the_end_the_last_turn_repeats():
    player = engine({"text": "first"}, {"text": "last"})

    texts = [text_of(await played(player, turn=turn)) for turn in (0, 1, 2, 9)]

    assert texts == ["first", "last", "last", "last"]


async def test_calls_come_in_one_turn_with_raw_arguments_as_they_stand():
    player = engine(
        {"tool_calls": [{"name": "f", "arguments": {"a": "ü"}}, {"name": "g", "arguments_raw": "{no"}]}
    )

    events = await played(player)

    calls: dict[int, str] = {}
    for event in events:
        if isinstance(event, CallDelta):
            calls[event.index] = calls.get(event.index, "") + (event.name or "") + event.arguments
    assert calls == {0: 'f{"a": "ü"}', 1: "g{no"}
    assert isinstance(events[-1], Finish)
    assert events[-1].reason == "tool_calls"


async def test_a_text_repeats_with_single_spaces_and_words_are_tokens():
    events = await played(engine({"text": "two words", "repeat": 3}))

    assert text_of(events) == "two words two words two words"
    assert events[-1].usage.completion_tokens == 6  # type: ignore[union-attr]


async def test_a_completion_limit_cuts_and_ends_by_length():
    events = await played(engine({"text": "a b c d"}), max_completion_tokens=2)

    assert text_of(events) == "a b"
    assert events[-1].reason == "length"  # type: ignore[union-attr]


async def test_the_echo_holds_the_whole_request():
    events = await played(
        engine({"echo": True}), temperature=0.5, tool_choice="required", response_format="auto"
    )

    dump = json.loads(text_of(events))
    assert dump["messages"][0]["content"] == "hi"
    assert {"instructions", "tools", "tool_choice", "response_format", "temperature"} <= set(dump)
    assert (dump["temperature"], dump["tool_choice"]) == (0.5, "required")


@pytest.mark.parametrize(
    ("turn", "expected"),
    [
        ({"builtin": "code_interpreter", "input": "1"}, BuiltinCall("code_interpreter", {"input": "1"})),
        ({"builtin": "file_search", "query": "q"}, BuiltinCall("file_search", {"query": "q"})),
    ],
    ids=["code", "search"],
)
async def test_a_builtin_turn_asks_the_service(turn: dict[str, Any], expected: BuiltinCall):
    assert expected in await played(engine(turn))


async def test_an_error_turn_fails_with_its_code():
    with pytest.raises(EngineError) as caught:
        await played(engine({"error": {"code": "rate_limit_exceeded", "message": "slow down"}}))

    assert (caught.value.code, caught.value.message) == ("rate_limit_exceeded", "slow down")


async def test_a_turn_may_wait_and_say_its_usage_and_its_end():
    usage = {"prompt_tokens": 7, "completion_tokens": 8, "total_tokens": 15}
    began = time.monotonic()

    events = await played(engine({"text": "x", "delay_s": 0.05, "usage": usage, "finish": "content_filter"}))

    finish = events[-1]
    assert isinstance(finish, Finish)
    assert finish.usage is not None
    assert (finish.reason, finish.usage.total_tokens) == ("content_filter", 15)
    assert time.monotonic() - began >= 0.05


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ([], "must be an object"),
        ({"format": 2, "scripts": {}}, "format: must be 1, not 2"),
        ({"format": 1}, "scripts: must be an object"),
        ({"format": 1, "scripts": {"a": {"turns": []}}}, "scripts.a.turns"),
        ({"format": 1, "scripts": {"a": {"turns": [{}]}}}, "scripts.a.turns[0]: must have one of"),
        ({"format": 1, "scripts": {"a": {"turns": [{"text": 7}]}}}, "text must be a string"),
        ({"format": 1, "scripts": {"a": {"turns": [{"text": "x", "delay": 1}]}}}, "did you mean 'delay_s'"),
        (
            {"format": 1, "scripts": {"a": {"turns": [{"text": "x", "delay_s": -1}]}}},
            "delay_s must be seconds",
        ),
        ({"format": 1, "scripts": {"a": {"turns": [{"tool_calls": [{}]}]}}}, "every call needs a name"),
        ({"format": 1, "scripts": {"a": {"turns": [{"builtin": "file_search"}]}}}, "needs 'query'"),
        ({"format": 1, "scripts": {"a": {"turns": [{"builtin": "browser"}]}}}, "builtin must be"),
        ({"format": 1, "scripts": {"a": {"turns": [{"text": "x", "finish": "bored"}]}}}, "finish must be"),
    ],
)
def test_a_wrong_script_is_named_with_its_place(document: Any, words: str):
    with pytest.raises(ConfigurationError) as caught:
        ScriptEngine.from_document(document)

    assert words in caught.value.message


def test_a_script_file_that_cannot_be_read_is_named(tmp_path: Path):
    with pytest.raises(ConfigurationError, match="cannot be read"):
        ScriptEngine.load(tmp_path / "none.json")
