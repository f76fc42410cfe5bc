"""Random histories of one run: whatever ends a life of the program, nothing is lost, nothing done twice."""

import asyncio
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.run.lives import Life, play

TOOLS = ("read", "write", "plain", "breaks", "asks", "human", "bundle")
CALLS = st.tuples(st.sampled_from(TOOLS), st.integers(0, 1))
SCRIPTS = st.lists(st.lists(CALLS, min_size=1, max_size=3), min_size=1, max_size=3)
FAULTS = st.tuples(
    st.sampled_from(["create", "submit", "retrieve_run", "cancel_run", "list_runs", "list_messages"]),
    st.integers(1, 3),
    st.sampled_from(["before", "lost", "breaks"]),
)
LIVES = st.builds(
    Life,
    end=st.sampled_from(["kill", "interrupt", "hang", "expire", ""]),
    where=st.sampled_from(["record", "call", "call", "request"]),
    at=st.integers(1, 12),
    before=st.booleans(),
    dies_after=st.sampled_from([None, None, 0, 1, 2]),
    rounds=st.sampled_from([1, 2, 25, 25]),
    pause_after=st.sampled_from([None, None, None, 1]),
    faults=st.lists(FAULTS, max_size=2).map(tuple),
    again=st.sampled_from([None, False, True]),
    restart=st.booleans(),
    allow=st.booleans(),
    answer=st.booleans(),
    fork=st.sampled_from([None] * 8 + [-1, 0, 1]),
    meanwhile=st.sampled_from([""] * 4 + ["expire", "cancel"]),
    if_active=st.sampled_from(["fail", "wait", "cancel", "takeover"]),
    on_interrupt=st.sampled_from(["cancel", "cancel", "leave"]),
)


@settings(
    max_examples=15,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    script=SCRIPTS,
    lives=st.lists(LIVES, min_size=1, max_size=5),
    again=st.sampled_from([None, True]),
    repeats=st.sampled_from([2, 50, 50]),
    on_thread=st.booleans(),
)
def test_no_history_loses_anything_or_does_anything_twice(script, lives, again, repeats, on_thread):
    with tempfile.TemporaryDirectory() as folder:
        history = play(Path(folder), script, lives, again=again, repeats=repeats, on_thread=on_thread)
        asyncio.run(history)


WRITE = [("write", 0)]
BREAKS = [("breaks", 0)]
BEGUN = Life(end="kill", where="call")  # the process dies when its first call has done its work
MET_LIMIT = Life(rounds=1)

HISTORIES = {
    "a doubt is kept by a fresh run that is killed before it asks": (
        [[*WRITE, ("read", 0)], [("read", 1)]],
        [
            Life(end="interrupt", where="call"),
            Life(end="kill", where="record", at=2),
        ],
    ),
    "a doubt that was decided on is not forgotten by the next fresh run": (
        [WRITE, [("read", 0)]],
        [BEGUN, Life(again=False, rounds=1), Life(again=None)],
    ),
    "a write that failed is not made again by a fresh run": ([BREAKS, [("read", 0)]], [MET_LIMIT]),
    "a write that took too long is not made again by a fresh run": (
        [WRITE, [("read", 0)]],
        [Life(end="hang", where="call", rounds=1)],
    ),
    "the calls of a bundle are not made again by a fresh run": (
        [[("bundle", 0)], [("read", 0)]],
        [MET_LIMIT],
    ),
    "the calls of a bundle that a kill cut keep what they gave": (
        [[("bundle", 0)]],
        [Life(end="kill", where="record", at=8)],
    ),
    "a run that was cancelled by an interrupt that was killed goes on": (
        [WRITE, [("read", 0)], [("read", 1)]],
        [Life(end="interrupt", where="record", at=5, dies_after=2)],
    ),
    "a fresh run whose creation was not written down is found": (
        [WRITE, [("read", 0)]],
        [MET_LIMIT, Life(end="kill", where="record", at=2, before=True)],
    ),
    "a fresh run whose creation was not written down is found though nothing was known": (
        [[("asks", 0)]],
        [Life(allow=False), Life(end="kill", where="request", at=4)],
    ),
    "an interrupt while a limit is acted on leaves a run that can go on": (
        [WRITE, BREAKS],
        [MET_LIMIT, Life(end="interrupt", where="record", at=2, rounds=1)],
    ),
    "a fork of a fresh run keeps what that one was given": (
        [WRITE, [("read", 0)]],
        [MET_LIMIT, Life(), Life(fork=-1)],
    ),
    "an answer that comes after the run expired is given to the fresh one": (
        [[("human", 0)], WRITE],
        [Life(), Life(meanwhile="expire", restart=True, answer=True)],
    ),
    "an approval that comes after a kill is heeded": (
        [[("asks", 0)]],
        [Life(allow=False, end="kill", where="record", at=5), Life(allow=True)],
    ),
}


@pytest.mark.parametrize("name", HISTORIES)
async def test_of_histories_that_went_wrong_once(name, tmp_path):
    script, lives = HISTORIES[name]

    world = await play(tmp_path, script, lives)

    made = {key: world.made[key] for key in world.planned() if '"read"' not in key and '"human"' not in key}
    assert made == {key: world.planned()[key] for key in made}
    assert world.told.count("human_needed") <= 1
