"""Drives a server with whatever version of the `openai` package the interpreter has.

usage: python drive_openai.py BASE_URL    (prints a JSON document of what it saw)

Runs as a plain script, so that any environment can run it: only the package is imported. The server
plays the script of `tests/clients/test_clients.py`.
"""

import asyncio
import json
import sys
import warnings
from typing import Any

import openai

warnings.simplefilter("ignore")
TOOLS: Any = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]


def outputs(run: Any) -> Any:
    calls = run.required_action.submit_tool_outputs.tool_calls
    return [{"tool_call_id": call.id, "output": "42"} for call in calls]


def stores(client: Any) -> Any:
    """Vector stores moved out of `beta` in 1.66."""
    return client.vector_stores if hasattr(client, "vector_stores") else client.beta.vector_stores


def drive(base_url: str) -> dict[str, Any]:
    seen: dict[str, Any] = {}
    client = openai.OpenAI(base_url=base_url, api_key="x", max_retries=0)
    assistant = client.beta.assistants.create(model="round", tools=TOOLS, name="Test Assistant")
    seen["assistants"] = [entry.name for entry in client.beta.assistants.list()]
    thread = client.beta.threads.create(messages=[{"role": "user", "content": "hi"}])
    run = client.beta.threads.runs.create_and_poll(thread_id=thread.id, assistant_id=assistant.id)
    seen["first"] = run.status
    run = client.beta.threads.runs.submit_tool_outputs_and_poll(
        run_id=run.id, thread_id=thread.id, tool_outputs=outputs(run)
    )
    seen["second"] = run.status
    seen["text"] = client.beta.threads.messages.list(thread.id).data[0].content[0].text.value

    class Handler(openai.AssistantEventHandler):
        def __init__(self) -> None:
            super().__init__()
            self.text = ""
            self.calls: list[str] = []

        def on_text_delta(self, delta: Any, snapshot: Any) -> None:
            self.text += delta.value or ""

        def on_tool_call_done(self, tool_call: Any) -> None:
            self.calls.append(tool_call.function.name + tool_call.function.arguments)

    first, second = Handler(), Handler()
    with client.beta.threads.runs.stream(
        thread_id=thread.id, assistant_id=assistant.id, event_handler=first
    ) as stream:
        stream.until_done()
        run = stream.get_final_run() if hasattr(stream, "get_final_run") else stream.current_run
    with client.beta.threads.runs.submit_tool_outputs_stream(
        run_id=run.id, thread_id=thread.id, tool_outputs=outputs(run), event_handler=second
    ) as stream:
        stream.until_done()
    seen["streamed"] = [first.calls, second.text]
    events = client.beta.threads.create_and_run(assistant_id=assistant.id, model="plain", stream=True)
    seen["events"] = [event.event for event in events if "delta" not in event.event]
    upload = client.files.create(file=("a.txt", b"Fires and water"), purpose="assistants")
    store = stores(client).create(name="facts")
    batch = stores(client).file_batches.create_and_poll(vector_store_id=store.id, file_ids=[upload.id])
    seen["batch"] = batch.status
    try:
        client.beta.threads.runs.cancel(run_id=run.id, thread_id=thread.id)
    except openai.BadRequestError as error:
        seen["error"] = error.body["message"] if isinstance(error.body, dict) else str(error)
    seen["deleted"] = client.beta.threads.delete(thread.id).deleted
    client.close()
    return seen


async def drive_async(base_url: str) -> str:
    async with openai.AsyncOpenAI(base_url=base_url, api_key="x", max_retries=0) as client:
        assistant = await client.beta.assistants.create(model="plain")
        thread = await client.beta.threads.create()
        async with client.beta.threads.runs.stream(thread_id=thread.id, assistant_id=assistant.id) as stream:
            return "".join([piece async for piece in stream.text_deltas])


if __name__ == "__main__":
    result = drive(sys.argv[1])
    result["async"] = asyncio.run(drive_async(sys.argv[1]))
    result["version"] = openai.__version__
    print(json.dumps(result))
