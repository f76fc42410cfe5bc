"""Runs over HTTP: locks, outputs, cancelling, expiry, budgets, overrides (reference, 4.5, 9 to 12)."""

import asyncio
import json
from typing import Any

import pytest

from tests.service.conftest import HandClock, Running, functions, running, script
from tests.service.protocol import check_error, check_object

CALL = {"name": "f", "arguments": {"a": 1}}
SCRIPT = script(
    plain=[{"text": "Hello there."}],
    round=[{"tool_calls": [CALL]}, {"text": "Done."}],
    pair=[{"tool_calls": [CALL, CALL]}, {"text": "Done."}],
    endless=[{"tool_calls": [CALL]}],
    slow=[{"text": "late", "delay_s": 30}],
    echo=[{"echo": True}],
    echo_round=[{"tool_calls": [CALL]}, {"echo": True}],
    long=[{"text": "word", "repeat": 400}],
    long_round=[
        {"tool_calls": [CALL], "usage": {"prompt_tokens": 10, "completion_tokens": 200}},
        {"text": "word", "repeat": 400},
    ],
    costly=[
        {"tool_calls": [CALL], "usage": {"prompt_tokens": 999, "completion_tokens": 1}},
        {"text": "Done."},
    ],
    invalid=[{"error": {"code": "invalid_prompt", "message": "not like this"}}],
)


async def waiting(
    server: Running, model: str = "round", **fields: Any
) -> tuple[dict[str, Any], str, list[str]]:
    """A run in requires_action, its path, and the ids that it waits for."""
    run = await server.settled(await server.ask(model, assistant_tools=functions("f"), **fields))
    calls = run["required_action"]["submit_tool_outputs"]["tool_calls"]
    return run, f"/threads/{run['thread_id']}/runs/{run['id']}", [call["id"] for call in calls]


def outputs(*ids: str, output: Any = "42") -> dict[str, Any]:
    return {"tool_outputs": [{"tool_call_id": identifier, "output": output} for identifier in ids]}


async def echoed(server: Running, run: dict[str, Any]) -> dict[str, Any]:
    """The request that the engine was given, out of the run's last answer."""
    run = await server.settled(run)
    assert run["status"] == "completed", run
    messages = await server.messages(run, run_id=run["id"])
    return json.loads(messages[-1]["content"][0]["text"]["value"])


# ---- the run object


async def test_a_run_has_every_key_of_the_reference(fixture_run: dict[str, Any]):
    async with running(SCRIPT) as server:
        run, _, _ = await waiting(server, metadata={"a": "b"})

        assert list(run) == list(fixture_run)
        check_object("thread.run", run)
        assert run["expires_at"] == run["created_at"] + 600


@pytest.fixture
def fixture_run() -> dict[str, Any]:
    """The keys of row S1.29, in the order that the service writes them."""
    keys = """id object created_at assistant_id thread_id status started_at expires_at cancelled_at failed_at
    completed_at required_action last_error model instructions tools tool_resources metadata temperature top_p
    max_completion_tokens max_prompt_tokens truncation_strategy incomplete_details usage response_format
    tool_choice parallel_tool_calls"""
    return dict.fromkeys(keys.split())


# ---- locks


@pytest.mark.parametrize("status", ["requires_action", "in_progress"])
async def test_an_active_run_locks_its_thread(status: str):
    async with running(SCRIPT) as server:
        if status == "requires_action":
            run, _, _ = await waiting(server)
        else:
            run = await server.ask("slow")
        thread = f"/threads/{run['thread_id']}"

        message = await server.post(f"{thread}/messages", {"role": "user", "content": "more"})
        second = await server.post(f"{thread}/runs", {"assistant_id": run["assistant_id"]})

        error = check_error(message, 400)
        words = f"Can't add messages to {run['thread_id']} while a run {run['id']} is active."
        assert error == {"message": words, "type": "invalid_request_error", "param": None, "code": None}
        words = f"Thread {run['thread_id']} already has an active run {run['id']}."
        assert check_error(second, 400)["message"] == words


