"""Semantic Kernel's OpenAIAssistantAgent and AzureAssistantAgent: plugins, streams, files, code."""

import asyncio
import os
import tempfile
import warnings
from datetime import timedelta
from pathlib import Path
from typing import Any

warnings.simplefilter("ignore")

from openai import AsyncAzureOpenAI, AsyncOpenAI  # noqa: E402
from semantic_kernel.agents import (  # noqa: E402
    AssistantAgentThread,
    AzureAssistantAgent,
    OpenAIAssistantAgent,
)
from semantic_kernel.agents.open_ai.run_polling_options import RunPollingOptions  # noqa: E402
from semantic_kernel.contents import FileReferenceContent  # noqa: E402
from semantic_kernel.exceptions import AgentInvokeException  # noqa: E402
from semantic_kernel.functions import kernel_function  # noqa: E402

URL, KEY = os.environ["SERVER_URL"], os.environ["SERVER_KEY"]
CITIES: list[str] = []
QUICK = RunPollingOptions(run_polling_interval=timedelta(milliseconds=20))


class Weather:
    @kernel_function(description="Weather of a city.")
    def get_weather(self, city: str) -> str:
        CITIES.append(city)
        return "12 degrees"


async def drive_plugins(kind: Any, client: Any) -> None:
    definition = await client.beta.assistants.create(
        model="conf-plugin", name="a", instructions="Be brief.", description="d"
    )
    assistant = kind(client=client, definition=definition, plugins=[Weather()], polling_options=QUICK)
    thread = None
    CITIES.clear()
    for _ in range(2):
        answer = await assistant.get_response(messages="Weather?", thread=thread)
        thread = answer.thread
        assert str(answer) == "Both are fine.", str(answer)
    assert CITIES == ["Oslo", "Bergen"] * 2, CITIES
    pieces, heard = [], []

    async def hear(message: Any) -> None:
        heard.append(message)

    async for piece in assistant.invoke_stream(
        messages="Weather?", thread=thread, on_intermediate_message=hear, additional_instructions="Now."
    ):
        pieces.append(str(piece.message))
    assert "".join(pieces) == "Both are fine.", pieces
    assert len(CITIES) == 6
    assert len(heard) == 2, heard  # the calls, and their results
    seen = [message async for message in thread.get_messages(sort_order="asc")]
    assert len(seen) == 6, seen
    words = ""
    try:
        await assistant.get_response(messages="More", thread=thread, model="fails")
    except AgentInvokeException as error:
        words = str(error)
    assert "Slow down." in words
    await thread.delete()
    await client.beta.assistants.delete(assistant.id)


async def drive_files(kind: Any, client: Any) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "fires.md"
        path.write_text("Wildfires of 2020: 58950")
        with path.open("rb") as file:
            upload = await client.files.create(file=file, purpose="assistants")
    store = await client.vector_stores.create(name="facts", file_ids=[upload.id])
    search, resources = kind.configure_file_search_tool(vector_store_ids=store.id)
    code, code_resources = kind.configure_code_interpreter_tool(file_ids=[upload.id])
    definition = await client.beta.assistants.create(
        model="conf-search",
        tools=[*search, *code],
        tool_resources={**resources, **code_resources},
        response_format=kind.configure_response_format("auto"),
        temperature=0.1,
    )
    assistant = kind(client=client, definition=definition, polling_options=QUICK)
    answer = await assistant.get_response(messages="Fires?")
    [citation] = [item for item in answer.message.items if item.content_type == "annotation"]
    assert citation.file_id == upload.id, citation
    streamed = [piece async for piece in assistant.invoke_stream(messages="Fires?")]
    cited = [item for piece in streamed for item in piece.message.items if hasattr(item, "file_id")]
    assert [item.file_id for item in cited] == [upload.id], [p.message.items for p in streamed]
    thread = AssistantAgentThread(client=client)
    said = [piece async for piece in assistant.invoke(messages="6*7", thread=thread, model="code")]
    assert "42" in str(said[-1].message)
    assert FileReferenceContent(file_id=upload.id).file_id


async def main() -> None:
    async with AsyncOpenAI(base_url=f"{URL}/v1", api_key=KEY, max_retries=0) as client:
        await drive_plugins(OpenAIAssistantAgent, client)
        await drive_files(OpenAIAssistantAgent, client)
    azure = {"azure_endpoint": URL, "api_key": KEY, "api_version": "2024-05-01-preview", "max_retries": 0}
    async with AsyncAzureOpenAI(**azure) as client:
        await drive_plugins(AzureAssistantAgent, client)
        await drive_files(AzureAssistantAgent, client)


if __name__ == "__main__":
    asyncio.run(main())
