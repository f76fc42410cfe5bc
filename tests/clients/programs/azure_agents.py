"""Azure's agents package (azure-ai-agents 1.x), sync and async, in the form /api/projects/NAME over TLS.

Its bearer policy refuses plain HTTP, so SERVER_URL is https and SERVER_CA names the authority's file;
with an `authentication_policy` of one's own plain HTTP works too, and that is tried at SERVER_PLAIN_URL.
"""

import asyncio
import os
import tempfile
import time
from pathlib import Path
from typing import Any

from azure.ai.agents import AgentsClient
from azure.ai.agents.aio import AgentsClient as AsyncAgentsClient
from azure.ai.agents.models import (
    AgentEventHandler,
    AsyncFunctionTool,
    AsyncToolSet,
    CodeInterpreterTool,
    FilePurpose,
    FileSearchTool,
    FunctionTool,
    ListSortOrder,
    MessageAttachment,
    RunStatus,
    ToolOutput,
    ToolSet,
    TruncationObject,
)
from azure.core.credentials import AccessToken, AzureKeyCredential
from azure.core.exceptions import ClientAuthenticationError, HttpResponseError, ResourceNotFoundError
from azure.core.pipeline.policies import AzureKeyCredentialPolicy

URL, KEY = os.environ["SERVER_URL"] + "/api/projects/demo", os.environ["SERVER_KEY"]
OPTIONS: dict[str, Any] = {"connection_verify": os.environ.get("SERVER_CA"), "retry_total": 0}


class Credential:
    def __init__(self, key: str) -> None:
        self.key = key

    def get_token(self, *scopes: str, **options: Any) -> AccessToken:
        return AccessToken(self.key, int(time.time()) + 3600)


class AsyncCredential(Credential):
    async def get_token(self, *scopes: str, **options: Any) -> AccessToken:
        return AccessToken(self.key, int(time.time()) + 3600)

    async def close(self) -> None: ...

    async def __aenter__(self) -> "AsyncCredential":
        return self

    async def __aexit__(self, *exc: object) -> None: ...


def refused(call: Any, kind: type[HttpResponseError] = HttpResponseError) -> str:
    """The words of a refusal of this kind."""
    try:
        call()
    except kind as error:
        return error.message
    raise AssertionError("not refused")


CITIES: list[str] = []


def get_weather(city: str) -> str:
    """Weather of a city.

    :param city: name of the city
    :return: the weather
    """
    CITIES.append(city)
    return "12 degrees"


async def get_weather_later(city: str) -> str:
    """Weather of a city.

    :param city: name of the city
    :return: the weather
    """
    return get_weather(city)


get_weather_later.__name__ = "get_weather"


def last_text(client: AgentsClient, thread_id: str) -> str:
    return client.messages.get_last_message_text_by_role(thread_id=thread_id, role="assistant").text.value


def drive_rounds(client: AgentsClient) -> None:
    tools = ToolSet()
    tools.add(FunctionTool({get_weather}))
    client.enable_auto_function_calls(tools)
    agent = client.create_agent(
        model="conf-weather", name="a", instructions="Be brief.", toolset=tools, temperature=0.5
    )
    thread = client.threads.create()
    message = client.messages.create(thread_id=thread.id, role="user", content="Weather?")
    assert message.role == "user"
    CITIES.clear()
    run = client.runs.create_and_process(thread_id=thread.id, agent_id=agent.id, polling_interval=0.05)
    assert (run.status, CITIES) == (RunStatus.COMPLETED, ["Oslo", "Bergen", "Tromsø"]), (run, CITIES)
    assert last_text(client, thread.id) == "Oslo, Bergen and Tromsø are fine."
    assert len(list(client.run_steps.list(thread_id=thread.id, run_id=run.id))) == 3
    by_hand = client.runs.create(thread_id=thread.id, agent_id=agent.id)
    while by_hand.status in ("queued", "in_progress"):
        by_hand = client.runs.get(thread_id=thread.id, run_id=by_hand.id)
    calls = by_hand.required_action.submit_tool_outputs.tool_calls
    client.runs.submit_tool_outputs(
        thread_id=thread.id,
        run_id=by_hand.id,
        tool_outputs=[ToolOutput(tool_call_id=call.id, output="12") for call in calls],
    )
    client.runs.cancel(thread_id=thread.id, run_id=by_hand.id)
    assert client.update_agent(agent.id, name="b").name == "b"
    assert any(one.id == agent.id for one in client.list_agents(limit=2))
    assert any(one.id == thread.id for one in client.threads.list(limit=1))
    assert len(list(client.runs.list(thread_id=thread.id))) == 2
    assert client.threads.update(thread.id, metadata={"a": "b"}).metadata == {"a": "b"}
    client.threads.delete(thread.id)
    client.delete_agent(agent.id)


