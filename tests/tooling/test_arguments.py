"""Arguments as models send them: cases 024 to 033, and that a repair never changes a valid value."""

import json
from typing import Annotated, Literal

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from assistant_runner.tooling.arguments import (
    Rejection,
    fit_arguments,
    nearest_name,
    parse_arguments,
    repair_arguments,
    unknown_tool,
    unpack_parallel,
)
from assistant_runner.tooling.dynamic import dynamic_tool
from assistant_runner.tooling.schema import tool_from_function


def weather(city: Annotated[str, "A city"], days: int = 1) -> str:
    """Say the weather"""
    return f"{city} {days}"


class Stop(BaseModel):
    name: str
    minutes: int


def trip(tags: list[str], note: str, stops: list[Stop], unit: Literal["km", "mi"], fast: bool) -> str:
    """Plan a trip"""
    return note


WEATHER, TRIP = tool_from_function(weather), tool_from_function(trip)


@pytest.mark.parametrize(
    "raw", [None, "", "  \n", "null", "{}"], ids=["null", "empty", "blank", "text-null", "object"]
)
def test_case_024_nothing_is_an_empty_object(raw):
    assert repair_arguments(raw) == {}


def test_case_024_a_ready_object_is_used_as_it_is():
    assert repair_arguments({"city": "Sablewick"}) == {"city": "Sablewick"}


@pytest.mark.parametrize("raw", ['["Sablewick"]', '"Sablewick"', "42", "true"])
def test_case_025_what_is_no_object_is_rejected_with_what_it_is(raw):
    rejected = repair_arguments(raw)

    assert isinstance(rejected, Rejection)
    assert "must be a JSON object" in rejected.reason


def test_case_026_raw_control_characters_in_a_value_are_kept():
    assert repair_arguments('{"question": "one\ntwo\tthree"}') == {"question": "one\ntwo\tthree"}


def test_case_027_cut_off_json_is_rejected_with_position_and_excerpt():
    rejected = repair_arguments('{"city": "Sable')

    assert isinstance(rejected, Rejection)
    assert "not valid JSON" in rejected.reason
    assert "line 1, column 10" in rejected.reason
    assert '{"city": "Sable' in rejected.reason


def test_case_028_a_list_as_text_is_decoded_where_the_schema_wants_a_list_and_text_stays_text():
    fitted = fit_arguments(
        {"tags": '["rain","wind"]', "note": '{"keep":"me"}', "stops": "[]", "unit": "km", "fast": "true"},
        TRIP,
    )

    assert fitted == {
        "tags": ["rain", "wind"],
        "note": '{"keep":"me"}',
        "stops": [],
        "unit": "km",
        "fast": True,
    }


@pytest.mark.parametrize(
    ("raw", "city"),
    [
        pytest.param(r'{"city": "Sablewick \ud83c\udf47"}', "Sablewick 🍇", id="pair"),
        pytest.param(r'{"city": "Sablewick \ud83c"}', "Sablewick \ufffd", id="high-half"),
        pytest.param({"city": "a\udc80b"}, "a\ufffdb", id="ready-object"),
    ],
)
def test_case_029_surrogates_can_be_encoded_afterwards(raw, city):
    repaired = repair_arguments(raw)

    assert repaired == {"city": city}
    json.dumps(repaired, ensure_ascii=False).encode()


def test_case_030_a_missing_argument_is_named_with_the_expected_shape():
    rejected = fit_arguments({"state": "Oreland"}, WEATHER)

    assert rejected == Rejection(
        'weather: missing city; got state. Expected: {"city": string, "days": integer | null}'
    )


@pytest.mark.parametrize(
    ("value", "words"),
    [
        pytest.param(
            {"description": "Sablewick", "type": "string"},
            "city must be string, got object",
            id="schema-echo",
        ),
        pytest.param(12345, "city must be string, got integer 12345", id="number"),
        pytest.param(["a"], "city must be string, got array", id="list"),
    ],
)
def test_case_031_a_wrong_type_names_parameter_wanted_and_got(value, words):
    rejected = fit_arguments({"city": value}, WEATHER)

    assert isinstance(rejected, Rejection)
    assert words in rejected.reason


@pytest.mark.parametrize(("days", "fitted"), [("3", 3), (3.0, 3), (" 7 ", 7)])
def test_case_031_safe_conversions_are_made(days, fitted):
    result = fit_arguments({"city": "Sablewick", "days": days}, WEATHER)

    assert result == {"city": "Sablewick", "days": fitted}
    assert type(result["days"]) is int


@pytest.mark.parametrize("days", ["3.5", "three", "", "1e400", True])
def test_case_031_other_values_are_not_guessed(days):
    assert isinstance(fit_arguments({"city": "Sablewick", "days": days}, WEATHER), Rejection)


def test_case_032_an_unknown_tool_lists_the_valid_names_and_the_nearest():
    names = ["get_weather", "get_wiki_url", "get_webpage"]

    rejected = unknown_tool("get_forecast", names)

    assert "get_weather, get_wiki_url, get_webpage" in rejected.reason
    assert nearest_name("get_wether", names) == "get_weather"


