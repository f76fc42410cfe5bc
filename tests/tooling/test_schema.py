"""Functions and classes as tools: what the model is offered and what the function gets."""

import datetime
import json
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field

from assistant_runner.errors import ConfigurationError
from assistant_runner.tooling.contract import ToolContext
from assistant_runner.tooling.dynamic import dynamic_tool
from assistant_runner.tooling.gate import ToolGate
from assistant_runner.tooling.schema import read_docstring, tool, tool_from, tool_from_function
from assistant_runner.tooling.strict import is_strict
from tests.conftest import FIXTURES
from tests.tooling.support import call, make_context


class Unit(Enum):
    C = "celsius"
    F = "fahrenheit"


class Stop(BaseModel):
    name: str = Field(description="Where")
    minutes: int = 5


def properties(function: Any) -> dict[str, Any]:
    return dict(tool_from_function(function).parameters["properties"])


def test_every_property_is_required_and_no_other_allowed():
    def book(room: str, hours: int = 1, note: str | None = None) -> str:
        """Book a room"""
        return room

    made = tool_from_function(book)

    assert made.strict is True
    assert made.parameters == {
        "type": "object",
        "properties": {
            "room": {"type": "string"},
            "hours": {"type": ["integer", "null"], "description": "(default: 1)"},
            "note": {"type": ["string", "null"]},
        },
        "required": ["room", "hours", "note"],
        "additionalProperties": False,
    }


def test_null_for_a_parameter_with_a_default_means_the_default():
    def book(hours: int = 3) -> int:
        """Book a room"""
        return hours

    assert tool_from_function(book).handler(hours=None) == 3


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(
            "Book.\n\nArgs:\n    room: The room,\n        by name\n    hours (int): How long", id="google"
        ),
        pytest.param("Book.\n\n:param room: The room,\n    by name\n:param int hours: How long", id="sphinx"),
        pytest.param(
            "Book.\n\nParameters\n----------\nroom : str\n    The room,\n    by name\nhours : int, optional\n"
            "    How long\n\nReturns\n-------\nstr\n    Words",
            id="numpy",
        ),
    ],
)
def test_descriptions_come_from_the_docstring(text: str):
    assert read_docstring(text) == ("Book.", {"room": "The room, by name", "hours": "How long"})


def test_descriptions_come_from_annotations():
    def book(
        room: Annotated[str, "The room"],
        hours: Annotated[int, Field(description="How long", ge=1)],
    ) -> str:
        """Book a room"""
        return room

    assert properties(book) == {
        "room": {"type": "string", "description": "The room"},
        "hours": {"type": "integer", "description": "How long", "minimum": 1},
    }


def test_nested_models_are_inlined_and_closed():
    def plan(stops: list[Stop]) -> str:
        """Plan a trip"""
        return str(stops[0].minutes)

    items = properties(plan)["stops"]["items"]

    assert items["required"] == ["name", "minutes"]
    assert items["additionalProperties"] is False
    assert "$defs" not in tool_from_function(plan).parameters


async def test_the_function_gets_values_of_its_own_types():
    def plan(day: datetime.date, unit: Unit, stops: list[Stop], way: Literal["a", "b"]) -> str:
        """Plan a trip"""
        return f"{day.year} {unit.name} {stops[0].minutes} {way}"

    arguments = {"day": "2031-04-05", "unit": "celsius", "stops": [{"name": "x", "minutes": 7}], "way": "b"}

    assert (await call(plan, arguments)).content == "2031 C 7 b"


class Trip(BaseModel):
    first: Stop
    others: list[Stop] = []
    unit: Unit = Unit.C


@dataclass
class Box:
    width: int
    height: int = 2


@pytest.mark.parametrize(
    "trip",
    [
        pytest.param({"first": {"name": "x", "minutes": None}, "others": None, "unit": None}, id="null"),
        pytest.param({"first": {"name": "x"}}, id="absent"),
    ],
)
async def test_null_means_the_default_inside_of_models_too(trip: dict[str, Any]):
    def plan(trip: Trip, again: Trip | None = None) -> str:
        """Plan a trip"""
        return f"{trip.first.minutes} {trip.others} {trip.unit.name} {again}"

    assert (await call(plan, {"trip": trip, "again": None})).content == "5 [] C None"


