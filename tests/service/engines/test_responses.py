"""The Responses engine against recorded streams."""

import json
from dataclasses import replace

import pytest

from assistant_runner.endpoints import normalise_endpoint
from assistant_runner.service.engines.base import (
    Annotate,
    ApprovalRequest,
    EngineError,
    HostedActivity,
    Notice,
    RefusalDelta,
    TextDelta,
    TurnCall,
    TurnMessage,
    TurnOutput,
)
from assistant_runner.service.engines.providers import Provider
from assistant_runner.service.engines.responses import ResponsesEngine
from assistant_runner.wire.base import UnknownVariant
from assistant_runner.wire.tools import (
    CodeInterpreterTool,
    FileSearchTool,
    FunctionName,
    JSONSchemaFormat,
    NamedToolChoice,
    ResponseFormatObject,
)
from tests.service.engines.fake_openai import (
    call_item,
    error_reply,
    fake_openai,
    html_reply,
    json_reply,
    message_item,
    response_events,
    response_object,
    response_stream,
    sse,
)
from tests.service.engines.helpers import STRING, assistant, play, play_run, request, tool

WEATHER = tool("get_weather", "Weather", city=STRING)
WIKI = tool("get_wiki_url", "Wiki", city=STRING)
OSLO = '{"city": "Oslo"}'
REASONING = {"id": "rs_1", "type": "reasoning", "summary": [], "encrypted_content": "gAAA"}


def responses_engine(fake, **options):
    return ResponsesEngine(Provider(normalise_endpoint(fake.url)), **options)


async def ask(fake, *items, hosted=(), store=False, **changes):
    engine = responses_engine(fake, hosted=frozenset(hosted), store=store)
    try:
        return await play(engine, request(*(items or ("Hello",)), **changes))
    finally:
        await engine.aclose()


async def test_streams_text_with_usage():
    async with fake_openai(response_stream(message_item("Hello you"))) as fake:
        turn = await ask(fake)

    assert (turn.text, turn.finish.reason, turn.finish.usage.total_tokens) == ("Hello you", "stop", 16)
    assert len([event for event in turn.events if isinstance(event, TextDelta)]) == 2
    assert turn.carry is None


async def test_case_052_characters_split_between_packets_arrive_whole():
    async with fake_openai(response_stream(message_item("Łódź 🌧 北"), bytewise=True)) as fake:
        turn = await ask(fake)

    assert turn.text == "Łódź 🌧 北"


async def test_parallel_calls_come_with_their_call_ids():
    items = [call_item("call_a", "get_weather", OSLO), call_item("call_b", "get_wiki_url", OSLO)]
    async with fake_openai(response_stream(*items)) as fake:
        turn = await ask(fake, tools=[WEATHER, WIKI])

    assert turn.calls == [("get_weather", OSLO), ("get_wiki_url", OSLO)]
    assert turn.ids == ["call_a", "call_b"]
    assert turn.finish.reason == "tool_calls"


async def test_a_server_that_sends_calls_only_when_done_is_read_too():
    events = [
        e for e in response_events(call_item("call_a", "get_weather", OSLO)) if "delta" not in e["type"]
    ]
    async with fake_openai(sse(*events, named=True)) as fake:
        turn = await ask(fake, tools=[WEATHER])

    assert (turn.calls, turn.ids) == ([("get_weather", OSLO)], ["call_a"])


async def test_a_whole_response_instead_of_a_stream_is_read():
    whole = response_object([message_item("I look."), call_item("call_a", "get_weather", OSLO)])
    async with fake_openai(json_reply(whole)) as fake:
        turn = await ask(fake, tools=[WEATHER])

    assert (turn.text, turn.calls) == ("I look.", [("get_weather", OSLO)])


