"""The chat engine against a server that bends the protocol in every known way."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assistant_runner.endpoints import normalise_endpoint
from assistant_runner.service.engines.base import (
    EngineError,
    Notice,
    RefusalDelta,
    TextDelta,
    TurnCall,
    TurnMessage,
    TurnOutput,
)
from assistant_runner.service.engines.chat import ChatEngine, ChatReader
from assistant_runner.service.engines.client import Refused
from assistant_runner.service.engines.naming import ModelNames
from assistant_runner.service.engines.providers import Provider
from assistant_runner.wire.tools import (
    FunctionName,
    JSONSchemaFormat,
    NamedToolChoice,
    ResponseFormatObject,
)
from tests.service.engines.fake_openai import (
    Reply,
    chat_calls,
    chat_text,
    chunk,
    fake_openai,
    fragment,
    html_reply,
    json_reply,
    sse,
)
from tests.service.engines.helpers import STRING, assistant, play, play_run, request, tool

WEATHER = tool("get_weather", "Weather", city=STRING)
WIKI = tool("get_wiki_url", "Wiki", city=STRING)
OSLO = '{"city": "Oslo"}'


def chat_engine(fake, **options):
    return ChatEngine(Provider(normalise_endpoint(fake.url)), **options)


async def ask(fake, *items, **changes):
    engine = chat_engine(fake)
    try:
        return await play(engine, request(*(items or ("Hello",)), **changes))
    finally:
        await engine.aclose()


async def test_streams_text_with_usage():
    async with fake_openai(chat_text("Hel", "lo ", "you")) as fake:
        turn = await ask(fake)

    assert (turn.text, turn.finish.reason, turn.finish.usage.total_tokens) == ("Hello you", "stop", 16)
    assert len([event for event in turn.events if isinstance(event, TextDelta)]) == 3


async def test_case_052_characters_split_between_packets_arrive_whole():
    async with fake_openai(chat_text("Łódź 🌧 北", bytewise=True)) as fake:
        turn = await ask(fake)

    assert turn.text == "Łódź 🌧 北"


async def test_case_053_line_separators_inside_the_data_are_kept():
    async with fake_openai(chat_text("a\u2028b\u0085c\fd")) as fake:
        turn = await ask(fake)

    assert turn.text == "a\u2028b\u0085c\fd"


FRAGMENTS = {
    "by-index": [
        fragment(0, "call_a", "get_weather", ""),
        fragment(0, arguments='{"city":'),
        fragment(0, arguments=' "Oslo"}'),
        fragment(1, "call_b", "get_wiki_url", ""),
        fragment(1, arguments=OSLO),
    ],
    "interleaved": [
        fragment(0, "call_a", "get_weather", ""),
        fragment(1, "call_b", "get_wiki_url", ""),
        fragment(0, arguments='{"city":'),
        fragment(1, arguments='{"city": "Os'),
        fragment(0, arguments=' "Oslo"}'),
        fragment(1, arguments='lo"}'),
    ],
    "whole-at-once": [
        fragment(0, "call_a", "get_weather", OSLO),
        fragment(1, "call_b", "get_wiki_url", OSLO),
    ],
    "same-index": [
        fragment(0, "call_a", "get_weather", OSLO),
        fragment(0, "call_b", "get_wiki_url", OSLO),
    ],
    "no-index": [
        fragment(None, "call_a", "get_weather", OSLO),
        fragment(None, "call_b", "get_wiki_url", OSLO),
    ],
    "no-index-in-pieces": [
        fragment(None, "call_a", "get_weather", '{"city":'),
        fragment(None, None, None, ' "Oslo"}'),
        fragment(None, "call_b", "get_wiki_url", OSLO),
    ],
    "name-in-each-fragment": [
        fragment(0, "call_a", "get_weather", '{"city":'),
        fragment(0, "call_a", "get_weather", ' "Oslo"}'),
        fragment(1, "call_b", "get_wiki_url", OSLO),
        fragment(1, "call_b", "get_wiki_url", ""),
    ],
    "arguments-as-object": [
        fragment(0, "call_a", "get_weather", {"city": "Oslo"}),
        fragment(1, "call_b", "get_wiki_url", {"city": "Oslo"}),
    ],
    "name-after-arguments": [
        {"index": 0, "id": "call_a", "function": {"arguments": '{"city":'}},
        fragment(0, None, "get_weather", ' "Oslo"}'),
        fragment(1, "call_b", "get_wiki_url", OSLO),
    ],
}


@pytest.mark.parametrize("fragments", FRAGMENTS.values(), ids=FRAGMENTS)
@pytest.mark.parametrize("finish", ["tool_calls", "stop", "function_call"])
async def test_merges_fragments_of_parallel_calls(fragments, finish):
    async with fake_openai(chat_calls(*fragments, finish=finish)) as fake:
        turn = await ask(fake, tools=[WEATHER, WIKI])

    assert [(name, json.loads(raw)) for name, raw in turn.calls] == [
        ("get_weather", {"city": "Oslo"}),
        ("get_wiki_url", {"city": "Oslo"}),
    ]
    assert turn.ids == ["call_a", "call_b"]
    assert turn.finish.reason == "tool_calls"


@pytest.mark.parametrize(
    ("ids", "kept"),
    [
        pytest.param([None, None], [None, None], id="none"),
        pytest.param(["", ""], [None, None], id="empty"),
        pytest.param(["call_a", "call_a"], ["call_a", None], id="duplicate"),
        pytest.param(["x" * 80, 7], [None, None], id="malformed"),
    ],
)
async def test_calls_without_a_usable_id_are_left_to_the_service(ids, kept):
    fragments = [fragment(place, id, "get_weather", OSLO) for place, id in enumerate(ids)]
    async with fake_openai(chat_calls(*fragments)) as fake:
        turn = await ask(fake, tools=[WEATHER])

    assert turn.calls == [("get_weather", OSLO)] * 2
    assert turn.ids == kept


async def test_a_call_without_arguments_gets_an_empty_object():
    async with fake_openai(chat_calls(fragment(0, "call_a", "get_time"))) as fake:
        turn = await ask(fake, tools=[tool("get_time")])

    assert turn.calls == [("get_time", "{}")]


async def test_the_old_function_call_is_a_tool_call():
    old = [chunk({"function_call": {"name": "get_weather", "arguments": OSLO}}), chunk({}, "function_call")]
    async with fake_openai(sse(*old)) as fake:
        turn = await ask(fake, tools=[WEATHER])

    assert turn.calls == [("get_weather", OSLO)]


async def test_a_piece_that_is_said_in_both_ways_counts_once():
    pieces = [("get_weather", '{"city":'), (None, ' "Oslo"}')]
    events = [
        chunk(
            {
                "tool_calls": [fragment(0, "call_a", name, text)],
                "function_call": {"name": name or "", "arguments": text},
            }
        )
        for name, text in pieces
    ]
    async with fake_openai(sse(*events, chunk({}, "tool_calls"))) as fake:
        turn = await ask(fake, tools=[WEATHER])

    assert turn.calls == [("get_weather", OSLO)]


async def test_calls_without_words_go_back_with_empty_text_to_servers_that_take_text_only():
    items = ["Weather?", TurnCall("c1", "get_weather", OSLO), TurnOutput("c1", "cold")]
    async with fake_openai(chat_text("Ok")) as fake:
        await ask(fake, *items)

    assert fake.bodies[0]["messages"][1]["content"] == ""


async def test_case_010_text_before_a_call_is_kept():
    events = [
        chunk({"content": "Okay, let me look."}),
        chunk({"tool_calls": [fragment(0, "call_a", "get_weather", OSLO)]}),
        chunk({}, "tool_calls"),
    ]
    async with fake_openai(sse(*events)) as fake:
        turn = await ask(fake, tools=[WEATHER])

    assert (turn.text, turn.calls) == ("Okay, let me look.", [("get_weather", OSLO)])


@pytest.mark.parametrize(
    "text",
    [
        pytest.param('{"name": "get_weather", "arguments": {"city": "Oslo"}}', id="bare"),
        pytest.param('{"name": "get_weather", "parameters": {"city": "Oslo"}}', id="parameters"),
        pytest.param('[{"name": "get_weather", "arguments": {"city": "Oslo"}}]', id="list"),
        pytest.param('```json\n{"name": "get_weather", "arguments": {"city": "Oslo"}}\n```', id="fenced"),
        pytest.param(
            '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Oslo"}}\n</tool_call>', id="tagged"
        ),
        pytest.param('[TOOL_CALLS][{"name": "get_weather", "arguments": {"city": "Oslo"}}]', id="mistral"),
        pytest.param('<|python_tag|>{"name": "get_weather", "parameters": {"city": "Oslo"}}', id="llama"),
        pytest.param('<function=get_weather>{"city": "Oslo"}</function>', id="function-tag"),
        pytest.param(
            '{"function": {"name": "get_weather", "arguments": "{\\"city\\": \\"Oslo\\"}"}}',
            id="openai-form",
        ),
        pytest.param(
            '<think>They want weather.</think>\n{"name": "get_weather", "arguments": {"city": "Oslo"}}',
            id="after-thinking",
        ),
    ],
)
async def test_text_that_is_a_tool_call_is_taken_as_one_and_named(text):
    pieces = [text[start : start + 7] for start in range(0, len(text), 7)]
    async with fake_openai(chat_text(*pieces)) as fake:
        turn = await ask(fake, tools=[WEATHER])

    assert turn.text == ""
    assert [(name, json.loads(raw)) for name, raw in turn.calls] == [("get_weather", {"city": "Oslo"})]
    assert any(isinstance(event, Notice) and "as text" in event.text for event in turn.events)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param('{"name": "rm_rf", "arguments": {"path": "/"}}', id="tool-not-offered"),
        pytest.param('{"answer": 42}', id="other-json"),
        pytest.param('{"name": "get_weather", "arguments": "Oslo"}', id="no-object"),
        pytest.param('Use {"name": "get_weather", "arguments": {"city": "Oslo"}} for it.', id="inside-prose"),
        pytest.param("{not json", id="no-json"),
        pytest.param("[1] Oslo is a city.", id="footnote"),
    ],
)
async def test_text_that_only_looks_like_a_call_stays_text(text):
    async with fake_openai(chat_text(text)) as fake:
        turn = await ask(fake, tools=[WEATHER])

    assert (turn.text, turn.calls) == (text, [])


async def test_thinking_aloud_is_left_out_of_the_answer():
    async with fake_openai(chat_text("<thi", "nk>Hm. 2+2", "</think>", "\n\nFour.")) as fake:
        turn = await ask(fake)

    assert turn.text == "Four."


async def test_a_whole_object_instead_of_a_stream_is_read():
    call = {"id": "call_a", "type": "function", "function": {"name": "get_weather", "arguments": OSLO}}
    whole = {
        "id": "x",
        "object": "chat.completion",
        "choices": [
            {"index": 0, "message": {"content": None, "tool_calls": [call]}, "finish_reason": "tool_calls"}
        ],
        "usage": {"prompt_tokens": 1, "completion_tokens": 2},
    }
    async with fake_openai(json_reply(whole)) as fake:
        turn = await ask(fake, tools=[WEATHER])

    assert (turn.calls, turn.ids) == ([("get_weather", OSLO)], ["call_a"])
    assert turn.finish.usage.total_tokens == 3


@pytest.mark.parametrize(
    ("finish", "reason"),
    [
        ("stop", "stop"),
        ("end_turn", "stop"),
        ("eos", "stop"),
        ("length", "length"),
        ("content_filter", "content_filter"),
        ("something_new", "stop"),
    ],
)
async def test_finish_reasons_of_every_server(finish, reason):
    async with fake_openai(chat_text("So far", finish=finish)) as fake:
        turn = await ask(fake)

    assert (turn.text, turn.finish.reason) == ("So far", reason)


async def test_calls_cut_short_by_the_token_limit_are_not_made():
    async with fake_openai(
        chat_calls(fragment(0, "c", "get_weather", '{"city": "Os'), finish="length")
    ) as fake:
        turn = await ask(fake, tools=[WEATHER])

    assert turn.finish.reason == "length"


async def test_a_content_filter_is_told_with_category_and_severity():
    found = {
        "hate": {"filtered": True, "severity": "high"},
        "violence": {"filtered": False, "severity": "safe"},
    }
    events = [
        {**chunk(), "prompt_filter_results": [{"prompt_index": 0, "content_filter_results": {}}]},
        chunk({"content": "So"}),
        chunk({}, "content_filter", choice={"content_filter_results": found}),
    ]
    async with fake_openai(sse(*events)) as fake:
        turn = await ask(fake)

    assert turn.finish.reason == "content_filter"
    assert any(isinstance(event, Notice) and "hate (high)" in event.text for event in turn.events)


async def test_a_refusal_is_passed_on():
    async with fake_openai(sse(chunk({"refusal": "I cannot."}), chunk({}, "stop"))) as fake:
        turn = await ask(fake)

    assert RefusalDelta("I cannot.") in turn.events


@pytest.mark.parametrize(
    ("reply", "kind", "words"),
    [
        pytest.param(sse(chunk(usage={}), done=True), "bad_answer", "no choices", id="empty-choices"),
        pytest.param(
            sse(chunk({"content": "Hel"}), cut=True), "unreachable", "middle of its answer", id="cut"
        ),
        pytest.param(
            sse(chunk({"content": "Hel"}), done=False), "cut", "ended in the middle", id="no-finish"
        ),
        pytest.param(
            sse(chunk({"content": "Hel"}), chunk({}, "error")),
            "cut",
            "broke the answer off",
            id="broke",
        ),
        pytest.param(
            sse({"error": "model runner has stopped"}), "provider", "runner has stopped", id="words-alone"
        ),
        pytest.param(
            Reply(b'event: error\ndata: {"message": "engine died"}\n\n', 200, "text/event-stream"),
            *("provider", "engine died"),
            id="error-event",
        ),
        pytest.param(sse(chunk({"content": "Hel"}), "{no json"), "bad_answer", "no JSON", id="no-json"),
        pytest.param(html_reply(), "bad_answer", "Proxy login", id="proxy-page"),
        pytest.param(html_reply(502), "unreachable", "Proxy login", id="proxy-page-502"),
        pytest.param(
            sse({"error": {"message": "it burns", "code": "oops"}}), "provider", "it burns", id="error"
        ),
        pytest.param(
            json_reply({"error": {"message": "it burns"}}), "provider", "it burns", id="error-in-200"
        ),
        pytest.param(Reply(b"", 200, "text/plain"), "bad_answer", "text/plain", id="nothing"),
    ],
)
async def test_broken_answers_are_named(reply, kind, words):
    async with fake_openai(reply) as fake:
        engine = chat_engine(fake)
        with pytest.raises(EngineError, match=words) as caught:
            await play(engine, request("Hello", deadline_s=0.4))
        await engine.aclose()

    assert (caught.value.code, caught.value.kind) == ("server_error", kind)


async def test_builds_the_request_from_the_thread():
    items = [
        "What is the weather in Oslo?",
        assistant("I look."),
        TurnCall("call_1", "get_weather", OSLO),
        TurnCall("call_2", "get_wiki_url", OSLO),
        TurnOutput("call_2", "url"),
        TurnOutput("call_1", "cold"),
        "Thanks. And now?",
    ]
    async with fake_openai(chat_text("Ok")) as fake:
        await ask(fake, *items, instructions="Be brief.", tools=[WEATHER], temperature=0.2, top_p=1.0)

    [body] = fake.bodies
    assert [message["role"] for message in body["messages"]] == [
        *("system", "user", "assistant", "tool", "tool", "user")
    ]
    assert body["messages"][2]["content"] == "I look."
    assert [call["id"] for call in body["messages"][2]["tool_calls"]] == ["call_1", "call_2"]
    assert [message["content"] for message in body["messages"][3:5]] == ["cold", "url"]
    assert body["temperature"] == 0.2
    assert "top_p" not in body
    assert body["tools"][0]["function"]["name"] == "get_weather"


async def test_case_065_a_call_without_an_output_gets_one_that_says_so():
    items = ["Weather?", TurnCall("c1", "get_weather", OSLO), "hello again", TurnOutput("c9", "stray")]
    async with fake_openai(chat_text("Ok")) as fake:
        await ask(fake, *items)

    messages = fake.bodies[0]["messages"]
    assert [message["role"] for message in messages] == ["user", "assistant", "tool", "user"]
    assert "interrupted" in messages[2]["content"]


async def test_images_are_passed_on():
    parts = [
        {"type": "text", "text": {"value": "What is this?", "annotations": []}},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA==", "detail": "low"}},
    ]
    async with fake_openai(chat_text("A cat")) as fake:
        await ask(fake, TurnMessage("user", parts))

    assert fake.bodies[0]["messages"][0]["content"] == [{"type": "text", "text": "What is this?"}, parts[1]]


@pytest.mark.parametrize(
    ("choice", "sent"),
    [
        ("none", "none"),
        ("required", "required"),
        (
            NamedToolChoice(type="function", function=FunctionName(name="get_weather")),
            {"type": "function", "function": {"name": "get_weather"}},
        ),
    ],
)
async def test_tool_choice_in_all_forms(choice, sent):
    async with fake_openai(chat_text("Ok")) as fake:
        await ask(fake, tools=[WEATHER], tool_choice=choice, parallel_tool_calls=False)

    assert fake.bodies[0]["tool_choice"] == sent
    assert fake.bodies[0]["parallel_tool_calls"] is False


async def test_formats_limits_and_effort_are_sent():
    schema = JSONSchemaFormat.model_validate({"name": "answer", "schema": {"type": "object"}, "strict": True})
    wanted = ResponseFormatObject(type="json_schema", json_schema=schema)
    async with fake_openai(chat_text("{}")) as fake:
        await ask(fake, response_format=wanted, max_completion_tokens=50, reasoning_effort="low")

    body = fake.bodies[0]
    assert body["response_format"]["json_schema"] == {
        "name": "answer",
        "schema": {"type": "object"},
        "strict": True,
    }
    assert (body["max_tokens"], body["reasoning_effort"]) == (50, "low")


async def test_plays_a_run_of_two_rounds():
    replies = [
        chat_calls(fragment(0, "call_a", "get_weather", OSLO), fragment(1, "call_b", "get_wiki_url", OSLO)),
        chat_text("Cold."),
    ]
    async with fake_openai(*replies) as fake:
        engine = chat_engine(fake)
        rounds, text = await play_run(
            engine, request("Weather and wiki?", tools=[WEATHER, WIKI]), lambda name, arguments: {"ok": name}
        )
        await engine.aclose()

    assert [name for name, _ in rounds[0]] == ["get_weather", "get_wiki_url"]
    assert text == "Cold."
    assert [m["tool_call_id"] for m in fake.bodies[1]["messages"] if m["role"] == "tool"] == [
        "call_a",
        "call_b",
    ]


async def test_aliases_and_the_default_model():
    async with fake_openai(chat_text("Ok")) as fake:
        endpoint = normalise_endpoint(fake.url)
        names = ModelNames(endpoint, aliases={"small": "qwen3:4b"}, default="small")
        engine = chat_engine(fake, names=names)
        await play(engine, request("Hello", model="small"))
        await play(engine, request("Hello", model=""))
        await engine.aclose()

    assert [body["model"] for body in fake.bodies] == ["qwen3:4b", "qwen3:4b"]


async def test_a_model_known_to_call_no_tools_has_no_such_ability():
    async with fake_openai() as fake:
        engine = chat_engine(fake, supports={"tiny": False})
        abilities = [engine.abilities(model).tools for model in ("tiny", "big", "nomic-embed-text")]
        await engine.aclose()

    assert abilities == [False, True, False]


async def test_lists_models_with_what_is_known_of_tools():
    async with fake_openai(
        models=[{"id": "tiny", "object": "model", "created": 1, "owned_by": "me"}]
    ) as fake:
        engine = chat_engine(fake, supports={"tiny": False})
        models = await engine.models()
        await engine.aclose()

    assert models[0]["id"] == "tiny"
    assert models[0]["supports"] == {"tools": False}


ODD = st.recursive(
    st.none() | st.booleans() | st.integers(-1, 2) | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "index",
                    "id",
                    "function",
                    "name",
                    "arguments",
                    "content",
                    "tool_calls",
                    "delta",
                    "refusal",
                    "text",
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(st.lists(ODD, max_size=4), ODD, st.sampled_from([None, "stop", "tool_calls", "length", 7]))
def test_whatever_a_server_sends_is_read_or_refused(deltas, usage, finish):
    reader = ChatReader(request("Hello", tools=[WEATHER]), True)
    events = []

    try:
        for delta in deltas:
            events += reader.take({"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})
        events += reader.take({"choices": usage, "usage": usage})
        events += reader.close("host")
    except (Refused, EngineError, AttributeError, TypeError):  # all of them become an EngineError
        return
    assert events[-1].reason in {"stop", "tool_calls", "length", "content_filter"}


@pytest.mark.parametrize(
    ("code", "kind"), [(401, "authentication"), (400, "invalid_request"), (402, "quota"), (429, "rate_limit")]
)
async def test_a_status_in_a_stream_counts_as_if_it_had_been_answered(code, kind):
    async with fake_openai(sse({"error": {"code": code, "message": "no"}})) as fake:
        engine = chat_engine(fake)
        with pytest.raises(EngineError) as caught:
            await play(engine, request("Hello", deadline_s=0.2))
        await engine.aclose()

    assert caught.value.kind == kind
    assert len(fake.asked) == 1


@pytest.mark.parametrize(
    "reply",
    [
        pytest.param(sse(chunk({"content": "Hel"}), chunk({"content": "lo"})), id="no-finish-reason"),
        pytest.param(sse(chunk({"content": "Hello"}, ""), chunk({}, "stop")), id="empty-reason"),
        pytest.param(
            Reply(sse(chunk({"content": "Hello"}), chunk({}, "stop")).body, 200, "text/plain"),
            id="text",
        ),
        pytest.param(
            Reply(sse(chunk({"content": "Hello"}), chunk({}, "stop")).body, 200, "application/json"),
            id="json",
        ),
    ],
)
async def test_an_answer_that_is_whole_in_spite_of_its_form_is_taken(reply):
    async with fake_openai(reply) as fake:
        turn = await ask(fake, tools=[WEATHER])

    assert turn.text == "Hello"
    assert turn.finish.reason == "stop"


async def test_whole_calls_are_taken_from_a_stream_that_ends_without_a_last_word():
    reply = sse(chunk({"tool_calls": [fragment(0, "a", "get_weather", OSLO)]}), done=False)

    async with fake_openai(reply) as fake:
        turn = await ask(fake, tools=[WEATHER])

    assert turn.calls == [("get_weather", OSLO)]
    assert turn.finish.reason == "tool_calls"


@pytest.mark.parametrize(("said", "reason"), [("MAX_TOKENS", "length"), ("SAFETY", "content_filter")])
async def test_reasons_in_capitals_are_understood(said, reason):
    async with fake_openai(chat_text("Hel", finish=said)) as fake:
        turn = await ask(fake)

    assert turn.finish.reason == reason


@pytest.mark.parametrize(
    ("text", "cities"),
    [
        pytest.param(
            "<tool_call>\n<function=get_weather>\n<parameter=city>\nOslo\n</parameter>\n</function>\n</tool_call>",
            ["Oslo"],
            id="parameter-tags",
        ),
        pytest.param(
            '<|python_tag|>{"name": "get_weather", "parameters": {"city": "Oslo"}}; '
            '{"name": "get_weather", "parameters": {"city": "Bergen"}}',
            ["Oslo", "Bergen"],
            id="semicolons",
        ),
    ],
)
async def test_text_that_is_calls_in_a_models_own_form_is_taken(text, cities):
    async with fake_openai(chat_text(text)) as fake:
        turn = await ask(fake, tools=[WEATHER])

    assert [json.loads(arguments)["city"] for _, arguments in turn.calls] == cities


async def test_a_call_in_the_middle_of_a_text_stays_text_and_is_named():
    async with fake_openai(chat_text("I look.\n<tool", '_call>{"name": "get_weather"}</tool_call>')) as fake:
        turn = await ask(fake, tools=[WEATHER])

    assert turn.calls == []
    assert any(isinstance(event, Notice) and "could not be taken" in event.text for event in turn.events)
