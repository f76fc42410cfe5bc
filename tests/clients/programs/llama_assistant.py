"""LlamaIndex's OpenAIAssistantAgent: functions over several rounds, a file, an existing assistant."""

import asyncio
import os
import tempfile
import warnings
from pathlib import Path

warnings.simplefilter("ignore")
os.environ["OPENAI_BASE_URL"] = os.environ["SERVER_URL"] + "/v1"
os.environ["OPENAI_API_KEY"] = os.environ["SERVER_KEY"]

from llama_index.agent.openai import OpenAIAssistantAgent  # noqa: E402
from llama_index.core.tools import FunctionTool  # noqa: E402

CITIES: list[str] = []
TEXT = "Oslo, Bergen and Tromsø are fine."


def get_weather(city: str) -> str:
    """Weather of a city."""
    CITIES.append(city)
    return "12 degrees"


def drive() -> None:
    tools = [FunctionTool.from_defaults(fn=get_weather)]
    assistant = OpenAIAssistantAgent.from_new(
        name="a",
        instructions="Be brief.",
        tools=tools,
        model="conf-weather",
        run_retrieve_sleep_time=0.02,
    )
    assert assistant.chat("Weather?").response == TEXT
    assert CITIES == ["Oslo", "Bergen", "Tromsø"]
    assert asyncio.run(assistant.achat("And now?")).response == TEXT
    assert len(assistant.chat_history) == 4
    same = OpenAIAssistantAgent.from_existing(
        assistant.assistant.id, tools=tools, thread_id=assistant.thread_id, run_retrieve_sleep_time=0.02
    )
    assert same.chat("Once more").response == TEXT
    same.reset()
    assert same.chat_history == []


def drive_file() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "fires.md"
        path.write_text("Wildfires of 2020: 58950")
        assistant = OpenAIAssistantAgent.from_new(
            name="a",
            instructions="Read.",
            openai_tools=[{"type": "file_search"}, {"type": "code_interpreter"}],
            model="conf-search",
            files=[str(path)],
            run_retrieve_sleep_time=0.02,
            temperature=0,
        )
    [file_id] = assistant.files_dict
    assistant.add_message("Fires?", file_ids=[file_id])
    run, _ = assistant.run_assistant()
    assert run.status == "completed"
    assert assistant.latest_message.content.startswith("58950 fires")


if __name__ == "__main__":
    drive()
    drive_file()
