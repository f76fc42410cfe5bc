"""The official Python SDK (1.x, 2.x, 3.x), async: the same helpers, and many runs at once."""

import asyncio
import os
import warnings
from typing import Any

from openai import AsyncAssistantEventHandler, AsyncAzureOpenAI, AsyncOpenAI

warnings.simplefilter("ignore", DeprecationWarning)
URL, KEY = os.environ["SERVER_URL"], os.environ["SERVER_KEY"]
FUNCTION = {"type": "function", "function": {"name": "Weather-get_weather"}}


class Handler(AsyncAssistantEventHandler):
    """Answers a required action from within the stream, as the SDK's guide does."""

    def __init__(self, client: AsyncOpenAI) -> None:
        super().__init__()
        self.client, self.text, self.calls = client, "", []

    async def on_tool_call_created(self, tool_call: Any) -> None:
        self.calls.append(tool_call.id)

    async def on_text_delta(self, delta: Any, snapshot: Any) -> None:
        self.text += delta.value or ""

    async def on_event(self, event: Any) -> None:
        if event.event != "thread.run.requires_action":
            return
        inner = Handler(self.client)
        async with self.client.beta.threads.runs.submit_tool_outputs_stream(
            run_id=event.data.id,
            thread_id=event.data.thread_id,
            tool_outputs=outputs(event.data),
            event_handler=inner,
        ) as stream:
            await stream.until_done()
        self.text += inner.text
        assert not inner.calls


def outputs(run: Any) -> list[Any]:
    calls = run.required_action.submit_tool_outputs.tool_calls
    return [{"tool_call_id": call.id, "output": "12 degrees"} for call in calls]


async def drive_rounds_inside_a_stream(client: AsyncOpenAI) -> None:
    assistant = await client.beta.assistants.create(model="conf-plugin", tools=[FUNCTION])
    thread = await client.beta.threads.create(messages=[{"role": "user", "content": "Weather?"}])
    handler = Handler(client)
    async with client.beta.threads.runs.stream(
        thread_id=thread.id, assistant_id=assistant.id, event_handler=handler
    ) as stream:
        await stream.until_done()
    assert (handler.text, len(handler.calls)) == ("Both are fine.", 2), (handler.text, handler.calls)


async def drive_many_runs_at_once(client: AsyncOpenAI) -> None:
    assistant = await client.beta.assistants.create(model="conf-plugin", tools=[FUNCTION])

    async def one() -> str:
        run = await client.beta.threads.create_and_run_poll(assistant_id=assistant.id)
        run = await client.beta.threads.runs.submit_tool_outputs_and_poll(
            run_id=run.id, thread_id=run.thread_id, tool_outputs=outputs(run)
        )
        messages = [m async for m in client.beta.threads.messages.list(run.thread_id, run_id=run.id)]
        return messages[0].content[0].text.value

    assert set(await asyncio.gather(*(one() for _ in range(10)))) == {"Both are fine."}


async def drive_stores(client: AsyncOpenAI) -> None:
    stores = client.vector_stores if hasattr(client, "vector_stores") else client.beta.vector_stores
    store = (
        await stores.create_and_poll(name="x")
        if hasattr(stores, "create_and_poll")
        else await stores.create()
    )
    batch = await stores.file_batches.upload_and_poll(
        vector_store_id=store.id, files=[(f"{n}.txt", b"text") for n in range(12)]
    )
    assert batch.file_counts.completed == 12
    assert len([file async for file in stores.files.list(store.id, limit=5, filter="completed")]) == 12


async def drive_cancel(client: AsyncOpenAI) -> None:
    assistant = await client.beta.assistants.create(model="conf-slow")
    run = await client.beta.threads.create_and_run(assistant_id=assistant.id)
    await client.beta.threads.runs.cancel(run.id, thread_id=run.thread_id)
    run = await client.beta.threads.runs.poll(run.id, thread_id=run.thread_id)
    assert run.status == "cancelled"


async def main() -> None:
    async with (
        AsyncOpenAI(base_url=f"{URL}/v1", api_key=KEY, max_retries=0, timeout=20) as ours,
        AsyncAzureOpenAI(
            azure_endpoint=URL, api_key=KEY, api_version="2024-08-01-preview", max_retries=0
        ) as azure,
    ):
        for client in (ours, azure):
            await drive_rounds_inside_a_stream(client)
            await drive_many_runs_at_once(client)
            await drive_stores(client)
            await drive_cancel(client)
            print(type(client).__name__, "done")


if __name__ == "__main__":
    asyncio.run(main())
