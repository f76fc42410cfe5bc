"""Runs against the real service: locked threads, expiry, lost answers, cut streams."""

import asyncio
import dataclasses
import time

import pytest

from assistant_runner.errors import RateLimited, RunCancelled, RunExpired, RunTimedOut
from assistant_runner.run.driver import Driver
from assistant_runner.run.request import Limits, RunRequest
from assistant_runner.run.start import ThreadBusy, add_message, cancel_and_wait
from assistant_runner.wire.runs import RunCreate, ToolOutput
from assistant_runner.wire.threads import MessageCreate, ThreadCreate
from tests.backends.faulty import Answer, Bytewise, Cut, Edit, Reset, once
from tests.fakes import workshop
from tests.run.world import HandClock, open_world

CALL = {"tool_calls": [{"name": "get_weather", "arguments": {"city": "Oslo"}}]}
ANSWER = {"text": "Rain."}
RUNS = r"/v1/threads/[^/]+/runs|/v1/threads/runs"
SUBMIT = r"/v1/threads/[^/]+/runs/[^/]+/submit_tool_outputs"


def get_weather(city: str) -> str:
    """Weather of a city."""
    return f"rain in {city}"


async def abandon(world):
    """A run that waits for a tool, and nobody who would answer it."""
    thread = await world.backend.create_thread(ThreadCreate())
    run = await world.backend.create_run(thread.id, RunCreate(assistant_id=world.assistant_id))
    while run.status != "requires_action":
        run, _ = await world.backend.retrieve_run(thread_id=thread.id, run_id=run.id)
    return run


async def users_texts(world, thread_id):
    page = await world.backend.list_messages(thread_id, order="asc")
    return [message.text() for message in page.data if message.role == "user"]


@pytest.mark.parametrize(
    ("policy", "left"), [("takeover", "completed"), ("cancel", "cancelled"), ("wait", "completed")]
)
async def test_case_002_a_run_that_locks_the_thread_is_met_by_the_policy(policy, left):
    async with open_world([CALL, ANSWER], get_weather) as world:
        blocking = await abandon(world)
        where = {"thread_id": blocking.thread_id, "run_id": blocking.id}
        asked = asyncio.create_task(world.ask(thread_id=blocking.thread_id, if_active=policy))
        if policy == "wait":
            outputs = [
                ToolOutput(
                    tool_call_id=blocking.required_action.submit_tool_outputs.tool_calls[0].id, output=""
                )
            ]
            await world.backend.submit_tool_outputs(**where, outputs=outputs)

        assert await asked == "Rain."
        assert (await world.backend.retrieve_run(**where))[0].status == left

    [warning] = [event.message for event in world.heard.events if event.name == "warning"]
    assert blocking.id in warning


async def test_a_thread_that_stays_locked_is_named_when_the_time_is_up():
    async with open_world([CALL, ANSWER], get_weather) as world:
        blocking = await abandon(world)

        with pytest.raises(RunTimedOut, match=f"locked by run {blocking.id}, which was requires_action"):
            await world.ask(thread_id=blocking.thread_id, if_active="wait", limits=Limits(timeout_s=0.2))


async def test_case_002_without_a_policy_the_blocking_run_is_named():
    async with open_world([CALL, ANSWER], get_weather) as world:
        blocking = await abandon(world)

        with pytest.raises(ThreadBusy, match=f"{blocking.id}, which is requires_action") as caught:
            await world.ask(thread_id=blocking.thread_id)

    assert "takeover" in caught.value.remedy


async def test_case_003_tools_get_no_more_time_than_the_run_has_left():
    asked = []

    async def get_weather(city: str) -> str:
        """Weather of a city."""
        asked.append(city)
        await asyncio.Event().wait()
        return ""

    async with open_world([CALL, ANSWER], get_weather, run_expires_s=1, clock=HandClock()) as world:
        answer = await asyncio.wait_for(world.ask(), 10)

    finished = next(event for event in world.heard.events if event.name == "call.finished")
    assert (answer, len(asked)) == ("Rain.", 1)
    assert finished.is_error
    assert "timed out after 0.5 s" in finished.output


async def test_a_clock_that_is_an_hour_ahead_of_the_backends_expires_nothing():
    async with open_world([CALL, ANSWER], get_weather) as world:
        wrong = dataclasses.replace(world, clock=lambda: time.time() + 3600)

        assert await wrong.ask() == "Rain."

    [finished] = [event for event in world.heard.events if event.name == "call.finished"]
    assert not finished.is_error


