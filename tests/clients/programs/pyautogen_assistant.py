"""The older AutoGen's GPTAssistantAgent (pyautogen 0.2), with OpenAI's form and with Azure's."""

import json
import os
import warnings
from typing import Any

warnings.simplefilter("ignore")

from autogen import UserProxyAgent  # noqa: E402
from autogen.agentchat.contrib.gpt_assistant_agent import GPTAssistantAgent  # noqa: E402

URL, KEY = os.environ["SERVER_URL"], os.environ["SERVER_KEY"]
CITIES: list[str] = []
TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Weather of a city.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}


def get_weather(city: str) -> str:
    """Weather of a city."""
    CITIES.append(city)
    return json.dumps({"degrees": 12})


def drive(config: dict[str, Any]) -> None:
    CITIES.clear()
    assistant = GPTAssistantAgent(
        name="a",
        instructions="Be brief.",
        llm_config={"config_list": [{"model": "conf-weather", **config}], "check_every_ms": 20},
        assistant_config={"tools": [TOOL]},
    )
    assistant.register_function(function_map={"get_weather": get_weather})
    user = UserProxyAgent(
        name="user",
        human_input_mode="NEVER",
        code_execution_config=False,
        max_consecutive_auto_reply=0,
    )
    for _ in range(2):
        user.initiate_chat(assistant, message="Weather?", clear_history=False, silent=True)
    text = user.last_message(assistant)["content"].strip()
    assert text == "Oslo, Bergen and Tromsø are fine.", text
    assert CITIES == ["Oslo", "Bergen", "Tromsø"] * 2, CITIES
    again = GPTAssistantAgent(
        name="a",
        instructions="Be briefer.",
        llm_config={"config_list": [{"model": "x", **config}]},
        assistant_config={"assistant_id": assistant.assistant_id, "tools": [TOOL]},
        overwrite_instructions=True,
        overwrite_tools=True,
    )
    assert again.get_assistant_instructions() == "Be briefer."
    assistant.clear_history()
    assistant.reset()
    assistant.delete_assistant()


if __name__ == "__main__":
    drive({"base_url": f"{URL}/v1", "api_key": KEY})
    azure = {"base_url": URL, "api_key": KEY, "api_type": "azure", "api_version": "2024-05-01-preview"}
    drive(azure)
    drive({**azure, "azure_deployment": "gpt"})
