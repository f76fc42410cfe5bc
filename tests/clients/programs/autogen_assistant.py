"""AutoGen's OpenAIAssistantAgent (autogen-ext): functions, uploads for built-in tools, reset, clean-up."""

import asyncio
import os
import tempfile
import warnings
from pathlib import Path
from typing import Any

warnings.simplefilter("ignore")

from autogen_agentchat.messages import TextMessage  # noqa: E402
from autogen_core import CancellationToken  # noqa: E402
from autogen_ext.agents.openai import OpenAIAssistantAgent  # noqa: E402
from openai import AsyncAzureOpenAI, AsyncOpenAI  # noqa: E402

URL, KEY = os.environ["SERVER_URL"], os.environ["SERVER_KEY"]
CITIES: list[str] = []


async def get_weather(city: str) -> str:
    """Weather of a city."""
    CITIES.append(city)
    return "12 degrees"


async def drive(client: Any) -> None:
    token = CancellationToken()
    CITIES.clear()
    assistant = OpenAIAssistantAgent(
        name="a",
        description="An assistant",
        client=client,
        model="conf-weather",
        instructions="Be brief.",
        tools=[get_weather, "file_search", "code_interpreter"],
        response_format={"type": "text"},
    )
    answer = await assistant.on_messages([TextMessage(source="user", content="Weather?")], token)
    assert answer.chat_message.content == "Oslo, Bergen and Tromsø are fine."
    assert CITIES == ["Oslo", "Bergen", "Tromsø"]
    await assistant.on_reset(token)
    await assistant.delete_assistant(token)

    searching = OpenAIAssistantAgent(
        name="b",
        description="",
        client=client,
        model="conf-search",
        instructions="Read.",
        tools=["file_search", "code_interpreter"],
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "fires.md"
        path.write_text("Wildfires of 2020: 58950")
        await searching.on_upload_for_file_search(str(path), token)
        await searching.on_upload_for_code_interpreter(str(path), token)
    answer = await searching.on_messages([TextMessage(source="user", content="Fires?")], token)
    assert answer.chat_message.content.startswith("58950 fires"), answer
    await searching.delete_uploaded_files(token)
    await searching.delete_vector_store(token)
    await searching.delete_assistant(token)


async def main() -> None:
    async with AsyncOpenAI(base_url=f"{URL}/v1", api_key=KEY, max_retries=0) as client:
        await drive(client)
    async with AsyncAzureOpenAI(
        azure_endpoint=URL,
        api_key=KEY,
        api_version="2024-05-01-preview",
        azure_deployment="gpt",
        max_retries=0,
    ) as client:
        await drive(client)


if __name__ == "__main__":
    asyncio.run(main())
