"""A run outlives its process: kill -9, restart, two processes on one folder (issue: item 3)."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from assistant_runner.service.store.sqlite import SqliteStore
from tests.conftest import REPOSITORY
from tests.service.conftest import BETA, functions, running, script, until
from tests.service.protocol import check_error

CALL = {"name": "f", "arguments": {}}
SCRIPT = script(
    plain=[{"text": "Hello there."}],
    round=[{"tool_calls": [CALL]}, {"text": "Done."}],
    slow=[{"text": "late but there", "delay_s": 1.0}],
    late_round=[{"tool_calls": [CALL]}, {"text": "after all", "delay_s": 1.0}],
    never=[{"text": "never", "delay_s": 60}],
)


class Process:
    """`serve` in a process of its own."""

    def __init__(self, folder: Path, script_path: Path) -> None:
        command = [sys.executable, "-m", "assistant_runner", "serve"]
        command += ["--engine", "script", "--script", str(script_path), "--data", str(folder)]
        command += ["--port", "0", "--json", "--log-level", "warning"]
        self.process = subprocess.Popen(
            command, cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, self.process.stderr.read() if self.process.stderr else ""
        self.ready = json.loads(line)
        self.http = httpx.Client(base_url=self.ready["base_url"], headers=BETA, timeout=20)

    def kill(self) -> None:
        self.http.close()
        self.process.kill()
        self._reap()

    def stop(self) -> int:
        self.http.close()
        self.process.send_signal(signal.SIGTERM)
        return self._reap()

    def _reap(self) -> int:
        status = self.process.wait(20)
        for pipe in (self.process.stdout, self.process.stderr):
            if pipe is not None:
                pipe.close()
        return status

    def run(self, model: str) -> dict[str, Any]:
        assistant = self.http.post("/assistants", json={"model": model, "tools": functions("f")}).json()
        thread = {"messages": [{"role": "user", "content": "hi"}]}
        return self.http.post(
            "/threads/runs", json={"assistant_id": assistant["id"], "thread": thread}
        ).json()

    def until(self, run: dict[str, Any], *statuses: str) -> dict[str, Any]:
        deadline = time.monotonic() + 15
        while time.monotonic() < deadline:
            seen = self.http.get(f"/threads/{run['thread_id']}/runs/{run['id']}").json()
            if seen["status"] in statuses:
                return seen
            time.sleep(0.02)
        raise AssertionError(f"never {statuses}: {seen}")

    def submit(self, run: dict[str, Any]) -> httpx.Response:
        calls = run["required_action"]["submit_tool_outputs"]["tool_calls"]
        outputs = [{"tool_call_id": call["id"], "output": "42"} for call in calls]
        path = f"/threads/{run['thread_id']}/runs/{run['id']}/submit_tool_outputs"
        return self.http.post(path, json={"tool_outputs": outputs})


@pytest.fixture
def script_path(tmp_path: Path) -> Path:
    path = tmp_path / "script.json"
    path.write_text(json.dumps(SCRIPT))
    return path


@contextmanager
def serving(folder: Path, script_path: Path) -> Iterator[Process]:
    process = Process(folder, script_path)
    try:
        yield process
    finally:
        if process.process.poll() is None:
            process.kill()


def test_after_kill_9_a_waiting_run_takes_its_outputs_and_a_working_one_is_taken_up(
    data_folder: Path, script_path: Path
):
    with serving(data_folder, script_path) as first:
        waiting = first.until(first.run("round"), "requires_action")
        working = first.until(first.run("slow"), "in_progress")
        first.kill()

    with serving(data_folder, script_path) as second:
        assert second.submit(waiting).json()["status"] == "queued"
        second.until(waiting, "completed")
        second.until(working, "completed")
        path = f"/threads/{working['thread_id']}"
        texts = [m["content"][0]["text"]["value"] for m in second.http.get(f"{path}/messages").json()["data"]]
        assert texts == ["late but there", "hi"]


def test_two_processes_on_one_folder_do_not_run_one_run_twice(data_folder: Path, script_path: Path):
    with serving(data_folder, script_path) as first, serving(data_folder, script_path) as second:
        runs = [first.run("slow") for _ in range(5)]
        waiting = second.until(first.run("late-round"), "requires_action")
        second.submit(waiting)

        for run in [*runs, waiting]:
            second.until(run, "completed")
            messages = first.http.get(f"/threads/{run['thread_id']}/messages").json()["data"]
            assert len(messages) == 2
        steps = first.http.get(f"/threads/{waiting['thread_id']}/runs/{waiting['id']}/steps").json()["data"]
        assert len(steps) == 2


def test_a_run_of_a_killed_process_is_taken_over_by_the_other(data_folder: Path, script_path: Path):
    with serving(data_folder, script_path) as first, serving(data_folder, script_path) as second:
        run = first.until(first.run("slow"), "in_progress")
        first.kill()

        second.until(run, "completed")


def test_one_process_cancels_a_run_that_the_other_works_on(data_folder: Path, script_path: Path):
    with serving(data_folder, script_path) as first, serving(data_folder, script_path) as second:
        run = first.until(first.run("never"), "in_progress")

        answer = second.http.post(f"/threads/{run['thread_id']}/runs/{run['id']}/cancel")

        assert answer.json()["status"] == "cancelling"
        second.until(run, "cancelled")


def test_a_graceful_stop_keeps_running_runs_and_leaves_with_status_0(data_folder: Path, script_path: Path):
    with serving(data_folder, script_path) as first:
        run = first.until(first.run("slow"), "in_progress")
        assert first.stop() == 0

    with serving(data_folder, script_path) as second:
        second.until(run, "completed")


async def test_a_run_that_was_interrupted_too_often_is_given_up(data_folder: Path):
    store_path = data_folder / "service.sqlite3"
    async with running(SCRIPT, store=SqliteStore.open(store_path)) as server:
        run = await server.ask("never")
    for _ in range(4):
        async with running(SCRIPT, store=SqliteStore.open(store_path)) as server:
            seen = (await server.get(f"/threads/{run['thread_id']}/runs/{run['id']}")).json()

    assert seen["status"] == "failed"
    assert "interrupted" in seen["last_error"]["message"]


async def test_an_interrupted_turn_begins_again_without_its_half_message(data_folder: Path):
    store_path = data_folder / "service.sqlite3"
    half = script(
        half=[{"text": "half", "builtin": "code_interpreter", "input": "import time; time.sleep(30)"}]
    )
    async with running(half, store=SqliteStore.open(store_path)) as server:
        run = await server.ask("half")
        while not await server.steps(run):
            pass
    whole = script(half=[{"text": "whole"}])
    async with running(whole, store=SqliteStore.open(store_path)) as server:
        assert (await server.settled(run))["status"] == "completed"
        texts = [m["content"][0]["text"]["value"] for m in await server.messages(run, run_id=run["id"])]

    assert texts == ["whole"]


def test_a_dead_owner_is_known_by_its_process():
    from assistant_runner.service.workers import _is_dead

    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    host = os.uname().nodename

    assert _is_dead(f"{host}/{child.pid}/x")
    assert not _is_dead(f"{host}/{os.getpid()}/x")
    assert not _is_dead(f"elsewhere/{child.pid}/x")


async def test_a_run_whose_end_could_not_be_written_is_taken_up_again(tmp_path: Path):
    path = tmp_path / "service.sqlite3"
    store = SqliteStore.open(path)
    store._connection.execute("PRAGMA busy_timeout = 1")
    document = script(quick=[{"text": "here", "delay_s": 0.1}], never=[{"text": "never", "delay_s": 60}])
    async with running(document, store=store, tick_s=0.02) as server:
        await server.ask("never")  # so that this process goes on giving signs of life
        run = await server.ask("quick")
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        busy = await server.post("/threads")
        await until(lambda: server.service.core.workers.count == 1)
        other.execute("ROLLBACK")
        other.close()

        assert (await server.settled(run))["status"] == "completed"
        assert "held by another program" in check_error(busy, 503)["message"]
