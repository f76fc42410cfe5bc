"""`assistant-runner serve`: what it says, what it refuses, how it ends."""

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from tests.conftest import REPOSITORY

SCRIPT = {"format": 1, "scripts": {"plain": {"turns": [{"text": "Hello there."}]}}}


@pytest.fixture
def script_path(tmp_path: Path) -> Path:
    path = tmp_path / "script.json"
    path.write_text(json.dumps(SCRIPT))
    return path


def serve(*options: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "assistant_runner", "serve", *options]
    return subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=30, check=False)


def test_it_says_where_it_listens_and_what_answers(script_path: Path, tmp_path: Path):
    command = [sys.executable, "-m", "assistant_runner", "serve", "--engine", "script", "--json"]
    command += ["--script", str(script_path), "--port", "0", "--data", str(tmp_path / "data")]
    with subprocess.Popen(
        command, cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        ready = json.loads(process.stdout.readline())
        health = httpx.get(f"{ready['url']}/health")
        process.terminate()
        _, talk = process.communicate(timeout=20)

    assert health.json()["status"] == "ok"
    assert process.returncode == 0
    assert f"Base URL for clients: {ready['url']}/v1" in talk
    assert "no language model" in talk
    assert "GET /health 200" in talk


def test_an_address_that_others_can_reach_needs_a_key(script_path: Path):
    done = serve("--host", "0.0.0.0", "--engine", "script", "--script", str(script_path), "--port", "0")

    assert done.returncode == 3
    assert "no key is set" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_port_in_use_is_a_sentence(script_path: Path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = serve("--port", port, "--engine", "script", "--script", str(script_path))

    assert done.returncode == 3
    assert f"cannot listen on 127.0.0.1 port {port}" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ("{", "is not JSON"),
        ('{"format": 2, "scripts": {}}', "format: must be 1"),
        ('{"format": 1, "scripts": {"a": {"turns": [{"delay": 1}]}}}', "scripts.a.turns[0]"),
    ],
    ids=["no JSON", "format", "turn"],
)
def test_a_bad_script_is_named_with_its_place(tmp_path: Path, document: str, words: str):
    path = tmp_path / "bad.json"
    path.write_text(document)

    done = serve("--engine", "script", "--script", str(path), "--port", "0", "--data", ":memory:")

    assert done.returncode == 3
    assert words in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("options", "status", "words"),
    [
        (["--engine", "script"], 3, "needs a script"),
        (["--engine", "nonsense"], 2, "no engine 'nonsense'"),
        (["--engine", "planner", "--expire-after", "inf"], 2, "--expire-after"),
        (["--code-interpreter", "always"], 2, "--code-interpreter 'always'"),
        (["--api-key-env", "NOT_SET_ANYWHERE"], 3, "NOT_SET_ANYWHERE"),
        (["--api-key", "two words"], 3, "white space"),
        (["--port", "70000"], 2, "65535"),
    ],
    ids=["no script", "engine", "expiry", "interpreter", "key variable", "key", "port"],
)
def test_a_wrong_option_is_explained(options: list[str], status: int, words: str):
    done = serve(*options, "--data", ":memory:", *([] if "--port" in options else ["--port", "0"]))

    assert done.returncode == status
    assert words in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=lambda n: n.name)
def test_a_stop_leaves_with_status_0_and_nothing_in_the_temporary_folder(
    script_path: Path, tmp_path: Path, signum: signal.Signals
):
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    command = [sys.executable, "-m", "assistant_runner", "serve", "--engine", "script", "--json"]
    command += ["--script", str(script_path), "--port", "0", "--data", ":memory:"]
    with subprocess.Popen(
        command,
        cwd=REPOSITORY,
        env={**os.environ, "TMPDIR": str(temporary)},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as process:
        assert process.stdout is not None
        url = json.loads(process.stdout.readline())["base_url"]
        httpx.post(f"{url}/files", files={"file": ("a.txt", b"words")}, data={"purpose": "assistants"})
        kept = len(list(temporary.iterdir()))
        process.send_signal(signum)
        status = process.wait(20)

    assert (kept, status) == (1, 0)
    assert list(temporary.iterdir()) == []


def test_a_standard_output_that_nobody_reads_ends_it_with_status_141(script_path: Path):
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "assistant_runner", "serve", "--engine", "script", "--json"]
    command += ["--script", str(script_path), "--port", "0", "--data", ":memory:"]
    done = subprocess.run(
        command, cwd=REPOSITORY, stdout=writing, stderr=subprocess.PIPE, text=True, timeout=30, check=False
    )
    os.close(writing)

    assert done.returncode == 141
    assert "error" not in done.stderr