@pytest.mark.parametrize("restart", [False, True])
async def test_case_003_an_expired_run_is_named_with_what_was_late_or_replaced_by_a_fresh_one(restart):
    clock, made = HandClock(), []

    def get_weather(city: str) -> str:
        """Weather of a city, and it takes eleven minutes."""
        made.append(city)
        clock.now += 660
        return "rain"

    async with open_world([CALL, ANSWER], get_weather, clock=clock, plan=lambda seen: None) as world:
        if restart:
            assert await world.ask(restart_expired=True) == "Rain."
        else:
            with pytest.raises(RunExpired, match="late: get_weather"):
                await world.ask()
        submissions = [path for path in world.server.paths("POST") if "submit" in path]

    assert made == ["Oslo"]  # the fresh run is given the result of the first
    assert len(submissions) == (1 if restart else 0)
    assert world.heard.names().count("run.started") == (2 if restart else 1)


async def test_case_005_a_cancel_is_over_before_the_thread_is_written_to_again():
    async with open_world([{**ANSWER, "delay_s": 30}]) as world:
        thread = await world.backend.create_thread(ThreadCreate())
        run = await world.backend.create_run(thread.id, RunCreate(assistant_id=world.assistant_id))

        after = await asyncio.wait_for(cancel_and_wait(world.backend, run), 10)
        message = await world.backend.create_message(thread.id, MessageCreate(role="user", content="next"))

    assert (after.status, message.role) == ("cancelled", "user")


async def test_case_007_a_required_action_is_neither_a_failure_nor_the_end():
    async with open_world([CALL, ANSWER], get_weather) as world:
        assert await world.ask() == "Rain."

    assert world.heard.events[-1].document()["status"] == "completed"
    assert world.heard.events[-1].error is None


@pytest.mark.parametrize("fault", [Reset(handled=True), Answer(502, handled=True)], ids=["reset", "502"])
async def test_case_016_a_run_whose_create_lost_its_answer_is_found_not_made_again(fault):
    async with open_world([CALL, ANSWER], get_weather, plan=once("POST", RUNS, fault)) as world:
        thread = await world.backend.create_thread(ThreadCreate())

        answer = await world.ask("Weather?", thread_id=thread.id)
        runs = (await world.backend.list_runs(thread.id)).data

        assert (answer, len(runs)) == ("Rain.", 1)
        assert await users_texts(world, thread.id) == ["Weather?"]


@pytest.mark.parametrize("fault", [Reset(handled=True), Reset(), Answer(502, handled=True)])
async def test_case_016_a_server_that_serves_a_key_once_is_sent_the_create_again(fault):
    plan = once("POST", "/v1/threads/runs", fault)
    async with open_world([CALL, ANSWER], get_weather, plan=plan, foreign=False) as world:
        await world.backend.list_assistants()  # tells of it, as every answer does

        assert await world.ask() == "Rain."

    assert world.heard.names().count("run.started") == 1


async def test_case_016_a_create_that_did_nothing_is_made_once_more():
    async with open_world([ANSWER], plan=once("POST", RUNS, Reset())) as world:
        thread = await world.backend.create_thread(ThreadCreate())

        assert await world.ask("Weather?", thread_id=thread.id) == "Rain."
        assert len((await world.backend.list_runs(thread.id)).data) == 1


async def test_case_016_a_message_whose_answer_was_lost_is_there_once():
    plan = once("POST", r".*/messages", Reset(handled=True))
    async with open_world([ANSWER], plan=plan) as world:
        thread = await world.backend.create_thread(ThreadCreate())

        added = await add_message(world.backend, thread.id, MessageCreate(role="user", content="hi"))

        assert added.text() == "hi"
        assert await users_texts(world, thread.id) == ["hi"]


@pytest.mark.parametrize(
    "fault",
    [Reset(), Reset(handled=True), Answer(500), Answer(503, handled=True), Cut(0), Cut(1, reset=True)],
    ids=["lost-on-the-way", "answer-lost", "500", "503-but-done", "cut-at-once", "cut-after-one"],
)
async def test_outputs_are_taken_once_whatever_happens_to_the_submission(fault):
    made = []

    def get_weather(city: str) -> str:
        """Weather of a city."""
        made.append(city)
        return "rain"

    async with open_world([CALL, ANSWER], get_weather, plan=once("POST", SUBMIT, fault)) as world:
        assert await world.ask() == "Rain."

    assert made == ["Oslo"]
    assert world.heard.names().count("outputs.submitted") == 1


@pytest.mark.parametrize("after", range(1, 12))
async def test_case_051_a_stream_cut_at_any_event_ends_in_the_same_single_answer(after):
    faults = once("POST", RUNS, Cut(after))
    async with open_world([CALL, {"text": "Bring a coat."}], get_weather, plan=faults) as world:
        assert await world.ask() == "Bring a coat."
        creates = [path for path in world.server.paths("POST") if path.endswith("/runs")]

    assert len(creates) == 1


PING = b": ping\n\n"


def swapped():
    """Every second event changes its place with the one before it."""
    held = []

    def swap(number, frame):
        if number % 2 or b"[DONE]" in frame:
            return [frame, *(held.pop() for _ in held[:])] if b"[DONE]" not in frame else [*held, frame]
        held.append(frame)
        return []

    return swap


