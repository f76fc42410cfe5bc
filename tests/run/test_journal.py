import asyncio
import multiprocessing
import stat

import pytest

from assistant_runner.errors import ConfigurationError, NotFound, UsageError
from assistant_runner.run.events import (
    CallFinished,
    CallStarted,
    OutputsSubmitted,
    RoundCompleted,
    RoundStarted,
    RunEnded,
    RunRequested,
    RunStarted,
    TextArrived,
    Warned,
)
from assistant_runner.run.journal import Journal
from assistant_runner.run.memory import call_key, recall

CALL = {
    "id": "call_1",
    "type": "function",
    "function": {"name": "t", "arguments": "{}", "json_arguments": {}},
}
EVENTS = [
    RunRequested({"assistant_id": "asst_1"}, "embedded"),
    RunStarted("run_1", "thread_1", "asst_1", "m"),
    RoundStarted("run_1", 1, [CALL]),
    CallStarted("call_1", "t", {}, "write"),
    CallFinished("call_1", "t", False, "out", 0.1, ("note",)),
    RoundCompleted("run_1", 1, ["call_1"]),
    OutputsSubmitted("run_1", 1),
    TextArrived("Łó", "msg_1"),
    TextArrived("dź", "msg_1"),
    Warned("careful"),
    RunEnded("run_1", "thread_1", "completed"),
]


def begin(journal, prompt="hello"):
    return journal.begin(backend="embedded", prompt=prompt, thread_id=None, about={"folder": "/x"})


async def test_every_event_comes_back_as_it_was_in_order(tmp_path):
    with Journal(tmp_path) as journal:
        recording = begin(journal)
        for event in EVENTS:
            await recording.listen(event)
        recording.release()

        assert [record.event for record in journal.records(recording.key)] == EVENTS


async def test_the_newest_run_is_the_one_begun_last_even_if_the_clock_was_put_back(tmp_path):
    times = iter([3000.0, 3000.0, 1000.0, 1000.0])
    with Journal(tmp_path, clock=lambda: next(times, 1000.0)) as journal:
        for prompt in ("before", "after"):
            recording = begin(journal, prompt)
            await recording.listen(EVENTS[0])
            recording.release()

        assert [run.prompt for run in journal.runs()] == ["after", "before"]
        assert journal.last().prompt == "after"


async def test_a_record_is_seen_by_another_process_as_soon_as_listen_returns(tmp_path):
    with Journal(tmp_path) as journal, Journal(tmp_path) as other:
        recording = begin(journal)
        await recording.listen(EVENTS[0])

        assert [record.event for record in other.records(recording.key)] == EVENTS[:1]


async def test_runs_that_go_on_at_the_same_moment_share_one_commit(tmp_path):
    with Journal(tmp_path) as journal, Journal(tmp_path) as other:
        statements = []
        journal._db.set_trace_callback(statements.append)
        recordings = [begin(journal, str(number)) for number in range(5)]

        await asyncio.gather(*(recording.listen(EVENTS[0]) for recording in recordings))

        assert statements.count("COMMIT") == 1
        assert all(other.records(recording.key) for recording in recordings)


async def test_a_commit_that_fails_stops_every_run_that_waits_for_it(tmp_path):
    with Journal(tmp_path) as journal:
        journal._db.execute("PRAGMA query_only = on")
        recordings = [begin(journal, str(number)) for number in range(2)]

        ends = await asyncio.gather(
            *(recording.listen(EVENTS[0]) for recording in recordings), return_exceptions=True
        )

        assert [type(end) for end in ends] == [ConfigurationError] * 2


async def test_a_list_shows_the_newest_first_with_their_ids_and_states(tmp_path):
    with Journal(tmp_path) as journal:
        first = begin(journal, "one")
        for event in EVENTS:
            await first.listen(event)
        first.release()
        await begin(journal, "two").listen(EVENTS[0])

        newest, oldest = journal.runs()

    assert (newest.prompt, newest.status, newest.run_id) == ("two", "requested", None)
    assert (oldest.prompt, oldest.status, oldest.run_id) == ("one", "completed", "run_1")
    assert "about" not in oldest.document()