async def test_reasoning_is_kept_across_the_rounds_of_a_run_and_replayed_before_its_calls():
    second = {**REASONING, "id": "rs_2"}
    replies = [
        response_stream(REASONING, call_item("call_a", "get_weather", OSLO)),
        response_stream(second, call_item("call_b", "get_wiki_url", OSLO)),
        response_stream(message_item("Cold.")),
    ]
    async with fake_openai(*replies) as fake:
        engine = responses_engine(fake)
        rounds, text = await play_run(
            engine, request("Weather?", tools=[WEATHER, WIKI], instructions="Be brief."), lambda n, a: n
        )
        await engine.aclose()

    assert (len(rounds), text) == (2, "Cold.")
    kinds = [[item.get("type", item.get("role")) for item in body["input"]] for body in fake.bodies]
    block = ["reasoning", "function_call", "function_call_output"]
    assert kinds == [["user"], ["user", *block], ["user", *block, *block]]
    assert fake.bodies[2]["input"][1] == {**REASONING}
    assert all(body["instructions"] == "Be brief." and body["tools"] for body in fake.bodies)
    assert all(body["store"] is False for body in fake.bodies)
    assert fake.bodies[0]["include"] == ["reasoning.encrypted_content"]


async def test_case_066_reasoning_without_its_calls_is_not_replayed():
    carry = {"kept": {"call_gone": [REASONING]}}
    async with fake_openai(response_stream(message_item("Ok"))) as fake:
        await ask(fake, "Hello", "hello again", carry=carry)

    assert [item["role"] for item in fake.bodies[0]["input"]] == ["user", "user"]


async def test_case_065_a_call_without_an_output_gets_one_before_anything_else():
    items = ["Weather?", TurnCall("c1", "get_weather", OSLO), "hello again"]
    async with fake_openai(response_stream(message_item("Ok"))) as fake:
        await ask(fake, *items)

    sent = fake.bodies[0]["input"]
    assert [item.get("type", item.get("role")) for item in sent] == [
        *("user", "function_call", "function_call_output", "user")
    ]
    assert "interrupted" in sent[2]["output"]


async def test_reasoning_that_the_provider_cannot_read_any_more_is_dropped_and_told():
    replies = [
        error_reply(400, "The encrypted content could not be verified.", "invalid_encrypted_content"),
        response_stream(message_item("Ok")),
    ]
    items = ["Weather?", TurnCall("c1", "get_weather", OSLO), TurnOutput("c1", "cold")]
    async with fake_openai(*replies) as fake:
        turn = await ask(fake, *items, carry={"kept": {"c1": [REASONING]}}, turn=1)

    assert turn.text == "Ok"
    assert [len(body["input"]) for body in fake.bodies] == [4, 3]
    assert any(isinstance(event, Notice) for event in turn.events)


async def test_with_store_only_new_outputs_are_sent():
    replies = [
        response_stream(call_item("call_a", "get_weather", OSLO)),
        response_stream(message_item("Cold.")),
    ]
    async with fake_openai(*replies) as fake:
        engine = responses_engine(fake, store=True)
        first = await play(engine, request("Weather?", tools=[WEATHER]))
        items = [TurnCall("call_a", "get_weather", OSLO), TurnOutput("call_a", "cold")]
        wanted = request("Weather?", *items, tools=[WEATHER])
        await play(engine, replace(wanted, turn=1, carry=first.carry))
        await engine.aclose()

    assert "previous_response_id" not in fake.bodies[0]
    assert fake.bodies[1]["previous_response_id"] == "resp_1"
    assert fake.bodies[1]["input"] == [
        {"type": "function_call_output", "call_id": "call_a", "output": "cold"}
    ]
    assert [body["store"] for body in fake.bodies] == [True, True]


async def test_a_stored_response_that_is_gone_means_the_whole_history():
    replies = [
        error_reply(
            400, "Previous response not found.", "previous_response_not_found", "previous_response_id"
        ),
        response_stream(message_item("Cold.")),
    ]
    items = ["Weather?", TurnCall("call_a", "get_weather", OSLO), TurnOutput("call_a", "cold")]
    async with fake_openai(*replies) as fake:
        turn = await ask(fake, *items, store=True, turn=1, carry={"response_id": "resp_0", "sent": 1})

    assert turn.text == "Cold."
    assert len(fake.bodies[1]["input"]) == 3


