"""Streams: every event valid, every order allowed, what adds up equals what is final."""

import asyncio
import json
from typing import Any

import pytest

from tests.service.conftest import Frame, functions, running, script, until
from tests.service.protocol import accumulated, check_error, check_events, check_order

CALL = {"name": "f", "arguments": {"a": 1}}
SCENARIOS: dict[str, list[dict[str, Any]]] = {
    "plain answer": [{"text": "Hello there, Łódź 🌧 北."}],
    "function call": [{"tool_calls": [CALL]}, {"text": "Done."}],
    "parallel calls": [{"tool_calls": [CALL, {"name": "g", "arguments_raw": "{"}]}, {"text": "Done."}],
    "three rounds": [
        {"tool_calls": [CALL]},
        {"tool_calls": [CALL]},
        {"tool_calls": [CALL]},
        {"text": "Done."},
    ],
    "text then call": [{"text": "Let me see.", "tool_calls": [CALL]}, {"text": "Done."}],
    "code interpreter": [{"builtin": "code_interpreter", "input": "print(6*7)"}, {"text": "42"}],
    "silent code": [{"builtin": "code_interpreter", "input": "x = 1"}, {"text": "done"}],
    "file search": [{"builtin": "file_search", "query": "fires"}, {"text": "Some", "cite": True}],
    "hosted then call": [
        {"builtin": "code_interpreter", "input": "1"},
        {"tool_calls": [CALL]},
        {"text": "Done."},
    ],
    "failure before output": [
        {"error": {"code": "rate_limit_exceeded", "message": "try again in 3 seconds"}}
    ],
    "failure during a message": [{"text": "Half an", "error": {"code": "server_error", "message": "gone"}}],
    "failure after a round": [{"tool_calls": [CALL]}, {"error": {"code": "server_error", "message": "no"}}],
    "length": [{"text": "word", "repeat": 400}],
    "content filter": [{"text": "Something not to be", "finish": "content_filter"}],
    "no text": [{"text": ""}],
}
ENDS = {
    "failure before output": "failed",
    "failure during a message": "failed",
    "failure after a round": "failed",
    "length": "incomplete",
    "content filter": "incomplete",
}
HOSTED = [{"type": "code_interpreter"}, {"type": "file_search"}]


async def streamed(server: Any, name: str, **fields: Any) -> list[list[Frame]]:
    """All streams of a run: the first, then one per round."""
    assistant = await server.assistant(tools=functions("f", "g") + HOSTED)
    body = {"assistant_id": assistant["id"], "model": name, **fields}
    streams = [await server.stream("/threads/runs", body)]
    while streams[-1][-2].event == "thread.run.requires_action":
        run = streams[-1][-2].data
        calls = run["required_action"]["submit_tool_outputs"]["tool_calls"]
        outputs = [{"tool_call_id": call["id"], "output": "42"} for call in calls]
        path = f"/threads/{run['thread_id']}/runs/{run['id']}/submit_tool_outputs"
        streams.append(await server.stream(path, {"tool_outputs": outputs}))
    return streams


@pytest.mark.parametrize("name", SCENARIOS)
async def test_events_are_valid_and_in_order(name: str):
    async with running(script(played=SCENARIOS[name])) as server:
        streams = await streamed(server, "played", max_completion_tokens=300)

        for frames in streams:
            check_events(frames)
            check_order(frames)
        assert streams[-1][-2].event == f"thread.run.{ENDS.get(name, 'completed')}"


@pytest.mark.parametrize("name", ["plain answer", "text then call", "failure during a message", "length"])
async def test_deltas_add_up_to_the_final_text(name: str):
    async with running(script(played=SCENARIOS[name])) as server:
        streams = await streamed(server, "played", max_completion_tokens=300)

        for frames in streams:
            ended = [
                f for f in frames if f.event in ("thread.message.completed", "thread.message.incomplete")
            ]
            final = {frame.data["id"]: frame.data["content"][0]["text"]["value"] for frame in ended}
            assert accumulated(frames) == final


async def test_the_first_event_of_a_stream_is_the_thread_or_the_run_or_the_waiting_step():
    async with running(script(played=SCENARIOS["function call"])) as server:
        first, second = await streamed(server, "played")

        assert [first[0].event, first[1].event] == ["thread.created", "thread.run.created"]
        assert second[0].event == "thread.run.step.completed"
        [call] = second[0].data["step_details"]["tool_calls"]
        assert call["function"] == {"name": "f", "arguments": '{"a": 1}', "output": "42"}
        assert second[0].data["usage"]["total_tokens"] > 0


async def test_call_deltas_carry_id_and_name_once_and_the_step_begins_empty():
    async with running(script(played=SCENARIOS["parallel calls"])) as server:
        frames = (await streamed(server, "played"))[0]

        created = next(frame for frame in frames if frame.event == "thread.run.step.created")
        assert created.data["step_details"] == {"type": "tool_calls", "tool_calls": []}
        deltas = [
            f.data["delta"]["step_details"]["tool_calls"][0] for f in frames if f.event.endswith("step.delta")
        ]
        assert [(delta["index"], "id" in delta) for delta in deltas] == [
            (0, True),
            (0, False),
            (1, True),
            (1, False),
        ]
        assert "name" not in deltas[1]["function"]