@pytest.mark.parametrize("reference", ["run_1", "j_"], ids=["run-id", "key"])
async def test_a_run_is_found_by_its_id_or_its_key(tmp_path, reference):
    with Journal(tmp_path) as journal:
        recording = begin(journal)
        await recording.listen(EVENTS[1])
        wanted = reference if reference == "run_1" else recording.key

        assert journal.find(wanted).key == recording.key
        assert journal.last().key == recording.key
        with pytest.raises(NotFound, match="run_2"):
            journal.find("run_2")


async def test_the_result_is_kept_whole_and_frees_the_run(tmp_path):
    with Journal(tmp_path) as journal:
        recording = begin(journal)
        await recording.listen(TextArrived("late", "msg_1"))
        recording.finish({"text": "Łódź"})

        assert journal.result(recording.key) == {"text": "Łódź"}
        assert [record.event.text for record in journal.records(recording.key)] == ["late"]
        assert not journal.is_worked_on(journal.find(recording.key))


async def test_a_run_that_a_living_process_works_on_is_not_taken_up(tmp_path):
    with Journal(tmp_path) as journal, Journal(tmp_path) as other:
        recording = begin(journal)
        await recording.listen(EVENTS[0])

        with pytest.raises(UsageError, match="another process"):
            other.take_up(other.find(recording.key))

        recording.release()
        journal.commit()
        again = other.take_up(other.find(recording.key))
        await again.listen(EVENTS[0])
        assert [record.seq for record in journal.records(recording.key)] == [1, 2]


async def test_a_run_that_was_looked_up_before_its_process_finished_is_taken_up(tmp_path):
    with Journal(tmp_path) as journal, Journal(tmp_path) as other:
        recording = begin(journal)
        await recording.listen(EVENTS[0])
        seen = other.find(recording.key)
        recording.finish({"text": "done"})
        journal.commit()

        assert other.take_up(seen).key == recording.key


def _begin_and_die(folder):
    import os

    asyncio.run(begin(Journal(folder)).listen(EVENTS[0]))
    os.kill(os.getpid(), 9)


async def test_a_run_of_a_killed_process_is_taken_up_where_it_stopped(tmp_path):
    process = multiprocessing.get_context("spawn").Process(target=_begin_and_die, args=(tmp_path,))
    process.start()
    process.join(30)

    with Journal(tmp_path) as journal:
        run = journal.last()
        assert not journal.is_worked_on(run)
        recording = journal.take_up(run)
        await recording.listen(EVENTS[1])
        assert [record.event for record in journal.records(run.key)] == EVENTS[:2]


def test_the_file_is_private(tmp_path):
    with Journal(tmp_path / "state") as journal:
        places = (journal.path, journal.path.parent, journal.path.parent / "locks")
        assert [oct(stat.S_IMODE(one.stat().st_mode)) for one in places] == ["0o600", "0o700", "0o700"]


async def test_a_journal_that_cannot_be_opened_or_written_says_so(tmp_path):
    (tmp_path / "journal.sqlite3").write_text("this is no database, and it is long enough to be looked at")
    with pytest.raises(ConfigurationError, match=r"journal\.sqlite3"):
        Journal(tmp_path)

    with Journal(tmp_path / "other") as journal:
        recording = begin(journal)
        journal._db.execute("PRAGMA query_only = 1")
        with pytest.raises(ConfigurationError, match="cannot be written"):
            await recording.listen(EVENTS[0])


async def test_pruning_drops_the_oldest_ended_runs_only(tmp_path):
    with Journal(tmp_path) as journal:
        for number in range(3):
            begin(journal, f"ended {number}").finish({})
        await begin(journal, "open").listen(EVENTS[0])

        assert journal.prune(keep=1) == 2
        assert [run.prompt for run in journal.runs()] == ["open", "ended 2"]


