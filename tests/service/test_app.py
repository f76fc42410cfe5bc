"""The service as a whole: the first path from an assistant to an answer."""

from tests.service.conftest import functions, running, script

ROUND = script(
    round=[
        {"tool_calls": [{"name": "get_weather", "arguments": {"city": "Oslo"}}]},
        {"text": "It rains."},
    ]
)


async def test_a_run_asks_for_a_tool_and_completes_after_its_output():
    async with running(ROUND) as server:
        run = await server.settled(await server.ask("round", assistant_tools=functions("get_weather")))
        [call] = run["required_action"]["submit_tool_outputs"]["tool_calls"]
        path = f"/threads/{run['thread_id']}/runs/{run['id']}"
        outputs = [{"tool_call_id": call["id"], "output": "rain"}]

        submitted = await server.post(f"{path}/submit_tool_outputs", {"tool_outputs": outputs})

        assert submitted.json()["status"] == "queued"
        assert (await server.settled(run))["status"] == "completed"
        [message] = await server.messages(run, run_id=run["id"])
        assert message["content"][0]["text"] == {"value": "It rains.", "annotations": []}


async def test_the_stream_of_a_tool_round_follows_the_grammar():
    async with running(ROUND) as server:
        assistant = await server.assistant(tools=functions("get_weather"))

        frames = await server.stream("/threads/runs", {"assistant_id": assistant["id"], "model": "round"})

        assert [frame.event.removeprefix("thread.") for frame in frames] == [
            "created",
            "run.created",
            "run.queued",
            "run.in_progress",
            "run.step.created",
            "run.step.in_progress",
            "run.step.delta",
            "run.step.delta",
            "run.requires_action",
            "done",
        ]
