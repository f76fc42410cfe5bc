"""Signals to a real process that runs against a server of ours: one cancel, one line, one status."""

import asyncio
import os
import signal
import sys
from contextlib import asynccontextmanager

import pytest

from assistant_runner.cli.edge import run_async
from tests.backends.faulty import Cut, Hang, once
from tests.conftest import REPOSITORY
from tests.run.world import open_world

SLOW = [{"text": "never said", "delay_s": 60}]
CALL = [{"tool_calls": [{"name": "wait_long", "arguments": {}}]}, {"text": "never said"}]
TOOL = '''
import pathlib, time

def wait_long() -> str:
    """Wait for a long time."""
    pathlib.Path("tool-began").touch()
    time.sleep(60)
    return ""

def quick() -> str:
    """Answer at once."""
    return "quick"
'''


def wait_long() -> str:
    """Wait for a long time."""
    return ""


def quick() -> str:
    """Answer at once."""
    return "quick"


@asynccontextmanager
async def asking(world, folder, *argv):
    """`ask` in a process of its own, against the world's server."""
    (folder / "tool.py").write_text(TOOL)
    env = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    flags = ("--backend", world.server.url, "-a", world.assistant_id)
    flags += ("-t", "./tool.py:wait_long", "-t", "./tool.py:quick")
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "assistant_runner", "ask", "go", *flags, *argv),
        cwd=folder,
        env=env,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def until(condition):
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.02)


def polled():
    """A plan after which the client reads the run again and again: it knows its id then."""
    return once("POST", ".*/runs", Cut(3))


def reads(world):
    return [path for path in world.server.paths("GET") if "/runs/run_" in path]


def requests(world, ending):
    return [path for path in world.server.paths() if path.endswith(ending)]


async def end_of(process):
    out, err = await asyncio.wait_for(process.communicate(), 30)
    return process.returncode, out.decode(), err.decode()


@pytest.mark.parametrize(
    ("signum", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["interrupt", "terminate"]
)
async def test_case_114_a_signal_while_waiting_cancels_once_and_says_how_to_go_on(tmp_path, signum, status):
    async with open_world(SLOW, plan=polled()) as world, asking(world, tmp_path, "-q") as process:
        await until(lambda: reads(world))
        process.send_signal(signum)
        code, out, err = await end_of(process)

        assert (code, out) == (status, "")
        assert len(requests(world, "/cancel")) == 1
    [line] = [line for line in err.splitlines() if "interrupted" in line]
    assert "run run_" in line
    assert "thread thread_" in line
    assert "assistant-runner run resume run_" in line


async def test_case_044_a_signal_during_a_blocked_tool_cancels_once_and_names_the_tool(tmp_path):
    async with (
        open_world(CALL, wait_long, plan=lambda seen: None) as world,
        asking(world, tmp_path) as process,
    ):
        await until((tmp_path / "tool-began").exists)
        process.send_signal(signal.SIGINT)
        code, out, err = await end_of(process)

        assert (code, out) == (130, "")
        assert "interrupted during wait_long" in err
        assert len(requests(world, "/cancel")) == 1


async def test_case_114_a_signal_during_the_submission_cancels_once(tmp_path):
    turns = [{"tool_calls": [{"name": "quick", "arguments": {}}]}, {"text": "x"}]
    plan = once("POST", ".*submit_tool_outputs", Hang())
    async with open_world(turns, quick, plan=plan) as world, asking(world, tmp_path) as process:
        await asyncio.wait_for(world.server.hanging.wait(), 30)
        process.send_signal(signal.SIGINT)
        code, out, err = await end_of(process)

        assert (code, out) == (130, "")
        assert len(requests(world, "/cancel")) == 1
    assert "run resume" in err


async def test_case_114_a_signal_before_a_run_began_leaves_at_once(tmp_path):
    plan = once("GET", ".*/assistants/.*", Hang())
    async with open_world(SLOW, plan=plan) as world, asking(world, tmp_path) as process:
        await asyncio.wait_for(world.server.hanging.wait(), 30)
        process.send_signal(signal.SIGINT)

        assert (await end_of(process))[:2] == (130, "")


async def test_case_114_a_second_signal_during_the_cancel_ends_at_once(tmp_path):
    faults = polled(), once("POST", ".*/cancel", Hang())
    plan = lambda seen: faults[0](seen) or faults[1](seen)  # noqa: E731
    async with open_world(SLOW, plan=plan) as world, asking(world, tmp_path) as process:
        await until(lambda: reads(world))
        process.send_signal(signal.SIGINT)
        await asyncio.wait_for(world.server.hanging.wait(), 30)
        process.send_signal(signal.SIGINT)

        assert (await asyncio.wait_for(end_of(process), 3))[0] == 130


async def test_case_115_a_run_that_completed_meanwhile_is_not_cancelled_and_its_answer_is_not_lost(tmp_path):
    plan = once("GET", ".*/messages", Hang())
    turns = [{"text": "The answer."}]
    async with open_world(turns, plan=plan) as world, asking(world, tmp_path, "--output", "run") as process:
        await asyncio.wait_for(world.server.hanging.wait(), 30)
        process.send_signal(signal.SIGTERM)
        code, out, err = await end_of(process)

        assert (code, out, requests(world, "/cancel")) == (143, "", [])
        assert "had completed" in err
        async with resuming(tmp_path) as process:
            assert (await end_of(process))[:2] == (0, "The answer.\n")


async def test_case_115_a_run_may_be_left_alive_and_waited_for_later(tmp_path):
    turns = [{"text": "The answer.", "delay_s": 1.5}]
    async with open_world(turns, plan=polled()) as world:
        async with asking(world, tmp_path, "--on-interrupt", "leave") as process:
            await until(lambda: reads(world))
            process.send_signal(signal.SIGTERM)
            code, out, err = await end_of(process)
        assert (code, out, requests(world, "/cancel")) == (143, "", [])
        assert "run wait" in err

        async with resuming(tmp_path, "wait") as process:
            assert (await end_of(process))[:2] == (0, "The answer.\n")


@asynccontextmanager
async def resuming(folder, command="resume", *argv):
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "assistant_runner", "run", command, "--last", *argv),
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    yield process
    await process.wait()


