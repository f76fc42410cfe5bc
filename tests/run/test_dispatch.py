from dataclasses import replace

import pytest

from assistant_runner.run.events import CallStarted
from assistant_runner.run.request import RunRequest
from assistant_runner.tooling.schema import tool_from_function
from tests.fakes import Recorder, ScriptedBackend, answers, asks, call, driver


def look() -> str:
    """Look."""
    return "seen"


@pytest.mark.parametrize(
    ("declared", "harmless"),
    [
        pytest.param({"effects": "read", "effects_declared": True}, True, id="declared-read"),
        pytest.param({"effects": "write", "effects_declared": True, "approval": "never"}, False, id="write"),
        pytest.param({"effects": "read", "effects_declared": False}, False, id="declares-nothing"),
    ],
)
async def test_a_call_that_begins_says_whether_it_may_be_made_twice(declared, harmless):
    tool = replace(tool_from_function(look), **declared)
    heard = Recorder()

    await driver(ScriptedBackend(asks(call("look")), answers("done")), tool).run(
        RunRequest("asst_1", prompt="go"), listener=heard
    )

    [started] = [event for event in heard.events if isinstance(event, CallStarted)]
    assert started.harmless is harmless
    assert "harmless" not in started.document(), "the journal's alone"
