"""The official SDK, sync and async, with its stream helpers, poll helpers and event handlers."""

import asyncio
from typing import Any

import openai
import pytest
from openai import AssistantEventHandler, AsyncAssistantEventHandler

from tests.service.conftest import Running, functions, running, script

CALL = {"name": "f", "arguments": {"a": 1}}
SCRIPT = script(
    plain=[{"text": "Hello there, friend."}],
    round=[{"tool_calls": [CALL, CALL]}, {"text": "All set."}],
    search=[{"builtin": "file_search", "query": "wildfires"}, {"text": "Many", "cite": True}],
    code=[{"builtin": "code_interpreter", "input": "print(6*7)"}, {"text": "42"}],
    fails=[{"text": "Half", "error": {"code": "server_error", "message": "gone"}}],
    slow=[{"text": "late", "delay_s": 30}],
)


def outputs(run: Any) -> list[dict[str, str]]:
    calls = run.required_action.submit_tool_outputs.tool_calls
    return [{"tool_call_id": call.id, "output": "42"} for call in calls]


async def test_poll_helpers_see_a_run_through():
    async with running(SCRIPT) as server:
        sdk = server.sdk
        assistant = await sdk.beta.assistants.create(model="round", tools=functions("f"))
        thread = await sdk.beta.threads.create(messages=[{"role": "user", "content": "hi"}])

        run = await sdk.beta.threads.runs.create_and_poll(thread_id=thread.id, assistant_id=assistant.id)
        assert run.status == "requires_action"
        run = await sdk.beta.threads.runs.submit_tool_outputs_and_poll(
            run_id=run.id, thread_id=thread.id, tool_outputs=outputs(run)
        )

        assert run.status == "completed"
        messages = [m async for m in sdk.beta.threads.messages.list(thread.id, run_id=run.id)]
        assert messages[0].content[0].text.value == "All set."


class Collector(AsyncAssistantEventHandler):
    def __init__(self) -> None:
        super().__init__()
        self.text = ""
        self.seen: list[str] = []
        self.calls: list[Any] = []

    async def on_event(self, event: Any) -> None:
        self.seen.append(event.event)

    async def on_text_delta(self, delta: Any, snapshot: Any) -> None:
        self.text += delta.value or ""

    async def on_tool_call_done(self, tool_call: Any) -> None:
        self.calls.append(tool_call)


async def test_case_055_event_handlers_hear_everything_once_over_two_streams():
    async with running(SCRIPT) as server:
        runs = server.sdk.beta.threads
        assistant = await server.sdk.beta.assistants.create(model="round", tools=functions("f"))
        first, second = Collector(), Collector()
        async with runs.create_and_run_stream(assistant_id=assistant.id, event_handler=first) as stream:
            await stream.until_done()
            run = await stream.get_final_run()
        async with runs.runs.submit_tool_outputs_stream(
            run_id=run.id, thread_id=run.thread_id, tool_outputs=outputs(run), event_handler=second
        ) as stream:
            await stream.until_done()
            final = await stream.get_final_run()

        assert final.status == "completed"
        assert [call.function.arguments for call in first.calls] == ['{"a": 1}', '{"a": 1}']
        assert {call.id for call in first.calls} == {entry["tool_call_id"] for entry in outputs(run)}
        assert (first.text, second.text) == ("", "All set.")
        assert second.seen.count("thread.run.completed") == 1


async def test_a_stream_helper_gives_the_final_message_and_its_steps():
    async with running(SCRIPT) as server:
        assistant = await server.sdk.beta.assistants.create(model="plain")
        thread = await server.sdk.beta.threads.create()
        async with server.sdk.beta.threads.runs.stream(
            thread_id=thread.id, assistant_id=assistant.id
        ) as stream:
            text = "".join([piece async for piece in stream.text_deltas])
            [message] = await stream.get_final_messages()
            [step] = await stream.get_final_run_steps()

        assert text == message.content[0].text.value == "Hello there, friend."
        assert step.type == "message_creation"


async def test_a_failed_run_ends_the_helper_with_its_text_so_far():
    async with running(SCRIPT) as server:
        assistant = await server.sdk.beta.assistants.create(model="fails")
        thread = await server.sdk.beta.threads.create()
        async with server.sdk.beta.threads.runs.stream(
            thread_id=thread.id, assistant_id=assistant.id
        ) as stream:
            await stream.until_done()
            run = await stream.get_final_run()
            [message] = await stream.get_final_messages()

        assert (run.status, run.last_error.message) == ("failed", "gone")
        assert message.status == "incomplete"
        assert message.content[0].text.value == "Half"


