"""`models` and the engines behind the command line, against a fake server on loopback."""

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.conftest import FIXTURES
from tests.service.engines.fake_openai import (
    FakeOpenAI,
    Reply,
    call_item,
    chat_calls,
    chat_text,
    error_reply,
    fake_openai,
    fragment,
    message_item,
    response_stream,
)

OSLO = '{"city": "Oslo"}'


@contextmanager
def running(*replies: Reply, models=()) -> Iterator[FakeOpenAI]:
    """The fake in a thread of its own: the command line brings its own loop."""
    ready, stop = threading.Event(), asyncio.Event()
    found: list[FakeOpenAI] = []
    loop = asyncio.new_event_loop()

    async def serve() -> None:
        async with fake_openai(*replies, models=models) as fake:
            found.append(fake)
            ready.set()
            await stop.wait()

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()))
    thread.start()
    try:
        assert ready.wait(5)
        yield found[0]
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(5)
        loop.close()


def weather_tool(folder) -> str:
    """The address of a tool in a file of one's own."""
    path = folder / "mine.py"
    path.write_text(
        'def get_weather(city: str) -> str:\n    """Weather of a city."""\n    return f"cold in {city}"\n'
    )
    return f"{path}:get_weather"


def model(name: str) -> dict:
    return {"id": name, "object": "model", "created": 1, "owned_by": "library"}


def test_models_offline_lists_what_is_built_in(cli):
    rows = json.loads(cli("models", "--offline", "--json").stdout)

    assert [(row["id"], row["supports"]) for row in rows] == [("planner", {"tools": True})]


def test_models_lists_a_servers_models_with_what_is_known_of_tools(cli):
    with running(models=[model("gpt-oss:20b"), model("nomic-embed-text"), model("odd")]) as fake:
        outcome = cli("models", "--engine", "chat", "--engine-base-url", fake.url, "--json")

    tools = {row["id"]: row["supports"]["tools"] for row in json.loads(outcome.stdout)}
    assert tools == {"gpt-oss:20b": True, "nomic-embed-text": False, "odd": None, "planner": True}


def test_show_says_of_openais_models_what_is_known_without_a_key(cli):
    shown = json.loads(cli("models", "show", "gpt-4o-mini", "--offline", "--json").stdout)

    assert shown["supports"] == {"tools": True}
    assert (shown["shutdown_date"], shown["reachable"]) == ("2027-01-14", False)


def test_show_of_an_unknown_model_is_not_found(cli):
    outcome = cli("models", "show", "plannre", "--offline")

    assert outcome.status == 5
    assert "planner" in outcome.stderr


@pytest.mark.parametrize(
    ("engine", "replies"),
    [
        pytest.param(
            "chat",
            [chat_calls(fragment(0, "call_a", "get_weather", OSLO)), chat_text("Cold in ", "Oslo.")],
            id="chat",
        ),
        pytest.param(
            "responses",
            [
                response_stream(call_item("call_a", "get_weather", OSLO)),
                response_stream(message_item("Cold in Oslo.")),
            ],
            id="responses",
        ),
    ],
)
def test_a_question_goes_through_service_and_engine_and_back(cli, engine, replies, tmp_path):
    with running(*replies, models=[model("m-1")]) as fake:
        flags = ("--engine", engine, "--engine-base-url", fake.url, "--model", "m-1", "--json")
        outcome = cli("ask", *flags, "-t", weather_tool(tmp_path), "Weather in Oslo?")

    document = json.loads(outcome.stdout)
    assert document["answer"] == "Cold in Oslo."
    assert document["rounds"] == 1
    assert "cold in Oslo" in json.dumps(fake.bodies[-1])


@pytest.mark.parametrize(
    ("reply", "status", "words"),
    [
        pytest.param(error_reply(401, "Bad key.", "invalid_api_key"), 4, "Bad key", id="bad-key"),
        pytest.param(error_reply(429, "Used up.", "insufficient_quota"), 9, "billing", id="quota"),
        pytest.param(error_reply(404, "No such model", "model_not_found"), 11, "models lists", id="no-model"),
    ],
)
def test_a_providers_refusal_has_its_exit_status(cli, reply, status, words):
    with running(reply, models=[model("m-1")]) as fake:
        outcome = cli("ask", "--engine", "chat", "--engine-base-url", fake.url, "-m", "m-1", "Hello")

    assert outcome.status == status
    assert words in outcome.stderr


def test_an_unreachable_engine_has_its_exit_status(cli):
    outcome = cli("ask", "--engine", "chat", "--engine-base-url", "http://127.0.0.1:9/v1", "Hello")

    assert outcome.status == 15
    assert "127.0.0.1:9" in outcome.stderr


def test_tools_for_a_model_that_cannot_call_them_are_an_error_before_any_request(cli):
    with running(chat_text("Hi")) as fake:
        flags = ("--engine", "chat", "--engine-base-url", fake.url, "-m", "text-embedding-3-small")
        outcome = cli("ask", *flags, "-t", "get_weather", "Hello")

    assert outcome.status == 3
    assert "cannot call tools" in outcome.stderr
    assert fake.asked == []


def test_what_is_waited_for_is_said_on_stderr(process):
    limited = error_reply(429, "Slow down.", "rate_limit_exceeded", retry_after_ms="20")
    with running(limited, chat_text("Ok")) as fake:
        outcome = process("ask", "--engine", "chat", "--engine-base-url", fake.url, "-m", "m-1", "Hello")

    assert outcome.stdout.strip() == "Ok"
    assert "waiting 0.02 s" in outcome.stderr
    assert "Slow down." in outcome.stderr


def test_tools_convert_turns_a_pipelines_definitions(cli):
    source = FIXTURES / "shapes" / "function-generator.output.json"

    outcome = cli("tools", "convert", str(source), "--to", "openai")

    [tool] = json.loads(outcome.stdout)["tools"]
    assert tool["function"]["parameters"]["properties"]["unit"]["enum"] == ["celcius", "fahrenheit"]
    assert cli("tools", "convert", str(source), "--to", "xml").status == 2


def test_a_model_that_calls_tools_for_ever_is_stopped_by_the_limit(cli, tmp_path):
    turns = [chat_calls(fragment(0, f"call_{n}", "get_weather", f'{{"city": "Town {n}"}}')) for n in range(9)]
    with running(*turns) as fake:
        flags = ("--engine", "chat", "--engine-base-url", fake.url, "-m", "m-1", "--rounds", "3")
        outcome = cli("ask", *flags, "-t", weather_tool(tmp_path), "Weather?")

    assert outcome.status == 8
    assert len(fake.asked) == 4
