"""Rows of a pipe that stays open: nobody waits for its next line longer than they want to."""

import asyncio
import os
import signal
import subprocess
import sys

import pytest

from assistant_runner.assembly import Question
from assistant_runner.batch.budget import Budget, Spending
from assistant_runner.batch.codec import codec_for
from assistant_runner.batch.execution import Batch, Policy, Stop
from assistant_runner.batch.limiter import Limiter, LimiterPlan
from assistant_runner.batch.output import ResultStore
from assistant_runner.batch.source import Source
from assistant_runner.errors import UsageError
from tests.batch.conftest import FakeRunner
from tests.conftest import REPOSITORY


@pytest.fixture
def pipe(monkeypatch):
    """Standard input, at its other end."""
    here, there = os.pipe()
    with os.fdopen(here) as stdin, os.fdopen(there, "wb", buffering=0) as writer:
        monkeypatch.setattr("sys.stdin", stdin)
        yield writer


@pytest.fixture
def batch(tmp_path):
    store = ResultStore(tmp_path / "out.jsonl", codec_for(None, "out.jsonl"), ordered=True, errors=None)
    store.load()
    made = Batch(
        Source(None, "-"),
        store,
        question=Question(""),
        fingerprint=lambda assistant: "f1",
        limiter=Limiter(LimiterPlan(fixed=2)),
        spending=Spending(Budget(), {}),
        policy=Policy(scan=False),
    )
    made.prepare()
    yield made
    store.close()


async def until(condition) -> None:
    async with asyncio.timeout(5):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.001)


async def test_an_interrupt_does_not_wait_for_the_next_line(batch, pipe):
    pipe.write(b"a\nb\n")
    task = asyncio.create_task(batch.run(FakeRunner()))
    await until(lambda: batch.tally.ok == 2)

    batch.halt(Stop(130, "interrupted"))

    await asyncio.wait_for(task, 1)
    assert batch.status() == 130
    pipe.close()


async def test_a_stream_is_asked_to_its_end(batch, pipe):
    task = asyncio.create_task(batch.run(runner := FakeRunner()))
    for name in ("first", "second", "third"):
        pipe.write(f"{name}\n".encode())
        await until(lambda: name in runner.prompts)  # noqa: B023
    pipe.close()

    await asyncio.wait_for(task, 5)

    assert (batch.tally.ok, batch.tally.total, batch.status()) == (3, 3, 0)


async def test_what_cannot_be_read_in_a_stream_is_raised(batch, pipe):
    pipe.write(b"\xff\xfe\x00\xd8\x00\xd8" + b"caf\xe9\n")
    pipe.close()

    with pytest.raises(UsageError):
        await asyncio.wait_for(batch.run(FakeRunner()), 5)


def test_a_process_leaves_on_the_first_interrupt_though_its_input_stays_open(tmp_path):
    words = ["-m", "assistant_runner", "batch", "run", "-", "--no-scan", "--offline"]
    environ = {**os.environ, "PYTHONPATH": str(REPOSITORY), "ASSISTANT_RUNNER_HOME": str(tmp_path / "home")}
    process = subprocess.Popen(
        [sys.executable, *words],
        cwd=tmp_path,
        env=environ,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    process.stdin.write(b"What is the weather in London?\n")
    process.stdin.flush()
    assert b'"status":"ok"' in process.stdout.readline()

    process.send_signal(signal.SIGINT)
    status = process.wait(5)

    with process.stdin, process.stdout, process.stderr:
        assert status == 130
        assert b"Fatal" not in process.stderr.read()
