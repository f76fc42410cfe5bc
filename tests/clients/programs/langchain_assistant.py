"""LangChain's OpenAIAssistantRunnable and OpenAIAssistantV2Runnable, by hand and in an executor."""

import asyncio
import os
import warnings

warnings.simplefilter("ignore")

from langchain.agents import AgentExecutor  # noqa: E402
from langchain.agents.openai_assistant import OpenAIAssistantRunnable  # noqa: E402
from langchain_community.agents.openai_assistant import OpenAIAssistantV2Runnable  # noqa: E402
from langchain_core.agents import AgentFinish  # noqa: E402
from langchain_core.tools import tool  # noqa: E402
from openai import AsyncOpenAI, AzureOpenAI, OpenAI  # noqa: E402

URL, KEY = os.environ["SERVER_URL"], os.environ["SERVER_KEY"]
CITIES: list[str] = []


@tool
def get_weather(city: str) -> str:
    """Weather of a city."""
    CITIES.append(city)
    return "12 degrees"


TEXT = "Oslo, Bergen and Tromsø are fine."
ours = OpenAI(base_url=f"{URL}/v1", api_key=KEY, max_retries=0)
later = AsyncOpenAI(base_url=f"{URL}/v1", api_key=KEY, max_retries=0)
azure = AzureOpenAI(azure_endpoint=URL, api_key=KEY, api_version="2024-05-01-preview", max_retries=0)


def drive_executor(runnable, client) -> None:
    assistant = runnable.create_assistant(
        name="a",
        instructions="Be brief.",
        tools=[get_weather],
        model="conf-weather",
        client=client,
        as_agent=True,
        check_every_ms=20,
    )
    CITIES.clear()
    executor = AgentExecutor(agent=assistant, tools=[get_weather])
    answer = executor.invoke({"content": "Weather?"})
    assert (answer["output"], CITIES) == (TEXT, ["Oslo", "Bergen", "Tromsø"]), (answer, CITIES)
    again = executor.invoke({"content": "And now?", "thread_id": answer["thread_id"]})
    assert again["output"] == TEXT
    plain = runnable(assistant_id=assistant.assistant_id, client=client, check_every_ms=20)
    messages = plain.invoke({"content": "hi", "model": "plain"})
    assert messages[0].content[0].text.value == "Hello there, friend."
    calls = plain.invoke({"content": "hi"})
    assert [call.function.name for call in calls] == ["get_weather", "get_weather"]


async def drive_later(runnable) -> None:
    assistant = await runnable.acreate_assistant(
        name="a",
        instructions="",
        tools=[get_weather, {"type": "code_interpreter"}],
        model="conf-weather",
        async_client=later,
        client=ours,
        as_agent=True,
        check_every_ms=20,
    )
    answer = await assistant.ainvoke({"content": "Weather?"})
    while not isinstance(answer, AgentFinish):
        answer = await assistant.ainvoke(
            {
                "tool_outputs": [
                    {"output": get_weather.invoke(action.tool_input), "tool_call_id": action.tool_call_id}
                    for action in answer
                ],
                "run_id": answer[0].run_id,
                "thread_id": answer[0].thread_id,
            }
        )
    assert answer.return_values["output"] == TEXT


def drive_files() -> None:
    file = ours.files.create(file=("fires.md", b"Wildfires of 2020: 58950"), purpose="assistants")
    assistant = OpenAIAssistantV2Runnable.create_assistant(
        name="a",
        instructions="x",
        tools=[{"type": "file_search"}, {"type": "code_interpreter"}],
        model="conf-search",
        client=ours,
        check_every_ms=20,
    )
    attachments = [{"file_id": file.id, "tools": [{"type": "file_search"}, {"type": "code_interpreter"}]}]
    [message] = assistant.invoke({"content": "Fires?"}, attachments=attachments)
    assert message.content[0].text.annotations[0].file_citation.file_id == file.id


if __name__ == "__main__":
    for runnable in (OpenAIAssistantRunnable, OpenAIAssistantV2Runnable):
        for client in (ours, azure):
            drive_executor(runnable, client)
        asyncio.run(drive_later(runnable)) if runnable is OpenAIAssistantV2Runnable else None
        print(runnable.__name__, "done")
    drive_files()
