"""The root: what it knows without importing anything, what it says about a wrong command line."""

import inspect
import json
import os
import subprocess
import sys

import pytest

from assistant_runner.cli.edge import run_edge
from assistant_runner.cli.main import LINES, MODULES, app
from tests.conftest import REPOSITORY

HEAVY = ("pydantic", "rich", "httpx", "asyncio", "openai", "starlette", "jinja2", "dataclasses")
OURS = sorted({place.partition(":")[0] for place in MODULES.values()})
PROBE = """
import sys
from assistant_runner.cli.edge import run_edge
from assistant_runner.cli.main import app
status = run_edge(app, sys.argv[1:])
print(status, *sorted(sys.modules), file=sys.stderr)
"""


def imported_by(*argv: str) -> set[str]:
    """The modules in a process that has run this command line with success."""
    done = subprocess.run(
        [sys.executable, "-c", PROBE, *argv],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        encoding="utf-8",
        check=True,
    )
    status, *modules = done.stderr.split()
    assert status == "0"
    return set(modules)


@pytest.mark.parametrize("argv", [("--help",), ("--version",)], ids=" ".join)
def test_what_needs_no_command_imports_none_and_nothing_heavy(argv):
    modules = imported_by(*argv)

    assert modules & set(HEAVY) == set()
    assert modules & set(OURS) == set()


@pytest.mark.parametrize("name", sorted(MODULES))
def test_a_command_imports_its_own_module_alone_and_parses_without_pydantic(name):
    modules = imported_by(name, "--help")

    assert modules & set(OURS) == {MODULES[name].partition(":")[0]}
    assert modules & {"pydantic", "rich", "httpx", "openai"} == set()


def test_the_lines_of_the_root_are_those_of_the_commands():
    texts = {name: inspect.cleandoc(app.load(name).help or "") for name in MODULES}

    assert {name: text.split("\n\n")[0] for name, text in texts.items()} == LINES


@pytest.mark.parametrize(
    ("argv", "words", "path"),
    [
        pytest.param(("ask", "--modle", "x"), "--model", "assistant-runner ask", id="mistyped-option"),
        pytest.param(("--modle", "x"), "--model", "assistant-runner ask", id="of-a-question"),
        pytest.param(("ask", "--temperature", "5", "x"), "0<=x<=2", "assistant-runner ask", id="too-large"),
        pytest.param(("ask", "--temperature", "nan", "x"), "number", "assistant-runner ask", id="no-number"),
        pytest.param(("ask", "--rounds", "x"), "valid integer", "assistant-runner ask", id="no-integer"),
        pytest.param(("ask", "--tool"), "requires an argument", "assistant-runner ask", id="no-value"),
        pytest.param(
            ("batch", "merge", "-o", "x"), "PART...", "assistant-runner batch merge", id="no-argument"
        ),
        pytest.param(("batch", "merge", "a"), "--output", "assistant-runner batch merge", id="no-option"),
        pytest.param(("run", "shwo"), "shwo", "assistant-runner run", id="mistyped-subcommand"),
    ],
)
def test_a_wrong_command_line_is_named_with_the_way_to_the_help(cli, argv, words, path):
    outcome = cli(*argv)

    assert (outcome.status, outcome.stdout) == (2, "")
    assert words in outcome.stderr
    assert f"(see {path} --help)" in outcome.stderr


def test_with_json_a_wrong_command_line_is_a_document(cli):
    outcome = cli("batch", "run", "--json", "--retries", "-1")

    error = json.loads(outcome.stdout)["error"]
    assert (error["kind"], error["exit_status"]) == ("usage", 2)
    assert "--retries" in error["message"]


def test_a_group_without_a_command_shows_its_help(cli):
    outcome = cli("run")

    assert "Go on with a run that was interrupted or killed" in outcome.stdout + outcome.stderr


def test_a_question_may_begin_with_an_option(cli):
    outcome = cli("--offline", "--engine", "planner", "-q", "What is the weather in San Francisco?")

    assert outcome.status == 0
    assert "San Francisco" in outcome.stdout


@pytest.mark.parametrize("argv", [("--help",), ("config", "schema")], ids=" ".join)
def test_a_closed_pipe_ends_a_command_without_a_word(argv):
    with subprocess.Popen(
        [sys.executable, "-m", "assistant_runner", *argv],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
    ) as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.stderr is not None
        assert process.stderr.read() == ""

    assert process.returncode == 141


def test_a_current_folder_that_is_gone_is_said(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)  # where the test ends
    (tmp_path / "gone").mkdir()
    os.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()

    status = run_edge(app, ["--offline", "hello"])

    assert status == 2
    assert "the current folder is gone" in capsys.readouterr().err


def test_a_bug_is_a_json_document_too_when_json_is_asked(cli, monkeypatch):
    monkeypatch.setattr("assistant_runner.cli.ask.read_prompts", lambda words, stdin: 1 / 0)

    outcome = cli("--json", "hello")

    assert outcome.status == 1
    assert json.loads(outcome.stdout)["error"]["kind"] == "internal_error"
    assert "This is a bug" in outcome.stderr
    assert "Traceback" not in outcome.stderr


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-"])
def test_a_closed_standard_stream_is_no_bug(closed, tmp_path):
    command = f"{sys.executable} -m assistant_runner --offline 'What is 2 plus 2?' {closed}"

    done = subprocess.run(
        ["sh", "-c", command],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.returncode, "error" in done.stderr) == (0, False), done.stderr


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no device that is always full")
@pytest.mark.parametrize("flag", ["--quiet", "--json", "--jsonl"])
@pytest.mark.parametrize("unbuffered", ["", "1"], ids=["buffered", "unbuffered"])
def test_an_output_that_is_full_is_said_and_is_no_bug(flag, unbuffered):
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "assistant_runner", "--offline", flag, "What is 2 plus 2?"],
            env={**os.environ, "PYTHONPATH": str(REPOSITORY), "PYTHONUNBUFFERED": unbuffered},
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )

    assert done.returncode == 3
    assert "error: No space left on device" in done.stderr
    assert "Traceback" not in done.stderr


def test_an_interrupt_before_the_work_begins_leaves_without_a_word():
    script = (
        "import builtins, sys\n"
        "real = builtins.__import__\n"
        "def interrupted(name, *rest):\n"
        "    if name == 'asyncio':\n"
        "        raise KeyboardInterrupt\n"
        "    return real(name, *rest)\n"
        "builtins.__import__ = interrupted\n"
        "sys.argv = ['assistant-runner', 'hello']\n"
        "from assistant_runner.__main__ import main\n"
        "main()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.returncode, done.stderr) == (130, "")


def test_help_has_arguments_first_and_what_all_runs_share_under_a_heading_of_its_own(cli):
    text = cli("batch", "run", "--help").stdout

    places = [text.index(words) for words in ("Arguments:\n  [INPUT]", "Options:\n", "Options of the run:\n")]
    assert places == sorted(places)
    assert text.index("--on-error") < places[2] < text.index("--engine-base-url")


def test_garbage_is_collected_again_when_the_work_begins():
    code = "import gc; from assistant_runner.cli.edge import begin_work; gc.disable(); begin_work()"
    done = subprocess.run(
        [sys.executable, "-c", f"{code}; print(gc.isenabled(), gc.get_freeze_count() > 1000)"],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        encoding="utf-8",
        check=True,
    )

    assert done.stdout.split() == ["True", "True"]
