"""Choosing among many tools by the question."""

import pytest

from assistant_runner.tooling.searching import choose_tools
from assistant_runner.wire.tools import CodeInterpreterTool, FunctionDefinition, FunctionTool


def function(name: str, description: str, **parameters: str) -> FunctionTool:
    properties = {key: {"type": "string", "description": words} for key, words in parameters.items()}
    return FunctionTool(
        function=FunctionDefinition(
            name=name, description=description, parameters={"type": "object", "properties": properties}
        )
    )


MANY = [
    *(function(f"get_value_{number}", f"Get the value of sensor {number}") for number in range(60)),
    function("bookRoom", "Reserve a meeting room", room="The name of the room"),
    CodeInterpreterTool(),
    function("send_mail", "Send an e-mail to somebody", to="Address of the recipient"),
    function("get_weather", "Determine weather in my location", city="The city and state"),
]


def names(question: str, limit: int = 3, **options) -> list[str]:
    chosen = choose_tools(MANY, question, limit=limit, **options)
    return [tool.function.name for tool in chosen if isinstance(tool, FunctionTool)]


@pytest.mark.parametrize(
    ("question", "name"),
    [
        ("What is the weather in Oslo?", "get_weather"),
        ("Book the blue room for me", "bookRoom"),
        ("reserving a meeting", "bookRoom"),
        ("Please mail this to the recipient", "send_mail"),
        ("what does sensor 42 say", "get_value_42"),
    ],
)
def test_row_s4_13_the_tool_that_fits_is_among_the_few(question: str, name: str):
    assert name in names(question)


def test_hosted_tools_are_kept_and_the_order_stays():
    chosen = choose_tools(MANY, "weather, and mail it", limit=2)

    assert [tool.type for tool in chosen] == ["code_interpreter", "function", "function"]
    assert names("weather, and mail it", limit=2) == ["send_mail", "get_weather"]


def test_a_few_tools_are_left_alone():
    assert choose_tools(MANY[:3], "anything", limit=3) == MANY[:3]


def test_a_tool_that_was_named_stays():
    assert "send_mail" in names("sensor value", keep=["send_mail"])