class Heard(AgentEventHandler):
    def __init__(self) -> None:
        super().__init__()
        self.text, self.errors, self.done, self.unhandled = "", [], 0, []

    def on_message_delta(self, delta: Any) -> None:
        self.text += delta.text

    def on_error(self, data: str) -> None:
        self.errors.append(data)

    def on_done(self) -> None:
        self.done += 1

    def on_unhandled_event(self, event_type: str, event_data: Any) -> None:
        self.unhandled.append(event_type)


def drive_streams(client: AgentsClient) -> None:
    tools = ToolSet()
    tools.add(FunctionTool({get_weather}))
    client.enable_auto_function_calls(tools)
    agent = client.create_agent(model="conf-weather", toolset=tools)
    thread = client.threads.create()
    client.messages.create(thread_id=thread.id, role="user", content="Weather?")
    CITIES.clear()
    with client.runs.stream(thread_id=thread.id, agent_id=agent.id, event_handler=Heard()) as stream:
        stream.until_done()
        heard = stream
    assert (CITIES, heard.text) == (["Oslo", "Bergen", "Tromsø"], "Oslo, Bergen and Tromsø are fine.")
    assert (heard.errors, heard.unhandled) == ([], []), (heard.errors, heard.unhandled)
    with client.runs.stream(thread_id=thread.id, agent_id=agent.id, model="plain") as stream:
        names = [name for name, _, _ in stream]
    assert names[-1] == "done", names
    assert "thread.message.delta" in names


def drive_builtin_tools(client: AgentsClient) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "fires.md"
        path.write_text("Wildfires of 2020: 58950")
        file = client.files.upload_and_poll(
            file_path=str(path), purpose=FilePurpose.AGENTS, polling_interval=0.05
        )
    store = client.vector_stores.create_and_poll(file_ids=[file.id], name="facts", polling_interval=0.05)
    assert store.file_counts.completed == 1
    batch = client.vector_store_file_batches.create_and_poll(
        vector_store_id=store.id, file_ids=[file.id], polling_interval=0.05
    )
    assert batch.status == "completed", batch
    search, code = FileSearchTool(vector_store_ids=[store.id]), CodeInterpreterTool(file_ids=[file.id])
    agent = client.create_agent(
        model="conf-search",
        tools=search.definitions + code.definitions,
        tool_resources=search.resources,
    )
    thread = client.threads.create()
    client.messages.create(
        thread_id=thread.id,
        role="user",
        content="Fires?",
        attachments=[MessageAttachment(file_id=file.id, tools=search.definitions)],
    )
    run = client.runs.create_and_process(thread_id=thread.id, agent_id=agent.id, polling_interval=0.05)
    assert run.status == "completed", run.last_error
    message = client.messages.get_last_message_by_role(thread_id=thread.id, role="assistant")
    assert message.file_citation_annotations[0].file_citation.file_id == file.id
    run = client.create_thread_and_process_run(agent_id=agent.id, model="code", polling_interval=0.05)
    assert run.status == "completed"
    [_, step] = list(client.run_steps.list(thread_id=run.thread_id, run_id=run.id))
    assert step.step_details.tool_calls[0].code_interpreter.outputs[0].logs == "42\n"
    assert b"".join(client.files.get_content(file.id)) == b"Wildfires of 2020: 58950"
    assert client.files.get(file.id).filename == "fires.md"
    assert any(one.id == file.id for one in client.files.list().data)
    assert list(client.vector_store_files.list(store.id))
    client.vector_store_files.delete(vector_store_id=store.id, file_id=file.id)
    client.vector_stores.modify(store.id, name="other")
    assert any(one.id == store.id for one in client.vector_stores.list())
    client.vector_stores.delete(store.id)
    client.files.delete(file.id)