async def test_builds_the_request_in_this_apis_words():
    schema = JSONSchemaFormat.model_validate({"name": "answer", "schema": {"type": "object"}, "strict": True})
    async with fake_openai(response_stream(message_item("{}"))) as fake:
        await ask(
            fake,
            "Hello",
            assistant("Hi."),
            "Weather?",
            tools=[WEATHER],
            tool_choice=NamedToolChoice(type="function", function=FunctionName(name="get_weather")),
            parallel_tool_calls=False,
            response_format=ResponseFormatObject(type="json_schema", json_schema=schema),
            temperature=0.5,
            reasoning_effort="low",
            max_completion_tokens=5,
        )

    body = fake.bodies[0]
    assert body["input"][1] == {"role": "assistant", "content": [{"type": "output_text", "text": "Hi."}]}
    assert body["tools"][0]["name"] == "get_weather"
    assert body["tools"][0]["strict"] is False
    assert body["tool_choice"] == {"type": "function", "name": "get_weather"}
    assert body["parallel_tool_calls"] is False
    assert body["text"]["format"] == {
        "type": "json_schema",
        "name": "answer",
        "schema": {"type": "object"},
        "strict": True,
    }
    assert (body["temperature"], body["reasoning"], body["max_output_tokens"]) == (0.5, {"effort": "low"}, 16)


async def test_images_are_passed_on():
    parts = [
        {"type": "text", "text": {"value": "What is this?", "annotations": []}},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA==", "detail": "low"}},
    ]
    async with fake_openai(response_stream(message_item("A cat"))) as fake:
        await ask(fake, TurnMessage("user", parts))

    assert fake.bodies[0]["input"][0]["content"][1] == {
        "type": "input_image",
        "image_url": "data:image/png;base64,AA==",
        "detail": "low",
    }


async def test_hosted_tools_pass_through_and_become_step_calls():
    search = {
        "id": "fs_1",
        "type": "file_search_call",
        "status": "completed",
        "queries": ["fires"],
        "results": [{"file_id": "file_1", "filename": "a.txt", "score": 0.5, "text": "2019: 7"}],
    }
    code = {
        "id": "ci_1",
        "type": "code_interpreter_call",
        "status": "completed",
        "container_id": "cntr_1",
        "code": "print(1)",
        "outputs": [{"type": "logs", "logs": "1"}],
    }
    async with fake_openai(response_stream(search, code, message_item("Done"))) as fake:
        turn = await ask(
            fake,
            hosted=["file_search", "code_interpreter"],
            tools=[FileSearchTool(), CodeInterpreterTool(), UnknownVariant(type="web_search")],
            vector_store_ids=["vs_1"],
        )

    assert fake.bodies[0]["tools"] == [
        {"type": "file_search", "vector_store_ids": ["vs_1"]},
        {"type": "code_interpreter", "container": {"type": "auto"}},
        {"type": "web_search"},
    ]
    activities = [event.call for event in turn.events if isinstance(event, HostedActivity)]
    assert [activity["type"] for activity in activities] == ["file_search", "code_interpreter"]
    assert activities[0]["file_search"]["results"][0]["file_name"] == "a.txt"
    assert activities[1]["code_interpreter"]["outputs"] == [{"type": "logs", "logs": "1"}]


async def test_a_stored_turn_is_not_sent_what_the_provider_itself_ran():
    items = ["hi", TurnCall("fs_1", "file_search", "{}", type="file_search"), TurnOutput("fs_1", "{}")]
    items += [TurnCall("call_a", "f", "{}"), TurnOutput("call_a", "x")]
    carry = {"response_id": "resp_1", "sent": 1}
    async with fake_openai(response_stream(message_item("Done"))) as fake:
        await ask(fake, *items, hosted=["file_search"], store=True, tools=[FileSearchTool()], carry=carry)

    assert [item["call_id"] for item in fake.bodies[0]["input"]] == ["call_a"]