async def test_two_runs_created_at_once_on_one_thread_make_one_run():
    async with running(SCRIPT) as server:
        assistant = await server.assistant()
        thread = (await server.post("/threads")).json()
        body = {"assistant_id": assistant["id"], "model": "slow"}

        answers = await asyncio.gather(
            *(server.post(f"/threads/{thread['id']}/runs", body) for _ in range(8))
        )

        assert sorted(answer.status_code for answer in answers) == [200] + [400] * 7
        listed = await server.get(f"/threads/{thread['id']}/runs")
        assert len(listed.json()["data"]) == 1


async def test_metadata_may_change_while_a_run_is_active():
    async with running(SCRIPT) as server:
        run, path, ids = await waiting(server)

        changed = await server.post(path, {"metadata": {"seen": "yes"}})
        await server.post(f"{path}/submit_tool_outputs", outputs(*ids))

        assert changed.json()["metadata"] == {"seen": "yes"}
        assert (await server.settled(run))["metadata"] == {"seen": "yes"}


async def test_deleting_a_thread_ends_its_run():
    async with running(SCRIPT) as server:
        run = await server.ask("slow")

        deleted = await server.http.delete(f"/threads/{run['thread_id']}")

        assert deleted.json() == {"id": run["thread_id"], "object": "thread.deleted", "deleted": True}
        check_error(await server.get(f"/threads/{run['thread_id']}/runs/{run['id']}"), 404)
        assert not server.service.core.store.active_runs(owner=server.service.core.workers.owner)


# ---- submitting outputs


@pytest.mark.parametrize(
    "given",
    [
        pytest.param(["call_unknown"], id="unknown"),
        pytest.param([0], id="subset"),
        pytest.param([0, 1, "call_unknown"], id="superset"),
        pytest.param([0, 0], id="twice"),
        pytest.param([], id="none"),
    ],
)
async def test_case_018_outputs_that_do_not_match_are_refused_and_change_nothing(given: list[Any]):
    async with running(SCRIPT) as server:
        run, path, ids = await waiting(server, "pair")
        got = [ids[entry] if isinstance(entry, int) else entry for entry in given]

        answer = await server.post(f"{path}/submit_tool_outputs", outputs(*got))

        assert (
            check_error(answer, 400)["message"] == f"Expected tool outputs for call_ids {ids!r}, got {got!r}"
        )
        assert (await server.get(path)).json() == run
        [step] = await server.steps(run)
        assert [call["function"]["output"] for call in step["step_details"]["tool_calls"]] == [None, None]


@pytest.mark.parametrize(
    ("body", "code", "param"),
    [
        ({}, "missing_required_parameter", "tool_outputs"),
        ({"tool_outputs": [{"output": "x"}]}, "missing_required_parameter", "tool_outputs[0].tool_call_id"),
        (
            {"tool_outputs": [{"tool_call_id": "call_a", "output": {}}]},
            "invalid_type",
            "tool_outputs[0].output",
        ),
        (
            {"tool_outputs": [{"tool_call_id": "call_a", "output": []}]},
            "invalid_type",
            "tool_outputs[0].output",
        ),
        ({"tool_outputs": {}}, "invalid_type", "tool_outputs"),
        ({"tool_outputs": [], "more": 1}, "unknown_parameter", "more"),
    ],
    ids=["empty", "no id", "object", "array", "no array", "unknown key"],
)
async def test_a_malformed_submission_names_what_is_wrong(body: dict[str, Any], code: str, param: str):
    async with running(SCRIPT) as server:
        _, path, _ = await waiting(server)

        error = check_error(await server.post(f"{path}/submit_tool_outputs", body), 400)

        assert (error["code"], error["param"]) == (code, param)


async def test_two_submissions_at_once_are_taken_once():
    async with running(SCRIPT) as server:
        run, path, ids = await waiting(server)

        answers = await asyncio.gather(
            *(server.post(f"{path}/submit_tool_outputs", outputs(*ids)) for _ in range(6))
        )

        assert sorted(answer.status_code for answer in answers) == [200] + [400] * 5
        refused = next(answer for answer in answers if answer.status_code == 400)
        assert refused.json()["error"]["message"].endswith("do not accept tool outputs.")
        assert (await server.settled(run))["status"] == "completed"
        assert len(await server.steps(run)) == 2