async def test_null_means_the_default_in_the_choice_that_was_meant():
    def measure(what: Stop | Box | None, boxes: list[Box]) -> str:
        """Measure something"""
        return f"{what} {boxes}"

    outcome = await call(measure, {"what": {"width": 1, "height": None}, "boxes": [{"width": 3}]})

    assert outcome.content == "Box(width=1, height=2) [Box(width=3, height=2)]"


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int = 9


class Dog(BaseModel):
    kind: Literal["dog"] = "dog"
    lives: int = 1


@pytest.mark.parametrize(
    ("pet", "lives"),
    [
        ({"kind": "cat", "lives": None}, 9),
        ({"kind": "dog", "lives": None}, 1),
        ({"kind": None, "lives": 2}, 2),
    ],
)
async def test_a_choice_is_known_by_the_value_that_it_fixes(pet: dict[str, Any], lives: int):
    def feed(pets: list[Cat | Dog]) -> int:
        """Feed pets"""
        return pets[0].lives

    assert (await call(feed, {"pets": [pet]})).content == lives


async def test_a_field_may_stand_in_the_place_of_a_default():
    def find(
        words: str = Field(description="What"),
        limit: int = Field(10, ge=1),
        kinds: list[str] = Field(default_factory=list),
    ) -> str:
        """Find things"""
        return f"{words} {limit} {kinds}"

    assert properties(find)["words"] == {"type": "string", "description": "What"}
    assert properties(find)["limit"]["description"] == "(default: 10)"
    assert (await call(find, {"words": "x", "limit": None})).content == "x 10 []"


def test_a_default_is_named_as_the_model_would_write_it():
    def plan(unit: Unit = Unit.C, day: datetime.date = datetime.date(2031, 4, 5), box: Box = Box(1)) -> str:
        """Plan a trip"""
        return ""

    words = [entry["description"] for entry in properties(plan).values()]

    assert words == [
        '(default: "celsius")',
        '(default: "2031-04-05")',
        '(default: {"width": 1, "height": 2})',
    ]


async def test_what_strict_mode_refuses_is_left_to_the_types():
    def take(
        code: Annotated[str, Field(min_length=2, pattern="^(?!x)")],
        at: Path,
        both: tuple[int, str],
        kinds: set[str],
    ) -> str:
        """Take things"""
        return f"{code} {at} {both} {sorted(kinds)}"

    fits = {"code": "ab", "at": "/a", "both": [1, "b"], "kinds": ["k", "k"]}

    assert tool_from_function(take).strict is True
    assert properties(take) == {
        "code": {"type": "string"},
        "at": {"type": "string"},
        "both": {
            "type": "array",
            "items": {"anyOf": [{"type": "integer"}, {"type": "string"}]},
            "minItems": 2,
            "maxItems": 2,
        },
        "kinds": {"type": "array", "items": {"type": "string"}},
    }
    assert (await call(take, fits)).content == "ab /a (1, 'b') ['k']"
    assert "at least 2 characters" in (await call(take, {**fits, "code": "a"})).content


async def test_a_parameter_of_ones_own_may_be_called_context():
    def answer(question: str, context: str) -> str:
        """Answer from a context"""
        return f"{question} {context}"

    def both(context: str, world: ToolContext) -> str:
        """Answer from a context"""
        return f"{context} {world.tool_call_id}"

    assert (await call(answer, {"question": "q", "context": "c"})).content == "q c"
    assert (await call(both, {"context": "c"})).content == "c call_1"


async def test_a_value_that_the_type_refuses_is_an_error_in_words():
    def plan(day: datetime.date) -> str:
        """Plan a trip"""
        return str(day)

    outcome = await call(plan, {"day": "soon"})

    assert outcome.is_error
    assert outcome.content.startswith("plan: day: Input should be a valid date")


def test_names_that_models_of_pydantic_have_are_names_of_parameters_too():
    def odd(schema: str, json: int, model_config: str, copy: bool) -> str:
        """Take odd names"""
        return schema

    assert list(properties(odd)) == ["schema", "json", "model_config", "copy"]
    assert tool_from_function(odd).handler(schema="x", json=1, model_config="y", copy=True) == "x"


def test_a_free_map_is_not_strict():
    def take(values: dict[str, int]) -> str:
        """Take values"""
        return ""

    assert tool_from_function(take).strict is None