async def test_only_the_first_text_delta_carries_annotations():
    async with running() as server:
        [frames] = await streamed(server, "plain")

        texts = [f.data["delta"]["content"][0]["text"] for f in frames if f.event == "thread.message.delta"]
        assert ["annotations" in text for text in texts] == [True, False]


async def test_case_053_line_separators_reach_the_client_escaped_and_whole():
    text = "one\u2028two\u0085three\x0cfour"
    async with running(script(played=[{"text": text}])) as server:
        assistant = await server.assistant()
        body = {"assistant_id": assistant["id"], "model": "played", "stream": True}
        async with server.http.stream("POST", "/threads/runs", json=body) as answer:
            raw = await answer.aread()

        assert raw.isascii()
        lines = raw.decode().splitlines()
        last = [json.loads(line[6:]) for line in lines if '"thread.message"' in line][-1]
        assert last["content"][0]["text"]["value"] == text


async def test_the_first_event_arrives_before_the_last_is_produced():
    turns = [{"text": "early", "tool_calls": [CALL]}, {"text": "late", "delay_s": 30}]
    async with running(script(played=turns)) as server:
        frames = (await streamed_first(server, "played"))[0]
        run = frames[-2].data
        path = f"/threads/{run['thread_id']}/runs/{run['id']}/submit_tool_outputs"
        [call] = run["required_action"]["submit_tool_outputs"]["tool_calls"]
        body = {"tool_outputs": [{"tool_call_id": call["id"], "output": ""}], "stream": True}
        async with server.http.stream("POST", path, json=body) as answer:
            async for piece in answer.aiter_bytes():
                assert piece.startswith(b"event: thread.run.step.completed")
                break


async def streamed_first(server: Any, name: str) -> list[list[Frame]]:
    assistant = await server.assistant(tools=functions("f"))
    return [await server.stream("/threads/runs", {"assistant_id": assistant["id"], "model": name})]


async def test_a_client_that_leaves_does_not_stop_the_run():
    async with running(script(played=[{"text": "still here", "delay_s": 0.2}])) as server:
        assistant = await server.assistant()
        body = {"assistant_id": assistant["id"], "model": "played", "stream": True}
        async with server.http.stream("POST", "/threads/runs", json=body) as answer:
            async for line in answer.aiter_lines():
                if line.startswith("data: ") and '"thread.run"' in line:
                    run = json.loads(line[6:])
                    break

        assert (await server.settled(run))["status"] == "completed"
        assert not server.service.core.hub.heard(run["id"])


async def test_cancelling_a_streamed_run_ends_its_stream_as_the_grammar_has_it():
    async with running(script(played=[{"text": "never", "delay_s": 30}])) as server:
        assistant = await server.assistant()
        body = {"assistant_id": assistant["id"], "model": "played"}
        stream = asyncio.create_task(server.stream("/threads/runs", body))
        await until(lambda: server.service.core.workers.count)
        active = server.service.core.store.active_runs(owner=server.service.core.workers.owner)[0]
        cancelled = await server.post(f"/threads/{active.thread_id}/runs/{active.run_id}/cancel")

        frames = await stream
        assert cancelled.json()["status"] == "cancelling"
        check_events(frames)
        check_order(frames)
        assert [frame.event for frame in frames[-3:]] == [
            "thread.run.cancelling",
            "thread.run.cancelled",
            "done",
        ]


async def test_an_error_before_the_first_event_is_plain_json():
    async with running() as server:
        answer = await server.post("/threads/runs", {"assistant_id": "asst_unknown", "stream": True})

        error = check_error(answer, 404)
        assert error["message"] == "No assistant found with id 'asst_unknown'."


async def test_a_silent_stream_is_kept_alive_with_comments():
    async with running(script(played=[{"text": "slow", "delay_s": 0.3}]), ping_s=0.05) as server:
        assistant = await server.assistant()
        body = {"assistant_id": assistant["id"], "model": "played", "stream": True}
        async with server.http.stream("POST", "/threads/runs", json=body) as answer:
            text = (await answer.aread()).decode()

        assert text.count(": ping\n\n") >= 2
        assert text.endswith("event: done\ndata: [DONE]\n\n")


async def test_a_service_that_stops_says_so_at_the_end_of_the_stream():
    async with running(script(played=[{"text": "never", "delay_s": 30}])) as server:
        assistant = await server.assistant()
        body = {"assistant_id": assistant["id"], "model": "played"}
        stream = asyncio.create_task(server.stream("/threads/runs", body))
        await until(lambda: server.service.core.workers.count)
        await server.service.pause()

        *_, error, done = await stream
        assert (error.event, done.event) == ("error", "done")
        assert "goes on when it is started again" in error.data["error"]["message"]
