"""`batch` as people run it: our own service, and real processes where they are killed."""

import collections
import json
import os
import signal
import subprocess
import sys
import time

import pytest

from tests.conftest import REPOSITORY

BOOK = """
import os
from assistant_runner.tooling.contract import ToolContext
from assistant_runner.tooling.schema import tool


@tool(effects="write", approval="never")
def book(what: str, context: ToolContext) -> str:
    \"\"\"Book it.\"\"\"
    handle = os.open("booked.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(handle, (context.question + "\\n").encode())
    os.close(handle)
    return "booked"
"""
SCRIPTS = {
    "say": {"turns": [{"text": "said"}]},
    "slow": {"turns": [{"text": "said", "delay_s": 60}]},
    "long": {
        "turns": [{"text": "w", "finish": "length", "usage": {"prompt_tokens": 60, "completion_tokens": 40}}]
    },
    "fail": {"turns": [{"error": {"code": "invalid_prompt", "message": "no"}}]},
    "book": {"turns": [{"tool_calls": [{"name": "book", "arguments": {"what": "x"}}]}, {"text": "done"}]},
}


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "book.py").write_text(BOOK)
    (tmp_path / "script.json").write_text(json.dumps({"format": 1, "scripts": SCRIPTS}))
    return tmp_path


@pytest.fixture
def here(cli, folder):
    """Run a batch command in this process."""
    return lambda *words, model="say": cli(*command(*words, model=model)[3:])


def environment():
    return {**os.environ, "PYTHONPATH": str(REPOSITORY)}


def command(*words, model="say"):
    scripted = ["--engine", "script", "--script", "script.json", "--model", model, "--no-tools"]
    return [
        sys.executable,
        "-m",
        "assistant_runner",
        "batch",
        *words,
        *(scripted if words[0] == "run" else []),
    ]


def run(folder, *words, stdin=None, model="say"):
    return subprocess.run(
        command(*words, model=model),
        cwd=folder,
        env=environment(),
        input=stdin,
        capture_output=True,
        timeout=60,
        check=False,
    )


