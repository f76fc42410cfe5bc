"""Chat pipelines' documents in every form, against the reference documents."""

import json

import pytest

from assistant_runner.errors import ConfigurationError, UsageError
from assistant_runner.tooling.neutral import (
    convert,
    merge_tools,
    read_turn,
    step_views,
    with_original,
)
from tests.conftest import FIXTURES


def shape(name):
    return json.loads((FIXTURES / "shapes" / name).read_text("utf-8"))


NEUTRAL = shape("function-generator.output.json")[0]
RESPONSE = shape("tool-calling.response-view.json")[0]
APPENDED = shape("message-appender.chat-output.json")[0]
STRICT = shape("function-definitions.json")


def test_s0_2_a_neutral_definition_becomes_a_json_schema():
    [tool] = convert(NEUTRAL, "openai")["tools"]

    assert tool == {
        "type": "function",
        "function": {
            "name": "get_current_weather",
            "description": "Get the curent weather in a given location",
            "parameters": {
                "type": "object",
                "properties": {
                    "location": {
                        "type": "string",
                        "description": "The city and state, e.g. San Francisco, CA",
                    },
                    "unit": {"type": "string", "enum": ["celcius", "fahrenheit"]},
                },
                "required": ["location"],
            },
        },
    }


@pytest.mark.parametrize("form", ["openai", "responses", "converse", "neutral"])
def test_s0_2_the_round_trip_gives_the_same_object(form):
    assert _without_strict(convert(convert(NEUTRAL, form), "neutral")) == NEUTRAL


def _without_strict(document):
    """The responses form always says strict; false is what leaving it out means elsewhere."""
    return {
        "tools": [
            {k: v for k, v in tool.items() if (k, v) != ("strict", False)} for tool in document["tools"]
        ]
    }


def test_s0_3_misspelt_values_pass_through():
    text = json.dumps(convert(NEUTRAL, "converse"), ensure_ascii=False)

    assert "curent" in text
    assert "celcius" in text


def test_s0_4_definitions_merge_in_order():
    other = {"sl_type": "function", "name": "other", "parameters": []}

    assert [tool["name"] for tool in merge_tools([NEUTRAL], other)["tools"]] == [
        "get_current_weather",
        "other",
    ]


def test_s0_4_two_of_one_name_are_an_error():
    with pytest.raises(ConfigurationError, match="'get_current_weather'"):
        merge_tools(NEUTRAL, NEUTRAL)


@pytest.mark.parametrize("name", ["", "has space", "x" * 65, "umlaut_ä", None])
def test_s0_5_a_name_outside_the_pattern_fails_with_the_name(name):
    with pytest.raises(ConfigurationError) as caught:
        convert({"tools": [{"sl_type": "function", "name": name, "parameters": []}]}, "openai")

    assert repr(name) in caught.value.message or "no tool definition" in caught.value.message


@pytest.mark.parametrize("kind", ["ARRAY", "OBJECT", "TEXT", None])
def test_s0_5_other_types_fail_with_tool_and_parameter(kind):
    tool = {"name": "book", "parameters": [{"name": "room", "type": kind, "required": True}]}

    with pytest.raises(ConfigurationError, match="book: room"):
        convert(tool, "openai")


def test_s0_5_strict_is_dropped_with_a_word_where_there_is_none():
    notes = []

    tools = convert(STRICT, "converse", notes=notes)["tools"]

    assert len(notes) == 3
    assert "get_weather: strict is left out" in notes[0]
    assert "strict" not in json.dumps(tools)


def test_the_strict_reference_definitions_survive_the_neutral_form():
    back = convert(convert(STRICT, "neutral"), "openai")["tools"]

    assert [tool["function"] for tool in back] == STRICT


def test_optional_parameters_of_a_strict_tool_become_nullable_and_come_back_optional():
    neutral = json.loads(json.dumps(NEUTRAL))
    neutral["tools"][0]["strict"] = True

    [tool] = convert(neutral, "openai")["tools"]

    schema = tool["function"]["parameters"]
    assert schema["required"] == ["location", "unit"]
    assert schema["properties"]["unit"]["type"] == ["string", "null"]
    assert convert({"tools": [tool]}, "neutral") == neutral


def test_nested_schemas_have_no_neutral_form():
    nested = {"name": "book", "parameters": {"type": "object", "properties": {"at": {"type": "object"}}}}

    with pytest.raises(ConfigurationError, match="book: at"):
        convert(nested, "neutral")


