"""Tools that run at the provider, through the whole service: web search, MCP and its approvals."""

import dataclasses
import json
from contextlib import asynccontextmanager

import pytest

from assistant_runner.backends.embedded import over_service
from assistant_runner.endpoints import normalise_endpoint
from assistant_runner.run.request import RunRequest
from assistant_runner.service.app import Service
from assistant_runner.service.engines.chat import ChatEngine
from assistant_runner.service.engines.providers import Provider
from assistant_runner.service.engines.responses import ResponsesEngine
from assistant_runner.service.store.sqlite import SqliteStore
from assistant_runner.tooling.gate import ToolGate
from assistant_runner.tooling.policy import Policy, PolicyRule
from assistant_runner.wire.assistants import AssistantCreate
from tests.fakes import driver
from tests.service.conftest import frames_of, functions, running
from tests.service.engines.fake_openai import call_item, fake_openai, message_item, response_stream
from tests.service.protocol import check_error

MCP = {
    "type": "mcp",
    "server_label": "docs",
    "server_url": "https://mcp.example/sse",
    "authorization": "top-secret",
    "headers": {"X-Key": "hidden"},
    "allowed_tools": ["search"],
    "require_approval": "always",
}
SHOWN = {key: value for key, value in MCP.items() if key not in ("authorization", "headers")}
LISTED = {"id": "mcpl_1", "type": "mcp_list_tools", "server_label": "docs", "tools": []}
ASKED = {
    "id": "mcpr_1",
    "type": "mcp_approval_request",
    "server_label": "docs",
    "name": "search",
    "arguments": '{"q": "tides"}',
}
CALLED = {
    "id": "mcp_1",
    "type": "mcp_call",
    "server_label": "docs",
    "name": "search",
    "arguments": '{"q": "tides"}',
    "output": "High at noon.",
    "status": "completed",
}
WAITING = {key: ASKED[key] for key in ("id", "name", "arguments", "server_label")} | {"type": "mcp"}
DONE = message_item("High at noon.")


@asynccontextmanager
async def served(*replies, engine_type=ResponsesEngine, **options):
    """A service whose engine asks a fake provider: the service and the fake."""
    async with fake_openai(*replies) as fake:
        engine = engine_type(Provider(normalise_endpoint(fake.url)), **options)
        async with running(engine=engine) as server:
            yield server, fake
        await engine.aclose()


async def submit(server, run, **body):
    return await server.post(f"/threads/{run['thread_id']}/runs/{run['id']}/submit_tool_outputs", body)


def approval(approve, call_id="mcpr_1"):
    return [{"tool_call_id": call_id, "approve": approve}]


@pytest.mark.parametrize("approve", [True, False], ids=["approved", "denied"])
@pytest.mark.parametrize("store", [False, True], ids=["stateless", "stored"])
async def test_a_hosted_mcp_call_waits_for_the_approval_and_gets_it(approve, store):
    async with served(response_stream(LISTED, ASKED), response_stream(CALLED, DONE), store=store) as (
        server,
        fake,
    ):
        run = await server.settled(await server.ask("m", assistant_tools=[MCP]))
        answer = await submit(server, run, tool_approvals=approval(approve))
        ended = await server.settled(run)

    assert run["required_action"] == {
        "type": "submit_tool_approval",
        "submit_tool_approval": {"tool_calls": [WAITING]},
    }
    assert (answer.json()["status"], ended["status"]) == ("queued", "completed")
    assert fake.bodies[0]["tools"] == fake.bodies[1]["tools"] == [MCP]
    decision = {"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": approve}
    if store:
        assert fake.bodies[1]["previous_response_id"] == "resp_1"
        assert fake.bodies[1]["input"] == [decision]
    else:
        assert fake.bodies[1]["input"][1:] == [LISTED, ASKED, decision]


