"""What a run may wait for besides tool outputs: approvals of hosted tools, people, words of the future."""

import dataclasses
import json

import pytest

from assistant_runner.errors import HumanNeeded, UnsupportedActionError
from assistant_runner.run.journal import Journal
from assistant_runner.run.memory import recall
from assistant_runner.run.records import request_of
from assistant_runner.run.request import RunRequest
from assistant_runner.tooling.gate import Decision, ToolGate
from assistant_runner.tooling.human import human_tool
from assistant_runner.tooling.policy import Policy, PolicyRule
from assistant_runner.wire.stream import StreamEvent
from tests.fakes import ScriptedBackend, answers, asks, call, driver, run_object

REQUEST = RunRequest("asst_1", prompt="x")
QUESTION = {
    "question": "Which?",
    "context": "",
    "options": {"urgency": "low", "format": "free_text", "choices": None},
}
ALLOW, DENY = (Policy(rules=(PolicyRule(tool="docs.*", action=action),)) for action in ("allow", "deny"))
HOSTED = {"id": "c1", "type": "mcp", "name": "search", "arguments": "{}", "server_label": "docs"}


class ApprovingBackend(ScriptedBackend):
    """Takes approvals; reads then show the run completed."""

    async def submit_tool_approvals(self, *, thread_id, run_id, approvals):
        self.submitted.append(list(approvals))
        self.polls = [run_object("completed")]
        return run_object("in_progress")

    async def list_messages(self, thread_id, **query):
        from assistant_runner.wire.base import Page
        from assistant_runner.wire.threads import Message

        return Page[Message](data=[])


def waiting(action):
    return [StreamEvent("thread.run.requires_action", run_object("requires_action", required_action=action))]


def approval_action():
    return {"type": "submit_tool_approval", "submit_tool_approval": {"tool_calls": [HOSTED]}}


async def later(_question):
    return Decision("later")


async def yes(_question):
    return Decision("yes")


def with_gate(runner, gate):
    runner.workshop = dataclasses.replace(runner.workshop, approve_hosted=gate.approve_hosted)
    return runner


@pytest.mark.parametrize(
    ("gate", "approve"),
    [
        pytest.param(
            ToolGate(policy=Policy(rules=(PolicyRule(tool="docs.*", action="allow"),))), True, id="rule"
        ),
        pytest.param(
            ToolGate(policy=Policy(rules=(PolicyRule(tool="docs.*", action="deny"),))), False, id="denied"
        ),
        pytest.param(ToolGate(approve=yes), True, id="person"),
    ],
)
async def test_a_hosted_tool_is_approved_or_not_by_rule_or_person(gate, approve):
    backend = ApprovingBackend(waiting(approval_action()))

    await with_gate(driver(backend), gate).run(REQUEST)

    assert backend.submitted == [[{"tool_call_id": "c1", "approve": approve}]]


@pytest.mark.parametrize("gate", [ToolGate(), ToolGate(approve=later)], ids=["nobody", "later"])
async def test_a_hosted_tool_that_nobody_can_approve_now_leaves_the_run_waiting(gate):
    backend = ApprovingBackend(waiting(approval_action()))

    with pytest.raises(HumanNeeded, match="'search' of the MCP server 'docs'"):
        await with_gate(driver(backend), gate).run(REQUEST)

    assert (backend.submitted, backend.cancelled) == ([], [])


async def test_an_action_of_an_unknown_type_is_named_and_the_run_cancelled():
    backend = ScriptedBackend(waiting({"type": "submit_dreams", "submit_dreams": {"dreams": []}}))

    with pytest.raises(UnsupportedActionError, match="'submit_dreams'") as caught:
        await driver(backend).run(REQUEST)

    assert backend.cancelled == ["run_1"]
    assert caught.value.exit_status == 11


async def test_a_question_pauses_the_run_and_the_answer_of_another_day_finishes_it(tmp_path):
    asking = asks(
        call("request_human_input", json.dumps(QUESTION), id="c1"),
        call("count", "{}", id="c2"),
    )
    made = []

    def count() -> str:
        """Count."""
        made.append(1)
        return "one"

    ask_person = human_tool(name="request_human_input")
    with Journal(tmp_path) as journal:
        recording = journal.begin(backend="b", prompt="x", thread_id=None, about={})
        with pytest.raises(HumanNeeded) as caught:
            await driver(ScriptedBackend(asking), ask_person, count).run(REQUEST, listener=recording.listen)
        memory = recall(journal.records(recording.key))

    assert caught.value.exit_status == 6
    assert memory.open_calls() == {"c1": "request_human_input"}
    from assistant_runner.assembly import answers_of

    backend = ScriptedBackend(answers("done"), polls=[asking[0].data])
    backend.list_messages = ApprovingBackend.list_messages.__get__(backend)
    await driver(backend, ask_person, count).resume(
        memory, request_of(memory.request), answers=answers_of(memory, {"c1": "the left one"})
    )

    assert backend.outputs(1) == {"c1": "the left one", "c2": "one"}
    assert made == [1]
