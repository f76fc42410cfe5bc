"""The engines against a live server, when one is named; skipped with a word otherwise.

ASSISTANT_RUNNER_LIVE_BASE_URL (such as http://127.0.0.1:11434/v1), ASSISTANT_RUNNER_LIVE_MODEL, and
ASSISTANT_RUNNER_LIVE_KEY if the server wants one. A server beyond loopback also needs
ASSISTANT_RUNNER_LIVE_ANYWHERE=1: the tests' guard against real connections is lifted for it.
"""

import os
import socket

import pytest

from assistant_runner.service.engines.choose import choose_engine, default_model
from assistant_runner.wire.tools import FunctionName, NamedToolChoice
from tests.service.engines.helpers import STRING, play, play_run, request, tool

BASE_URL = os.environ.get("ASSISTANT_RUNNER_LIVE_BASE_URL")
CONNECT, CONNECT_EX = socket.socket.connect, socket.socket.connect_ex
WEATHER = tool("get_weather", "The weather of a city", city={**STRING, "description": "The city"})

pytestmark = [
    pytest.mark.skipif(not BASE_URL, reason="no live server: ASSISTANT_RUNNER_LIVE_BASE_URL is not set"),
    pytest.mark.parametrize("name", ["chat", "responses"]),
]


@pytest.fixture
async def live(name, monkeypatch):
    """The engine at the live server and a model of it."""
    if os.environ.get("ASSISTANT_RUNNER_LIVE_ANYWHERE"):
        monkeypatch.setattr(socket.socket, "connect", CONNECT)
        monkeypatch.setattr(socket.socket, "connect_ex", CONNECT_EX)
    engine = await choose_engine(
        name, environ=os.environ, base_url=BASE_URL, key_env="ASSISTANT_RUNNER_LIVE_KEY"
    )
    try:
        model = os.environ.get("ASSISTANT_RUNNER_LIVE_MODEL") or await default_model(engine)
        yield engine, model
    finally:
        await engine.aclose()


async def test_a_live_server_answers_in_text(live):
    engine, model = live

    turn = await play(engine, request("Say hello in one word.", model=model, deadline_s=120))

    assert turn.text.strip()


async def test_a_live_server_calls_the_tool_that_is_named_and_goes_on_with_its_output(live):
    engine, model = live
    if not engine.abilities(model).tools:
        pytest.skip(f"{model} calls no tools")
    choice = NamedToolChoice(type="function", function=FunctionName(name="get_weather"))
    wanted = request(
        "What is the weather in Oslo?", model=model, tools=[WEATHER], tool_choice=choice, deadline_s=240
    )

    rounds, text = await play_run(engine, wanted, lambda name, arguments: {"temp_c": -3})

    assert rounds[0][0][0] == "get_weather"
    assert text.strip()
