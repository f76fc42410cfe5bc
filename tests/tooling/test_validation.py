"""Values against schemas."""

import pytest

from assistant_runner.tooling.validation import fault_of, fits, flaw_in
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