async def test_hosted_calls_and_decisions_are_run_steps():
    search = {"id": "ws_1", "type": "web_search_call", "status": "completed", "action": {"query": "tides"}}
    async with served(response_stream(search, ASKED), response_stream(CALLED, DONE)) as (server, _):
        run = await server.settled(await server.ask("m", assistant_tools=[{"type": "web_search"}, MCP]))
        await submit(server, run, tool_approvals=approval(True))
        await server.settled(run)
        steps = await server.steps(run)

    calls = [step["step_details"]["tool_calls"][0] for step in steps[:-1]]
    assert [call["type"] for call in calls] == ["web_search", "mcp", "mcp"]
    assert calls[1]["mcp"]["approve"] is True
    assert calls[2]["mcp"]["output"] == "High at noon."
    assert {step["status"] for step in steps} == {"completed"}


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"tool_approvals": approval(True, "mcpr_2")}, "Expected tool outputs for call_ids ['mcpr_1']"),
        ({"tool_approvals": approval(True) * 2}, "got ['mcpr_1', 'mcpr_1']"),
        ({"tool_approvals": []}, "got []"),
        ({"tool_approvals": [{"tool_call_id": "mcpr_1"}]}, "'tool_approvals[0].approve'"),
        ({"tool_approvals": approval("yes")}, "expected a boolean"),
        ({"tool_outputs": [{"tool_call_id": "mcpr_1", "output": "x"}]}, "submit 'tool_approvals'"),
        (
            {"tool_approvals": approval(True), "tool_outputs": [{"tool_call_id": "mcpr_1", "output": "x"}]},
            "not both",
        ),
        ({"tool_approvals": [{**approval(True)[0], "headers": {"a": "b"}}]}, "belong to its tool"),
    ],
    ids=["unknown id", "twice", "none", "no decision", "no boolean", "an output", "both", "headers"],
)
async def test_a_wrong_approval_is_refused_and_the_run_goes_on_waiting(body, words):
    async with served(response_stream(ASKED), response_stream(DONE)) as (server, _):
        run = await server.settled(await server.ask("m", assistant_tools=[MCP]))

        error = check_error(await submit(server, run, **body), 400)

        assert words in error["message"]
        assert (await server.settled(run))["status"] == "requires_action"
        assert (await submit(server, run, tool_approvals=approval(False))).status_code == 200
        again = check_error(await submit(server, run, tool_approvals=approval(True)), 400)
        assert "do not accept tool outputs" in again["message"]