def rows(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_row_s0_28_documents_on_stdin_give_a_result_each_in_order(folder):
    done = run(folder, "run", stdin=b'[{"prompt": "a"}, {"prompt": "b"}]')

    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert (done.returncode, [row["index"] for row in found]) == (0, [0, 1])
    assert [row["answer"] for row in found] == ["said", "said"]


def test_case_078_exit_statuses_of_the_command(folder, here):
    (folder / "in.txt").write_text("fine\nbad [flow:fail]\n")

    partial = here("run", "in.txt", "-o", "partial.jsonl")
    ignored = here("run", "in.txt", "-o", "ignored.jsonl", "--ignore-errors")
    failed = here("run", "in.txt", "-o", "failed.jsonl", model="fail")
    (folder / "wrong.jsonl").write_text("7\n")
    wrong = here("run", "wrong.jsonl", "-o", "wrong.out.jsonl")
    wrong_ignored = here("run", "wrong.jsonl", "-o", "wrong.out.jsonl", "--retry-failed", "--ignore-errors")

    assert [done.status for done in (partial, ignored, failed)] == [16, 0, 11]
    assert (wrong.status, wrong_ignored.status) == (2, 0)
    assert "warning: rows failed" in ignored.stderr
    assert partial.stdout == ""


def test_what_a_row_without_an_answer_took_is_counted(folder, here):
    (folder / "in.txt").write_text("a\nb\nc\n")

    done = here("run", "in.txt", "-o", "out.jsonl", "-j", "1", "--max-tokens", "100", model="long")

    [row] = rows(folder / "out.jsonl")
    assert (done.status, row["error"]["kind"], row["usage"]["total_tokens"]) == (8, "run_incomplete", 100)
    assert "--max-tokens 100: 100 are spent" in done.stderr
    here("report", "out.jsonl", "-o", "r.html")
    assert "<b>100</b><span>tokens" in (folder / "r.html").read_text()


def test_case_076_changed_instructions_of_an_assistant_file_are_named_and_refused(folder, here):
    assistant = folder / "assistant.yaml"
    assistant.write_text("name: T\nmodel: say\ninstructions: v1\n")
    (folder / "in.txt").write_text("a\nb\n")
    words = ["run", "in.txt", "-o", "out.jsonl", "-a", "assistant.yaml"]
    here(*words)
    assistant.write_text("name: T\nmodel: say\ninstructions: v2\n")

    refused, accepted = here(*words), here(*words, "--accept-changes")

    assert (refused.status, accepted.status) == (3, 0)
    assert "changed since: assistant.instructions" in refused.stderr
    assert len({row["fingerprint"] for row in rows(folder / "out.jsonl")}) == 1


def test_a_run_leaves_reports_and_the_later_commands_read_them(folder, here):
    (folder / "in.csv").write_text("id,city,expect\n1,Oslo,said\n2,Rome,never\n")
    reports = ["--junit", "j.xml", "--report", "r.html", "--json"]

    ran = here("run", "in.csv", "-o", "out.csv", "--template", "Weather in {{ city }}?", *reports)
    status = here("status", "out.csv", "--json")
    report = here("report", "out.csv", "-o", "again.html")

    assert (ran.status, json.loads(ran.stdout)["unpassed"]) == (16, 1)
    assert json.loads(status.stdout)["state"] == "finished"
    assert ": 2 of 2 rows, 1 did not pass" in ran.stderr
    assert "does not contain" in (folder / "j.xml").read_text()
    assert "//" not in (folder / "r.html").read_text()
    assert (report.status, (folder / "again.html").exists()) == (0, True)


def test_row_s0_30_reports_show_failed_rows_that_were_routed_elsewhere(folder, here):
    (folder / "in.jsonl").write_text('{"id": "a", "prompt": "x"}\n{"id": "b", "prompt": 7}\n')
    route = ["--on-error", "route", "--errors", "errors.jsonl", "--junit", "j.xml"]

    ran = here("run", "in.jsonl", "-o", "out.jsonl", *route)
    here("report", "out.jsonl", "-o", "r.html", "--junit", "again.xml")

    assert (ran.status, len(rows(folder / "out.jsonl"))) == (16, 1)
    assert 'tests="2" failures="0" errors="1"' in (folder / "j.xml").read_text()
    assert 'tests="2" failures="0" errors="1"' in (folder / "again.xml").read_text()
    assert "a prompt is text" in (folder / "r.html").read_text()


def test_retry_runs_the_same_command_again_for_failed_rows(folder):
    (folder / "script.json").rename(folder / "kept.json")
    (folder / "script.json").write_text(json.dumps({"format": 1, "scripts": {"say": SCRIPTS["fail"]}}))
    first = run(folder, "run", "-", "-o", "out.jsonl", stdin=b"a\nb\n")
    (folder / "kept.json").rename(folder / "script.json")

    again = run(folder, "retry", "out.jsonl")

    assert (first.returncode, again.returncode) == (11, 0)
    assert [row["answer"] for row in rows(folder / "out.jsonl")] == ["said", "said"]


def test_retry_finds_what_was_read_from_a_pipe_and_names_a_folder_that_is_gone(folder):
    place = folder / "place"
    place.mkdir()
    (place / "script.json").write_text((folder / "script.json").read_text())
    os.mkfifo(place / "pipe")
    writer = subprocess.Popen(["sh", "-c", "printf 'a\\nbad [flow:fail]\\n' > place/pipe"], cwd=folder)
    first = run(place, "run", "pipe", "-o", "../out.jsonl")
    writer.wait(timeout=10)

    again = run(folder, "retry", "out.jsonl")
    place.rename(folder / "moved")
    gone = run(folder, "retry", "out.jsonl")

    assert (first.returncode, again.returncode, gone.returncode) == (16, 16, 2)
    assert b"which is not there any more" in gone.stderr


def test_a_dash_as_output_is_standard_output(folder):
    (folder / "in.txt").write_text("a\n")

    done = run(folder, "run", "in.txt", "-o", "-")

    assert json.loads(done.stdout)["answer"] == "said"
    assert not (folder / "-").exists()


def test_killed_twice_every_row_is_there_once_and_tools_that_write_ran_once(folder):
    count = 60
    (folder / "in.jsonl").write_text("".join(f'{{"id": {n}, "prompt": "row {n}"}}\n' for n in range(count)))
    words = command("run", "in.jsonl", "-o", "out.jsonl", "-j", "4", "-q", model="book")
    words = [*words[:-1], "--tool", "./book.py:book"]
    log = folder / "booked.log"
    for goal in (15, 35):
        process = subprocess.Popen(words, cwd=folder, env=environment(), stderr=subprocess.DEVNULL)
        while process.poll() is None and (not log.exists() or log.read_bytes().count(b"\n") < goal):
            time.sleep(0.002)
        process.send_signal(signal.SIGKILL)
        process.wait()

    last = subprocess.run(words, cwd=folder, env=environment(), capture_output=True, check=False, timeout=60)

    found = rows(folder / "out.jsonl")
    unknown = {f"row {row['id']}" for row in found if "is unknown" in str(row["warnings"])}
    booked = collections.Counter(log.read_text().split("\n")[:-1])
    assert [row["id"] for row in found] == list(range(count))
    assert set(booked.values()) == {1}
    assert {f"row {n}" for n in range(count)} - set(booked) <= unknown
    assert (last.returncode, len(unknown) <= 8) == (0, True)


def test_a_second_process_on_an_output_is_refused_and_an_interrupt_leaves_the_rest(folder):
    (folder / "in.txt").write_text("a\nb\nc\n")
    words = ["run", "in.txt", "-o", "out.jsonl", "-j", "1"]
    process = subprocess.Popen(
        command(*words, model="slow"), cwd=folder, env=environment(), stderr=subprocess.PIPE
    )
    progress = folder / "out.jsonl.batch" / "progress.json"
    while process.poll() is None and not (progress.exists() and '"running": 1' in progress.read_text()):
        time.sleep(0.01)

    second = run(folder, *words)
    process.send_signal(signal.SIGINT)
    process.stderr.readline()
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=20)

    assert second.returncode == 3
    assert f"another process (pid {process.pid}) is writing out.jsonl".encode() in second.stderr
    assert process.returncode == 130
    assert rows(folder / "out.jsonl") == []


