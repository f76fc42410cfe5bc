"""The official SDK as witness: it drives the same service, and our tools answer its required actions."""

import json

import httpx2
import openai
import pytest

from assistant_runner.backends.asgi import httpx2_transport
from assistant_runner.run.router import RoutedCall, route
from assistant_runner.service.app import Service
from assistant_runner.service.engines.planner import PlannerEngine
from assistant_runner.service.store.sqlite import SqliteStore
from assistant_runner.tooling.contract import ToolContext
from assistant_runner.tooling.gate import ToolGate
from assistant_runner.tooling.recorded import recorded_client
from assistant_runner.tooling.registry import default_tools
from assistant_runner.wire.runs import Run

SAN_FRANCISCO = (
    "What is the weather and the wiki url of San Francisco? And what is the content of the wiki page?"
)


@pytest.fixture
async def client():
    store = SqliteStore.open(":memory:")
    async with Service(store=store, engine=PlannerEngine()) as service:
        http = httpx2.AsyncClient(transport=httpx2_transport(service.app))
        async with openai.AsyncOpenAI(api_key="none", base_url="http://embedded/v1", http_client=http) as sdk:
            yield sdk
    store.close()


async def outputs_for(run) -> list[dict[str, str]]:
    """The tool outputs of an SDK run, by our router, our tools and the recorded replies."""
    async with recorded_client() as http:
        outputs = []
        for entry in route(Run.model_validate(run.to_dict()), default_tools()).entries:
            assert isinstance(entry, RoutedCall)
            context = ToolContext(
                tool_call_id=entry.tool_call_id, http=http, environ={}, deadline_s=5, recorded=True
            )
            outcome = await ToolGate().call(entry.tool, entry.arguments, context)
            outputs.append({"tool_call_id": entry.tool_call_id, "output": json.dumps(outcome.content)})
        return outputs


async def test_the_sdk_gets_the_san_francisco_answer_from_the_same_service(client):
    tools = [definition.document() for definition in default_tools().definitions()]
    assistant = await client.beta.assistants.create(model="planner", tools=tools)
    run = await client.beta.threads.create_and_run_poll(
        assistant_id=assistant.id, thread={"messages": [{"role": "user", "content": SAN_FRANCISCO}]}
    )
    rounds = []
    while run.status == "requires_action":
        rounds.append([call.function.name for call in run.required_action.submit_tool_outputs.tool_calls])
        run = await client.beta.threads.runs.submit_tool_outputs_and_poll(
            run_id=run.id, thread_id=run.thread_id, tool_outputs=await outputs_for(run)
        )

    messages = await client.beta.threads.messages.list(run.thread_id, run_id=run.id)
    text = messages.data[0].content[0].text.value
    assert rounds == [["get_weather", "get_wiki_url"], ["get_webpage"]]
    assert run.status == "completed"
    assert "16.2" in text
    assert "https://en.wikipedia.org/wiki/San_Francisco" in text


async def test_the_sdk_sees_no_action_where_none_is_needed(client):
    assistant = await client.beta.assistants.create(model="planner")

    run = await client.beta.threads.create_and_run_poll(
        assistant_id=assistant.id, thread={"messages": [{"role": "user", "content": "What is 2 plus 2?"}]}
    )

    steps = await client.beta.threads.runs.steps.list(run_id=run.id, thread_id=run.thread_id)
    assert run.status == "completed"
    assert [step.type for step in steps.data] == ["message_creation"]
