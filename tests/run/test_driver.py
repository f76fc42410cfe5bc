import asyncio

import pytest

from assistant_runner.errors import (
    BackendUnreachable,
    LimitReached,
    RunCancelled,
    RunFailed,
    RunIncomplete,
    RunTimedOut,
)
from assistant_runner.run.request import RunRequest
from assistant_runner.wire.failures import ErrorObject
from assistant_runner.wire.stream import StreamEvent
from tests.fakes import Recorder, ScriptedBackend, answers, asks, call, driver, message_object, run_object

REQUEST = RunRequest(assistant_id="asst_1", prompt="hello")


def get_weather(city: str) -> dict[str, str]:
    """Weather of a city."""
    if city == "Nowhere":
        raise RuntimeError("boom 17")
    return {"city": city}


async def test_a_direct_answer_passes_the_loop_by():
    backend = ScriptedBackend(answers("4"))

    result = await driver(backend, get_weather).run(REQUEST)

    assert result.text == "4"
    assert backend.submitted == []
    assert result.router_document() == []


async def test_the_loop_ends_when_nothing_is_asked_any_more():
    backend = ScriptedBackend(
        asks(call("get_weather", '{"city": "a"}', id="c1")),
        asks(call("get_weather", '{"city": "b"}', id="c2")),
        answers("done"),
    )

    result = await driver(backend, get_weather).run(REQUEST)

    assert [list(backend.outputs(n)) for n in (1, 2)] == [["c1"], ["c2"]]
    assert backend.outputs(2) == {"c2": '{"city":"b"}'}
    assert len(result.rounds) == 2


async def test_case_036_results_go_with_their_own_calls_in_the_order_asked():
    first_done = asyncio.Event()

    async def measure(city: str) -> int:
        """Measure."""
        if city == "Sablewick":
            await first_done.wait()
            return 8
        first_done.set()
        return 21

    calls = (
        call("measure", '{"city": "Sablewick"}', id="c1"),
        call("measure", '{"city": "Orrin Bay"}', id="c2"),
    )
    backend, heard = ScriptedBackend(asks(*calls), answers("ok")), Recorder()

    await driver(backend, measure).run(REQUEST, listener=heard)

    assert list(backend.outputs(1).items()) == [("c1", "8"), ("c2", "21")]
    finished = [event.tool_call_id for event in heard.events if event.name == "call.finished"]
    assert finished == ["c2", "c1"]


async def test_case_035_one_failed_call_throws_no_result_away():
    cities = ["a", "Nowhere", "c"]
    calls = [call("get_weather", f'{{"city": "{city}"}}', id=city) for city in cities]
    backend = ScriptedBackend(asks(*calls), answers("ok"))

    await driver(backend, get_weather).run(REQUEST)

    outputs = backend.outputs(1)
    assert outputs["a"] == '{"city":"a"}'
    assert "boom 17" in outputs["Nowhere"]
    assert "Traceback" not in outputs["Nowhere"]


async def test_case_034_equal_calls_of_one_round_are_all_answered():
    calls = [call("get_weather", '{"city": "a"}', id=f"c{n}") for n in (1, 2, 3)]
    backend = ScriptedBackend(asks(*calls), answers("ok"))

    await driver(backend, get_weather).run(REQUEST)

    assert list(backend.outputs(1)) == ["c1", "c2", "c3"]


async def test_a_round_tells_its_story_in_order():
    backend, heard = ScriptedBackend(asks(call("get_weather", '{"city": "a"}')), answers("ok")), Recorder()

    await driver(backend, get_weather).run(REQUEST, listener=heard)

    assert heard.names() == [
        "run.requested",
        "run.started",
        "round.started",
        "call.started",
        "call.finished",
        "round.completed",
        "outputs.submitted",
        "run.ended",
    ]


async def test_case_020_the_round_limit_cancels_and_says_what_was_called():
    streams = [asks(call("get_weather", f'{{"city": "{n}"}}')) for n in range(9)]
    backend = ScriptedBackend(*streams)

    with pytest.raises(LimitReached, match=r"after 4 rounds \(get_weather 4\)") as caught:
        await driver(backend, get_weather, rounds=4).run(REQUEST)

    assert len(backend.submitted) == 4
    assert backend.cancelled == ["run_1"]
    assert "--rounds" in caught.value.remedy


async def test_case_021_an_identical_call_is_answered_from_memory_then_the_run_is_stopped():
    reached: list[str] = []

    def get_page(url: str) -> str:
        """Get a page."""
        reached.append(url)
        return "403"

    backend = ScriptedBackend(*[asks(call("get_page", '{"url": "u"}')) for _ in range(20)])

    with pytest.raises(LimitReached, match="repeats the same call of get_page"):
        await driver(backend, get_page, repeats=3).run(REQUEST)

    assert len(reached) == 3
    assert "will not change it" in next(iter(backend.outputs(4).values()))


async def test_case_032_rounds_of_nothing_but_unknown_functions_are_stopped():
    backend = ScriptedBackend(*[asks(call("get_forecast", f'{{"n": {n}}}')) for n in range(9)])

    with pytest.raises(LimitReached, match="get_forecast"):
        await driver(backend, get_weather, bad_rounds=3).run(REQUEST)

    assert len(backend.submitted) == 3
    assert "there are: get_weather" in next(iter(backend.outputs(1).values()))


