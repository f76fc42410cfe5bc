"""Values against schemas."""

import pytest

from assistant_runner.schemas import fault_of, fits, flaw_in
from tests.tooling.server import page, serve


async def test_a_reference_is_never_fetched():
    async with serve(lambda seen: page("{}", kind="application/json")) as server:
        schema = {"properties": {"a": {"$ref": f"{server.url}/schema"}}}

        with pytest.raises(Exception, match="Unresolvable"):
            flaw_in({"a": 1}, schema)

    assert server.seen == []
    assert fault_of(schema) == f"'{server.url}/schema' leads nowhere"


@pytest.mark.parametrize(
    ("reference", "found"),
    [("#/$defs/a~1b", True), ("#", True), ("#/$defs/c", False), ("other.json", False)],
)
def test_a_reference_must_lead_somewhere(reference: str, found: bool):
    schema = {"properties": {"x": {"$ref": reference}}, "$defs": {"a/b": {"type": "string"}}}

    assert (fault_of(schema) is None) is found


def test_a_part_of_a_schema_knows_the_whole():
    whole = {"properties": {"x": {"$ref": "#/$defs/text"}}, "$defs": {"text": {"type": "string"}}}

    assert fits("a", whole["properties"]["x"], whole)
    assert not fits(1, whole["properties"]["x"], whole)


def test_a_pattern_made_to_keep_us_busy_is_judged_in_linear_time():
    schema = {"properties": {"a": {"pattern": "^(a+)+$"}}, "patternProperties": {"^(b+)+$": {"type": "null"}}}
    closed = {**schema, "additionalProperties": False}

    assert "does not match" in flaw_in({"a": "a" * 5_000 + "!"}, schema).message
    assert "unexpected" in flaw_in({"a": "a", "b" * 5_000 + "!": None}, closed).message
    assert flaw_in({"a": "aa", "bb": None}, closed) is None
    assert flaw_in({"bb": 1}, closed) is not None


def test_a_pattern_that_needs_backtracking_is_not_judged():
    schema = {"type": "string", "pattern": "^(?!x)(a+)+$"}

    assert fault_of(schema) is None
    assert flaw_in("a" * 5_000 + "!", schema) is None


@pytest.mark.parametrize("draft", [None, "http://json-schema.org/draft-07/schema#"])
def test_references_that_each_lead_twice_to_the_next_come_to_an_end(draft: str | None):
    steps = {f"s{n}": {"allOf": [{"$ref": f"#/$defs/s{n + 1}"}] * 2} for n in range(40)}
    schema = {"$ref": "#/$defs/s0", "$defs": {**steps, "s40": {"type": "string"}}}
    if draft:
        schema["$schema"] = steps["s0"]["$schema"] = draft

    assert "no end in sight" in flaw_in("x", schema).message
    assert not fits("x", schema, schema)
    assert "no end in sight" in flaw_in("x", {"$ref": "#"}).message