async def test_a_killed_process_leaves_a_stopped_run_that_is_resumed(tmp_path, cli):
    turns = [{"text": "The answer.", "delay_s": 1}]
    async with open_world(turns, plan=polled()) as world:
        async with asking(world, tmp_path) as process:
            await until(lambda: reads(world))
            process.kill()
            await process.wait()

        assert " stopped " in cli("run", "list").stdout
        async with resuming(tmp_path) as process:
            assert (await end_of(process))[:2] == (0, "The answer.\n")
        creates = [path for path in world.server.paths("POST") if path.endswith("/runs")]
    assert len(creates) == 1


@pytest.mark.parametrize("read", [1, 3], ids=["at-once", "during-a-round"])
async def test_a_closed_pipe_cancels_the_run_and_leaves_quietly(tmp_path, read):
    turns = [{"tool_calls": [{"name": "quick", "arguments": {}}]}, {"text": "x", "delay_s": 60}]
    async with open_world(turns, quick, plan=lambda seen: None) as world:
        async with asking(world, tmp_path, "--jsonl") as process:
            for _ in range(read):
                await process.stdout.readline()
            process.stdout._transport.close()
            err = (await asyncio.wait_for(process.stderr.read(), 30)).decode()
            await asyncio.wait_for(process.wait(), 30)

        assert (process.returncode, "error" in err) == (141, False), err
        assert len(requests(world, "/cancel")) == 1


def test_a_closed_terminal_stops_nothing_that_was_told_to_ignore_it():
    async def work():
        os.kill(os.getpid(), signal.SIGHUP)
        for _ in range(10):  # the loop looks for signals in between
            await asyncio.sleep(0)
        return "done"

    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # what nohup does
    try:
        assert run_async(work()) == "done"
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize(
    ("method", "path", "flag"),
    [("GET", ".*/assistants/.*", "-q"), ("POST", ".*/threads/runs", "--detach")],
    ids=["look-up", "detached"],
)
async def test_a_backend_that_never_answers_is_given_up_at_the_deadline(tmp_path, method, path, flag):
    async with (
        open_world(SLOW, plan=once(method, path, Hang())) as world,
        asking(world, tmp_path, flag, "--timeout", "0.5") as process,
    ):
        code, out, err = await end_of(process)

    assert (code, out) == (10, "")
    assert "no run began within 0.5 s" in err
