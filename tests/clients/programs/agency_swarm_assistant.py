"""Agency Swarm below 1.0: an agency of one with a tool, answered at once and as a stream, and a file."""

import os
import tempfile
import warnings
from pathlib import Path

warnings.simplefilter("ignore")

from agency_swarm import Agency, AgencyEventHandler, Agent, BaseTool, set_openai_client  # noqa: E402
from agency_swarm.tools import CodeInterpreter, FileSearch  # noqa: E402
from openai import OpenAI  # noqa: E402
from pydantic import Field  # noqa: E402

URL, KEY = os.environ["SERVER_URL"], os.environ["SERVER_KEY"]
CITIES: list[str] = []
HEARD: list[str] = []
TEXT = "Oslo, Bergen and Tromsø are fine."


class get_weather(BaseTool):  # noqa: N801 (the class's name is the function's)
    """Weather of a city."""

    city: str = Field(..., description="Name of the city.")

    def run(self) -> str:
        CITIES.append(self.city)
        return "12 degrees"


class Handler(AgencyEventHandler):
    def on_text_delta(self, delta, snapshot) -> None:
        HEARD.append(delta.value or "")


def drive() -> None:
    set_openai_client(OpenAI(base_url=f"{URL}/v1", api_key=KEY, max_retries=0))
    weather = Agent(
        name="Weather",
        description="d",
        instructions="Be brief.",
        tools=[get_weather],
        model="conf-weather",
        temperature=0.3,
        max_prompt_tokens=25000,
    )
    agency = Agency([weather], shared_instructions="All.", temperature=0.3)
    assert agency.get_completion("Weather?") == TEXT
    assert sorted(CITIES) == ["Bergen", "Oslo", "Tromsø"], CITIES
    agency.get_completion_stream("Weather?", Handler)
    assert "".join(HEARD) == TEXT, HEARD
    Path("files").mkdir()
    Path("files/fires.md").write_text("Wildfires of 2020: 58950")
    reader = Agent(
        name="Reader",
        instructions="Read.",
        tools=[FileSearch, CodeInterpreter],
        files_folder=str(Path("files").resolve()),
        model="conf-search",
    )
    answer = Agency([reader]).get_completion("Fires?")
    assert answer.startswith("58950 fires"), answer
    for one in (weather, reader):
        one.delete()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)  # it keeps a settings.json in the working folder
        drive()