async def test_case_023_bad_calls_are_counted_per_reply_and_forgiven_after_a_good_one():
    bad = [call("get_weather", '{"city": ["x"]}', id=f"b{n}") for n in (1, 2)]
    good = [call("get_weather", '{"city": "x"}', id=f"g{n}") for n in (1, 2)]
    backend = ScriptedBackend(asks(*bad), asks(*good), answers("ok"))

    result = await driver(backend, get_weather, bad_rounds=2).run(REQUEST)

    assert result.text == "ok"
    assert "city" in backend.outputs(1)["b1"]


async def test_row_S0_23_one_round_then_the_run_waits_to_be_resumed():
    backend = ScriptedBackend(*[asks(call("get_weather", f'{{"city": "{n}"}}')) for n in range(9)])

    with pytest.raises(LimitReached, match="paused after 1 round") as caught:
        await driver(backend, get_weather).run(REQUEST, pause_after=1)

    assert backend.cancelled == []
    assert "run resume run_1" in caught.value.remedy


async def test_case_001_a_run_that_never_ends_is_given_up_at_the_deadline():
    backend = ScriptedBackend(
        [StreamEvent("thread.run.in_progress", run_object("in_progress"))], polls=[run_object("in_progress")]
    )

    with pytest.raises(
        RunTimedOut, match=r"run_1 on thread thread_1 did not end within 0.1 s; it was left cancelled"
    ):
        await driver(backend, timeout_s=0.1).run(REQUEST)

    assert backend.cancelled == ["run_1"]


async def test_case_004_an_unknown_status_is_waited_through_and_said_once():
    backend = ScriptedBackend(
        [StreamEvent("thread.run.in_progress", run_object("in_progress"))],
        polls=[run_object("paused_for_review"), run_object("paused_for_review"), run_object("completed")],
    )
    backend.list_messages = lambda thread_id, **query: _page(message_object("fine"))

    result = await driver(backend).run(REQUEST)

    assert result.text == "fine"
    assert [w for w in result.warnings if "paused_for_review" in w] == result.warnings


async def test_case_051_a_broken_stream_is_followed_by_reading_the_same_run():
    backend = ScriptedBackend(
        [StreamEvent("thread.run.in_progress", run_object("in_progress")), BackendUnreachable("cut")],
        polls=[run_object("in_progress"), run_object("completed")],
    )
    backend.list_messages = lambda thread_id, **query: _page(message_object("whole text"))

    result = await driver(backend).run(REQUEST)

    assert result.text == "whole text"
    assert len(backend.started) == 1


async def test_case_050_an_error_in_the_stream_is_not_ignored():
    error = ErrorObject(message="backend gone", code="server_error")
    backend = ScriptedBackend(
        [StreamEvent("thread.run.in_progress", run_object("in_progress")), StreamEvent("error", error)],
        polls=[run_object("in_progress")],
    )

    with pytest.raises(Exception, match="server_error: backend gone"):
        await driver(backend).run(REQUEST)


@pytest.mark.parametrize(
    ("run", "error", "words"),
    [
        pytest.param(
            run_object("failed", last_error={"code": "server_error", "message": "no luck"}),
            RunFailed,
            "server_error: no luck",
            id="failed",
        ),
        pytest.param(
            run_object("incomplete", incomplete_details={"reason": "content_filter"}),
            RunIncomplete,
            "content_filter",
            id="case-049-incomplete",
        ),
        pytest.param(run_object("cancelled"), RunCancelled, "was cancelled", id="cancelled"),
    ],
)
async def test_each_ending_has_its_name(run, error, words):
    backend = ScriptedBackend(
        [
            StreamEvent("thread.message.incomplete", message_object("so far")),
            StreamEvent(f"thread.run.{run.status}", run),
        ]
    )

    with pytest.raises(error, match=words):
        await driver(backend).run(REQUEST)


async def test_case_011_both_messages_of_the_run_are_the_answer():
    backend = ScriptedBackend(
        [
            StreamEvent("thread.message.completed", message_object("Part one.")),
            StreamEvent("thread.message.completed", message_object("Part two.")),
            StreamEvent("thread.run.completed", run_object("completed")),
        ]
    )

    assert (await driver(backend).run(REQUEST)).text == "Part one.\nPart two."


async def test_case_043_a_tool_that_never_returns_costs_only_its_own_output():
    async def hang(city: str) -> str:
        """Hang."""
        await asyncio.Event().wait()
        return city

    calls = (call("hang", '{"city": "a"}', id="c1"), call("get_weather", '{"city": "b"}', id="c2"))
    backend = ScriptedBackend(asks(*calls), answers("ok"))

    await driver(backend, hang, get_weather, tool_timeout_s=0.05).run(REQUEST)

    assert "timed out" in backend.outputs(1)["c1"]
    assert backend.outputs(1)["c2"] == '{"city":"b"}'


async def _page(*messages):
    from assistant_runner.wire.base import Page
    from assistant_runner.wire.threads import Message

    return Page[Message](data=list(messages))


async def test_row_s0_10_words_before_a_call_are_kept_but_are_not_the_answer():
    said = StreamEvent("thread.message.completed", message_object("Okay, let's look."))
    backend = ScriptedBackend([said, *asks(call("get_weather", '{"city": "a"}'))], answers("16 degrees"))

    result = await driver(backend, get_weather).run(REQUEST)

    assert result.text == "16 degrees"
    assert [message.text() for message in result.messages] == ["Okay, let's look.", "16 degrees"]
