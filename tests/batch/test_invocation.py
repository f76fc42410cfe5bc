import asyncio
import contextlib
import json
import os
import signal
import sqlite3

import pytest

from assistant_runner.assembly import Question
from assistant_runner.batch.budget import Budget
from assistant_runner.batch.checks import Assertions
from assistant_runner.batch.execution import Policy
from assistant_runner.batch.invocation import BatchRequest, run_batch
from assistant_runner.batch.progress import read_snapshot
from assistant_runner.batch.source import Source
from assistant_runner.errors import ConfigurationError, NotFound
from assistant_runner.settings import load_settings
from tests.batch.conftest import FakeRunner


class Heard:
    def __init__(self) -> None:
        self.said, self.told = [], []

    def say(self, message):
        self.said.append(message)

    def tell(self, progress):
        self.told.append(progress)


class Invocation:
    def __init__(self, folder) -> None:
        self.folder = folder
        self.output = folder / "out.jsonl"
        self.heard = Heard()
        (folder / "in.txt").write_text("a\nb\nc\n")

    async def go(self, runner, **request):
        @contextlib.asynccontextmanager
        async def opened(loaded):
            runner.backend = None
            yield runner

        return await run_batch(
            BatchRequest(Source(self.folder / "in.txt", "in.txt"), self.output, **request),
            load_settings(
                {"prices": {"gpt-test": {"input": 1.0, "output": 2.0}}},
                environ={"ASSISTANT_RUNNER_HOME": str(self.folder)},
                cwd=self.folder,
            ),
            self.heard,
            folder=self.folder,
            opened=opened,
        )

    def rows(self):
        return [json.loads(line) for line in self.output.read_text().splitlines()]


@pytest.fixture
def invocation(tmp_path):
    return Invocation(tmp_path)


async def test_progress_is_told_and_kept_beside_the_output(invocation):
    outcome = await invocation.go(FakeRunner())

    kept = read_snapshot(invocation.output)
    assert (outcome.status, kept["state"], kept["done"], kept["total"]) == (0, "finished", 3, 3)
    assert kept["cost"] == pytest.approx(3 * (6 * 1.0 + 4 * 2.0) / 1_000_000)
    assert invocation.heard.told[0]["state"] == "running"
    assert invocation.heard.told[-1]["exit_status"] == 0


async def test_progress_counts_the_whole_output_not_the_last_invocation(invocation):
    await invocation.go(FakeRunner(), budget=Budget(max_rows=1))

    await invocation.go(FakeRunner())

    kept = read_snapshot(invocation.output)
    assert (kept["done"], kept["ok"], kept["kept"], kept["tokens"]) == (3, 3, 1, 30)
    assert kept["cost"] == pytest.approx(sum(row["cost"] for row in invocation.rows()))


async def test_limits_of_an_assistant_file_hold_for_rows(invocation):
    (invocation.folder / "assistant.yaml").write_text("name: A\nmodel: m\nlimits: {rounds: 2}\n")

    await invocation.go(runner := FakeRunner())

    assert {question.limits.rounds for question in runner.asked} == {2}


async def test_rows_that_all_failed_for_one_reason_leave_with_its_status(invocation):
    def act(question, number):
        raise NotFound("no such thread", status_code=404)

    outcome = await invocation.go(FakeRunner(act))
    await invocation.go(FakeRunner())

    assert (outcome.status, outcome.snapshot["exit_status"], len(invocation.rows())) == (5, 5, 3)
    assert "--retry-failed asks them again" in invocation.heard.said[-1]


async def test_assertions_that_no_row_meets_are_said(invocation):
    wrong = Assertions({}, {"b": {"contains": "re:"}})

    await invocation.go(FakeRunner(), assertions=wrong)

    assert invocation.heard.said[-1].startswith("no row has the id b")


async def test_a_model_without_a_price_is_said(invocation):
    def other(question, number):
        return None

    runner = FakeRunner(other)
    original = runner.ask

    async def ask(question, *, listener=None):
        result = await original(question, listener=listener)
        return type(result)(
            **{
                name: getattr(result, name) if name != "run" else result.run.model_copy(update={"model": "x"})
                for name in result.__slots__
            }
        )

    runner.ask = ask
    await invocation.go(runner)

    assert "no price is known for x" in invocation.heard.said[-1]
    assert invocation.rows()[0]["cost"] is None


async def test_an_interrupt_lets_the_rows_in_flight_end_and_leaves_the_rest(invocation):
    release = asyncio.Event()

    async def act(question, number):
        if number == 0:
            os.kill(os.getpid(), signal.SIGINT)
            await release.wait()

    runner = FakeRunner(lambda question, number: act(question, number))
    from assistant_runner.batch.limiter import LimiterPlan

    task = asyncio.create_task(invocation.go(runner, limiter=LimiterPlan(fixed=1)))
    while not any("interrupted" in words for words in invocation.heard.said):  # noqa: ASYNC110
        await asyncio.sleep(0.001)
    release.set()
    outcome = await task

    assert outcome.status == 130
    assert [row["answer"] for row in invocation.rows()] == ["re: a"]
    assert "2 rows are left" in invocation.heard.said[-1]


async def test_a_disk_that_takes_no_progress_stops_the_batch(invocation, monkeypatch):
    def full(output, document):
        raise ConfigurationError("no space left")

    monkeypatch.setattr("assistant_runner.batch.invocation.write_snapshot", full)

    with pytest.raises(ConfigurationError, match="no space left"):
        await invocation.go(FakeRunner(lambda question, number: asyncio.sleep(0.01)))


async def test_answers_of_other_batches_are_taken_from_the_cache_when_wanted(invocation):
    await invocation.go(FakeRunner(), cache=True)
    invocation.output = invocation.folder / "second.jsonl"

    await invocation.go(again := FakeRunner(), cache=True)

    assert again.asked == []
    assert [(row["answer"], row["copied_from"]) for row in invocation.rows()] == [
        (f"re: {name}", "cache") for name in "abc"
    ]
    sqlite3.connect(invocation.folder / "cache" / "batch.sqlite3").close()


async def test_a_stream_is_asked_while_it_comes_and_resumed_like_a_file(invocation, monkeypatch):
    first, second = os.pipe(), os.pipe()
    runner = FakeRunner()
    streamed = {"policy": Policy(scan=False)}
    source = Source(None, "-")

    async def go(runner):
        @contextlib.asynccontextmanager
        async def opened(loaded):
            runner.backend = None
            yield runner

        loaded = load_settings({}, environ={}, cwd=invocation.folder)
        request = BatchRequest(source, invocation.output, question=Question(""), **streamed)
        return await run_batch(request, loaded, invocation.heard, folder=invocation.folder, opened=opened)

    with os.fdopen(first[0]) as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        task = asyncio.create_task(go(runner))
        os.write(first[1], b"a\nb\n")
        while not runner.asked:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        os.write(first[1], b"c\n")
        os.close(first[1])
        await task
    with os.fdopen(second[0]) as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        os.write(second[1], b"new\na\nc\n")
        os.close(second[1])
        await go(again := FakeRunner())

    assert runner.prompts == ["a", "b", "c"]
    assert again.prompts == ["new"]
    assert [row["answer"] for row in invocation.rows()] == ["re: new", "re: a", "re: c"]
    assert "re: b" in (invocation.folder / "out.jsonl.batch" / "superseded.jsonl").read_text()


def test_an_output_that_no_batch_wrote_has_no_progress(tmp_path):
    with pytest.raises(NotFound, match="no batch has written"):
        read_snapshot(tmp_path / "out.jsonl")
