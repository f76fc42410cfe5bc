"""Killed for real (SIGKILL, no tidying up) at every record of a run, then resumed: exactly once each.

The backend is the embedded service over its SQLite file, the journal is the real one, each life of
the program is a process of its own.
"""

import asyncio
import multiprocessing
import os
import signal
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from assistant_runner.assembly import recorded
from assistant_runner.backends.embedded import open_embedded
from assistant_runner.run.driver import Driver, Policies
from assistant_runner.run.events import CallFinished
from assistant_runner.run.journal import Journal, Recording
from assistant_runner.run.loop import Workshop
from assistant_runner.run.memory import recall
from assistant_runner.run.records import request_of, result_record
from assistant_runner.run.request import Limits, RunRequest
from assistant_runner.service.engines.script import ScriptEngine
from assistant_runner.service.settings import ServiceSettings
from assistant_runner.tooling.contract import ToolContext
from assistant_runner.tooling.gate import ToolGate
from assistant_runner.tooling.registry import Toolbox
from assistant_runner.tooling.schema import tool_from_function
from assistant_runner.wire.assistants import AssistantCreate

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")

ROUNDS = 3
RECORDS = 2 + 5 * ROUNDS + 1
"""requested, started; round, call begun, call finished, completed, submitted; ended."""

SCRIPT = {
    "format": 1,
    "scripts": {
        "three": {
            "turns": [
                *[
                    {"tool_calls": [{"name": "append", "arguments": {"line": n}}]}
                    for n in range(1, ROUNDS + 1)
                ],
                {"text": "All lines are written."},
            ]
        }
    },
}


class CountingEngine(ScriptEngine):
    """Counts its turns in a file, across processes."""

    count: Path

    async def turn(self, request):
        with self.count.open("a") as file:
            file.write(f"{request.turn}\n")
        async for event in super().turn(request):
            yield event


def append_tool(path, declared):
    def append(line: int) -> str:
        """Append a line to the file."""
        with path.open("a") as file:
            file.write(f"{line}\n")
        return f"wrote {line}"

    if declared:
        return replace(tool_from_function(append), effects="write", approval="never")
    return tool_from_function(append)


async def live(home, again=None, declared=True):
    """One life of the program: begin the run, or take it up if there is one; its answer."""

    def context(call_id, tool, deadline_s, thread_id):
        return ToolContext(tool_call_id=call_id, http=httpx.AsyncClient(), environ={}, deadline_s=deadline_s)

    engine = CountingEngine.from_document(SCRIPT)
    engine.count = home / "turns"
    workshop = Workshop(Toolbox([append_tool(home / "effects", declared)]), ToolGate(), context)
    settings = ServiceSettings(lease_s=0.2, tick_s=0.05)
    with Journal(home / "state") as journal:
        async with open_embedded(home / "service.sqlite3", engine, settings) as backend:
            driver = Driver(
                backend, workshop, limits=Limits(timeout_s=20), policies=Policies(resumable=True, again=again)
            )
            known = journal.runs()
            if known:
                recording, memory = journal.take_up(known[0]), recall(journal.records(known[0].key))
            else:
                tools = list(workshop.tools.definitions())
                assistant = await backend.create_assistant(AssistantCreate(model="m-three", tools=tools))
                recording = journal.begin(backend="embedded", prompt="go", thread_id=None, about={})
                memory = None
            with recorded(recording, None) as listen:
                if memory is None or memory.request is None:
                    assistant = (await backend.list_assistants()).data[0]
                    result = await driver.run(RunRequest(assistant.id, prompt="go"), listener=listen)
                else:
                    result = await driver.resume(memory, request_of(memory.request), listener=listen)
                recording.finish(result_record(result))
    return result.text


def live_and_die(home, nth, before):
    """In a process of its own: the n-th record is the last thing it does (or does not do any more)."""
    listen, count = Recording.listen, 0

    async def counting(self, event):
        nonlocal count
        count += 1
        if before and count == nth:
            os.kill(os.getpid(), signal.SIGKILL)
        await listen(self, event)
        if count == nth:
            os.kill(os.getpid(), signal.SIGKILL)

    Recording.listen = counting
    asyncio.run(live(home))


def kill_at(home, nth, *, before=False):
    process = multiprocessing.get_context("fork").Process(target=live_and_die, args=(home, nth, before))
    process.start()
    process.join(30)
    assert process.exitcode == -signal.SIGKILL


async def yes(_call):
    return True


@pytest.mark.parametrize("nth", range(1, RECORDS + 1))
def test_killed_after_any_record_each_tool_call_is_made_exactly_once(tmp_path, nth):
    kill_at(tmp_path, nth)

    answer = asyncio.run(live(tmp_path, again=yes))

    assert answer == "All lines are written."
    assert (tmp_path / "effects").read_text().split() == ["1", "2", "3"]


@pytest.mark.parametrize("declared", [True, False], ids=["write", "undeclared"])
@pytest.mark.parametrize("round_", range(ROUNDS))
def test_killed_between_a_write_and_its_record_the_call_is_not_made_again_unasked(tmp_path, round_, declared):
    finished = 2 + 5 * round_ + 3
    kill_at(tmp_path, finished, before=True)

    assert asyncio.run(live(tmp_path, again=None, declared=declared)) == "All lines are written."

    assert (tmp_path / "effects").read_text().split() == ["1", "2", "3"]
    with Journal(tmp_path / "state") as journal:
        outputs = [
            r.event.output for r in journal.records(journal.last().key) if isinstance(r.event, CallFinished)
        ]
    assert ["unknown" in output for output in outputs] == [n == round_ for n in range(ROUNDS)]


def test_a_finished_round_that_was_not_submitted_costs_no_model_call_and_no_tool_call(tmp_path):
    completed = 2 + 5 * 2 + 4
    kill_at(tmp_path, completed)
    before = (tmp_path / "turns").read_text().split()

    asyncio.run(live(tmp_path))

    turns = (tmp_path / "turns").read_text().split()
    assert turns[len(before) :] == ["3"]  # the answer alone
    assert (tmp_path / "effects").read_text().split() == ["1", "2", "3"]