def test_s0_6_a_step_gives_the_response_with_all_messages():
    asked = RESPONSE["messages"][:1]
    response = {key: value for key, value in RESPONSE.items() if key != "messages"}

    views = step_views(response, asked)

    assert views.response == [RESPONSE]
    assert views.response[0]["messages"][:-1] == asked
    assert views.calls == shape("tool-calling.calls-view.json")


def test_s0_7_no_calls_are_an_empty_list():
    answer = {
        "output": {"message": {"role": "assistant", "content": [{"text": "17"}]}},
        "stopReason": "end_turn",
    }

    assert step_views(answer, []).calls == []


def test_s0_8_openai_calls_gain_their_arguments_as_an_object():
    raw = '{"city":  "Oslo"}'
    call = {"id": "call_1", "type": "function", "function": {"name": "get_weather", "arguments": raw}}
    answer = {
        "choices": [{"message": {"content": None, "tool_calls": [call]}, "finish_reason": "tool_calls"}]
    }

    [seen] = step_views(answer, []).calls

    assert seen["function"] == {"name": "get_weather", "arguments": raw, "json_arguments": {"city": "Oslo"}}


def test_s0_9_s0_10_a_converse_answer_is_read_with_text_call_and_numbers():
    turn = read_turn(RESPONSE)

    assert turn.text == "Okay, let's get the current weather for San Francisco."
    assert [call.id for call in turn.calls] == ["tooluse_YOLmGccxRGWPmCKqxAKvgw"]
    assert (turn.prompt_tokens, turn.completion_tokens, turn.total_tokens, turn.latency_ms) == (
        272,
        90,
        362,
        1905,
    )
    assert turn.goes_on


@pytest.mark.parametrize("stop", ["stop", "end_turn", "length"])
def test_s0_25_an_answer_without_calls_ends_the_loop(stop):
    assert not read_turn({"choices": [{"message": {"content": "17"}, "finish_reason": stop}]}).goes_on


def test_s0_11_neutral_roles_become_the_providers():
    messages = [{"sl_role": "SYSTEM", "content": "Be brief."}, {"sl_role": "USER", "content": "Hello"}]

    assert convert({"messages": messages}, "openai")["messages"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hello"},
    ]


def test_a_conversation_with_a_call_and_its_result_in_the_openai_form():
    user, assistant, tool = convert(APPENDED, "openai")["messages"]

    assert user == {"role": "user", "content": "What's the weather in San Francisco?"}
    assert assistant["content"] == "Okay, let's get the current weather for San Francisco."
    assert json.loads(assistant["tool_calls"][0]["function"]["arguments"])["unit"] == "fahrenheit"
    assert tool["tool_call_id"] == assistant["tool_calls"][0]["id"] == "tooluse_YOLmGccxRGWPmCKqxAKvgw"
    assert tool["content"] == json.dumps(APPENDED["messages"][2]["content"], separators=(",", ":"))


def test_the_same_result_stays_json_where_json_is_taken():
    tool = convert(APPENDED, "converse")["messages"][2]

    [part] = tool["content"]
    assert tool["role"] == "user"
    assert part["toolResult"]["content"] == [{"json": APPENDED["messages"][2]["content"]}]


def test_a_conversation_as_responses_items():
    items = convert(APPENDED, "responses")["messages"]

    assert [item.get("type", item.get("role")) for item in items] == [
        *("user", "assistant", "function_call", "function_call_output")
    ]


def test_a_tool_message_comes_back_as_a_function_result():
    openai = convert(APPENDED, "openai")

    assert convert(openai, "neutral")["messages"][2] == {
        "sl_role": "TOOL",
        "function_id": "tooluse_YOLmGccxRGWPmCKqxAKvgw",
        "is_error": False,
        "content": openai["messages"][2]["content"],
    }


def test_an_unknown_role_is_named():
    with pytest.raises(ConfigurationError, match="'WIZARD'"):
        convert({"messages": [{"sl_role": "WIZARD", "content": "?"}]}, "openai")


def test_an_unknown_form_is_a_usage_error_with_a_suggestion():
    with pytest.raises(UsageError, match="did you mean converse"):
        convert(NEUTRAL, "convers")


@pytest.mark.parametrize("document", [{}, [], 7, "text", {"tools": []}])
def test_a_document_without_definitions_is_an_error(document):
    with pytest.raises(ConfigurationError, match="no tool definition"):
        convert(document, "openai")


def test_s0_12_each_step_can_carry_its_input_to_a_depth():
    first = with_original({"step": 1}, {"prompt": "Hello"})
    second = with_original({"step": 2}, first)

    assert second["original"] == first
    assert with_original({"step": 2}, first, depth=0) == {"step": 2}
    assert with_original({"step": 2}, first, depth=1) == {"step": 2, "original": {"step": 1}}