async def test_case_045_outputs_after_the_end_name_the_status():
    async with running(SCRIPT) as server:
        run, path, ids = await waiting(server)
        await server.post(f"{path}/submit_tool_outputs", outputs(*ids))
        await server.settled(run)

        error = check_error(await server.post(f"{path}/submit_tool_outputs", outputs(*ids)), 400)

        assert error["message"] == 'Runs in status "completed" do not accept tool outputs.'
        assert (error["param"], error["code"]) == (None, None)


async def test_ids_are_fresh_each_round_and_an_empty_output_is_legal():
    async with running(SCRIPT) as server:
        run, path, first = await waiting(server, "endless")
        await server.post(f"{path}/submit_tool_outputs", outputs(*first, output=""))
        run = await server.settled(run)

        [second] = run["required_action"]["submit_tool_outputs"]["tool_calls"]
        assert second["id"] not in first
        assert run["usage"] is None
        assert [step["status"] for step in await server.steps(run)] == ["completed", "in_progress"]


async def test_a_run_of_another_thread_is_not_found():
    async with running(SCRIPT) as server:
        run, _, ids = await waiting(server)
        other = (await server.post("/threads")).json()["id"]

        answer = await server.post(f"/threads/{other}/runs/{run['id']}/submit_tool_outputs", outputs(*ids))

        assert check_error(answer, 404)["message"] == f"No run found with id '{run['id']}'."


# ---- cancelling


@pytest.mark.parametrize("status", ["requires_action", "in_progress"])
async def test_cancelling_answers_cancelling_and_ends_cancelled(status: str):
    async with running(SCRIPT) as server:
        run = (await waiting(server))[0] if status == "requires_action" else await server.ask("slow")
        path = f"/threads/{run['thread_id']}/runs/{run['id']}"

        answer = await server.http.post(f"{path}/cancel", headers={"content-type": "application/json"})

        assert answer.json()["status"] == "cancelling"
        ended = await server.settled(run)
        assert (ended["status"], ended["last_error"]) == ("cancelled", None)
        assert ended["cancelled_at"] is not None
        assert [step["status"] for step in await server.steps(run)] == ["cancelled"] * (
            status == "requires_action"
        )
        message = await server.post(
            f"/threads/{run['thread_id']}/messages", {"role": "user", "content": "on"}
        )
        assert message.status_code == 200


async def test_a_run_cancelled_before_its_first_step_is_cancelled():
    async with running(SCRIPT) as server:
        run = (await waiting(server))[0]
        workers, store = server.service.core.workers, server.service.core.store
        active = store.active_run(run["thread_id"])
        store.set_active(run["id"], status="queued", owner=workers.owner, seen_at=0)
        row = store.get("thread.run", run["thread_id"], run["id"])
        row.doc = {**row.doc, "status": "queued", "required_action": None}
        store.update(row)

        workers.start(row, world=active.world, deadline_at=active.deadline_at)
        assert workers.halt(run["id"], "cancel")

        assert (await server.settled(run))["status"] == "cancelled"


async def test_a_run_that_ended_cannot_be_cancelled():
    async with running(SCRIPT) as server:
        run = await server.settled(await server.ask("plain"))

        answer = await server.post(f"/threads/{run['thread_id']}/runs/{run['id']}/cancel")

        assert check_error(answer, 400)["message"] == "Cannot cancel run with status 'completed'."


async def test_case_046_outputs_for_a_cancelled_run_are_refused():
    async with running(SCRIPT) as server:
        run, path, ids = await waiting(server)
        await server.post(f"{path}/cancel")
        await server.settled(run)

        error = check_error(await server.post(f"{path}/submit_tool_outputs", outputs(*ids)), 400)

        assert error["message"] == 'Runs in status "cancelled" do not accept tool outputs.'


# ---- expiry


async def test_a_waiting_run_expires_ten_minutes_after_its_creation():
    clock = HandClock()
    async with running(SCRIPT, clock=clock, tick_s=60) as server:
        run, path, ids = await waiting(server)
        clock.pass_s(599)
        assert (await server.get(path)).json()["status"] == "requires_action"
        clock.pass_s(2)

        refused = check_error(await server.post(f"{path}/submit_tool_outputs", outputs(*ids)), 400)

        assert refused["message"] == 'Runs in status "expired" do not accept tool outputs.'
        ended = (await server.get(path)).json()
        assert (ended["status"], ended["expires_at"], ended["last_error"]) == ("expired", None, None)
        [step] = await server.steps(run)
        assert (step["status"], step["expired_at"]) == ("expired", int(clock.now))


