import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assistant_runner.errors import AssistantRunnerError
from assistant_runner.run.endings import ending_of
from assistant_runner.run.request import RunRequest
from assistant_runner.wire.runs import ACTIVE, TERMINAL
from assistant_runner.wire.stream import StreamEvent
from tests.fakes import ScriptedBackend, driver, run_object


def failed(code, message="no luck"):
    return run_object("failed", last_error={"code": code, "message": message})


FILTERED = run_object("incomplete", incomplete_details={"reason": "content_filter"})


@pytest.mark.parametrize(
    ("run", "kind", "status", "words"),
    [
        pytest.param(failed("server_error"), "run_failed", 11, "no luck", id="failed"),
        pytest.param(run_object("failed"), "run_failed", 11, "gave no reason", id="failed-silently"),
        pytest.param(failed("tool_user_error"), "run_failed", 11, "tool_user_error", id="failed-new-code"),
        pytest.param(failed("rate_limit_exceeded"), "rate_limited", 9, "no luck", id="rate"),
        pytest.param(run_object("expired"), "run_expired", 12, "expired", id="expired"),
        pytest.param(FILTERED, "run_incomplete", 13, "content_filter", id="incomplete"),
        pytest.param(
            run_object("incomplete"), "run_incomplete", 13, "no reason given", id="incomplete-silently"
        ),
        pytest.param(run_object("cancelled"), "run_cancelled", 14, "was cancelled", id="cancelled"),
        pytest.param(run_object("vaporised"), "run", 11, "'vaporised'", id="unknown"),
    ],
)
def test_row_s1_14_each_ending_has_its_kind_its_status_and_its_words(run, kind, status, words):
    error = ending_of(run, partial="so far")

    document = error.document()["error"]
    assert (document["kind"], document["exit_status"]) == (kind, status)
    assert words in document["message"]
    assert document["run_id"] == "run_1"
    assert document["remedy"] or kind == "run"


@pytest.mark.parametrize(
    ("words", "code"),
    [
        pytest.param("You exceeded your current quota, check your plan.", "insufficient_quota", id="quota"),
        pytest.param("the quota is used up: waiting does not help", "insufficient_quota", id="engine"),
        pytest.param("Over the rate of your tier; see https://aka.ms/oai/quotaincrease", None, id="rate"),
    ],
)
def test_a_quota_that_is_used_up_is_told_from_a_rate(words, code):
    error = ending_of(failed("rate_limit_exceeded", words))

    assert error.code == code
    assert ("billing" in error.remedy) == (code is not None)


def test_what_cut_the_last_message_is_the_reason_where_the_run_gives_none():
    error = ending_of(run_object("incomplete"), cut="content_filter")

    assert "content_filter" in error.message
    assert "rephrase" in error.remedy


def test_a_completed_run_is_no_error():
    assert ending_of(run_object("completed")) is None


@given(st.sampled_from(sorted(TERMINAL | ACTIVE)))
async def test_row_s1_30_no_run_without_a_required_action_makes_a_submission(status):
    backend = ScriptedBackend(
        [StreamEvent(f"thread.run.{status}", run_object(status))], polls=[run_object("cancelled")]
    )
    backend.list_messages = no_messages

    with contextlib.suppress(AssistantRunnerError):
        await driver(backend, timeout_s=5).run(RunRequest("asst_1", prompt="x"))

    assert backend.submitted == []


async def no_messages(thread_id, **query):
    from assistant_runner.wire.base import Page
    from assistant_runner.wire.threads import Message

    return Page[Message](data=[])


def test_case_116_a_key_in_a_backends_words_is_cut_out():
    error = ending_of(failed("server_error", "Incorrect API key provided: sk-test-SECRET-0001"))

    assert error is not None
    assert "SECRET-0001" not in error.message
    assert "Incorrect API key" in error.message