def test_a_run_that_waits_for_a_person_is_not_pruned(tmp_path):
    with Journal(tmp_path) as journal:
        begin(journal, "waits").release()
        begin(journal, "ended").finish({})

        assert journal.prune(keep=0) == 1
        assert [run.prompt for run in journal.runs()] == ["waits"]


async def memory_after(tmp_path, count):
    with Journal(tmp_path) as journal:
        recording = begin(journal)
        for event in EVENTS[:count]:
            await recording.listen(event)
        recording.release()
        return recall(journal.records(recording.key))


async def test_what_is_known_after_each_record(tmp_path):
    known = [await memory_after(tmp_path / str(count), count) for count in range(len(EVENTS) + 1)]

    assert [memory.run_id for memory in known[:3]] == [None, None, "run_1"]
    assert [len(memory.rounds) for memory in known[2:4]] == [0, 1]
    assert [call.tool for call in known[4].rounds[0].unknown()] == ["t"]
    assert known[5].rounds[0].unknown() == []
    assert known[5].finished()["call_1"].output == "out"
    assert [memory.rounds[0].completed for memory in known[5:7]] == [False, True]
    assert [memory.rounds[0].submitted for memory in known[6:8]] == [False, True]
    assert known[-1].ended.status == "completed"


async def test_a_call_that_was_begun_again_is_unknown_again(tmp_path):
    with Journal(tmp_path) as journal:
        recording = begin(journal)
        for event in (*EVENTS[:4], EVENTS[2], EVENTS[3]):
            await recording.listen(event)
        memory = recall(journal.records(recording.key))

    assert [len(memory.rounds), len(memory.rounds[0].unknown())] == [1, 1]


async def test_rounds_of_a_run_that_was_taken_over_are_remembered_but_are_not_this_runs(tmp_path):
    foreign = [RoundStarted("run_0", 1, [CALL]), *EVENTS[3:5], OutputsSubmitted("run_0", 1)]
    own = RoundStarted("run_1", 1, [{**CALL, "id": "call_2"}])
    with Journal(tmp_path) as journal:
        recording = begin(journal)
        for event in (EVENTS[0], *foreign, EVENTS[1], own):
            await recording.listen(event)
        recording.release()
        memory = recall(journal.records(recording.key))

    assert list(memory.finished()) == ["call_1"]
    assert [(known.run_id, known.number) for known in memory.rounds] == [("run_1", 1)]
    assert memory.open_calls() == {"call_2": "t"}


async def test_results_of_a_run_that_a_fresh_one_replaced_are_carried(tmp_path):
    with Journal(tmp_path) as journal:
        recording = begin(journal)
        for event in (*EVENTS[:5], RunStarted("run_2", "thread_1", "asst_1", "m")):
            await recording.listen(event)
        memory = recall(journal.records(recording.key))

        assert journal.find("run_1").key == journal.find("run_2").key == recording.key

    assert (memory.run_id, memory.rounds) == ("run_2", [])
    assert [[call.output for call in calls] for calls in memory.carried.values()] == [["out"]]


async def test_of_identical_calls_each_result_is_carried_once_also_after_a_kill(tmp_path):
    second = {**CALL, "id": "call_2"}
    with Journal(tmp_path) as journal:
        recording = begin(journal)
        for event in (
            *EVENTS[:5],
            RoundStarted("run_1", 2, [second]),
            CallStarted("call_2", "t", {}, "write"),
            CallFinished("call_2", "t", False, "more", 0.1),
            RunStarted("run_2", "thread_1", "asst_1", "m"),
            RoundStarted("run_2", 1, [{**CALL, "id": "call_3"}]),
            CallFinished("call_3", "t", False, "out", 0.0, origin="carried", key=call_key("t", {})),
        ):
            await recording.listen(event)
        recording._write({})
        journal.commit()
        memory = recall(journal.records(recording.key))

    assert [[call.output for call in calls] for calls in memory.carried.values()] == [["out", "more"]]
    assert [[call.output for call in calls] for calls in memory.carried_left().values()] == [["more"]]