def test_a_detached_batch_goes_on_alone(folder):
    started = run(folder, "run", "-", "-o", "out.jsonl", "--detach", stdin=b"a\nb\n")
    watched = run(folder, "watch", "out.jsonl", "--plain")

    assert started.returncode == 0
    assert b"running as process" in started.stderr
    assert watched.returncode == 0
    assert [row["answer"] for row in rows(folder / "out.jsonl")] == ["said", "said"]


def test_what_is_wrong_with_a_detached_batch_is_said_before_it_goes(folder):
    started = run(folder, "run", "none.txt", "-o", "out.jsonl", "--detach")

    assert started.returncode == 2
    assert b"none.txt cannot be read" in started.stderr


def test_shards_are_merged(folder, here):
    (folder / "in.txt").write_text("".join(f"p{n}\n" for n in range(12)))
    for number in (1, 2):
        assert here("run", "in.txt", "-o", f"{number}.jsonl", "--shard", f"{number}/2").status == 0

    merged = here("merge", "1.jsonl", "2.jsonl", "-o", "all.jsonl")
    half = here("merge", "2.jsonl", "-o", "half.jsonl")

    assert (merged.status, "12 rows, 0 failed" in merged.stderr) == (0, True)
    assert (half.status, "are missing: a part is not there" in half.stderr) == (16, True)
    assert [row["index"] for row in rows(folder / "all.jsonl")] == list(range(12))


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        pytest.param(["none.txt"], 2, "none.txt cannot be read", id="no-input"),
        pytest.param(["."], 2, ". cannot be read: Is a directory", id="folder"),
        pytest.param(["in.txt", "-o", "in.txt"], 2, "in.txt is the input", id="output-is-input"),
        pytest.param(["in.txt", "-o", "no/out.jsonl"], 2, "there is no folder", id="no-folder"),
        pytest.param(
            ["in.txt", "-o", "o.jsonl", "--report", "no/r.html"],
            2,
            "there is no folder",
            id="no-folder-report",
        ),
        pytest.param(
            ["in.txt", "-o", "o.jsonl", "--on-error", "route", "--errors", "no/e.jsonl"],
            2,
            "there is no folder no",
            id="no-folder-errors",
        ),
        pytest.param(
            ["in.txt", "-o", "o.jsonl", "--on-error", "route", "--errors", "o.jsonl"],
            2,
            "o.jsonl is the file of --output",
            id="errors-are-output",
        ),
        pytest.param(["in.txt", "-j", "0"], 2, "neither auto nor a number", id="in-flight"),
        pytest.param(["in.txt", "--max-time", "soon"], 2, "is no time", id="time"),
        pytest.param(["in.txt", "--shard", "3/2"], 2, "is no part of a whole", id="shard"),
        pytest.param(["in.txt", "--report", "r.html"], 2, "--report needs a file", id="report-to-stdout"),
    ],
)
def test_mistakes_are_named(folder, here, words, status, message):
    (folder / "in.txt").write_text("a\n")

    done = here("run", *words)

    assert done.status == status
    assert message in done.stderr


def test_a_batch_on_another_backend_does_without_the_service():
    check = (
        "import sys, assistant_runner.batch.invocation; print('assistant_runner.service.app' in sys.modules)"
    )

    done = subprocess.run([sys.executable, "-c", check], env=environment(), capture_output=True, check=True)

    assert done.stdout.strip() == b"False"


def test_an_output_is_read_by_what_it_holds_not_by_its_name(folder, here):
    (folder / "in.txt").write_text("a\nb\n")
    here("run", "in.txt", "-o", "out.txt", "--output-format", "csv", "--offline", "--engine", "planner")

    reported = here("report", "out.txt", "-o", "r.html")
    merged = here("merge", "out.txt", "-o", "all.jsonl")
    nowhere = here("report", "out.txt", "-o", "no/r.html")

    assert (reported.status, merged.status, nowhere.status) == (0, 0, 3)
    assert len(rows(folder / "all.jsonl")) == 2
    assert "no/r.html cannot be written" in nowhere.stderr