def drive_pages_and_errors(client: AgentsClient) -> None:
    thread = client.threads.create()
    for number in range(7):
        client.messages.create(thread_id=thread.id, role="user", content=str(number))
    seen = [
        one.text_messages[0].text.value
        for one in client.messages.list(thread_id=thread.id, limit=3, order=ListSortOrder.ASCENDING)
    ]
    assert seen == list("0123456"), seen
    agent = client.create_agent(model="conf-slow")
    run = client.runs.create(
        thread_id=thread.id, agent_id=agent.id, truncation_strategy=TruncationObject(type="auto")
    )
    words = refused(lambda: client.messages.create(thread_id=thread.id, role="user", content="x"))
    assert "while a run" in words
    client.runs.cancel(thread_id=thread.id, run_id=run.id)
    while run.status in ("queued", "in_progress", "cancelling"):
        run = client.runs.get(thread_id=thread.id, run_id=run.id)
    assert run.status == "cancelled"
    run = client.runs.create_and_process(
        thread_id=thread.id, agent_id=agent.id, model="long", max_completion_tokens=300, polling_interval=0.05
    )
    assert run.incomplete_details.reason == "max_completion_tokens"
    assert "No assistant found" in refused(lambda: client.get_agent("asst_none"), ResourceNotFoundError)
    stranger = AgentsClient(URL, Credential("wrong"), **OPTIONS)
    refused(lambda: stranger.create_agent(model="plain"), ClientAuthenticationError)


async def drive_async() -> None:
    async with AsyncAgentsClient(URL, AsyncCredential(KEY), **OPTIONS) as client:
        tools = AsyncToolSet()
        tools.add(AsyncFunctionTool({get_weather_later}))
        client.enable_auto_function_calls(tools)
        agent = await client.create_agent(model="conf-weather", toolset=tools)
        thread = await client.threads.create()
        CITIES.clear()
        run = await client.runs.create_and_process(
            thread_id=thread.id, agent_id=agent.id, polling_interval=0.05
        )
        assert run.status == "completed"
        async with await client.runs.stream(thread_id=thread.id, agent_id=agent.id) as stream:
            names = [name async for name, _, _ in stream]
        assert names[-1] == "done"
        assert len(CITIES) == 6, CITIES
        assert len([m async for m in client.messages.list(thread_id=thread.id, limit=1)]) == 2


def plain_http() -> None:
    policy = AzureKeyCredentialPolicy(AzureKeyCredential(KEY), "api-key")
    url = os.environ["SERVER_PLAIN_URL"] + "/api/projects/demo"
    with AgentsClient(url, Credential(KEY), authentication_policy=policy, retry_total=0) as client:
        drive_rounds(client)


if __name__ == "__main__":
    with AgentsClient(URL, Credential(KEY), **OPTIONS) as sync_client:
        for drive in (drive_rounds, drive_streams, drive_builtin_tools, drive_pages_and_errors):
            drive(sync_client)
            print(drive.__name__)
    asyncio.run(drive_async())
    print("drive_async")
    if "SERVER_PLAIN_URL" in os.environ:
        plain_http()
        print("plain_http")
