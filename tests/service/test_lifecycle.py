"""The state machine: its table, what each change sets, and that no sequence breaks an invariant."""

from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assistant_runner.service import documents
from assistant_runner.service.lifecycle import (
    TRANSITIONS,
    IllegalTransition,
    RunEventName,
    advance,
    allows,
    end_message,
    end_step,
)
from assistant_runner.wire.runs import ACTIVE, TERMINAL
from tests.service.protocol import REFERENCE, check_object

EVENTS = get_args(RunEventName)
ACTION = {
    "type": "submit_tool_outputs",
    "submit_tool_outputs": {
        "tool_calls": [{"id": "call_a", "type": "function", "function": {"name": "f", "arguments": ""}}]
    },
}


def new_run() -> dict[str, Any]:
    assistant = documents.assistant({"model": "m"}, now=1, tool_resources={})
    return documents.run(
        {},
        now=100,
        expires_at=700,
        thread_id="thread_a",
        assistant=assistant,
        instructions="",
        tool_resources={},
    )


def after(run: dict[str, Any], event: RunEventName, now: int) -> dict[str, Any]:
    return advance(
        run,
        event,
        now,
        required_action=ACTION,
        last_error={"code": "server_error", "message": "no"},
        incomplete_reason="max_prompt_tokens",
    )


def test_the_table_knows_exactly_the_statuses_of_the_protocol():
    assert set(TRANSITIONS) == set(REFERENCE["enums"]["run_status"])
    assert {status for status, events in TRANSITIONS.items() if not events} == TERMINAL


@pytest.mark.parametrize(
    ("start", "event", "end"),
    [
        ("queued", "start", "in_progress"),
        ("in_progress", "require_action", "requires_action"),
        ("requires_action", "submit", "queued"),
        ("in_progress", "complete", "completed"),
        ("in_progress", "truncate", "incomplete"),
        ("queued", "fail", "failed"),
        ("in_progress", "fail", "failed"),
        ("queued", "request_cancel", "cancelling"),
        ("in_progress", "request_cancel", "cancelling"),
        ("requires_action", "request_cancel", "cancelling"),
        ("cancelling", "cancel", "cancelled"),
        ("cancelling", "complete", "completed"),
        ("queued", "expire", "expired"),
        ("in_progress", "expire", "expired"),
        ("requires_action", "expire", "expired"),
        ("cancelling", "expire", "expired"),
    ],
)
def test_a_change_of_the_reference_is_allowed(start: str, event: RunEventName, end: str):
    run = {**new_run(), "status": start}

    assert after(run, event, 200)["status"] == end


@pytest.mark.parametrize(
    ("event", "stamp"), [("complete", "completed_at"), ("fail", "failed_at"), ("truncate", "completed_at")]
)
def test_an_end_sets_its_time_and_clears_the_expiry(event: RunEventName, stamp: str):
    run = after(after(new_run(), "start", 150), event, 200)

    assert run[stamp] == 200
    assert run["expires_at"] is None
    assert run["usage"] == {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}


def test_starting_again_after_outputs_overwrites_started_at_and_keeps_the_expiry():
    run = after(after(new_run(), "start", 150), "require_action", 160)

    run = after(after(run, "submit", 300), "start", 310)

    assert (run["started_at"], run["expires_at"]) == (310, 700)


@given(st.lists(st.sampled_from(EVENTS), max_size=30))
def test_no_sequence_of_events_breaks_an_invariant(events: list[RunEventName]):
    run, now = new_run(), 100
    for event in events:
        now += 1
        before = run
        if allows(run["status"], event):
            run = after(run, event, now)
            assert before["status"] not in TERMINAL
        else:
            with pytest.raises(IllegalTransition):
                after(run, event, now)
        check_object("thread.run", run)
        assert (run["required_action"] is not None) == (run["status"] == "requires_action")
        assert (run["usage"] is not None) == (run["status"] in TERMINAL)
        assert (run["expires_at"] is None) == (run["status"] in TERMINAL)
        assert (run["last_error"] is not None) == (run["status"] == "failed")
        assert (run["incomplete_details"] is not None) == (run["status"] == "incomplete")
        assert run["status"] in ACTIVE | TERMINAL
        assert run["created_at"] == 100


@pytest.mark.parametrize(
    ("run_status", "step_status", "stamp"),
    [
        ("completed", "completed", "completed_at"),
        ("incomplete", "completed", "completed_at"),
        ("failed", "failed", "failed_at"),
        ("cancelled", "cancelled", "cancelled_at"),
        ("expired", "expired", "expired_at"),
    ],
)
def test_an_open_step_ends_as_its_run_does(run_status: str, step_status: str, stamp: str):
    step = documents.step(new_run(), {"type": "tool_calls", "tool_calls": []}, now=100)

    ended = end_step(step, run_status, 200, last_error={"code": "server_error", "message": "no"})

    check_object("thread.run.step", ended)
    assert (ended["status"], ended[stamp]) == (step_status, 200)
    assert (ended["last_error"] is not None) == (step_status == "failed")


def test_a_cut_message_says_why_and_when():
    message = documents.message(
        now=1, thread_id="thread_a", role="assistant", content=[], status="in_progress"
    )

    cut = end_message(message, 200, reason="run_failed")

    check_object("thread.message", cut)
    assert (cut["status"], cut["incomplete_at"]) == ("incomplete", 200)
    assert cut["incomplete_details"] == {"reason": "run_failed"}