def test_case_033_a_bundle_is_unpacked_in_order():
    uses = [
        {"recipient_name": "functions.get_weather", "parameters": {"city": "Sablewick"}},
        {"recipient_name": "functions.get_wiki_url", "parameters": {"city": "Sablewick"}},
    ]

    unpacked = unpack_parallel("multi_tool_use.parallel", {"tool_uses": uses})

    assert [(use.name, use.arguments) for use in unpacked] == [
        ("get_weather", {"city": "Sablewick"}),
        ("get_wiki_url", {"city": "Sablewick"}),
    ]
    assert unpack_parallel("get_weather", {}) is None
    assert isinstance(unpack_parallel("multi_tool_use.parallel", {}), Rejection)


def test_text_encoded_twice_is_decoded_twice():
    assert repair_arguments(json.dumps('{"city": "Sablewick"}')) == {"city": "Sablewick"}


def test_a_code_fence_around_the_whole_is_taken_off():
    assert repair_arguments('```json\n{"city": "Sablewick"}\n```') == {"city": "Sablewick"}


@pytest.mark.parametrize(
    "raw", ['{"days": NaN}', '{"city": "x"}{"city": "y"}', "[" * 100_000, '{"days": 1' + "0" * 5000 + "}"]
)
def test_what_is_no_json_is_rejected_and_never_raises(raw):
    assert isinstance(repair_arguments(raw), Rejection)


@pytest.mark.parametrize("depth", [70, 900, 100_000])
def test_what_is_nested_too_deeply_is_rejected(depth: int):
    rejected = repair_arguments('{"a":' + "[" * depth + "]" * depth + "}")

    assert isinstance(rejected, Rejection)
    assert "nested too deeply" in rejected.reason


def test_a_number_that_cannot_be_held_is_rejected():
    rejected = repair_arguments('{"a": 1e999}')

    assert isinstance(rejected, Rejection)
    assert "1e999 is too large" in rejected.reason


def test_the_words_of_python_are_understood_where_no_text_is_wanted():
    fitted = fit_arguments({"city": "None", "days": "None"}, WEATHER)

    assert fitted == {"city": "None", "days": None}


def test_an_absent_optional_argument_and_a_null_extra_are_put_right():
    assert fit_arguments({"city": "Sablewick", "units": None}, WEATHER) == {"city": "Sablewick", "days": None}


def test_a_null_for_an_optional_argument_that_takes_none_is_left_out():
    open_tool = dynamic_tool(
        "find",
        "Find",
        str,
        input_schema={
            "type": "object",
            "properties": {
                "q": {"type": "string"},
                "page": {"type": "integer"},
                "near": {
                    "anyOf": [
                        {"type": "object", "properties": {"km": {"type": "integer"}}},
                        {"type": "string"},
                    ]
                },
            },
            "required": ["q"],
        },
    )

    assert fit_arguments({"q": "x", "page": None, "near": {"km": None}}, open_tool) == {"q": "x", "near": {}}


def test_the_expected_shape_names_the_properties_of_objects_and_all_choices():
    book = dynamic_tool(
        "book",
        "Book",
        str,
        input_schema={
            "who": {
                "type": "object",
                "properties": {
                    "name": {"type": "string"},
                    "way": {"anyOf": [{"enum": ["a", "b"]}, {"type": "null"}]},
                },
            },
        },
    )

    rejected = fit_arguments({}, book)

    assert isinstance(rejected, Rejection)
    assert rejected.reason.endswith('Expected: {"who": {"name": string, "way": "a" | "b" | null}}')


def test_an_extra_argument_is_named_with_those_that_there_are():
    rejected = fit_arguments({"city": "Sablewick", "units": "F"}, WEATHER)

    assert rejected == Rejection("weather has no argument units; it takes: city, days")


def test_values_inside_nested_objects_are_fitted_too():
    arguments = {
        "tags": [],
        "note": "",
        "stops": ['{"name": "Norwell", "minutes": "5"}'],
        "unit": "mi",
        "fast": False,
    }

    assert fit_arguments(arguments, TRIP)["stops"] == [{"name": "Norwell", "minutes": 5}]


@pytest.mark.parametrize(("raw", "value"), [("7", 7), ('{"value": 7}', 7), (7, 7), ('{"value": "7"}', 7)])
def test_a_bare_value_is_wrapped_for_a_scalar_tool(raw, value):
    tool = dynamic_tool("square", "Square a number", lambda n: n * n, input_schema={"type": "integer"})

    assert parse_arguments(raw, tool) == {"value": value}


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=8,
)
STOPS = st.lists(st.fixed_dictionaries({"name": TEXT, "minutes": st.integers()}), max_size=2)
LOOKS_LIKE_JSON = st.sampled_from(["[1]", "3", "null", "true", '{"a": 1}'])
unhurried = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@unhurried
@given(st.dictionaries(TEXT, JSON, max_size=5))
def test_a_repair_never_changes_a_valid_object(arguments):
    assert repair_arguments(json.dumps(arguments)) == arguments
    assert repair_arguments(json.dumps(arguments, ensure_ascii=False)) == arguments


@unhurried
@given(st.lists(TEXT | LOOKS_LIKE_JSON, max_size=3), TEXT | LOOKS_LIKE_JSON, STOPS, st.booleans())
def test_fitting_never_changes_arguments_that_fit_already(tags, note, stops, fast):
    arguments = {"tags": tags, "note": note, "stops": stops, "unit": "km", "fast": fast}

    assert fit_arguments(arguments, TRIP) == arguments


@unhurried
@given(JSON | st.text(max_size=40) | st.binary(max_size=20))
def test_whatever_a_model_sends_is_arguments_or_words(raw):
    result = parse_arguments(raw, WEATHER)

    assert isinstance(result, dict | Rejection)
