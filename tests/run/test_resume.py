"""Runs that ended early, taken up again from their journal."""

import asyncio

import pytest

from assistant_runner.errors import LimitReached, NotFound, RunError, RunExpired
from assistant_runner.run.journal import Journal
from assistant_runner.run.memory import recall
from assistant_runner.run.records import request_of
from assistant_runner.run.request import Limits, RunRequest
from assistant_runner.wire.threads import ThreadCreate
from tests.fakes import Recorder
from tests.run.world import HandClock, open_world

CALL = {"tool_calls": [{"name": "get_weather", "arguments": {"city": "Oslo"}}]}
ANSWER = {"text": "Rain."}


class Kept:
    """A world's runs with a journal."""

    def __init__(self, world, journal):
        self.world, self.journal = world, journal
        self.recording = journal.begin(backend="b", prompt="x", thread_id=None, about={})

    async def ask(self, **request):
        request = RunRequest(self.world.assistant_id, prompt="hello", **request)
        return await self.world.driver().run(request, listener=self.recording.listen)

    async def resume(self, limits=None, **policies):
        self.recording.release()
        memory = recall(self.journal.records(self.recording.key))
        driver = self.world.driver(limits or Limits(timeout_s=20), **policies)
        return await driver.resume(memory, request_of(memory.request), listener=self.recording.listen)

    def started(self):
        records = self.journal.records(self.recording.key)
        return [record.event.run_id for record in records if record.event.name == "run.started"]


async def test_a_run_that_expired_is_replaced_by_one_that_is_given_its_results(tmp_path):
    clock, made = HandClock(), []

    def get_weather(city: str) -> str:
        """Weather of a city, and it takes eleven minutes."""
        made.append(city)
        clock.now += 660
        return "rain"

    async with open_world([CALL, ANSWER], get_weather, clock=clock) as world:
        with Journal(tmp_path) as journal:
            kept = Kept(world, journal)
            with pytest.raises(RunExpired, match="results are kept") as caught:
                await kept.ask()
            with pytest.raises(RunExpired):
                await kept.resume()
            result = await kept.resume(restart_expired=True)

            assert (result.text, made, len(kept.started())) == ("Rain.", ["Oslo"], 2)
    assert "--restart-expired" in caught.value.remedy


@pytest.mark.parametrize("again", [True, False])
async def test_an_interrupted_run_goes_on_as_a_fresh_one_on_its_thread(tmp_path, again):
    made, began = [], asyncio.Event()

    async def get_weather(city: str) -> str:
        """Weather of a city."""
        made.append(city)
        return "rain"

    async def wait(city: str) -> str:
        """Wait the first time."""
        made.append(f"wait {city}")
        if made.count(f"wait {city}") == 1:
            began.set()
            await asyncio.Event().wait()
        return "waited"

    turns = [CALL, {"tool_calls": [{"name": "wait", "arguments": {"city": "Oslo"}}]}, ANSWER]
    async with open_world(turns, get_weather, wait) as world:
        with Journal(tmp_path) as journal:
            kept = Kept(world, journal)
            asking = asyncio.create_task(kept.ask())
            await began.wait()
            asking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asking
            result = await kept.resume(again=_yes if again else None)

            runs = (await world.backend.list_runs(result.run.thread_id)).data
            assert (result.text, [run.id for run in reversed(runs)]) == ("Rain.", kept.started())
    # what was finished is not done again; what was cut off, only if somebody says so
    assert made == ["Oslo", "wait Oslo", *(["wait Oslo"] if again else [])]


async def test_row_s0_24_a_run_that_met_the_round_limit_goes_on_with_a_higher_one(tmp_path):
    made = []

    def get_weather(city: str) -> str:
        """Weather of a city."""
        made.append(city)
        return "rain"

    second = {"tool_calls": [{"name": "get_weather", "arguments": {"city": "Bergen"}}]}
    async with open_world([CALL, second, ANSWER], get_weather) as world:
        with Journal(tmp_path) as journal:
            kept = Kept(world, journal)
            request = RunRequest(world.assistant_id, prompt="hello")
            with pytest.raises(LimitReached, match="after 1 rounds"):
                await world.driver(Limits(rounds=1)).run(request, listener=kept.recording.listen)

            result = await kept.resume(Limits(rounds=5))

    assert (result.text, made) == ("Rain.", ["Oslo", "Bergen"])


async def _yes(_call):
    return True


async def test_a_run_whose_id_was_lost_is_found_on_its_thread(tmp_path):
    async with open_world([ANSWER]) as world:
        thread = await world.backend.create_thread(ThreadCreate())
        with Journal(tmp_path) as journal:
            kept = Kept(world, journal)
            await kept.ask(thread_id=thread.id)
            records = journal.records(kept.recording.key)
            memory = recall(records[:1])  # as if it was killed before the backend's answer

            result = await world.driver().resume(memory, request_of(memory.request))

            assert result.run.id == kept.started()[0]
        assert len((await world.backend.list_runs(thread.id)).data) == 1


async def test_a_run_of_another_question_on_the_thread_is_not_taken_for_the_lost_one(tmp_path):
    async with open_world([ANSWER]) as world:
        thread = await world.backend.create_thread(ThreadCreate())
        with Journal(tmp_path) as journal:
            kept = Kept(world, journal)
            other = await kept.ask(thread_id=thread.id)
            memory = recall(journal.records(kept.recording.key)[:1])  # one that was killed before it was sent
            taken = journal.run_ids_on(thread.id)

            result = await world.driver().resume(memory, request_of(memory.request), taken=taken)

        assert taken == {other.run.id}
        assert result.run.id != other.run.id


async def test_a_run_that_vanished_is_named_with_the_way_on(tmp_path):
    async with open_world([ANSWER]) as world:
        with Journal(tmp_path) as journal:
            kept = Kept(world, journal)
            result = await kept.ask()
            await world.backend.delete_thread(result.run.thread_id)
            with pytest.raises(RunError, match=r"is not on embedded any more") as caught:
                await kept.resume()

    assert isinstance(caught.value.__cause__, NotFound)
    assert "run fork" in caught.value.remedy


async def test_a_submission_whose_record_was_lost_is_recognised_and_rounds_keep_their_numbers(tmp_path):
    made = []

    def get_weather(city: str) -> str:
        """Weather of a city."""
        made.append(city)
        return "rain"

    second = {"tool_calls": [{"name": "get_weather", "arguments": {"city": "Bergen"}}]}
    async with open_world([CALL, second, ANSWER], get_weather) as world:
        with Journal(tmp_path) as journal:
            kept = Kept(world, journal)
            driver = world.driver(resumable=True)
            with pytest.raises(LimitReached):  # left waiting with its second round
                await driver.run(
                    RunRequest(world.assistant_id, prompt="x"), listener=kept.recording.listen, pause_after=1
                )
            records = journal.records(kept.recording.key)
            lost = [
                record for record in records if record.event.name not in ("outputs.submitted", "run.ended")
            ]
            memory = recall(lost)
            heard = Recorder()

            result = await world.driver().resume(memory, request_of(memory.request), listener=heard)

    assert made == ["Oslo", "Bergen"]
    assert [round_.number for round_ in result.rounds] == [1, 2]
    assert heard.names()[:3] == ["run.resumed", "outputs.submitted", "round.started"]