@pytest.mark.parametrize("model", ["search", "code"])
async def test_built_in_tools_stream_and_show_in_the_steps(model: str):
    async with running(SCRIPT) as server:
        sdk = server.sdk
        upload = await sdk.files.create(
            file=("wildfire_stats.md", b"Wildfires: 2020 58950, 2021 58985"), purpose="assistants"
        )
        store = await sdk.vector_stores.create(file_ids=[upload.id])
        assistant = await sdk.beta.assistants.create(
            model=model,
            tools=[{"type": "file_search"}, {"type": "code_interpreter"}],
            tool_resources={"file_search": {"vector_store_ids": [store.id]}},
        )
        collector = Collector()
        async with sdk.beta.threads.create_and_run_stream(
            assistant_id=assistant.id, event_handler=collector
        ) as stream:
            await stream.until_done()
            run = await stream.get_final_run()

        include: Any = ["step_details.tool_calls[*].file_search.results[*].content"]
        steps = await sdk.beta.threads.runs.steps.list(
            run.id, thread_id=run.thread_id, order="asc", include=include
        )
        [call] = steps.data[0].step_details.tool_calls
        if model == "code":
            assert call.code_interpreter.outputs[0].logs == "42\n"
        else:
            assert call.file_search.results[0].content[0].text.startswith("Wildfires")
            [message] = await stream.get_final_messages()
            text = message.content[0].text
            [annotation] = text.annotations
            assert text.value[annotation.start_index : annotation.end_index] == annotation.text
            assert annotation.file_citation.file_id == upload.id


async def test_uploads_stores_and_batches_poll_to_their_end():
    async with running(SCRIPT) as server:
        sdk = server.sdk
        store = await sdk.vector_stores.create(name="facts")
        file = await sdk.vector_stores.files.upload_and_poll(
            vector_store_id=store.id, file=("a.txt", b"Fires and water")
        )
        upload = await sdk.files.create(file=("b.png", b"\x89PNG"), purpose="assistants")
        batch = await sdk.vector_stores.file_batches.create_and_poll(
            vector_store_id=store.id, file_ids=[file.id, upload.id]
        )

        assert file.status == "completed"
        assert (batch.file_counts.completed, batch.file_counts.failed, batch.file_counts.total) == (1, 1, 2)
        failed = [f async for f in sdk.vector_stores.files.list(store.id, filter="failed")]
        assert failed[0].last_error.code == "unsupported_file"
        found = await sdk.vector_stores.search(store.id, query="fires")
        assert [result.filename for result in found.data] == ["a.txt"]


async def test_errors_arrive_as_the_exceptions_of_the_sdk():
    async with running(SCRIPT, api_keys=("key",), key="key") as server:
        with pytest.raises(openai.NotFoundError, match="No thread found with id 'thread_x'"):
            await server.sdk.beta.threads.retrieve("thread_x")
        thread = await server.sdk.beta.threads.create()
        with pytest.raises(openai.BadRequestError) as caught:
            await server.sdk.beta.threads.messages.create(thread.id, role="user", content=[])
        assert (caught.value.code, caught.value.param) == ("empty_array", "content")
        with pytest.raises(openai.AuthenticationError):
            await server.sdk.with_options(api_key="other").models.list()


async def test_azure_form_of_the_sdk_works():
    async with (
        running(SCRIPT, api_keys=("key",)) as server,
        openai.AsyncAzureOpenAI(
            azure_endpoint=server.url, api_key="key", api_version="2024-05-01-preview", max_retries=0
        ) as sdk,
    ):
        assistant = await sdk.beta.assistants.create(model="plain")
        run = await sdk.beta.threads.create_and_run_poll(assistant_id=assistant.id)

        assert run.status == "completed"


async def test_the_sync_sdk_does_the_same():
    async with running(SCRIPT) as server:

        def drive() -> tuple[str, str, list[str]]:
            heard: list[str] = []

            class Handler(AssistantEventHandler):
                def on_text_delta(self, delta: Any, snapshot: Any) -> None:
                    heard.append(delta.value)

            with openai.OpenAI(base_url=f"{server.url}/v1", api_key="x", max_retries=0) as sdk:
                assistant = sdk.beta.assistants.create(model="round", tools=functions("f"))
                run = sdk.beta.threads.create_and_run_poll(assistant_id=assistant.id)
                with sdk.beta.threads.runs.submit_tool_outputs_stream(
                    run_id=run.id,
                    thread_id=run.thread_id,
                    tool_outputs=outputs(run),
                    event_handler=Handler(),
                ) as stream:
                    stream.until_done()
                return run.status, stream.get_final_run().status, heard

        assert await asyncio.to_thread(drive) == ("requires_action", "completed", ["All", " set."])


async def test_a_poll_hint_comes_with_a_run():
    async with running(SCRIPT) as server:
        run = await slow_run(server)

        raw = await server.sdk.beta.threads.runs.with_raw_response.retrieve(run.id, thread_id=run.thread_id)

        assert 0 < int(raw.headers["openai-poll-after-ms"]) <= 1000


async def slow_run(server: Running) -> Any:
    assistant = await server.sdk.beta.assistants.create(model="slow")
    return await server.sdk.beta.threads.create_and_run(assistant_id=assistant.id)