async def test_a_lost_approval_request_is_rebuilt_before_its_decision():
    call = TurnCall("mcpr_1", "search", "{}", "mcp", "docs")
    async with fake_openai(response_stream(message_item("Done"))) as fake:
        await ask(fake, "hi", call, TurnOutput("mcpr_1", "maybe"), tools=[UnknownVariant(type="mcp")])

    record = {"id": "mcpr_1", "server_label": "docs", "name": "search", "arguments": "{}"}
    assert fake.bodies[0]["input"][1:] == [
        {"type": "mcp_approval_request", **record},
        {"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": False},
    ]


async def test_a_hosted_tool_that_waits_for_approval_is_handed_on():
    item = {
        "id": "mcpr_1",
        "type": "mcp_approval_request",
        "server_label": "files",
        "name": "delete",
        "arguments": "{}",
    }
    async with fake_openai(response_stream(item)) as fake:
        turn = await ask(fake, tools=[UnknownVariant(type="mcp", server_label="files")])

    assert ApprovalRequest("mcpr_1", "files", "delete", "{}") in turn.events


async def test_annotations_are_turned_into_the_wires():
    annotation = {"type": "file_citation", "file_id": "file_1", "filename": "a.txt", "index": 4}
    events = response_events(message_item("Seven"))
    added = {
        "type": "response.output_text.annotation.added",
        "item_id": "msg_1",
        "output_index": 0,
        "content_index": 0,
        "annotation_index": 0,
        "annotation": annotation,
        "sequence_number": 90,
    }
    async with fake_openai(sse(*events[:-1], added, events[-1], named=True)) as fake:
        turn = await ask(fake)

    [found] = [event.annotation for event in turn.events if isinstance(event, Annotate)]
    assert found["file_citation"] == {"file_id": "file_1"}
    assert (found["start_index"], found["end_index"]) == (4, 4)


async def test_a_refusal_is_passed_on():
    events = response_events()
    refusal = {
        "type": "response.refusal.delta",
        "item_id": "msg_1",
        "output_index": 0,
        "content_index": 0,
        "delta": "I cannot.",
        "sequence_number": 1,
    }
    async with fake_openai(sse(events[0], refusal, events[-1], named=True)) as fake:
        turn = await ask(fake)

    assert RefusalDelta("I cannot.") in turn.events


@pytest.mark.parametrize(
    ("details", "reason"), [("max_output_tokens", "length"), ("content_filter", "content_filter")]
)
async def test_case_049_an_incomplete_response_keeps_its_text_and_says_why(details, reason):
    stream = response_stream(
        message_item("So far"), status="incomplete", incomplete_details={"reason": details}
    )
    async with fake_openai(stream) as fake:
        turn = await ask(fake)

    assert (turn.text, turn.finish.reason) == ("So far", reason)


FAILED = {"code": "server_error", "message": "backend gone"}


