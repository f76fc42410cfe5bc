import json

import pytest

from assistant_runner.errors import ProtocolError
from assistant_runner.run.appender import append_results
from assistant_runner.run.results import function_result, render_output
from tests.conftest import FIXTURES


def shape(name: str) -> dict:
    return json.loads((FIXTURES / "shapes" / name).read_text(encoding="utf-8"))[0]


def test_the_reference_round_gives_the_reference_document():
    view_1 = shape("tool-call-router.view-1.json")
    wiki = shape("get_wiki_url.raw-output.json")["entity"]
    weather = shape("get_weather.raw-output.json")["entity"]["current"]
    results = [  # in completion order, as the reference has it
        function_result("call_d14hJfMMOvcyxsvWpXbgi9uF", wiki, is_error=None),
        function_result("call_uOIx8piJAUty3WpFpVCcxFMc", weather, is_error=None),
    ]

    assert append_results(view_1, results) == shape("message-appender.output.json")


def test_the_reference_chat_round_gives_the_reference_document():
    expected = shape("message-appender.chat-output.json")
    document = {**expected, "messages": expected["messages"][:-1]}

    assert append_results(document, [expected["messages"][-1]]) == expected


def test_the_reference_function_result_is_unwrapped_from_its_list():
    expected = shape("function-result.output.json")

    assert function_result(expected["function_id"], [expected["content"]]) == expected


def test_every_other_field_passes_through():
    document = {**shape("tool-call-router.view-1.json"), "usage": {"totalTokens": 3}, "original": {"a": 1}}
    results = [
        function_result(call_id, "x")
        for call_id in ("call_uOIx8piJAUty3WpFpVCcxFMc", "call_d14hJfMMOvcyxsvWpXbgi9uF")
    ]

    appended = append_results(document, results)

    assert {key: appended[key] for key in ("run", "usage", "original")} == {
        key: document[key] for key in ("run", "usage", "original")
    }


@pytest.mark.parametrize(
    "ids",
    [
        pytest.param(["call_uOIx8piJAUty3WpFpVCcxFMc"], id="one-missing"),
        pytest.param(
            ["call_uOIx8piJAUty3WpFpVCcxFMc", "call_d14hJfMMOvcyxsvWpXbgi9uF", "call_x"], id="one-foreign"
        ),
        pytest.param(
            [
                "call_uOIx8piJAUty3WpFpVCcxFMc",
                "call_d14hJfMMOvcyxsvWpXbgi9uF",
                "call_d14hJfMMOvcyxsvWpXbgi9uF",
            ],
            id="one-double",
        ),
    ],
)
def test_results_that_do_not_match_the_calls_are_refused_before_the_submission(ids):
    with pytest.raises(ProtocolError, match="do not match the calls"):
        append_results(shape("tool-call-router.view-1.json"), [function_result(i, "x") for i in ids])


@pytest.mark.parametrize(
    ("content", "is_error", "output"),
    [
        pytest.param("plain words", False, "plain words", id="text-as-it-is"),
        pytest.param({"a": [1, None]}, False, '{"a":[1,null]}', id="compact-json"),
        pytest.param("no such city", True, '{"error":"no such city"}', id="error-as-object"),
        pytest.param("", False, "", id="empty-text"),
    ],
)
def test_an_output_is_a_string(content, is_error, output):
    assert render_output(content, is_error=is_error, cap=1000)[1] == output
