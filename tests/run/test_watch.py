import pytest

from assistant_runner.errors import BackendUnreachable, ProtocolError
from assistant_runner.run.request import RunRequest
from assistant_runner.run.watch import RunWatcher
from assistant_runner.wire.stream import StreamEvent
from tests.fakes import Recorder, ScriptedBackend, answers, asks, call, driver, message_object, run_object


class HintingBackend(ScriptedBackend):
    """Gives a poll hint with each read."""

    hints = [0.05, 1.0, 0.05, None]

    async def retrieve_run(self, *, thread_id, run_id):
        run, _ = await super().retrieve_run(thread_id=thread_id, run_id=run_id)
        return run, self.hints[self.reads - 1]


@pytest.mark.parametrize(("interval", "waits"), [(None, [0.05, 1.0, 0.05]), (0.2, [0.2] * 3)])
async def test_case_008_each_wait_follows_the_newest_hint_unless_an_interval_is_set(interval, waits):
    busy = run_object("in_progress")
    backend, slept = HintingBackend([], polls=[busy, busy, busy, run_object("completed")]), []

    async def sleep(seconds):
        slept.append(seconds)

    watcher = RunWatcher(backend, Recorder(), run=busy, sleep=sleep, poll_interval_s=interval)
    await watcher.poll()

    assert slept == waits


async def test_case_009_a_missing_action_is_read_again_and_then_answered():
    proper = asks(call("get_weather", '{"city": "a"}'))[0].data
    empty = run_object("requires_action", required_action=None)
    backend = ScriptedBackend(
        [StreamEvent("thread.run.requires_action", empty)], answers("done"), polls=[empty, proper]
    )

    backend.list_messages = _no_messages

    def get_weather(city: str) -> str:
        """Weather."""
        return city

    assert (await driver(backend, get_weather).run(RunRequest("asst_1", prompt="x"))).rounds != []


async def test_case_009_an_action_that_stays_missing_is_a_protocol_error_and_the_run_is_cancelled():
    empty = run_object("requires_action", required_action=None)
    backend = ScriptedBackend([StreamEvent("thread.run.requires_action", empty)], polls=[empty])

    with pytest.raises(ProtocolError, match="run_1"):
        await driver(backend).run(RunRequest("asst_1", prompt="x"))

    assert backend.cancelled == ["run_1"]
    assert backend.reads < 12


async def test_a_terminal_run_never_goes_back_whatever_comes_late():
    backend = ScriptedBackend(
        [
            StreamEvent("thread.message.completed", message_object("done")),
            StreamEvent("thread.run.completed", run_object("completed")),
            StreamEvent("thread.run.in_progress", run_object("in_progress")),
        ]
    )

    assert (await driver(backend).run(RunRequest("asst_1", prompt="x"))).text == "done"


async def test_a_stale_read_of_calls_that_were_answered_is_not_answered_again():
    asking = asks(call("get_weather", '{"city": "a"}', id="c1"))
    made = []

    def get_weather(city: str) -> str:
        """Weather."""
        made.append(city)
        return city

    busy = [StreamEvent("thread.run.in_progress", run_object("in_progress"))]
    backend = ScriptedBackend(
        asking,
        busy,
        polls=[asking[0].data, asking[0].data, run_object("in_progress"), run_object("completed")],
    )
    backend.list_messages = _no_messages

    await driver(backend, get_weather).run(RunRequest("asst_1", prompt="x"))

    assert (made, len(backend.submitted)) == (["a"], 1)


class OutBackend(ScriptedBackend):
    """Cannot be reached for a number of reads."""

    out = 0

    async def retrieve_run(self, *, thread_id, run_id):
        self.reads += 1
        if self.reads <= self.out:
            raise BackendUnreachable("refused")
        return run_object("completed"), None


@pytest.mark.parametrize("out", [3, 100])
async def test_an_outage_is_sat_out_for_a_while_and_told_once(out):
    backend, heard = OutBackend([]), Recorder()
    backend.out = out
    watcher = RunWatcher(backend, heard, run=run_object("in_progress"), sleep=no_sleep)

    if out == 3:
        assert (await watcher.poll()).status == "completed"
    else:
        with pytest.raises(BackendUnreachable):
            await watcher.poll()

    assert heard.names() == ["warning"]


async def no_sleep(_seconds):
    return None


async def _no_messages(thread_id, **query):
    from assistant_runner.wire.base import Page
    from assistant_runner.wire.threads import Message

    return Page[Message](data=[])
