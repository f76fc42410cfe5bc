"""Whole outputs stay as long as somebody may read on in them, and no longer."""

import os

import pytest

from assistant_runner.run.events import CallFinished, RunRequested
from assistant_runner.run.journal import Journal
from assistant_runner.tooling import spill as spill_module
from assistant_runner.tooling.contract import ToolFailure
from assistant_runner.tooling.spill import FULL_OUTPUT, Spill

DAY_S = 86_400
NOW = 1_800_000_000.0


@pytest.fixture
def spill(tmp_path):
    return Spill(tmp_path / "outputs")


def keep(spill, call_id, *, days_ago, text="long"):
    output_id = spill.keep(call_id, text)
    os.utime(spill.path(output_id), (NOW - days_ago * DAY_S,) * 2)
    return output_id


def left(spill):
    return sorted(path.stem for path in spill.folder.glob("*.txt"))


def test_an_output_that_nobody_read_for_a_month_is_dropped(spill):
    old, young = keep(spill, "call_old", days_ago=31), keep(spill, "call_young", days_ago=29)

    spill.tidy(lambda: (), now=NOW)

    assert left(spill) == [young]
    with pytest.raises(ToolFailure, match="there is no output"):
        spill.read(old, 0)


def test_reading_keeps_an_output(spill):
    output_id = keep(spill, "call_1", days_ago=31)
    spill.read(output_id, 0)

    spill.tidy(lambda: ())

    assert left(spill) == [output_id]


def test_beyond_a_size_the_oldest_go_but_not_those_of_today(spill, monkeypatch):
    monkeypatch.setattr(spill_module, "KEPT_BYTES", 25)
    today = [keep(spill, f"call_{n}", days_ago=0.1, text="x" * 20) for n in range(2)]
    keep(spill, "call_9", days_ago=2, text="x" * 20)

    spill.tidy(lambda: (), now=NOW)

    assert left(spill) == sorted(today)


async def test_outputs_of_runs_that_can_be_resumed_stay(spill, tmp_path):
    ids = {ending: keep(spill, f"call_{ending}", days_ago=99) for ending in ("open", "ended")}
    with Journal(tmp_path) as journal:
        for ending, output_id in ids.items():
            recording = journal.begin(backend="embedded", prompt=ending, thread_id=None, about={})
            await recording.listen(RunRequested({"assistant_id": "asst_1"}, "embedded"))
            note = f"{FULL_OUTPUT}{spill.path(output_id)}"
            await recording.listen(CallFinished(f"call_{ending}", "t", False, "cut", 0.1, ("x", note)))
            recording.finish({}) if ending == "ended" else recording.release()

        spill.tidy(lambda: journal.unended_calls(FULL_OUTPUT), now=NOW)

    assert left(spill) == [ids["open"]]


def test_it_is_done_now_and_then_only(spill):
    spill.folder.mkdir()
    (spill.folder / ".tidied").touch()
    os.utime(spill.folder / ".tidied", (NOW - 60, NOW - 60))
    output_id = keep(spill, "call_1", days_ago=99)

    spill.tidy(lambda: (), now=NOW)

    assert left(spill) == [output_id]
