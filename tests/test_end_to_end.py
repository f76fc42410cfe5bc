"""The driver, the service and the tools together: what a run's whole way looks like."""

import pytest

from assistant_runner.backends.embedded import open_embedded
from assistant_runner.run.request import RunRequest
from assistant_runner.service.engines.script import ScriptEngine
from assistant_runner.service.store.sqlite import SqliteStore
from assistant_runner.tooling.schema import tool_from_function
from assistant_runner.wire.assistants import AssistantCreate
from assistant_runner.wire.files import VectorStoreCreate
from tests.fakes import Recorder, driver


def get_weather(city: str) -> dict[str, str]:
    """Weather of a city."""
    return {"city": city, "sky": "mist"}


SCRIPT = {
    "format": 1,
    "scripts": {
        "one-tool": {
            "turns": [
                {"tool_calls": [{"name": "get_weather", "arguments": {"city": "Sablewick"}}]},
                {"text": "Mist in Sablewick."},
            ]
        },
        "wildfire": {
            "turns": [
                {"builtin": "file_search", "query": "wildfires by year"},
                {"builtin": "code_interpreter", "input": "print(sorted([3, 1, 2]))"},
                {"tool_calls": [{"name": "get_weather", "arguments": {"city": "Sablewick"}}]},
                {"text": "1, 2, 3 and mist."},
            ]
        },
    },
}
TOOLS = [
    tool_from_function(get_weather).definition().document(),
    {"type": "file_search"},
    {"type": "code_interpreter"},
]


@pytest.fixture
async def backend():
    store = SqliteStore.open(":memory:")
    async with open_embedded(store, ScriptEngine.from_document(SCRIPT)) as backend:
        yield backend
    store.close()


async def make_assistant(backend, model: str) -> str:
    content = b"Wildfires by year: 2019 had 3 fires, 2020 had 1 fire, 2021 had 2 fires."
    file = await backend.upload_file(filename="wildfire_stats.txt", content=content)
    vectors = await backend.create_vector_store(VectorStoreCreate(name="fires", file_ids=[file.id]))
    resources = {"file_search": {"vector_store_ids": [vectors.id]}}
    body = AssistantCreate.model_validate({"model": model, "tools": TOOLS, "tool_resources": resources})
    return (await backend.create_assistant(body)).id


async def test_row_s1_18_both_forms_of_the_start_give_the_same_events_and_text(backend):
    assistant_id = await make_assistant(backend, "x-one-tool")
    names, texts = [], []
    for separate in (False, True):
        heard = Recorder()
        request = RunRequest(assistant_id=assistant_id, prompt="Weather?", separate=separate)
        result = await driver(backend, get_weather).run(request, listener=heard)
        names.append(heard.names())
        texts.append(result.text)

    assert names[0] == names[1]
    assert texts == ["Mist in Sablewick."] * 2


async def test_row_s1_9_built_in_tools_run_at_the_service_and_only_functions_are_dispatched(backend):
    assistant_id, heard = await make_assistant(backend, "x-wildfire"), Recorder()

    result = await driver(backend, get_weather).run(
        RunRequest(assistant_id=assistant_id, prompt="Fires?"), listener=heard
    )

    steps = await backend.list_run_steps(thread_id=result.run.thread_id, run_id=result.run.id)
    kinds = [
        call.type for step in steps.data if step.type == "tool_calls" for call in step.step_details.tool_calls
    ]
    assert kinds == ["file_search", "code_interpreter", "function"]
    assert [event.tool for event in heard.events if event.name == "call.started"] == ["get_weather"]
    told = [event.kind for event in heard.events if event.name in ("tool.activity", "call.finished")]
    assert told == ["file_search", "code_interpreter", "function"]


async def test_row_s1_27_the_run_keeps_its_id_through_all_rounds(backend):
    assistant_id, heard = await make_assistant(backend, "x-one-tool"), Recorder()

    result = await driver(backend, get_weather).run(
        RunRequest(assistant_id=assistant_id, prompt="Weather?"), listener=heard
    )

    ids = {event.run_id for event in heard.events if hasattr(event, "run_id")}
    assert ids == {result.run.id}
    assert result.usage is not None
    assert result.usage.total_tokens == result.usage.prompt_tokens + result.usage.completion_tokens
