"""What the service makes of engines with a language model: abilities, built-in tools, odd answers."""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any

import pytest

from assistant_runner.service import work
from assistant_runner.service.engines.base import (
    Abilities,
    Annotate,
    ApprovalRequest,
    CallDelta,
    Carry,
    EngineError,
    Finish,
    HostedActivity,
    RefusalDelta,
    TextDelta,
    TurnEvent,
    TurnOutput,
    TurnRequest,
)
from assistant_runner.wire.runs import Usage
from tests.service.conftest import functions, running
from tests.service.protocol import check_events, check_order

USAGE = Usage(prompt_tokens=5, completion_tokens=5, total_tokens=10)
STOP = Finish("stop", USAGE)
CALLS = Finish("tool_calls", USAGE)


class FakeModel:
    """An engine with a language model, as far as the service can tell; plays lists of events."""

    name = "fake"
    label = "a fake model"
    uses_model = True

    def __init__(
        self, *turns: Sequence[Any] | Callable[[TurnRequest], Sequence[Any]], **abilities: bool
    ) -> None:
        self.turns = turns
        self.requests: list[TurnRequest] = []
        self._abilities = Abilities(**abilities)  # type: ignore[arg-type]

    def abilities(self, model: str) -> Abilities:
        return self._abilities

    async def turn(self, request: TurnRequest) -> AsyncIterator[TurnEvent]:
        self.requests.append(request)
        turn = self.turns[min(request.turn, len(self.turns) - 1)]
        for event in turn(request) if callable(turn) else turn:
            if isinstance(event, Exception):
                raise event
            yield event

    async def models(self) -> Sequence[Mapping[str, Any]]:
        return [{"id": "fake-1"}]

    async def aclose(self) -> None: ...


async def test_tools_for_an_engine_that_has_none_fail_the_run_before_any_request():
    engine = FakeModel([STOP], tools=False)
    async with running(engine=engine) as server:
        run = await server.settled(await server.ask("fake-1", assistant_tools=functions("f")))

        assert "cannot call tools" in run["last_error"]["message"]
        assert engine.requests == []


async def test_case_017_code_of_a_model_is_refused_unless_the_operator_allows_it():
    engine = FakeModel([TextDelta("hi"), STOP])
    async with running(engine=engine) as server:
        run = await server.settled(await server.ask("fake-1", assistant_tools=[{"type": "code_interpreter"}]))

        assert run["status"] == "failed"
        assert "code_interpreter is not offered" in run["last_error"]["message"]
        assert engine.requests == []


@pytest.mark.parametrize(
    "turn",
    [
        pytest.param([TextDelta("a" * 30)] * 40, id="text"),
        pytest.param(
            [CallDelta(0, "f", arguments="{"), *[CallDelta(0, arguments=" " * 30)] * 40], id="arguments"
        ),
    ],
)
async def test_an_answer_without_an_end_fails_the_run(monkeypatch: pytest.MonkeyPatch, turn: list[Any]):
    monkeypatch.setattr(work, "LONGEST_TURN", 1_000)
    async with running(engine=FakeModel([*turn, STOP])) as server:
        run = await server.settled(await server.ask("fake-1", assistant_tools=functions("f")))

        assert (run["status"], run["last_error"]["code"]) == ("failed", "server_error")
        assert "has no end" in run["last_error"]["message"]


async def test_code_of_a_model_runs_when_the_operator_allows_it():
    engine = FakeModel(
        [
            CallDelta(0, "code_interpreter", "call_x"),
            CallDelta(0, arguments='{"input": "print(6*7)"}'),
            CALLS,
        ],
        lambda request: [TextDelta(f"It is {request.items[-1].output}"), STOP],  # type: ignore[union-attr]
    )
    async with running(engine=engine, code_interpreter="subprocess") as server:
        assistant = await server.assistant(tools=[{"type": "code_interpreter"}])
        frames = await server.stream("/threads/runs", {"assistant_id": assistant["id"]})

        check_events(frames)
        check_order(frames)
        assert frames[-2].event == "thread.run.completed"
        [step, _] = await server.steps(frames[-2].data)
        assert step["step_details"]["tool_calls"][0]["code_interpreter"]["outputs"][0]["logs"] == "42\n"
        assert engine.requests[0].tools[0].function.name == "code_interpreter"  # type: ignore[union-attr]


async def test_a_file_search_is_offered_as_a_function_and_cited_by_its_marker():
    engine = FakeModel(
        [CallDelta(0, "file_search", arguments='{"query": "fires"}'), CALLS],
        [TextDelta("Many【0:0†a.txt】 and【7:7†b.txt】."), STOP],
    )
    async with running(engine=engine) as server:
        upload = await server.http.post(
            "/files", files={"file": ("a.txt", b"Many fires.")}, data={"purpose": "assistants"}
        )
        store = (await server.post("/vector_stores", {"file_ids": [upload.json()["id"]]})).json()["id"]
        run = await server.settled(
            await server.ask(
                "fake-1",
                assistant_tools=[{"type": "file_search"}],
                tool_resources={"file_search": {"vector_store_ids": [store]}},
            )
        )

        [message] = await server.messages(run, run_id=run["id"])
        text = message["content"][0]["text"]
        assert [note["text"] for note in text["annotations"]] == ["【0:0†a.txt】"]
        output = engine.requests[1].items[-1]
        assert isinstance(output, TurnOutput)
        assert "Many fires." in output.output


