"""The `run` commands over the journal that `ask` leaves."""

import json
import socket

import pytest

QUESTION = ("--offline", "--engine", "planner", "What is the weather in San Francisco?")


@pytest.fixture
def asked(cli):
    """A run in the journal, and what it printed."""
    return cli(*QUESTION)


def test_list_shows_the_run_and_show_tells_its_story(cli, asked):
    [run] = json.loads(cli("run", "list", "--json").stdout)
    story = json.loads(cli("run", "show", run["run_id"], "--json").stdout)

    assert run["status"] == "completed"
    assert story["answer"] + "\n" == asked.stdout
    assert [call["name"] for round_ in story["rounds"] for call in round_["calls"]] == ["get_weather"]


@pytest.mark.parametrize("form", [(), ("--json",), ("--output", "run"), ("--output", "messages")])
def test_replay_gives_the_same_bytes_and_opens_no_socket(cli, monkeypatch, form):
    asked = cli(*QUESTION, *form)

    def no_socket(*args, **kwargs):
        raise AssertionError("replay opened a socket")

    monkeypatch.setattr(socket, "socket", no_socket)
    assert cli("run", "replay", "--last", *form).stdout == asked.stdout


def test_replay_of_events_gives_the_same_lines(cli):
    asked = cli(*QUESTION, "--jsonl")

    assert cli("run", "replay", "--last", "--jsonl").stdout == asked.stdout


def test_replay_of_a_run_that_failed_gives_the_same_error_and_status(cli, tmp_path):
    turn = {"error": {"code": "server_error", "message": "no luck"}}
    (tmp_path / "s.json").write_text(json.dumps({"format": 1, "scripts": {"x": {"turns": [turn]}}}))
    asked = cli("ask", "--engine", "script", "--script", "s.json", "--json", "go [flow:x]")

    replayed = cli("run", "replay", "--last", "--json")

    assert (asked.status, replayed.status) == (11, 11)
    assert json.loads(replayed.stdout) == json.loads(asked.stdout)


@pytest.mark.parametrize(
    "argv",
    [("resume", "--temperature", "1"), ("wait", "--model", "m"), ("fork", "--instructions", "x")],
    ids=" ".join,
)
def test_what_a_run_was_asked_with_cannot_be_said_anew(cli, asked, argv):
    command, *flag = argv

    outcome = cli("run", command, "--last", *flag)

    assert outcome.status == 2
    assert f"No such option '{flag[0]}'" in outcome.stderr


@pytest.fixture
def noting(tmp_path):
    """Flags for a model that has three words written down, and the tool that does it."""
    (tmp_path / "note.py").write_text(
        "def note(word: str) -> str:\n"
        '    """Write a word down."""\n'
        '    with open("notes", "a") as notes:\n'
        '        notes.write(word + "\\n")\n'
        '    return "noted"\n'
    )
    call = {"tool_calls": [{"name": "note", "arguments": {"word": "x"}}]}
    turns = [call, call, call, {"text": "done"}]
    (tmp_path / "s.json").write_text(json.dumps({"format": 1, "scripts": {"m": {"turns": turns}}}))
    return ("--engine", "script", "--script", "s.json", "-t", "./note.py:note", "-m", "m")


def test_identical_calls_that_were_made_before_a_limit_are_not_made_again(cli, noting, tmp_path):
    stopped = cli(*noting, "--rounds", "2", "go")
    resumed = cli("run", "resume", "--last", "--rounds", "25")

    assert (stopped.status, resumed.status) == (8, 0)
    assert (tmp_path / "notes").read_text() == "x\n" * 3


def test_a_fork_that_met_a_limit_keeps_what_it_was_given_when_it_is_resumed(cli, noting, tmp_path):
    whole = cli(*noting, "go")
    stopped = cli("run", "fork", "--last", "--rounds", "1")
    resumed = cli("run", "resume", "--last", "--rounds", "25")

    assert (whole.status, stopped.status, resumed.status) == (0, 8, 0)
    assert (tmp_path / "notes").read_text() == "x\n" * 3


def test_a_run_without_text_has_the_same_status_whoever_prints_it(cli, tmp_path):
    (tmp_path / "s.json").write_text(json.dumps({"format": 1, "scripts": {"x": {"turns": [{"text": ""}]}}}))
    asked = cli("ask", "--engine", "script", "--script", "s.json", "go [flow:x]")

    again = [cli("run", command, "--last").status for command in ("replay", "resume", "wait")]

    assert [asked.status, *again] == [13, 13, 13, 13]


def test_resume_of_a_completed_run_prints_its_answer_again(cli, asked):
    assert cli("run", "resume", "--last").stdout == asked.stdout


def test_steps_are_read_from_the_backend(cli, asked):
    steps = json.loads(cli("run", "steps", "--last", "--json").stdout)

    assert [step["type"] for step in steps] == ["tool_calls", "message_creation"]


def test_fork_gives_finished_results_again_and_diff_tells_what_changed(cli, asked):
    before = json.loads(cli("run", "list", "--json").stdout)[0]["run_id"]

    forked = cli("run", "fork", "--last")
    after = json.loads(cli("run", "list", "--json").stdout)[0]["run_id"]

    assert forked.stdout == asked.stdout
    assert "not called again" in forked.stderr
    assert cli("run", "diff", before, after).status == 0
    cli("run", "fork", before, "--prompt", "What is the wiki url of San Francisco?", "--round", "0")
    changed = cli("run", "diff", before, json.loads(cli("run", "list", "--json").stdout)[0]["run_id"])
    assert changed.status == 1
    assert "+prompt: What is the wiki url" in changed.stdout


def test_tail_of_an_ended_run_ends(cli, asked):
    lines = cli("run", "tail", "--last", "--jsonl").stdout.splitlines()

    assert json.loads(lines[-1])["event"] == "run.ended"


def test_cancel_of_a_run_that_is_over_says_so(cli, asked):
    assert "is completed" in cli("run", "cancel", "--last").stdout


@pytest.mark.parametrize(
    ("argv", "status"),
    [
        (("resume", "run_nowhere"), 5),
        (("resume",), 2),
        (("show", "--last"), 5),
        (("fork", "x", "--round", "0"), 5),
    ],
)
def test_a_run_that_is_not_there_is_named(cli, argv, status):
    outcome = cli("run", *argv)

    assert outcome.status == status
    assert "error:" in outcome.stderr


def test_no_journal_keeps_nothing(cli):
    cli(*QUESTION, "--no-journal")

    assert json.loads(cli("run", "list", "--json").stdout) == []
