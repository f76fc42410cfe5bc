"""Offline: recorded replies, no socket."""

import json

import pytest

from assistant_runner.tooling.contract import ToolContext
from assistant_runner.tooling.gate import ToolGate
from assistant_runner.tooling.recorded import recorded_client
from assistant_runner.tooling.registry import default_tools
from tests.conftest import FIXTURES


async def ask(name: str, **arguments: str):
    async with recorded_client() as http:
        context = ToolContext("call_1", http, {}, 10.0, recorded=True)
        return await ToolGate().call(default_tools()[name], arguments, context)


@pytest.mark.parametrize(
    "city", ["San Francisco", "San Francisco, CA", "san francisco", " San  Francisco ,CA"]
)
async def test_the_weather_of_san_francisco_has_the_references_29_keys_and_the_place(city: str):
    reference = json.loads((FIXTURES / "shapes" / "get_weather.raw-output.json").read_text())[0]["entity"]

    outcome = await ask("get_weather", city=city)

    place = "San Francisco, California, United States of America"
    assert outcome.content == {"place": place, **reference["current"]}
    assert outcome.raw.entity == reference


async def test_the_wiki_address_is_the_references_array():
    reference = json.loads((FIXTURES / "shapes" / "get_wiki_url.raw-output.json").read_text())[0]["entity"]

    outcome = await ask("get_wiki_url", city="San Francisco, CA")

    assert outcome.content == reference


@pytest.mark.parametrize(
    "city", ["Kraków", "Krakow", "München", "Munich, Germany", "東京", "Tokyo", "London, UK"]
)
async def test_other_cities_are_recorded_from_weather_to_page(city: str):
    weather = await ask("get_weather", city=city)
    wiki = await ask("get_wiki_url", city=city)
    page = await ask("get_webpage", url=wiki.content[3][0])

    assert not weather.is_error
    assert len(page.content["summary"]) > 200
    assert page.content["title"].endswith("Wikipedia")


@pytest.mark.parametrize("name", ["get_weather", "get_wiki_url"])
async def test_what_is_not_recorded_names_the_recorded_cities(name: str):
    outcome = await ask(name, city="Sablewick")

    assert outcome.is_error
    assert "San Francisco, New York, London, Kraków" in outcome.content


async def test_a_page_that_is_not_recorded_is_a_tool_error():
    outcome = await ask("get_webpage", url="https://example.com/")

    assert outcome.is_error
    assert "offline" in outcome.content


def test_the_recordings_say_that_they_are_recordings():
    for path in (FIXTURES / "recorded").glob("*.json"):
        assert "recording" in json.loads(path.read_text())["_recorded"].lower(), path.name
