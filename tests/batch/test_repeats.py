"""Rows after trouble: what may be begun anew, and what may not because a tool may have written."""

from dataclasses import replace

import pytest

from assistant_runner.errors import BackendUnreachable, RunFailed
from assistant_runner.run.events import CallStarted
from assistant_runner.run.request import RunRequest
from assistant_runner.tooling.schema import tool_from_function
from tests.backends.faulty import Answer
from tests.batch.conftest import FakeRunner, result
from tests.run.world import open_world

TURNS = [{"tool_calls": [{"name": "count", "arguments": {"what": "x"}}]}, {"text": "done"}]


def first_run_is_stuck():
    """No submission for the first run arrives; those for other runs do."""
    broken = Answer(500, {"error": {"message": "oh", "type": "server_error", "code": None}})
    paths: list[str] = []

    def plan(seen):
        if not seen.matches("POST", r".*/submit_tool_outputs"):
            return None
        paths.append(seen.path)
        return broken if seen.path == paths[0] else None

    return plan


class WorldRunner:
    """The real driver on a world's backend. No journal: it takes nothing up."""

    engine_label = "script"
    notices = ()

    def __init__(self, world) -> None:
        self.world = world

    async def ask(self, question, *, listener=None):
        request = RunRequest(self.world.assistant_id, prompt=question.prompt)
        return await self.world.driver().run(request, listener=listener)

    async def take_up(self, run_id, *, listener=None):
        return None


@pytest.mark.parametrize(
    ("declared", "status", "calls"),
    [
        pytest.param({"effects": "read", "effects_declared": True}, "ok", 2, id="reads"),
        pytest.param(
            {"effects": "write", "effects_declared": True, "approval": "never"}, "failed", 1, id="writes"
        ),
        pytest.param({}, "failed", 1, id="declares-nothing"),
    ],
)
async def test_a_row_without_a_journal_is_begun_anew_only_if_its_tools_are_known_to_read(
    bench, tmp_path, declared, status, calls
):
    counted = tmp_path / "calls"

    def count(what: str) -> str:
        """Count."""
        with counted.open("a") as file:
            file.write("called\n")
        return "counted"

    bench.write({"prompt": "go"})
    tool = replace(tool_from_function(count), **declared)
    async with open_world(TURNS, tool, plan=first_run_is_stuck()) as world:
        await bench.go(WorldRunner(world))

    assert [row["status"] for row in bench.rows()] == [status]
    assert counted.read_text().splitlines() == ["called"] * calls


class WritingRunner(FakeRunner):
    """Each run it begins calls a tool that writes, and breaks; taken up, it does what `after` says."""

    def __init__(self, after) -> None:
        super().__init__()
        self.after = after

    async def ask(self, question, *, listener=None):
        await super().ask(question, listener=listener)
        await listener(CallStarted("call_1", "book", {}, "write"))
        raise BackendUnreachable("reset")

    async def take_up(self, run_id, *, listener=None):
        return self.after(run_id)


def fail_for_rate(run_id):
    raise RunFailed("x", run_id=run_id, last_error={"code": "rate_limit_exceeded"})


@pytest.mark.parametrize(
    ("after", "status"),
    [
        pytest.param(lambda run_id: result("there", run_id=run_id), "ok", id="taken-up"),
        pytest.param(lambda run_id: None, "failed", id="not-known"),
        pytest.param(fail_for_rate, "failed", id="failed-when-taken-up"),
    ],
)
async def test_a_row_that_wrote_is_taken_up_or_fails_but_never_begins_anew(bench, after, status):
    bench.write({"prompt": "go"})

    await bench.go(runner := WritingRunner(after))

    assert [row["status"] for row in bench.rows()] == [status]
    assert len(runner.asked) == 1
