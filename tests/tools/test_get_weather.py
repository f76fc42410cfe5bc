"""The weather tool with both providers: cases 107 to 112."""

import logging
from typing import Any

import httpx
import pytest

from tests.tools.support import Stub, use

KEY = {"WEATHERAPI_KEY": "wk-test-123"}
CURRENT = {"temp_c": 8.0, "condition": {"text": "Rain", "code": 1183}, "humidity": 90}


def weatherapi(name: str, region: str, country: str, **current: Any) -> dict[str, Any]:
    location = {"name": name, "region": region, "country": country, "lat": 1.0, "lon": 2.0}
    return {"location": location, "current": {**CURRENT, **current}}


def town(name: str, region: str, country: str, people: int | None = None, **extra: Any) -> dict[str, Any]:
    entry = {"name": name, "admin1": region, "country": country, "latitude": 1.5, "longitude": 2.5, **extra}
    return entry if people is None else {**entry, "population": people}


def open_meteo(places: dict[str, list[dict[str, Any]]], forecast: Any = None) -> Stub:
    """Places by the exact name asked; the forecast of whatever is chosen."""
    measured = {
        "time": "2031-04-05T06:07",
        "temperature_2m": 10.0,
        "relative_humidity_2m": 70,
        "is_day": 0,
        "weather_code": 61,
        "wind_speed_10m": 16.1,
        "wind_direction_10m": 330,
        "visibility": 8000.0,
        "precipitation": 25.4,
    }

    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.host.startswith("geocoding"):
            found = places.get(request.url.params["name"])
            return httpx.Response(200, json={"results": found} if found else {"generationtime_ms": 0.1})
        return httpx.Response(200, json=forecast or {"current": measured, "timezone": "Europe/Oslo"})

    return Stub(answer)


class TestWithoutKey:
    async def test_measurements_come_under_weatherapis_names(self):
        outcome = await use(
            "get_weather", open_meteo({"Oslo": [town("Oslo", "Oslo", "Norway")]}), city="Oslo"
        )

        assert outcome.content == {
            "place": "Oslo, Oslo, Norway",
            "last_updated": "2031-04-05 06:07",
            "temp_c": 10.0,
            "temp_f": 50.0,
            "is_day": 0,
            "condition": {"text": "Light rain", "code": 1183},
            "wind_kph": 16.1,
            "wind_mph": 10.0,
            "wind_degree": 330,
            "wind_dir": "NNW",
            "precip_mm": 25.4,
            "precip_in": 1.0,
            "humidity": 70,
            "vis_km": 8.0,
            "vis_miles": 5.0,
        }

    @pytest.mark.parametrize("city", ["White Fells, Oreland", "White Fells OL", "White Fells, OL"])
    async def test_case_107_the_name_is_searched_and_the_hints_choose(self, city: str):
        places = [town("White Fells", region, "Norland") for region in ("Vessia", "Oreland", "Sund")]
        stub = open_meteo({"White Fells": places})

        outcome = await use("get_weather", stub, city=city)

        assert outcome.content["place"] == "White Fells, Oreland, Norland"
        assert "White Fells" in stub.asked("name")

    async def test_case_107_candidates_are_listed_where_it_is_not_clear(self):
        places = [town("White Fells", region, "Norland", 900) for region in ("Vessia", "Oreland", "Sund")]

        outcome = await use("get_weather", open_meteo({"White Fells": places}), city="White Fells")

        assert outcome.is_error
        assert "White Fells, Vessia, Norland; White Fells, Oreland, Norland" in outcome.content
        assert "ask again with the region or country" in outcome.content

    async def test_case_107_no_place_in_the_region_asked_is_no_place(self):
        stub = open_meteo({"White Fells": [town("White Fells", "Vessia", "Norland")]})

        outcome = await use("get_weather", stub, city="White Fells, Sund")

        assert outcome.is_error
        assert "no White Fells, Sund was found; there is White Fells, Vessia, Norland" in outcome.content

    async def test_case_108_a_states_code_is_not_a_countrys(self):
        places = [
            town("Springmere", "Somewhere", "Canada", 90_000, country_code="CA"),
            town("Springmere", "California", "United States", 800, country_code="US"),
        ]

        outcome = await use("get_weather", open_meteo({"Springmere": places}), city="Springmere, CA")

        assert outcome.content["place"] == "Springmere, California, United States"

    async def test_case_112_the_large_namesake_wins_and_is_shown(self):
        places = [town("北嶺", "A", "X"), town("北嶺", "B", "X"), town("北嶺", "C", "Y", 4_000_000)]

        outcome = await use("get_weather", open_meteo({"北嶺": places}), city="北嶺")

        assert outcome.content["place"] == "北嶺, C, Y"

    async def test_an_unknown_place_is_said_to_be_one(self):
        outcome = await use("get_weather", open_meteo({}), city="Sablewick")

        assert outcome.is_error
        assert "no place called 'Sablewick' was found" in outcome.content

    async def test_case_111_an_answer_without_temperature_names_the_field(self):
        stub = open_meteo({"Oslo": [town("Oslo", "Oslo", "Norway")]}, forecast={"current": {"time": "x"}})

        outcome = await use("get_weather", stub, city="Oslo")

        assert outcome.is_error
        assert "no field current.temperature_2m" in outcome.content

    async def test_row_s1_20_where_no_provider_can_be_reached_the_variable_is_named(self):
        def refuse(request: httpx.Request) -> httpx.Response:
            raise httpx.ConnectError("refused", request=request)

        outcome = await use("get_weather", refuse, city="Oslo")

        assert outcome.is_error
        assert "WEATHERAPI_KEY" in outcome.content