async def test_a_recursive_model_keeps_a_reference_and_can_be_given():
    class Node(BaseModel):
        name: str
        inner: list["Node"] = []

    Node.model_rebuild(_types_namespace={"Node": Node})

    def walk(node: Node) -> str:
        """Walk"""
        return node.name

    parameters = tool_from_function(walk).parameters

    assert "$ref" in json.dumps(parameters)
    assert "Node" in parameters["$defs"]
    assert (await call(walk, {"node": {"name": "a", "inner": [{"name": "b"}]}})).content == "a"


def test_the_context_is_handed_in_and_not_offered():
    def where(city: str, context: ToolContext) -> str:
        """Say where"""
        return f"{city} {context.tool_call_id}"

    made = tool_from_function(where)

    assert made.takes_context
    assert list(made.parameters["properties"]) == ["city"]
    assert made.handler(make_context(), city="x") == "x call_1"


def test_row_s4_4_when_to_use_stands_after_the_description():
    @tool(when_to_use="Use it for rooms.")
    def book(room: str) -> str:
        """Book a room."""
        return room

    stopped = replace(tool_from(book), description="Book a room")

    assert tool_from(book).definition().function.description == "Book a room. Use it for rooms."
    assert stopped.definition() == tool_from(book).definition()


@pytest.mark.parametrize(
    ("source", "words"),
    [
        pytest.param("def f(x: int): return x", "has no description", id="no-docstring"),
        pytest.param("def f(x):\n    'Do'", "parameter 'x' has no type", id="no-type"),
        pytest.param("def f(*x: int):\n    'Do'", "cannot be given by name", id="star"),
        pytest.param("def f(x: 'Nothing'):\n    'Do'", "a type cannot be read", id="unknown-type"),
        pytest.param("def f(x: object.__class__.__subclasshook__):\n    'Do'", "schema", id="no-schema"),
        pytest.param("def größe(x: int):\n    'Do'", "is no tool name", id="name"),
    ],
)
def test_row_s2_5_what_is_missing_is_named_at_load(source: str, words: str):
    names: dict[str, Any] = {}
    exec(source, names)
    function = next(value for name, value in names.items() if not name.startswith("__"))

    with pytest.raises(ConfigurationError, match=words):
        tool_from_function(function)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"effects": "wirte"}, "effects is 'wirte'"),
        ({"approval": "maybe"}, "approval is 'maybe'"),
        ({"timeout_s": "10"}, "timeout_s is '10'"),
        ({"retries": -1}, "retries is -1"),
        ({"output_schema": {"type": "strin"}}, "output_schema is"),
    ],
)
def test_an_option_that_cannot_be_is_named_at_load(options: dict[str, Any], words: str):
    @tool(**options)
    def book(room: str) -> str:
        """Book a room"""
        return room

    with pytest.raises(ConfigurationError, match=f"tool book: {words}"):
        tool_from(book)


class TestClasses:
    async def test_row_s4_2_a_class_with_a_run_method_and_a_model_is_a_tool(self):
        class Booking(BaseModel):
            start: str = Field(description="HH:mm")
            end: str = Field(description="HH:mm")
            room: str = Field(alias="meetingRoom")

        @tool(
            name="reserve_meeting_room", description="预订会议室", input_description="", output_description=""
        )
        class Reserve:
            def run(self, input: Booking) -> str:
                return f"{input.start}到{input.end}的{input.room}已预订成功"

        made = tool_from(Reserve)
        outcome = await ToolGate().call(
            made, {"start": "09:00", "end": "10:00", "meetingRoom": "二号"}, make_context()
        )

        assert list(made.parameters["properties"]) == ["start", "end", "meetingRoom"]
        assert outcome.content == "09:00到10:00的二号已预订成功"

    async def test_row_s4_9_a_bare_value_needs_no_struct(self):
        @tool(name="capital", description="Capital of a company", input_description="One company at a time")
        class Capital:
            table = {"x公司": "x亿人民币"}

            def run(self, company: str) -> str:
                return self.table.get(company, "未知")

        made = tool_from(Capital())
        known = await ToolGate().call(made, {"company": "x公司"}, make_context())
        unknown = await ToolGate().call(made, {"company": "w公司"}, make_context())

        assert made.parameters["properties"]["company"]["description"] == "One company at a time"
        assert made.scalar == "company"
        assert (known.content, unknown.content) == ("x亿人民币", "未知")

    def test_the_name_is_the_classes_in_snake_case(self):
        class ReserveMeetingRoom:
            """Reserve a room"""

            def run(self, room: str) -> str:
                return room

        assert tool_from(ReserveMeetingRoom).name == "reserve_meeting_room"

    def test_a_class_that_needs_arguments_is_an_error(self):
        @dataclass
        class Needs:
            """Need"""

            key: str

            def run(self) -> str:
                return self.key

        with pytest.raises(ConfigurationError, match="cannot be made without arguments"):
            tool_from(Needs)