@pytest.mark.parametrize(
    ("pieces", "shown"),
    [
        (["Many【0", ":0†a", ".txt】."], [("Many", 0), ("【0:0†a.txt】", 1), (".", 0)]),
        (["【0:0†a.txt】【0:0†a.txt】"], [("【0:0†a.txt】", 1), ("【0:0†a.txt】", 1)]),
        (["So 【9:9†", "x】 it", " is"], [("So ", 0), ("【9:9†x】", 0), (" it", 0), (" is", 0)]),
        (["Open【0:0"], [("Open", 0), ("【0:0", 0)]),
    ],
    ids=["split", "two at once", "points to nothing", "never closed"],
)
async def test_a_marker_is_streamed_whole_and_with_its_annotation(
    pieces: list[str], shown: list[tuple[str, int]]
):
    engine = FakeModel(
        [CallDelta(0, "file_search", arguments='{"query": "fires"}'), CALLS],
        [*map(TextDelta, pieces), STOP],
    )
    async with running(engine=engine) as server:
        upload = await server.http.post(
            "/files", files={"file": ("a.txt", b"Many fires.")}, data={"purpose": "assistants"}
        )
        store = (await server.post("/vector_stores", {"file_ids": [upload.json()["id"]]})).json()["id"]
        resources = {"file_search": {"vector_store_ids": [store]}}
        assistant = await server.assistant(tools=[{"type": "file_search"}], tool_resources=resources)

        frames = await server.stream("/threads/runs", {"assistant_id": assistant["id"], "model": "fake-1"})

        check_events(frames)
        texts = [f.data["delta"]["content"][0]["text"] for f in frames if f.event == "thread.message.delta"]
        assert [(text["value"], len(text.get("annotations", []))) for text in texts] == shown
        [message] = await server.messages(frames[-2].data)
        final = message["content"][0]["text"]
        assert final["value"] == "".join(pieces)
        assert len(final["annotations"]) == sum(count for _, count in shown)


async def test_built_in_and_own_functions_of_one_turn_are_told_apart():
    engine = FakeModel(
        [
            CallDelta(0, "get_weather", "call_w", '{"city": "Oslo"}'),
            CallDelta(1, "file_search", "call_s", '{"query": "fires"}'),
            CALLS,
        ],
        [TextDelta("Done."), STOP],
    )
    tools = [*functions("get_weather"), {"type": "file_search"}]
    async with running(engine=engine) as server:
        assistant = await server.assistant(tools=tools)
        frames = await server.stream("/threads/runs", {"assistant_id": assistant["id"]})
        run = frames[-2].data
        [call] = run["required_action"]["submit_tool_outputs"]["tool_calls"]
        body = {"tool_outputs": [{"tool_call_id": call["id"], "output": "rain"}]}
        path = f"/threads/{run['thread_id']}/runs/{run['id']}"
        more = await server.stream(f"{path}/submit_tool_outputs", body)

        check_order(frames)
        check_order(more)
        assert call["function"]["name"] == "get_weather"
        kinds = [
            step["step_details"].get("tool_calls", [{}])[0].get("type") for step in await server.steps(run)
        ]
        assert kinds == ["file_search", "function", None]
        assert len(engine.requests) == 2


async def test_a_hosted_tool_of_the_engine_becomes_a_step():
    call = {"id": "ws_1", "type": "code_interpreter", "code_interpreter": {"input": "1", "outputs": []}}
    engine = FakeModel(
        [HostedActivity(call), TextDelta("One."), STOP], code_interpreter=True, file_search=True
    )
    async with running(engine=engine) as server:
        assistant = await server.assistant(tools=[{"type": "code_interpreter"}])
        frames = await server.stream("/threads/runs", {"assistant_id": assistant["id"]})

        check_events(frames)
        check_order(frames)


async def test_what_an_engine_carries_comes_back_in_the_next_turn():
    engine = FakeModel(
        [Carry({"id": "resp_1"}), CallDelta(0, "f", "call_a", "{}"), CALLS], [TextDelta("Done."), STOP]
    )
    async with running(engine=engine) as server:
        run = await server.settled(await server.ask("fake-1", assistant_tools=functions("f")))
        body = {"tool_outputs": [{"tool_call_id": "call_a", "output": "x"}]}
        await server.post(f"/threads/{run['thread_id']}/runs/{run['id']}/submit_tool_outputs", body)
        await server.settled(run)

        assert engine.requests[1].carry == {"id": "resp_1"}
        assert "carry" not in run


