"""Random legal and illegal sequences of requests keep every invariant (issue: hypothesis)."""

import asyncio
from typing import Any

import httpx
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from assistant_runner.service.app import Service
from assistant_runner.service.engines.script import ScriptEngine
from assistant_runner.service.settings import ServiceSettings
from assistant_runner.service.store.sqlite import SqliteStore
from assistant_runner.wire.runs import TERMINAL
from tests.service.conftest import BETA, HandClock, script
from tests.service.protocol import check_object

CALL = {"name": "f", "arguments": {}}
SCRIPT = script(
    plain=[{"text": "Hello."}],
    round=[{"text": "Hm.", "tool_calls": [CALL, CALL]}, {"tool_calls": [CALL]}, {"text": "Done."}],
    fails=[{"tool_calls": [CALL]}, {"text": "Half", "error": {"code": "server_error", "message": "no"}}],
    never=[{"text": "never", "delay_s": 3600}],
)
ACTIONS = st.sampled_from(
    [
        "run plain",
        "run round",
        "run fails",
        "run never",
        "submit",
        "submit wrong",
        "submit twice",
        "cancel",
        "message",
        "pass time",
        "delete message",
    ]
)


class Client:
    """One thread of one service, in process."""

    def __init__(self, http: httpx.AsyncClient, clock: HandClock) -> None:
        self.http = http
        self.clock = clock
        self.ended: dict[str, dict[str, Any]] = {}

    async def begin(self) -> None:
        self.assistant = (await self.http.post("/assistants", json={"model": "plain"})).json()["id"]
        self.thread = (await self.http.post("/threads", json={})).json()["id"]

    async def runs(self) -> list[dict[str, Any]]:
        page = await self.http.get(f"/threads/{self.thread}/runs", params={"limit": 100})
        return page.json()["data"]

    async def act(self, action: str) -> None:
        """One request, legal or not; the answer is a success or a 400."""
        answers = [await self._request(action)]
        if action == "submit twice":
            answers.append(await self._request(action))
        for answer in answers:
            if answer is not None:
                assert answer.status_code in (200, 400), answer.text
        for _ in range(30):
            await asyncio.sleep(0)

    async def _request(self, action: str) -> httpx.Response | None:
        base = f"/threads/{self.thread}"
        if action.startswith("run "):
            body = {"assistant_id": self.assistant, "model": action[4:]}
            return await self.http.post(f"{base}/runs", json=body)
        if action == "message":
            return await self.http.post(f"{base}/messages", json={"role": "user", "content": "hi"})
        if action == "pass time":
            self.clock.pass_s(400)
            return None
        if action == "delete message":
            messages = (await self.http.get(f"{base}/messages")).json()["data"]
            return await self.http.delete(f"{base}/messages/{messages[0]['id']}") if messages else None
        runs = await self.runs()
        if not runs:
            return None
        path = f"{base}/runs/{runs[0]['id']}"
        if action == "cancel":
            return await self.http.post(f"{path}/cancel")
        waiting = runs[0]["required_action"]
        calls = waiting["submit_tool_outputs"]["tool_calls"] if waiting else [{"id": "call_none"}]
        ids = [call["id"] for call in calls] + (["call_wrong"] if action == "submit wrong" else [])
        outputs = [{"tool_call_id": identifier, "output": "x"} for identifier in ids]
        return await self.http.post(f"{path}/submit_tool_outputs", json={"tool_outputs": outputs})

    async def check(self) -> None:
        runs = await self.runs()
        active = [run for run in runs if run["status"] not in TERMINAL]
        assert len(active) <= 1
        for run in runs:
            check_object("thread.run", run)
            assert (run["required_action"] is not None) == (run["status"] == "requires_action")
            if run["id"] in self.ended:
                assert run == self.ended[run["id"]]
            if run["status"] in TERMINAL:
                self.ended[run["id"]] = run
            steps = await self.http.get(f"/threads/{self.thread}/runs/{run['id']}/steps")
            unfinished = [step for step in steps.json()["data"] if step["status"] == "in_progress"]
            assert len(unfinished) <= 1
            if run["status"] in TERMINAL:
                assert not unfinished
            if run["status"] == "requires_action":
                [step] = unfinished
                asked = [call["id"] for call in step["step_details"]["tool_calls"]]
                calls = run["required_action"]["submit_tool_outputs"]["tool_calls"]
                assert asked == [call["id"] for call in calls]
        messages = (await self.http.get(f"/threads/{self.thread}/messages")).json()["data"]
        writing = [message for message in messages if message["status"] == "in_progress"]
        assert not writing or active


async def play(actions: list[str]) -> None:
    clock = HandClock()
    store = SqliteStore.open(":memory:")
    service = Service(
        store=store,
        engine=ScriptEngine.from_document(SCRIPT),
        settings=ServiceSettings(tick_s=3600),
        clock=clock,
    )
    transport = httpx.ASGITransport(service.app)
    async with (
        service,
        httpx.AsyncClient(transport=transport, base_url="http://x/v1", headers=BETA) as http,
    ):
        client = Client(http, clock)
        await client.begin()
        for action in actions:
            await client.act(action)
            await client.check()
    store.close()


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(ACTIONS, min_size=1, max_size=12))
def test_no_sequence_of_requests_breaks_an_invariant(actions: list[str]):
    asyncio.run(play(actions))