class TestDynamic:
    reference = json.loads((FIXTURES / "shapes" / "static-and-dynamic-tools.json").read_text())

    async def test_row_s4_11_add_gives_three(self):
        shape = self.reference["dynamic_add"]
        add = dynamic_tool(
            "add",
            "Add two integers",
            lambda value: value["a"] + value["b"],
            input_schema=json.dumps(shape["inputSchema"]),
            output_schema=shape["outputSchema"],
        )

        outcome = await ToolGate().call(add, {"a": 1, "b": 2}, make_context())

        assert (outcome.content, add.kind) == (3, "dynamic")

    async def test_row_s4_12_a_value_outside_the_enum_is_refused_before_the_call(self):
        pay = dynamic_tool(
            "pay",
            "Pay",
            lambda value: pytest.fail("called"),
            input_schema=self.reference["dynamic_enum"]["inputSchema"],
        )

        outcome = await ToolGate().call(pay, {"chargeType": "Cash", "amount": 1}, make_context())

        assert outcome.rejected
        assert 'must be one of "Alipay", "Wechat", "Bankcard"' in outcome.content

    async def test_a_wrapped_schema_keeps_its_definitions(self):
        schema = {"type": "array", "items": {"$ref": "#/$defs/n"}, "$defs": {"n": {"type": "integer"}}}
        total = dynamic_tool("total", "Add numbers", sum, input_schema=schema)

        assert (await ToolGate().call(total, {"value": ["1", 2]}, make_context())).content == 3

    @pytest.mark.parametrize(
        "schema",
        [{"type": "string", "size": "integer"}, {"type": {"enum": ["a"]}, "size": {"minimum": 1}}],
    )
    def test_a_parameter_of_the_short_form_may_be_called_type(self, schema):
        made = dynamic_tool("x", "Do x", str, input_schema=schema)

        assert made.parameters["required"] == ["type", "size"]

    async def test_row_s4_12_a_bare_integer_is_wrapped_on_the_wire(self):
        square = dynamic_tool(
            "square", "Square", lambda n: n * n, input_schema=self.reference["dynamic_scalar"]["inputSchema"]
        )

        outcome = await ToolGate().call(square, {"value": 7}, make_context())

        assert square.parameters["properties"] == {"value": {"type": "integer"}}
        assert outcome.content == 49

    @pytest.mark.parametrize(
        ("name", "description", "schema", "words"),
        [
            pytest.param("größe", "x", {"type": "object"}, "is no tool name", id="name"),
            pytest.param("x", " ", {"type": "object"}, "has no description", id="description"),
            pytest.param("x", "x", "{", "is no JSON", id="schema-text"),
            pytest.param("x", "x", {"type": "thing"}, "no JSON Schema", id="schema"),
            pytest.param("x", "x", {"a": "strin"}, "'strin' is not valid", id="short-form"),
        ],
    )
    def test_row_s2_5_what_is_missing_fails_at_load(self, name, description, schema, words):
        with pytest.raises(ConfigurationError, match=words):
            dynamic_tool(name, description, str, input_schema=schema)


@pytest.mark.parametrize(
    ("schema", "strict"),
    [
        ({"type": "object", "properties": {}, "additionalProperties": False}, True),
        ({"type": "object", "properties": {"a": {}}, "additionalProperties": False, "required": []}, False),
        ({"type": "object", "properties": {}}, False),
        ({"description": "anything"}, False),
        ({"type": "array", "prefixItems": [{"type": "string"}]}, False),
        ({"type": "string", "format": "uri"}, False),
        ({"anyOf": [{"type": "string", "minLength": 1}, {"type": "null"}]}, False),
        ({"type": ["string", "null"], "format": "date"}, True),
    ],
)
def test_a_schema_is_strict_when_it_is_closed_and_requires_all(schema, strict):
    assert is_strict(schema) is strict
