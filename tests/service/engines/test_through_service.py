"""Engines behind the whole service, driven by the official SDK: what it sees is the Assistants API."""

import json

import httpx2
import openai
import pytest

from assistant_runner.backends.asgi import httpx2_transport
from assistant_runner.endpoints import normalise_endpoint
from assistant_runner.service.app import Service
from assistant_runner.service.engines.chat import ChatEngine
from assistant_runner.service.engines.providers import Provider
from assistant_runner.service.engines.responses import ResponsesEngine
from assistant_runner.service.store.sqlite import SqliteStore
from tests.service.engines.fake_openai import (
    call_item,
    chat_calls,
    chat_text,
    error_reply,
    fake_openai,
    fragment,
    message_item,
    response_stream,
)
from tests.service.engines.helpers import STRING, tool

OSLO = '{"city": "Oslo"}'
TOOLS = [tool("get_weather", "Weather", city=STRING), tool("get_wiki_url", "Wiki", city=STRING)]
REASONING = {"id": "rs_1", "type": "reasoning", "summary": [], "encrypted_content": "gAAA"}
REPLIES = {
    ChatEngine: [
        chat_calls(fragment(0, "call_a", "get_weather", OSLO), fragment(1, None, "get_wiki_url", OSLO)),
        chat_text("Cold ", "in Oslo."),
    ],
    ResponsesEngine: [
        response_stream(
            REASONING, call_item("call_a", "get_weather", OSLO), call_item("call_b", "get_wiki_url", OSLO)
        ),
        response_stream(message_item("Cold in Oslo.")),
    ],
}


async def ask(engine, *, tools=TOOLS):
    """The run at its end, its calls, and the assistant's answer, by the SDK's own helpers."""
    store = SqliteStore.open(":memory:")
    async with Service(store=store, engine=engine) as service:
        http = httpx2.AsyncClient(transport=httpx2_transport(service.app))
        async with openai.AsyncOpenAI(api_key="none", base_url="http://embedded/v1", http_client=http) as sdk:
            assistant = await sdk.beta.assistants.create(
                model="m-1", tools=[definition.document() for definition in tools]
            )
            run = await sdk.beta.threads.create_and_run_poll(
                assistant_id=assistant.id, thread={"messages": [{"role": "user", "content": "Weather?"}]}
            )
            calls = []
            if run.status == "requires_action":
                calls = run.required_action.submit_tool_outputs.tool_calls
                outputs = [{"tool_call_id": call.id, "output": f"out {n}"} for n, call in enumerate(calls)]
                run = await sdk.beta.threads.runs.submit_tool_outputs_and_poll(
                    run_id=run.id, thread_id=run.thread_id, tool_outputs=outputs
                )
            messages = await sdk.beta.threads.messages.list(run.thread_id, run_id=run.id)
    store.close()
    await engine.aclose()
    return run, calls, [message.content[0].text.value for message in messages.data]


@pytest.mark.parametrize("engine_type", [ChatEngine, ResponsesEngine])
async def test_a_run_with_parallel_calls_through_service_and_engine(engine_type):
    async with fake_openai(*REPLIES[engine_type]) as fake:
        run, calls, answers = await ask(engine_type(Provider(normalise_endpoint(fake.url))))

    assert (run.status, answers) == ("completed", ["Cold in Oslo."])
    assert [call.function.name for call in calls] == ["get_weather", "get_wiki_url"]
    assert calls[0].id == "call_a"
    assert len({call.id for call in calls}) == 2
    assert run.usage.total_tokens == 32
    sent = json.dumps(fake.bodies[1])
    assert "out 0" in sent
    assert "out 1" in sent


async def test_the_service_keeps_the_reasoning_between_the_rounds():
    async with fake_openai(*REPLIES[ResponsesEngine]) as fake:
        await ask(ResponsesEngine(Provider(normalise_endpoint(fake.url))))

    assert REASONING in fake.bodies[1]["input"]


@pytest.mark.parametrize(
    ("reply", "code"),
    [
        pytest.param(error_reply(401, "Bad key.", "invalid_api_key"), "server_error", id="bad-key"),
        pytest.param(error_reply(429, "Used up.", "insufficient_quota"), "rate_limit_exceeded", id="quota"),
        pytest.param(error_reply(400, "No.", "invalid_prompt"), "invalid_prompt", id="prompt"),
    ],
)
@pytest.mark.parametrize("engine_type", [ChatEngine, ResponsesEngine])
async def test_a_providers_error_is_the_runs_last_error(engine_type, reply, code):
    async with fake_openai(reply) as fake:
        run, _, answers = await ask(engine_type(Provider(normalise_endpoint(fake.url))), tools=[])

    assert (run.status, run.last_error.code, answers) == ("failed", code, [])


@pytest.mark.parametrize("finish", ["length", "content_filter"])
async def test_an_answer_cut_short_leaves_the_run_incomplete_with_its_text(finish):
    async with fake_openai(chat_text("So far", finish=finish)) as fake:
        run, _, answers = await ask(ChatEngine(Provider(normalise_endpoint(fake.url))), tools=[])

    assert (run.status, answers) == ("incomplete", ["So far"])