@pytest.mark.parametrize(
    "fault",
    [
        Edit(lambda _, frame: [frame, frame]),
        Bytewise(),
        Edit(swapped()),
        Edit(lambda _, frame: [PING, frame]),
    ],
    ids=["twice", "bytewise", "swapped", "pings"],
)
async def test_case_054_the_stream_after_the_tools_is_read_to_its_end_and_told_once(fault):
    plan = once("POST", SUBMIT, fault)
    async with open_world([CALL, {"text": "Bring a coat."}], get_weather, plan=plan) as world:
        assert await world.ask() == "Bring a coat."

    assert [world.heard.names().count(name) for name in ("run.started", "round.started", "run.ended")] == [
        1,
        1,
        1,
    ]


async def test_case_055_events_of_each_round_are_told_once_and_texts_do_not_leak():
    second = {"tool_calls": [{"name": "get_weather", "arguments": {"city": "Bergen"}}]}
    async with open_world([CALL, second, {"text": "one two three"}], get_weather) as world:
        assert await world.ask() == "one two three"

    told = [event for event in world.heard.events if event.name == "text.delta"]
    assert "".join(event.text for event in told) == "one two three"
    counts = [
        world.heard.names().count(name) for name in ("round.started", "call.finished", "outputs.submitted")
    ]
    assert counts == [2, 2, 2]


async def test_case_045_outputs_that_nobody_waits_for_any_more_are_dropped():
    async def get_weather(city: str) -> str:
        """Weather of a city; another client answers meanwhile."""
        started = next(e for e in world.heard.events if e.name == "round.started")
        run_id, [call] = started.run_id, started.calls
        thread_id = next(e.thread_id for e in world.heard.events if e.name == "run.started")
        await world.backend.submit_tool_outputs(
            thread_id=thread_id, run_id=run_id, outputs=[ToolOutput(tool_call_id=call["id"], output="other")]
        )
        return "late"

    async with open_world([CALL, ANSWER], get_weather) as world:
        assert await world.ask() == "Rain."

    assert any("dropped" in event.message for event in world.heard.events if event.name == "warning")


async def test_case_046_a_run_cancelled_while_its_tool_works_is_reported_as_cancelled():
    async def get_weather(city: str) -> str:
        """Weather of a city; somebody cancels meanwhile."""
        started = next(e for e in world.heard.events if e.name == "run.started")
        run, _ = await world.backend.retrieve_run(thread_id=started.thread_id, run_id=started.run_id)
        await cancel_and_wait(world.backend, run)
        return "late"

    async with open_world([CALL, ANSWER], get_weather) as world:
        with pytest.raises(RunCancelled, match="was cancelled"):
            await world.ask()

    assert world.heard.names().count("run.started") == 1


async def test_case_047_the_run_that_a_submission_returns_is_followed_to_its_end():
    plan = once("POST", SUBMIT, Edit(lambda number, frame: [frame] if number < 2 else []))
    async with open_world([CALL, {"text": "All set.", "delay_s": 0.1}], get_weather, plan=plan) as world:
        assert await world.ask() == "All set."


async def test_case_012_a_long_thread_hides_no_answer():
    async with open_world([ANSWER], plan=once("POST", RUNS, Cut(3))) as world:
        thread = await world.backend.create_thread(ThreadCreate())
        for number in range(45):
            await world.backend.create_message(thread.id, MessageCreate(role="user", content=str(number)))

        assert await world.ask(thread_id=thread.id) == "Rain."


async def test_case_006_a_run_that_failed_for_its_rate_is_tried_again_on_its_thread():
    words = "Rate limit reached. Please try again in 3 seconds."
    failing = {"error": {"code": "rate_limit_exceeded", "message": words}}
    waits = []

    async def sleep(seconds):
        waits.append(seconds)

    async with open_world([failing]) as world:
        driver = Driver(world.backend, workshop(), limits=Limits(), sleep=sleep)
        with pytest.raises(RateLimited, match="3 seconds"):
            await driver.run(RunRequest(world.assistant_id, prompt="hello"), listener=world.heard)

        thread_id = next(event.thread_id for event in world.heard.events if event.name == "run.started")
        runs = (await world.backend.list_runs(thread_id)).data
        assert await users_texts(world, thread_id) == ["hello"]

    assert len(runs) == 3
    assert [3 <= wait < 3.2 for wait in waits] == [True, True]


async def test_a_stream_that_ends_before_it_tells_of_the_run_costs_no_second_run():
    async with open_world([ANSWER], plan=once("POST", RUNS, Cut(0))) as world:
        thread = await world.backend.create_thread(ThreadCreate())

        assert await world.ask(thread_id=thread.id) == "Rain."
        assert len((await world.backend.list_runs(thread.id)).data) == 1
