import json
from pathlib import Path

import pytest

from assistant_runner.errors import ProtocolError, UnsupportedActionError
from assistant_runner.run.router import BundledCall, RejectedCall, RoutedCall, route
from assistant_runner.tooling.schema import tool_from_function
from assistant_runner.wire.runs import Run
from tests.conftest import FIXTURES
from tests.fakes import call, run_object


def shape(name: str) -> object:
    return json.loads((FIXTURES / "shapes" / Path(name)).read_text(encoding="utf-8"))[0]


def get_weather(city: str) -> str:
    """Weather of a city."""
    return city


TOOLS = {"get_weather": tool_from_function(get_weather)}


def test_view_1_of_the_reference_run_is_the_reference_document():
    run = Run.model_validate(shape("create-and-run.output.json")["run"])

    assert route(run, TOOLS).view_1 == shape("tool-call-router.view-1.json")


def test_view_2_of_the_reference_run_holds_both_forms_of_the_arguments():
    run = Run.model_validate(shape("create-and-run.output.json")["run"])
    expected = json.loads((FIXTURES / "shapes" / "tool-call-router.view-2.json").read_text())

    assert route(run, TOOLS).view_2 == expected


def test_every_call_leaves_once_in_the_order_asked():
    calls = [call("get_weather", '{"city": "a"}', id="c1"), call("get_tides", id="c2")]
    calls.append(call("get_weather", '{"city": "a"}', id="c3"))

    entries = route(run_object("requires_action", calls), TOOLS).entries

    assert [entry.tool_call_id for entry in entries] == ["c1", "c2", "c3"]
    assert [type(entry) for entry in entries] == [RoutedCall, RejectedCall, RoutedCall]


@pytest.mark.parametrize(
    ("name", "arguments", "reason"),
    [
        pytest.param("get_wether", "{}", "did you mean get_weather", id="case-032-unknown-tool"),
        pytest.param("get_weather", '{"city": "Sable', "not valid JSON", id="case-027-cut-off"),
        pytest.param("get_weather", "42", "object", id="case-025-not-an-object"),
    ],
)
def test_rejects_with_words_the_model_can_act_on(name, arguments, reason):
    [rejected] = route(run_object("requires_action", [call(name, arguments)]), TOOLS).entries

    assert isinstance(rejected, RejectedCall)
    assert reason in rejected.reason


@pytest.mark.parametrize(
    ("arguments", "parsed"),
    [
        pytest.param(None, {}, id="null"),
        pytest.param("", {}, id="empty-text"),
        pytest.param({"city": "Sablewick"}, {"city": "Sablewick"}, id="ready-object"),
    ],
)
def test_case_024_arguments_that_are_no_text_are_understood(arguments, parsed):
    [routed] = route(run_object("requires_action", [call("get_weather", arguments)]), TOOLS).entries

    assert isinstance(routed, RoutedCall)
    assert routed.arguments == parsed


def test_case_033_a_made_up_wrapper_is_unpacked_under_its_one_id():
    uses = [
        {"recipient_name": "functions.get_weather", "parameters": {"city": "Sablewick"}},
        {"recipient_name": "functions.get_tides", "parameters": {}},
    ]
    wrapper = call("multi_tool_use.parallel", json.dumps({"tool_uses": uses}), id="c1")

    [bundle] = route(run_object("requires_action", [wrapper]), TOOLS).entries

    assert isinstance(bundle, BundledCall)
    assert bundle.tool_call_id == "c1"
    assert [type(part) for part in bundle.parts] == [RoutedCall, RejectedCall]


def test_case_009_required_action_that_is_null_is_named():
    with pytest.raises(ProtocolError, match="run_1 has status requires_action but no required_action"):
        route(run_object("requires_action"), TOOLS)


def test_an_action_of_an_unknown_type_is_named():
    run = run_object("requires_action").model_copy(update={"required_action": None})
    strange = Run.model_validate({**run.document(), "required_action": {"type": "submit_tool_approval"}})

    with pytest.raises(UnsupportedActionError, match="submit_tool_approval"):
        route(strange, TOOLS)
