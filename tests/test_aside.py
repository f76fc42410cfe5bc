import asyncio
import contextvars
import threading

import pytest

from assistant_runner.aside import aside


async def test_work_runs_in_a_daemon_thread_of_its_name_with_the_callers_variables():
    variable = contextvars.ContextVar("variable")
    variable.set("mine")

    thread, value = await aside(lambda: (threading.current_thread(), variable.get()), name="worker")

    assert (thread.name, thread.daemon, value) == ("worker", True, "mine")


@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(3)], ids=["error", "exit"])
async def test_what_the_work_raises_is_raised_to_who_waits(error):
    def work():
        raise error

    with pytest.raises(type(error)) as raised:
        await aside(work, name="worker")

    assert raised.value is error


async def test_the_loop_turns_meanwhile_and_who_gives_up_is_free_at_once():
    hold = threading.Event()
    waiting = asyncio.create_task(aside(hold.wait, name="worker"))
    await asyncio.sleep(0)

    waiting.cancel()
    await asyncio.wait([waiting], timeout=1)
    hold.set()

    assert waiting.cancelled()