class TestWithKey:
    async def test_the_long_region_is_sent_and_the_place_shown(self):
        stub = Stub(
            lambda request: httpx.Response(200, json=weatherapi("Reno", "Nevada", "USA United States"))
        )

        outcome = await use("get_weather", stub, environ=KEY, city="Reno, NV")

        assert stub.asked("q") == ["Reno, Nevada"]
        assert outcome.content["place"].startswith("Reno, Nevada")
        assert outcome.content["temp_c"] == 8.0

    async def test_case_108_another_region_is_looked_up_among_namesakes(self):
        def answer(request: httpx.Request) -> httpx.Response:
            query = request.url.params["q"]
            if request.url.path.endswith("search.json"):
                wanted = {
                    "name": "Springmere",
                    "region": "California",
                    "country": "USA",
                    "lat": 36.1,
                    "lon": -119.2,
                }
                return httpx.Response(
                    200, json=[{**wanted, "region": "Ontario", "country": "Canada"}, wanted]
                )
            region = "California" if query == "36.1,-119.2" else "Ontario"
            return httpx.Response(200, json=weatherapi("Springmere", region, "X", temp_c=30.0))

        outcome = await use("get_weather", answer, environ=KEY, city="Springmere, CA")

        assert outcome.content["place"] == "Springmere, California, USA"

    async def test_case_108_a_mismatch_is_said_rather_than_given(self):
        def answer(request: httpx.Request) -> httpx.Response:
            if request.url.path.endswith("search.json"):
                return httpx.Response(200, json=[])
            return httpx.Response(200, json=weatherapi("Springmere", "Ontario", "Canada"))

        outcome = await use("get_weather", answer, environ=KEY, city="Springmere, CA")

        assert outcome.is_error
        assert "no Springmere, California was found; there is Springmere, Ontario, Canada" in outcome.content

    async def failing(self, status: int, code: int) -> tuple[str, int]:
        body = {"error": {"code": code, "message": "words of the provider wk-test-123"}}
        stub = Stub(lambda request: httpx.Response(status, json=body))
        outcome = await use("get_weather", stub, environ=KEY, city="Sablewick")
        assert outcome.is_error
        assert "wk-test-123" not in outcome.content
        return outcome.content, len(stub.requests)

    async def test_case_109_an_unknown_town_is_asked_for_once(self):
        words, requests = await self.failing(400, 1006)

        assert "knows no place 'Sablewick'" in words
        assert requests == 1

    @pytest.mark.parametrize("code", [1003, 1005])
    async def test_case_109_our_own_fault_is_logged_as_a_bug(
        self, code: int, caplog: pytest.LogCaptureFixture
    ):
        with caplog.at_level(logging.ERROR):
            words, requests = await self.failing(400, code)

        assert "bug" in words
        assert str(code) in caplog.text
        assert requests == 1

    async def test_case_109_an_inner_error_is_tried_once_more(self, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setattr("assistant_runner.tooling.gate.RETRY_PAUSE_S", 0.001)

        words, requests = await self.failing(400, 9999)

        assert "code 9999" in words
        assert requests == 2

    @pytest.mark.parametrize(
        ("status", "code", "words"),
        [
            pytest.param(401, 1002, "set WEATHERAPI_KEY", id="missing"),
            pytest.param(401, 2006, "does not accept the key", id="wrong"),
            pytest.param(403, 2007, "quota", id="used-up"),
            pytest.param(403, 2008, "disabled", id="disabled"),
            pytest.param(403, 2009, "plan", id="no-rights"),
        ],
    )
    async def test_case_110_each_fault_of_the_key_has_its_own_words(self, status: int, code: int, words: str):
        said, requests = await self.failing(status, code)

        assert words in said
        assert requests == 1

    @pytest.mark.parametrize(
        ("body", "words"),
        [
            pytest.param({}, "no field location", id="empty"),
            pytest.param({"error": {"code": 7, "message": "odd"}}, "code 7", id="error-at-200"),
            pytest.param(
                {"location": {"name": "x"}, "current": {"humidity": 1}},
                "no field current.temp_c",
                id="no-temperature",
            ),
            pytest.param([1], "no field location", id="a-list"),
        ],
    )
    async def test_case_111_what_is_missing_is_named(
        self, body: Any, words: str, monkeypatch: pytest.MonkeyPatch
    ):
        monkeypatch.setattr("assistant_runner.tooling.gate.RETRY_PAUSE_S", 0.001)

        outcome = await use(
            "get_weather", lambda request: httpx.Response(200, json=body), environ=KEY, city="X"
        )

        assert outcome.is_error
        assert words in outcome.content

    async def test_case_031_a_dict_never_becomes_part_of_an_address(self):
        stub = Stub(lambda request: pytest.fail("asked"))

        outcome = await use("get_weather", stub, environ=KEY, city={"type": "string", "description": "x"})

        assert outcome.rejected
        assert stub.requests == []
