"""What the shell is told at the cursor, and where its script goes."""

from pathlib import Path

import pytest


def completions(process, words: str, at: int) -> set[str]:
    """What bash would offer for the word at this place."""
    env = {
        "_ASSISTANT_RUNNER_COMPLETE": "bash_complete",
        "COMP_WORDS": f"assistant-runner {words}",
        "COMP_CWORD": str(at),
    }
    return {line.partition(",")[2] for line in process(env=env).stdout.split()}


@pytest.mark.parametrize(
    ("words", "at", "some"),
    [
        pytest.param("ba", 1, {"batch"}, id="command"),
        pytest.param("", 1, {"ask", "batch", "tools"}, id="all-commands"),
        pytest.param("batch me", 2, {"merge"}, id="subcommand"),
        pytest.param("batch run --retr", 3, {"--retries", "--retry-failed"}, id="option"),
        pytest.param("ask --engine-b", 2, {"--engine-base-url"}, id="shared-option"),
    ],
)
def test_the_shell_is_told_what_can_stand_at_the_cursor(process, words, at, some):
    assert some <= completions(process, words, at)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_is_shown_for_a_shell_that_is_named(process, shell):
    done = process("--show-completion", shell)

    assert done.returncode == 0
    assert f"_ASSISTANT_RUNNER_COMPLETE={shell}_complete" in done.stdout


def test_the_script_is_for_ones_own_shell_when_none_is_named(process):
    assert "zsh_complete" in process("--show-completion", env={"SHELL": "/usr/bin/zsh"}).stdout


def test_a_shell_that_has_no_script_is_a_usage_error(process):
    done = process("--install-completion", "tcsh")

    assert done.returncode == 2
    assert "bash, zsh, fish" in done.stderr


@pytest.mark.parametrize(("shell", "reader"), [("bash", ".bashrc"), ("zsh", ".zshrc")])
def test_installing_twice_writes_one_line_into_the_shells_file(process, tmp_path: Path, shell, reader):
    (tmp_path / reader).write_text("alias ll='ls -l'", encoding="utf-8")

    for _ in range(2):
        done = process("--install-completion", shell, env={"HOME": str(tmp_path)})
        assert done.returncode == 0, done.stderr

    first, line = (tmp_path / reader).read_text(encoding="utf-8").splitlines()
    assert first == "alias ll='ls -l'"
    assert f"{shell}_complete" in Path(line.removeprefix('. "').removesuffix('"')).read_text(encoding="utf-8")


def test_fish_needs_the_script_alone(process, tmp_path: Path):
    assert process("--install-completion", "fish", env={"HOME": str(tmp_path)}).returncode == 0

    assert (tmp_path / ".config/fish/completions/assistant-runner.fish").is_file()
