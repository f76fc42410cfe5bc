import json
import math

import pytest

from assistant_runner.wire import jsons
from assistant_runner.wire.jsons import request_bytes


@pytest.fixture(params=["orjson", "stdlib"], autouse=True)
def encoder(request, monkeypatch):
    if request.param == "stdlib":
        monkeypatch.setattr(jsons, "orjson", None)


@pytest.mark.parametrize(
    "document",
    [
        {"text": "Łódź 🌧\u2028"},
        {"number": 2**80},
        {"nothing": None, "word": "null"},
        {"depth": [{"a": 1.5}]},
    ],
    ids=["text", "large", "null", "depth"],
)
def test_a_request_holds_the_document_exactly_in_utf_8(document):
    data = request_bytes(document)

    assert json.loads(data.decode()) == document
    assert b"\\u" not in data


def test_a_number_that_is_none_is_not_sent_as_nothing():
    assert math.isnan(json.loads(request_bytes({"number": math.nan}))["number"])


def test_half_a_character_is_an_error_not_another_text():
    with pytest.raises(UnicodeEncodeError):
        request_bytes({"text": "\ud83d"})
