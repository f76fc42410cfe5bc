"""Histories that every model API accepts, whatever the thread holds."""

from hypothesis import given
from hypothesis import strategies as st

from assistant_runner.service.engines.base import TurnCall, TurnMessage, TurnOutput
from assistant_runner.service.engines.history import CallBlock, in_blocks
from tests.service.engines.helpers import assistant, user

IDS = st.sampled_from(["c1", "c2", "c3", "c4"])
ITEMS = st.lists(
    st.one_of(
        st.just(user("hello")),
        st.just(assistant("hi")),
        IDS.map(lambda id: TurnCall(id, "get_weather", "{}")),
        IDS.map(lambda id: TurnOutput(id, f"output of {id}")),
    ),
    max_size=20,
)


@given(ITEMS)
def test_case_065_every_call_is_answered_exactly_once_and_nothing_is_sent_twice(items):
    blocks = in_blocks(items)

    calls = [call.id for block in blocks if isinstance(block, CallBlock) for call in block.calls]
    assert calls == list(dict.fromkeys(item.id for item in items if isinstance(item, TurnCall)))
    for block in blocks:
        if isinstance(block, CallBlock):
            assert [output.tool_call_id for output in block.outputs] == [call.id for call in block.calls]
    messages = [item for item in items if isinstance(item, TurnMessage)]
    assert [block for block in blocks if isinstance(block, TurnMessage)] == messages


def test_an_output_that_came_late_is_used_where_its_call_stands():
    call = TurnCall("c1", "get_weather", "{}")

    blocks = in_blocks([call, user("hello again"), TurnOutput("c1", "cold")])

    assert isinstance(blocks[0], CallBlock)
    assert blocks[0].outputs[0].output == "cold"
