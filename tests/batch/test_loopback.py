"""Batches against real sockets: our HTTP backend and driver, a server that refuses and breaks."""

import contextlib
import json

import pytest

from assistant_runner.assembly import Question
from assistant_runner.backends.connect import open_http
from assistant_runner.batch.execution import Policy
from assistant_runner.batch.invocation import BatchRequest, run_batch
from assistant_runner.batch.limiter import LimiterPlan
from assistant_runner.batch.source import Source
from assistant_runner.run.driver import Driver
from assistant_runner.run.loop import Workshop
from assistant_runner.run.request import Limits, RunRequest
from assistant_runner.settings import load_settings
from bench.batch_server import Plan, Served


class HttpRunner:
    engine_label = "http"
    notices = ()

    def __init__(self, backend) -> None:
        self.backend = backend
        self._driver = Driver(backend, Workshop({}, None, None), limits=Limits(timeout_s=30))

    async def assistant(self, question):
        return await self.backend.retrieve_assistant("asst_1")

    async def ask(self, question, *, listener=None):
        return await self._driver.run(RunRequest("asst_1", question.prompt), listener=listener)


@contextlib.asynccontextmanager
async def opened(loaded):
    async with open_http(loaded) as backend:
        yield HttpRunner(backend)


class Quiet:
    def __init__(self) -> None:
        self.said = []

    def say(self, message):
        self.said.append(message)

    def tell(self, progress):
        pass


async def go(url, tmp_path, rows, *, plan=LimiterPlan(), policy=Policy()):
    (tmp_path / "in.txt").write_text("".join(f"p{n}\n" for n in range(rows)))
    request = BatchRequest(
        Source(tmp_path / "in.txt", "in.txt"),
        tmp_path / "out.jsonl",
        question=Question("", assistant="asst_1"),
        limiter=plan,
        policy=policy,
    )
    loaded = load_settings({"backend": url}, environ={}, cwd=tmp_path)
    outcome = await run_batch(request, loaded, Quiet(), folder=tmp_path, opened=opened)
    answers = [json.loads(line)["answer"] for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    return outcome, answers


@pytest.mark.parametrize("workers", [10, None], ids=["10-workers", "auto"])
async def test_case_077_workers_share_the_wait_after_a_refusal(tmp_path, workers):
    with Served(Plan(room=1, per_second=20, retry_after_s=0.25)) as server:
        outcome, answers = await go(server.url, tmp_path, 30, plan=LimiterPlan(fixed=workers))

        assert outcome.status == 0
        assert answers == [f"re: p{n}" for n in range(30)]
        assert server.seen.refused <= 25
        assert set(server.seen.answered.values()) == {1}


async def test_auto_finds_the_room_that_there_is(tmp_path):
    with Served(Plan(latency_s=0.2, room=20, retry_after_s=None)) as server:
        _, answers = await go(server.url, tmp_path, 120)

        assert len(answers) == 120
        assert server.seen.most_at_once >= 15
        assert server.seen.refused <= 25


async def test_server_errors_are_tried_again(tmp_path):
    with Served(Plan(server_errors=0.1)) as server:
        outcome, answers = await go(server.url, tmp_path, 40, plan=LimiterPlan(fixed=8))

        assert outcome.status == 0
        assert answers == [f"re: p{n}" for n in range(40)]
        assert server.seen.faults > 0