@pytest.mark.parametrize("stream", [False, True], ids=["polled", "streamed"])
async def test_functions_of_the_same_turn_are_asked_for_after_the_approvals(stream):
    first = response_stream(LISTED, ASKED, call_item("call_a", "f", "{}"))
    async with served(first, response_stream(CALLED, DONE)) as (server, fake):
        run = await server.settled(await server.ask("m", assistant_tools=[MCP, *functions("f")]))
        early = await submit(server, run, tool_outputs=[{"tool_call_id": "call_a", "output": "x"}])
        answer = await submit(server, run, tool_approvals=approval(True), stream=stream)
        between = frames_of(answer.text)[-2].data if stream else answer.json()
        asked = len(fake.bodies)
        await submit(server, run, tool_outputs=[{"tool_call_id": "call_a", "output": "x"}])
        ended = await server.settled(run)

    assert early.status_code == 400
    assert between["status"] == "requires_action"
    [call] = between["required_action"]["submit_tool_outputs"]["tool_calls"]
    assert call == {"id": "call_a", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    assert (asked, ended["status"]) == (1, "completed")
    kinds = [item["type"] for item in fake.bodies[1]["input"][1:]]
    assert kinds == [
        "mcp_list_tools",
        "mcp_approval_request",
        "function_call",
        "function_call_output",
        "mcp_approval_response",
    ]


async def test_outputs_find_their_step_when_the_provider_ran_a_tool_after_the_call():
    first = response_stream(call_item("call_a", "f", "{}"), CALLED)
    async with served(first, response_stream(DONE)) as (server, fake):
        run = await server.settled(await server.ask("m", assistant_tools=[MCP, *functions("f")]))
        await submit(server, run, tool_outputs=[{"tool_call_id": "call_a", "output": "x"}])
        await server.settled(run)
        steps = await server.steps(run)

    assert {step["status"] for step in steps} == {"completed"}
    assert fake.bodies[1]["input"][-1] == {"type": "function_call_output", "call_id": "call_a", "output": "x"}


async def test_the_official_sdk_reads_a_run_that_waits_for_an_approval():
    async with served(response_stream(ASKED), response_stream(CALLED, DONE)) as (server, _):
        threads = server.sdk.beta.threads
        assistant = await server.sdk.beta.assistants.create(model="m", tools=[MCP])
        run = await threads.create_and_run_poll(
            assistant_id=assistant.id, thread={"messages": [{"role": "user", "content": "hi"}]}
        )
        waits_for = run.required_action.type
        extra = {"tool_approvals": approval(True)}
        where = {"run_id": run.id, "thread_id": run.thread_id}
        await threads.runs.submit_tool_outputs(**where, tool_outputs=[], extra_body=extra)
        run = await threads.runs.poll(**where)
        steps = await threads.runs.steps.list(**where)

    assert (waits_for, run.status) == ("submit_tool_approval", "completed")
    assert [step.type for step in steps.data] == ["message_creation", "tool_calls", "tool_calls"]


async def test_secrets_of_an_mcp_tool_reach_the_provider_and_no_answer():
    async with served(response_stream(ASKED), response_stream(DONE)) as (server, fake):
        assistant = await server.assistant(tools=[{"type": "web_search"}, MCP])
        path = f"/assistants/{assistant['id']}"
        renamed = (await server.post(path, {"name": "x", "reasoning_effort": "low"})).json()
        body = {"assistant_id": assistant["id"], "thread": {"messages": [{"role": "user", "content": "hi"}]}}
        frames = await server.stream("/threads/runs", body)
        run = frames[-2].data
        await submit(server, run, tool_approvals=approval(True))
        ended = await server.settled(run)
        seen = json.dumps([assistant, renamed, [f.data for f in frames], ended, await server.steps(run)])

    assert assistant["tools"] == run["tools"] == [{"type": "web_search"}, SHOWN]
    assert [sent["tools"][1] for sent in fake.bodies] == [MCP, MCP]
    assert "top-secret" not in seen
    assert "hidden" not in seen


async def test_a_runs_own_tools_bring_their_own_secrets_and_replaced_tools_lose_theirs():
    plain = {"type": "mcp", "server_label": "other", "server_url": "https://other.example"}
    async with served(response_stream(DONE)) as (server, fake):
        await server.settled(await server.ask("m", assistant_tools=[MCP], tools=[plain]))
        assistant = await server.assistant(tools=[MCP])
        await server.post(f"/assistants/{assistant['id']}", {"tools": [plain]})
        thread = {"messages": [{"role": "user", "content": "hi"}]}
        body = {"assistant_id": assistant["id"], "thread": thread}
        await server.settled((await server.post("/threads/runs", body)).json())

    assert [sent["tools"] for sent in fake.bodies] == [[plain], [plain]]


@pytest.mark.parametrize("kind", ["web_search", "web_search_preview", "mcp"])
async def test_an_engine_that_hosts_no_such_tool_fails_the_run_before_any_request(kind):
    wanted = MCP if kind == "mcp" else {"type": kind}
    async with served(response_stream(DONE), engine_type=ChatEngine) as (server, fake):
        run = await server.settled(await server.ask("m", assistant_tools=[wanted]))

    assert (run["status"], run["last_error"]["code"]) == ("failed", "invalid_prompt")
    assert run["last_error"]["message"].startswith(f"The tool {kind} is not offered")
    assert fake.asked == []


@pytest.mark.parametrize(
    ("tool", "param"),
    [
        ({"type": "mcp", "server_url": "https://a.example"}, "tools[0].server_label"),
        ({"type": "mcp", "server_label": "a"}, "tools[0].server_url"),
        ({**MCP, "require_approval": "sometimes"}, "tools[0].require_approval"),
        ({**MCP, "headers": {"a": 1}}, "tools[0].headers.a"),
        ({"type": "web_search", "filters": {"allowed_domains": ["x" * 70_000]}}, "tools[0]"),
        ({"type": "web_surf"}, "tools[0].type"),
    ],
    ids=["no label", "no address", "a wrong word", "a wrong header", "too long", "unknown"],
)
async def test_a_wrong_hosted_tool_is_refused_with_its_place(tool, param):
    async with running() as server:
        answer = await server.post("/assistants", {"model": "m", "tools": [tool]})

        assert check_error(answer, 400)["param"] == param


@pytest.mark.parametrize(("action", "approve"), [("allow", True), ("deny", False)])
async def test_our_driver_approves_by_the_policy_and_gets_the_answer(action, approve):
    gate = ToolGate(policy=Policy(rules=(PolicyRule(tool="docs.*", action=action),)))
    store = SqliteStore.open(":memory:")
    async with fake_openai(response_stream(LISTED, ASKED), response_stream(CALLED, DONE)) as fake:
        engine = ResponsesEngine(Provider(normalise_endpoint(fake.url)))
        async with over_service(Service(store=store, engine=engine)) as backend:
            body = AssistantCreate.model_validate({"model": "m", "tools": [MCP]})
            assistant = await backend.create_assistant(body)
            runner = driver(backend)
            runner.workshop = dataclasses.replace(runner.workshop, approve_hosted=gate.approve_hosted)
            result = await runner.run(RunRequest(assistant.id, prompt="When is high tide?"))
        await engine.aclose()
    store.close()

    assert result.text == "High at noon."
    assert fake.bodies[1]["input"][-1]["approve"] is approve
