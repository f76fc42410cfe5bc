"""The command line in this process, and as a real process."""

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from assistant_runner.cli.edge import run_edge
from assistant_runner.cli.main import app
from tests.conftest import REPOSITORY


@dataclass(frozen=True)
class Outcome:
    status: int
    stdout: str
    stderr: str


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """Run the command line here, in an empty folder; `stdin` is piped in when given."""
    monkeypatch.chdir(tmp_path)

    def call(*argv: str, stdin: str | bytes | None = None) -> Outcome:
        if stdin is not None:
            source = tmp_path / "stdin"
            source.write_bytes(stdin if isinstance(stdin, bytes) else stdin.encode())
            monkeypatch.setattr(sys, "stdin", source.open(encoding="utf-8", errors="surrogateescape"))
        status = run_edge(app, list(argv))
        if stdin is not None:
            sys.stdin.close()
        out, err = capsys.readouterr()
        return Outcome(status, out, err)

    return call


@pytest.fixture
def process(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run `python -m assistant_runner` as a user would."""

    def call(
        *argv: str, stdin: str | None = "", env: dict[str, str] | None = None, **kwargs
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "assistant_runner", *argv],
            input=stdin,
            capture_output=True,
            encoding="utf-8",
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(REPOSITORY), **(env or {})},
            timeout=60,
            check=False,
            **kwargs,
        )

    return call
