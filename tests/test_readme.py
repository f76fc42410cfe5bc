"""The README's commands, run as they stand there: they succeed and print what it says they print."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY

README = (REPOSITORY / "README.md").read_text(encoding="utf-8")


def commands() -> list[tuple[str, str]]:
    """Each command that asks us something, in order, with the output that the README shows."""
    found: list[tuple[str, str]] = []
    for block in re.findall(r"```console\n(.*?)```", README, flags=re.DOTALL):
        for piece in block.split("$ ")[1:]:
            command, _, output = piece.partition("\n")
            last = command.split(" && ")[-1].replace(".venv/bin/", "")
            if "pytest" not in last and not last.startswith("assistant-runner serve"):
                found.append((last, output))
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder for all commands: later ones use what earlier ones wrote."""
    folder = tmp_path_factory.mktemp("readme")
    source = re.search(r"```python\n(# tides.py\n.*?)```", README, flags=re.DOTALL)
    assert source is not None
    (folder / "tides.py").write_text(source[1])
    return folder


@pytest.mark.parametrize(("command", "output"), commands())
def test_a_command_of_the_readme_prints_what_it_shows(command, output, folder):
    ours = f'assistant-runner() {{ "{sys.executable}" -m assistant_runner "$@"; }}'
    environ = {**os.environ, "PYTHONPATH": str(REPOSITORY), "ASSISTANT_RUNNER_HOME": str(folder / "home")}

    done = subprocess.run(
        ["bash", "-c", f"{ours}; {command}"], cwd=folder, env=environ, capture_output=True, encoding="utf-8"
    )

    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == output.strip()


def test_every_page_that_the_readme_names_is_there():
    pages = re.findall(r"\]\(([^)#]+)\)", README)

    assert [page for page in pages if not (REPOSITORY / page).exists()] == []