async def test_an_expired_run_unlocks_its_thread_without_being_read():
    clock = HandClock()
    async with running(SCRIPT, clock=clock, tick_s=60) as server:
        run, _, _ = await waiting(server)
        clock.pass_s(601)

        answer = await server.post(f"/threads/{run['thread_id']}/messages", {"role": "user", "content": "x"})

        assert answer.status_code == 200


async def test_a_run_that_works_too_long_expires_by_itself():
    async with running(SCRIPT, run_expires_s=0.2) as server:
        run = await server.ask("slow")

        assert (await server.settled(run))["status"] == "expired"


# ---- budgets


async def test_a_completion_budget_cuts_the_text_and_keeps_it():
    async with running(SCRIPT) as server:
        run = await server.settled(await server.ask("long", max_completion_tokens=256))

        assert run["incomplete_details"] == {"reason": "max_completion_tokens"}
        [message] = await server.messages(run, run_id=run["id"])
        assert message["content"][0]["text"]["value"] == " ".join(["word"] * 256)
        assert message["incomplete_details"] == {"reason": "max_tokens"}
        assert run["usage"]["completion_tokens"] == 256
        assert [step["status"] for step in await server.steps(run)] == ["completed"]


async def test_a_completion_budget_counts_all_turns_of_a_run():
    async with running(SCRIPT) as server:
        run, path, ids = await waiting(server, "long-round", max_completion_tokens=256)

        await server.post(f"{path}/submit_tool_outputs", outputs(*ids))

        run = await server.settled(run)
        assert run["status"] == "incomplete"
        assert run["usage"]["completion_tokens"] == 256


async def test_a_prompt_budget_that_a_turn_overran_ends_the_run():
    async with running(SCRIPT) as server:
        run = await server.settled(
            await server.ask("costly", assistant_tools=functions("f"), max_prompt_tokens=256)
        )

        assert (run["status"], run["incomplete_details"]) == ("incomplete", {"reason": "max_prompt_tokens"})
        assert run["required_action"] is None
        assert [step["status"] for step in await server.steps(run)] == ["completed"]


async def test_a_message_larger_than_the_prompt_budget_ends_the_run_before_any_turn():
    async with running(SCRIPT) as server:
        run = await server.settled(await server.ask("plain", words="word " * 1000, max_prompt_tokens=256))

        assert run["incomplete_details"] == {"reason": "max_prompt_tokens"}
        assert await server.steps(run) == []


async def test_an_automatic_truncation_drops_messages_in_the_middle():
    async with running(SCRIPT) as server:
        assistant = await server.assistant()
        messages = [{"role": "user", "content": f"{n} " + "words " * 40} for n in range(20)]
        messages[0]["content"] = "the beginning"
        body = {"assistant_id": assistant["id"], "model": "echo", "thread": {"messages": messages}}

        run = (await server.post("/threads/runs", {**body, "max_prompt_tokens": 256})).json()

        seen = [entry["content"].split()[0] for entry in (await echoed(server, run))["messages"]]
        assert seen[0] == "the"
        assert seen[-1] == "19"
        assert len(seen) < 6


async def test_the_last_messages_strategy_keeps_the_newest():
    async with running(SCRIPT) as server:
        assistant = await server.assistant()
        messages = [{"role": "user", "content": str(n)} for n in range(5)]
        body = {"assistant_id": assistant["id"], "model": "echo", "thread": {"messages": messages}}
        strategy = {"type": "last_messages", "last_messages": 2}

        run = (await server.post("/threads/runs", {**body, "truncation_strategy": strategy})).json()

        assert [entry["content"] for entry in (await echoed(server, run))["messages"]] == ["3", "4"]


# ---- what the engine is asked