@pytest.mark.parametrize(
    ("reply", "code", "kind", "words"),
    [
        pytest.param(
            response_stream(message_item("Hel"), status="failed", error=FAILED),
            *("server_error", "provider", "backend gone"),
            id="failed",
        ),
        pytest.param(
            json_reply(response_object(status="failed", error=FAILED)),
            *("server_error", "provider", "backend gone"),
            id="failed-in-200",
        ),
        pytest.param(
            sse(
                {"type": "response.created", "response": response_object(), "sequence_number": 0},
                {"type": "error", "code": "server_error", "message": "backend gone", "sequence_number": 1},
                named=True,
            ),
            *("server_error", "provider", "backend gone"),
            id="case-050-flat-error-event",
        ),
        pytest.param(
            sse({"error": {"code": "rate_limit_exceeded", "message": "slow down"}}),
            *("rate_limit_exceeded", "rate_limit", "slow down"),
            id="wrapped-error-event",
        ),
        pytest.param(
            sse(*response_events(message_item("Hello"))[:-1], named=True),
            *("server_error", "cut", "middle"),
            id="case-051-cut",
        ),
        pytest.param(
            sse(*response_events(message_item("Hello"))[:4], named=True, cut=True),
            *("server_error", "unreachable", "middle"),
            id="connection-lost",
        ),
        pytest.param(html_reply(), "server_error", "bad_answer", "Proxy login", id="proxy-page"),
        pytest.param(
            error_reply(400, "Bad prompt.", "invalid_prompt"),
            *("invalid_prompt", "invalid_request", "Bad prompt"),
            id="invalid-prompt",
        ),
    ],
)
async def test_broken_answers_are_named(reply, code, kind, words):
    async with fake_openai(reply) as fake:
        engine = responses_engine(fake)
        with pytest.raises(EngineError, match=words) as caught:
            await play(engine, request("Hello", deadline_s=0.3))
        await engine.aclose()

    assert (caught.value.code, caught.value.kind) == (code, kind)


async def test_unknown_events_are_left_alone():
    events = response_events(message_item("Hello"))
    odd = {"type": "response.telepathy.delta", "sequence_number": 50, "delta": "?"}
    async with fake_openai(sse(*events[:-1], odd, events[-1], named=True)) as fake:
        turn = await ask(fake)

    assert turn.text == "Hello"


async def test_a_parameter_that_the_model_refuses_is_left_out_and_told():
    replies = [
        error_reply(400, "Unsupported parameter: 'temperature'.", "unsupported_parameter", "temperature"),
        response_stream(message_item("Ok")),
    ]
    async with fake_openai(*replies) as fake:
        turn = await ask(fake, temperature=0.2)

    assert turn.text == "Ok"
    assert ["temperature" in body for body in fake.bodies] == [True, False]
    assert any(isinstance(event, Notice) and "temperature" in event.text for event in turn.events)


async def test_the_arguments_of_a_call_are_whole_json_in_the_end():
    async with fake_openai(response_stream(call_item("call_a", "get_weather", OSLO))) as fake:
        turn = await ask(fake, tools=[WEATHER])

    assert json.loads(turn.calls[0][1]) == {"city": "Oslo"}


async def test_what_the_provider_ran_itself_goes_back_as_its_own_item():
    code = {
        "id": "ci_1",
        "type": "code_interpreter_call",
        "status": "completed",
        "container_id": "cntr_1",
        "code": "print(1)",
        "outputs": [],
    }
    replies = [
        response_stream(code, call_item("call_a", "get_weather", OSLO)),
        response_stream(message_item("Done")),
    ]
    tools = [WEATHER, CodeInterpreterTool()]
    async with fake_openai(*replies) as fake:
        engine = responses_engine(fake, hosted=frozenset({"code_interpreter"}))
        first = await play(engine, request("Weather?", tools=tools))
        items = [
            TurnCall("ci_1", "code_interpreter", "{}", type="code_interpreter"),
            TurnOutput("ci_1", ""),
            TurnCall("call_a", "get_weather", OSLO),
            TurnOutput("call_a", "cold"),
        ]
        await play(engine, request("Weather?", *items, tools=tools, turn=1, carry=first.carry))
        await engine.aclose()

    kinds = [item.get("type", item.get("role")) for item in fake.bodies[1]["input"]]
    assert kinds == ["user", "code_interpreter_call", "function_call", "function_call_output"]


async def test_what_only_the_last_event_tells_is_told():
    final = response_events(message_item("It is 4."), call_item("c1", "get_weather", OSLO))[-1]
    async with fake_openai(sse(final, named=True, done=False)) as fake:
        turn = await ask(fake, tools=[WEATHER])

    assert turn.text == "It is 4."
    assert turn.calls == [("get_weather", OSLO)]
