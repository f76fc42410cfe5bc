"""Approvals at a real terminal (a pseudo-terminal), and where there is none (cases 117, 118)."""

import json
import os
import select
import signal
import sys
import time

import pytest

from tests.conftest import REPOSITORY

pty = pytest.importorskip("pty")

TOOL = """
from assistant_runner.tooling.schema import tool

@tool(effects="write")
def ring(bell: str) -> str:
    \"\"\"Ring a bell.\"\"\"
    with open("rung", "a") as out:
        out.write(bell)
    return "rung " + bell
"""
SCRIPT = (
    '{"format": 1, "scripts": {"ring": {"turns": ['
    '{"tool_calls": [{"name": "ring", "arguments": {"bell": "b1"}}]}, {"text": "done"}]}}}'
)
ARGV = ["--engine", "script", "--script", "s.json", "-m", "x-ring", "-t", "./bells.py:ring"]


@pytest.fixture(autouse=True)
def folder(tmp_path):
    (tmp_path / "bells.py").write_text(TOOL)
    (tmp_path / "s.json").write_text(SCRIPT)
    return tmp_path


def at_terminal(folder, answer: str, *, too_early: str = "") -> tuple[int, str]:
    """The status and the screen of a run at a pseudo-terminal whose user types the answer when asked.

    `too_early` is typed before.
    """
    pid, screen = pty.fork()
    if pid == 0:
        os.chdir(folder)
        os.environ["PYTHONPATH"] = str(REPOSITORY)
        os.execv(sys.executable, [sys.executable, "-m", "assistant_runner", *ARGV, "ring the bell"])
    os.write(screen, too_early.encode())
    seen, asked, deadline = "", False, time.monotonic() + 30
    while time.monotonic() < deadline:
        if not select.select([screen], [], [], 1)[0]:
            continue
        try:
            piece = os.read(screen, 4096).decode(errors="replace")
        except OSError:  # the process has closed its terminal
            break
        if not piece:
            break
        seen += piece
        if "lways:" in seen and not asked:
            asked = True
            os.write(screen, f"{answer}\n".encode())
    else:
        os.kill(pid, signal.SIGKILL)  # it waits for an answer that nobody gives
    _, status = os.waitpid(pid, 0)
    os.close(screen)
    return os.waitstatus_to_exitcode(status), seen


def test_case_117_a_write_that_nobody_can_approve_stops_the_run(process, folder):
    done = process(*ARGV, "ring the bell", start_new_session=True)

    assert done.returncode == 7
    assert "--approve ring" in done.stderr
    assert not (folder / "rung").exists()


def test_a_run_that_lacked_an_approval_goes_on_when_it_is_given(process, folder):
    process(*ARGV, "ring the bell", start_new_session=True)

    done = process("run", "resume", "--last", "--approve", "ring", start_new_session=True)

    assert (done.returncode, done.stdout) == (0, "done\n")
    assert (folder / "rung").read_text() == "b1"


def test_what_was_approved_beforehand_runs_unasked(process, folder):
    done = process(*ARGV, "--approve", "ri*", "ring the bell", start_new_session=True)

    assert (done.returncode, done.stdout) == (0, "done\n")
    assert (folder / "rung").read_text() == "b1"


@pytest.mark.parametrize(
    ("answer", "rung"), [pytest.param("y", True, id="yes"), pytest.param("n", False, id="no")]
)
def test_the_person_at_the_terminal_decides(folder, answer, rung):
    status, seen = at_terminal(folder, answer)

    assert status == 0
    assert 'ring({"bell": "b1"})' in seen
    assert (folder / "rung").exists() is rung


def test_always_answers_for_the_calls_that_wait_for_theirs_too(folder):
    calls = [{"name": "ring", "arguments": {"bell": f"b{number}"}} for number in range(12)]
    turns = [{"tool_calls": calls}, {"text": "done"}]
    (folder / "s.json").write_text(json.dumps({"format": 1, "scripts": {"ring": {"turns": turns}}}))

    status, seen = at_terminal(folder, "a")
    question = seen.partition("Run it?")[2].partition("a\r\n")[0]

    assert status == 0
    assert seen.count("lways:") == 1
    assert "→" not in question
    assert len((folder / "rung").read_text()) == len("b0b1b2b3b4b5b6b7b8b9b10b11")


def test_what_was_typed_before_the_question_is_no_answer_to_it(folder):
    status, _ = at_terminal(folder, "n", too_early="y\n")

    assert status == 0
    assert not (folder / "rung").exists()


def test_case_118_a_piped_prompt_is_never_read_as_an_answer(process, folder):
    done = process(*ARGV, "-", stdin="yes please tell me\n", start_new_session=True)

    assert done.returncode == 7
    assert not (folder / "rung").exists()


def test_what_a_model_writes_does_not_move_the_terminal(folder):
    wild = "\x1b[2J\x1b]0;mine\x07"
    call = {"name": "ring", "arguments": {"bell": wild}}
    turns = [{"tool_calls": [call]}, {"text": f"{wild} done"}]
    (folder / "s.json").write_text(json.dumps({"format": 1, "scripts": {"ring": {"turns": turns}}}))

    status, seen = at_terminal(folder, "y")

    assert status == 0
    assert "\x1b[2J" not in seen
    assert "\x1b]0;" not in seen
    assert "\\x1b[2J\\x1b]0;mine\\x07 done" in seen
