"""Results as tools really return them: cases 038 to 042."""

import dataclasses
import datetime
import decimal
import enum
import itertools
import json
import math
import os
from pathlib import Path

import httpx
import pytest
from pydantic import BaseModel

from assistant_runner.tooling.encoding import body_size, cut_text, encode, to_plain


@dataclasses.dataclass
class Point:
    x: int
    tags: set[str]


class Town(BaseModel):
    name: str
    point: Point
    founded: datetime.date


class Colour(enum.Enum):
    RED = "red"


class Odd:
    def __str__(self) -> str:
        return "an odd one"


def test_case_038_what_json_has_no_number_for_becomes_null():
    text, notes = encode({"temp_c": math.nan, "gust": math.inf, "ok": 1})

    assert json.loads(text, parse_constant=pytest.fail) == {"temp_c": None, "gust": None, "ok": 1}
    assert notes == ("temp_c was nan; sent as null", "gust was inf; sent as null")


def test_case_039_dates_decimals_sets_and_paths_become_text_and_lists():
    value = {
        "at": datetime.datetime(2031, 4, 5, 6, 7, tzinfo=datetime.UTC),
        "price": decimal.Decimal("1.10"),
        "words": {"wind", "rain"},
        "path": Path("/tmp/x"),
    }

    plain, notes = to_plain(value)

    assert plain == {
        "at": "2031-04-05T06:07:00+00:00",
        "price": "1.10",
        "words": ["rain", "wind"],
        "path": "/tmp/x",
    }
    assert notes == ()


def test_case_039_an_unknown_object_becomes_its_text_with_a_note():
    assert to_plain({"who": Odd()}) == ({"who": "an odd one"}, ("who is a Odd; sent as its text",))


@pytest.mark.parametrize(
    ("data", "text"),
    [
        pytest.param(b"plain ascii", "plain ascii", id="ascii"),
        pytest.param("Łódź".encode(), "Łódź", id="utf-8"),
        pytest.param(b"\x89PNG\r\n\x1a\n" + bytes(10), "[binary data: image/png, 18 bytes]", id="picture"),
        pytest.param(
            b"\xff\x00" * 1_000_000, "[binary data: application/octet-stream, 2,000,000 bytes]", id="noise"
        ),
        pytest.param(b"Gr\xf6\xdfe", "[binary data: application/octet-stream, 5 bytes]", id="latin-1"),
    ],
)
def test_case_040_bytes_are_decoded_or_described(data, text):
    assert to_plain(data)[0] == text


def test_case_041_an_output_far_above_the_limit_is_cut_with_a_mark():
    text, notes = encode("a" * 12_000_000, 500_000)

    assert body_size(text) <= 500_000
    assert text.endswith("of 12,000,000 characters left out]")
    assert notes[0].startswith("output cut:")


@pytest.mark.parametrize("letter", ['"', "\\", "\n", "é", "🌧", "\x01"])
def test_case_042_the_limit_counts_the_encoded_body(letter):
    text, _ = encode(letter * 400_000, 300_000)

    assert len(json.dumps({"output": text}, ensure_ascii=False).encode()) <= 300_020


def test_a_text_within_the_limit_is_left_as_it_is():
    assert cut_text("abc" * 10, 30) == ("abc" * 10, 0)


def test_models_dataclasses_and_enums_become_objects():
    town = Town(name="Łódź", point=Point(1, {"b", "a"}), founded=datetime.date(1423, 7, 29))

    assert to_plain([town, Colour.RED])[0] == [
        {"name": "Łódź", "point": {"x": 1, "tags": ["a", "b"]}, "founded": "1423-07-29"},
        "red",
    ]


def test_a_cycle_is_cut_where_it_closes():
    value: dict[str, object] = {"a": 1}
    value["self"] = value

    plain, notes = to_plain(value)

    assert plain == {"a": 1, "self": "[the same value again]"}
    assert len(notes) == 1


def test_the_same_value_twice_is_no_cycle():
    shared = [1]

    assert to_plain([shared, shared]) == ([[1], [1]], ())


def test_generators_are_read_and_endless_ones_cut():
    assert to_plain(x * x for x in range(3))[0] == [0, 1, 4]

    plain, notes = to_plain(itertools.count())

    assert len(plain) == 100_000
    assert notes == ("the generator was cut after 100000 items",)


def test_a_lone_surrogate_is_replaced():
    text, _ = encode({"name\udc80": "a\ud83cb"})

    assert json.loads(text.encode()) == {"name\ufffd": "a\ufffdb"}


def test_deep_nesting_is_cut_instead_of_failing():
    value: list[object] = []
    for _ in range(5000):
        value = [value]

    text, notes = encode(value)

    assert "nested too deeply" in text
    assert notes


def test_keys_that_are_no_text_become_text():
    assert to_plain({1: "a", None: "b", (1, 2): "d"})[0] == {
        "1": "a",
        "null": "b",
        "[1, 2]": "d",
    }


@pytest.mark.parametrize(
    ("value", "text"),
    [
        pytest.param(None, "null", id="none"),
        pytest.param("foo", "foo", id="text"),
        pytest.param({"a": [1, 2.5]}, '{"a":[1,2.5]}', id="compact"),
        pytest.param(httpx.Response(200, json={"x": 1}), '{"x":1}', id="response"),
        pytest.param(datetime.timedelta(seconds=90), "90.0", id="duration"),
        pytest.param(os.environ.__class__, None, id="a-class"),
    ],
)
def test_row_s0_15_a_text_as_it_is_and_the_rest_as_compact_json(value, text):
    encoded, _ = encode(value)

    assert text is None or encoded == text


def test_fifty_megabytes_are_encoded_and_cut():
    text, _ = encode({"rows": ["x" * 1000] * 50_000}, 400_000)

    assert body_size(text) <= 400_000