async def test_overrides_of_a_run_reach_the_engine():
    async with running(SCRIPT) as server:
        assistant = await server.assistant(instructions="Be brief.", temperature=0.5)
        thread = (await server.post("/threads")).json()
        body = {
            "assistant_id": assistant["id"],
            "model": "echo",
            "additional_instructions": "Be kind.",
            "additional_messages": [
                {"role": "user", "content": "one"},
                {"role": "assistant", "content": "two"},
            ],
            "temperature": 0,
            "tools": functions("g"),
            "parallel_tool_calls": False,
            "reasoning_effort": "low",
        }

        run = (await server.post(f"/threads/{thread['id']}/runs", body)).json()

        asked = await echoed(server, run)
        assert asked["instructions"] == "Be brief.\nBe kind."
        assert [(entry["role"], entry["content"]) for entry in asked["messages"]] == [
            ("user", "one"),
            ("assistant", "two"),
        ]
        assert [tool["function"]["name"] for tool in asked["tools"]] == ["g"]
        assert (asked["temperature"], asked["parallel_tool_calls"]) == (0, False)
        assert asked["reasoning_effort"] == "low"
        assert "reasoning_effort" not in run


@pytest.mark.parametrize(
    ("choice", "later"),
    [
        ("required", "auto"),
        ({"type": "function", "function": {"name": "f"}}, "auto"),
        ("none", "none"),
        ("auto", "auto"),
    ],
    ids=["required", "function", "none", "auto"],
)
async def test_a_forcing_tool_choice_applies_to_the_first_turn_only(choice: Any, later: str):
    async with running(SCRIPT) as server:
        run = await server.ask("echo", assistant_tools=functions("f"), tool_choice=choice)
        assert (await echoed(server, run))["tool_choice"] == choice
        waiting_run, path, ids = await waiting(server, "echo-round", tool_choice=choice)

        await server.post(f"{path}/submit_tool_outputs", outputs(*ids))

        assert (await echoed(server, waiting_run))["tool_choice"] == later


async def test_calls_and_outputs_of_earlier_turns_reach_the_engine():
    async with running(SCRIPT) as server:
        run, path, ids = await waiting(server, "echo-round")

        await server.post(f"{path}/submit_tool_outputs", outputs(*ids, output='{"error": "no"}'))

        messages = (await echoed(server, run))["messages"]
        assert [entry["role"] for entry in messages] == ["user", "assistant", "tool"]
        assert messages[1]["tool_calls"][0]["function"] == {"name": "f", "arguments": '{"a": 1}'}
        assert messages[2] == {"role": "tool", "tool_call_id": ids[0], "content": '{"error": "no"}'}


async def test_row_s1_16_two_calls_are_served_though_parallel_calls_are_off():
    async with running(SCRIPT) as server:
        run, path, ids = await waiting(server, "pair", parallel_tool_calls=False)

        await server.post(f"{path}/submit_tool_outputs", outputs(*ids))

        assert len(ids) == 2
        assert (await server.settled(run))["status"] == "completed"


async def test_a_run_that_fails_says_why_and_carries_zeros():
    async with running(SCRIPT) as server:
        run = await server.settled(await server.ask("invalid"))

        assert run["last_error"] == {"code": "invalid_prompt", "message": "not like this"}
        assert run["usage"] == {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}


async def test_an_unknown_script_fails_the_run_with_the_names_that_there_are():
    async with running(SCRIPT) as server:
        run = await server.settled(await server.ask("nonsense"))

        assert "no script for the model 'nonsense'" in run["last_error"]["message"]


@pytest.mark.parametrize(
    ("wanted", "code", "param"),
    [
        ({"tool_choice": {"type": "function", "function": {"name": "z"}}}, "invalid_value", "tool_choice"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": 7}}}},
            "invalid_value",
            "response_format.json_schema.schema",
        ),
    ],
    ids=["a tool that is not there", "no JSON Schema"],
)
async def test_what_cannot_be_done_is_refused_before_the_run(wanted: dict[str, Any], code: str, param: str):
    async with running(SCRIPT) as server:
        assistant = await server.assistant(tools=functions("f"))

        answer = await server.post("/threads/runs", {"assistant_id": assistant["id"], **wanted})

        error = check_error(answer, 400)
        assert (error["code"], error["param"]) == (code, param)