async def test_a_refusal_and_an_annotation_are_part_of_the_message():
    note = {
        "type": "file_path",
        "text": "x",
        "start_index": 0,
        "end_index": 1,
        "file_path": {"file_id": "file-a"},
    }
    engine = FakeModel([TextDelta("x"), Annotate(note), RefusalDelta("No"), RefusalDelta("."), STOP])
    async with running(engine=engine) as server:
        assistant = await server.assistant()
        frames = await server.stream("/threads/runs", {"assistant_id": assistant["id"]})

        check_events(frames)
        [message] = await server.messages(frames[-2].data, run_id=frames[-2].data["id"])
        assert message["content"] == [
            {"type": "text", "text": {"value": "x", "annotations": [note]}},
            {"type": "refusal", "refusal": "No."},
        ]


@pytest.mark.parametrize(
    ("events", "code", "words"),
    [
        ([EngineError("quota", "no money", kind="quota")], "server_error", "no money"),
        ([EngineError("rate_limit_exceeded", "slow down")], "rate_limit_exceeded", "slow down"),
        ([RuntimeError("secret detail")], "server_error", "The service failed: RuntimeError."),
        ([TextDelta("half")], "server_error", "broke off"),
        ([CallDelta(3, "f"), STOP], "server_error", "index 3"),
        ([ApprovalRequest("", "server", "tool", "{}"), STOP], "server_error", "without an id of its own"),
    ],
    ids=["unknown code", "rate limit", "a bug", "no end", "a gap", "approval"],
)
async def test_an_engine_that_fails_ends_the_run_in_words(events: list[Any], code: str, words: str):
    async with running(engine=FakeModel(events)) as server:
        run = await server.settled(await server.ask("fake-1", assistant_tools=functions("f")))

        assert run["status"] == "failed"
        assert run["last_error"]["code"] == code
        assert words in run["last_error"]["message"]


SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}


@pytest.mark.parametrize(
    ("text", "strict", "status"),
    [('{"a": 1}', True, "completed"), ('{"a": "x"}', True, "failed"), ("no JSON", False, "completed")],
    ids=["fits", "does not fit", "not strict"],
)
async def test_an_answer_is_held_against_a_strict_schema(text: str, strict: bool, status: str):
    wanted = {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA, "strict": strict}}
    engine = FakeModel([TextDelta(text), STOP], json_schema=True)
    async with running(engine=engine) as server:
        run = await server.settled(await server.ask("fake-1", response_format=wanted))

        assert run["status"] == status
        assert engine.requests[0].response_format.type == "json_schema"  # type: ignore[union-attr]
        if status == "failed":
            assert "does not fit the response format" in run["last_error"]["message"]


async def test_without_a_count_of_its_engine_a_run_has_an_estimate():
    engine = FakeModel([TextDelta("x" * 40), Finish("stop")])
    async with running(engine=engine) as server:
        run = await server.settled(await server.ask("fake-1", words="y" * 80))

        assert run["usage"] == {"prompt_tokens": 20, "completion_tokens": 10, "total_tokens": 30}


async def test_images_for_an_engine_that_cannot_see_fail_the_run():
    part = {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}
    async with running(engine=FakeModel([STOP])) as server:
        assistant = await server.assistant()
        body = {
            "assistant_id": assistant["id"],
            "thread": {"messages": [{"role": "user", "content": [part]}]},
        }
        run = await server.settled((await server.post("/threads/runs", body)).json())

        assert "cannot look at images" in run["last_error"]["message"]


async def test_one_model_may_stand_for_every_model_that_programs_name():
    engine = FakeModel([TextDelta("hi"), STOP])
    async with running(engine=engine, model="local-1") as server:
        run = await server.settled(await server.ask("gpt-4o"))

        assert (run["model"], engine.requests[0].model) == ("gpt-4o", "local-1")


async def test_a_long_thread_is_read_only_as_far_as_the_context_asks():
    engine = FakeModel([TextDelta("hi"), STOP])
    async with running(engine=engine, context_tokens=500) as server:
        thread = (await server.post("/threads")).json()["id"]
        store = server.service.core.store
        from assistant_runner.service import documents

        with store.transaction():
            for number in range(10_000):
                content = documents.message_content(f"message {number} " + "x" * 80)
                message = documents.message(now=1, thread_id=thread, role="user", content=content)
                store.insert("thread.message", thread, message["id"], message)
        reads = []
        scan = store.scan
        store.scan = lambda *a, **k: reads.append(1) or scan(*a, **k)  # type: ignore[method-assign,func-returns-value]
        assistant = await server.assistant()
        run = (await server.post(f"/threads/{thread}/runs", {"assistant_id": assistant["id"]})).json()

        assert (await server.settled(run))["status"] == "completed"
        assert len(reads) < 5
        assert engine.requests[0].items[-1].text().startswith("message 9999 ")  # type: ignore[union-attr]
