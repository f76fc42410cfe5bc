"""Runs that are left waiting and taken up again by another life of the program."""

import json

from tests.backends.faulty import Hang, once
from tests.cli.test_interrupt import asking, end_of, quick, resuming
from tests.run.world import open_world


async def test_a_detached_run_is_waited_for_later_and_its_calls_are_answered_then(tmp_path):
    turns = [{"tool_calls": [{"name": "quick", "arguments": {}}]}, {"text": "The answer."}]
    async with open_world(turns, quick, plan=lambda seen: None) as world:
        async with asking(world, tmp_path, "--detach") as process:
            status, out, _ = await end_of(process)
        assert (status, out[:4]) == (0, "run_")

        async with resuming(tmp_path, "wait") as process:
            assert (await end_of(process))[:2] == (0, "The answer.\n")


async def test_a_detached_run_that_is_cancelled_is_listed_and_replayed_as_such(tmp_path, cli):
    async with open_world([{"text": "never said", "delay_s": 60}], quick, plan=lambda seen: None) as world:
        async with asking(world, tmp_path, "--detach") as process:
            await end_of(process)
        async with resuming(tmp_path, "cancel") as process:
            assert " is cancelled" in (await end_of(process))[1]

    assert " cancelled " in cli("run", "list").stdout
    assert cli("run", "replay", "--last").status == 14


async def test_a_detached_run_that_somebody_else_cancelled_is_not_begun_anew(tmp_path):
    async with open_world([{"text": "never said", "delay_s": 60}], quick, plan=lambda seen: None) as world:
        async with asking(world, tmp_path, "--detach", "--json") as process:
            run = json.loads((await end_of(process))[1])
        await world.backend.cancel_run(thread_id=run["thread_id"], run_id=run["run_id"])

        async with resuming(tmp_path, "wait") as process:
            assert (await end_of(process))[0] == 14
        assert len((await world.backend.list_runs(run["thread_id"])).data) == 1


async def test_a_cancel_that_the_backend_does_not_answer_ends_at_its_deadline(tmp_path):
    plan = once("GET", ".*/runs/run_.*", Hang())
    async with open_world([{"text": "never said", "delay_s": 60}], quick, plan=plan) as world:
        async with asking(world, tmp_path, "--detach") as process:
            await end_of(process)
        async with resuming(tmp_path, "cancel", "--timeout", "0.5") as process:
            status, _, err = await end_of(process)

    assert status == 10
    assert "within 0.5 s" in err


def test_a_detached_run_of_the_embedded_backend_is_refused_with_words(cli):
    outcome = cli("ask", "go", "--offline", "--detach")

    assert outcome.status == 2
    assert "assistant-runner serve" in outcome.stderr


def test_row_s0_23_one_round_then_the_run_waits_and_is_resumed(cli):
    question = "What is the weather in San Francisco?"
    paused = cli("ask", "--offline", "--engine", "planner", "--max-rounds", "1", "--json", "--", question)
    whole = cli("ask", "--offline", "--engine", "planner", question)
    # one round is all that this question takes: the run completes before it could pause again
    assert (paused.status, json.loads(paused.stdout)["rounds"]) == (0, 1)
    assert json.loads(paused.stdout)["answer"] + "\n" == whole.stdout


def test_a_second_round_is_left_waiting_and_resume_finishes_it(cli):
    question = "What is the wiki url of San Francisco? And what is the content of the wiki page?"
    flags = ("--offline", "--engine", "planner")
    paused = cli("ask", *flags, "--max-rounds", "1", question)
    resumed = cli("run", "resume", "--last")

    assert (paused.status, paused.stdout) == (8, "")
    assert "run resume run_" in paused.stderr
    assert resumed.status == 0
    assert resumed.stdout == cli("ask", *flags, question).stdout


def test_case_002_a_thread_that_a_waiting_run_locks_is_named_and_taken_over_when_asked(cli):
    flags = ("ask", "--offline", "--engine", "planner")
    two_rounds = "What is the wiki url of San Francisco? And what is the content of the wiki page?"
    cli(*flags, "--max-rounds", "1", two_rounds)
    [run] = json.loads(cli("run", "list", "--json").stdout)
    question = ("--thread", run["thread_id"], "What is the weather in San Francisco?")

    refused = cli(*flags, *question)
    taken = cli(*flags, "--if-active", "takeover", *question)

    assert (refused.status, refused.stdout) == (11, "")
    assert f"locked by run {run['run_id']}" in refused.stderr
    assert "--if-active" in refused.stderr
    assert taken.status == 0
    assert f"run {run['run_id']} locked the thread; it was taken over and is completed" in taken.stderr
    assert "°C" in taken.stdout
