"""Completion at the shell: click's own scripts, shown or written where the shell finds them."""

import os
from pathlib import Path

import click
from click.shell_completion import get_completion_class, shell_complete

from assistant_runner.cli.edge import NAME
from assistant_runner.cli.main import VARIABLE
from assistant_runner.errors import ConfigurationError, UsageError

SHELLS = ("bash", "zsh", "fish")


def answer(command: click.Command, instruction: str) -> int:
    """Tell the shell what can stand at the cursor (`instruction`: bash_complete); the exit status."""
    return shell_complete(command, {}, NAME, VARIABLE, instruction)


def shell_of(named: str) -> str:
    """The shell that was named, else the one that $SHELL names; UsageError for one we cannot serve."""
    shell = named or Path(os.environ.get("SHELL", "")).name
    if shell not in SHELLS:
        raise UsageError(f"no completion for the shell {shell!r}", remedy=f"name one of: {', '.join(SHELLS)}")
    return shell


def script(command: click.Command, shell: str) -> str:
    """The shell's script that asks us what can stand at the cursor."""
    kind = get_completion_class(shell)
    assert kind is not None, shell
    return kind(command, {}, NAME, VARIABLE).source()


def install(command: click.Command, shell: str) -> str:
    """Write the script, and a line in the shell's own file that reads it; says what was written."""
    home = Path.home()
    if shell == "fish":  # it reads this folder by itself
        written, reader = home / ".config/fish/completions" / f"{NAME}.fish", None
    else:
        written, reader = home / ".local/share" / NAME / f"completion.{shell}", home / f".{shell}rc"
    line = f'. "{written}"'
    try:
        written.parent.mkdir(parents=True, exist_ok=True)
        written.write_text(script(command, shell) + "\n", encoding="utf-8")
        if reader is not None:
            there = reader.read_text(encoding="utf-8") if reader.exists() else ""
            if line not in there.splitlines():
                begin = "" if not there or there.endswith("\n") else "\n"
                with reader.open("a", encoding="utf-8") as stream:
                    stream.write(f"{begin}{line}\n")
    except OSError as error:
        words = f"{error.filename}: cannot be written: {error.strerror}"
        raise ConfigurationError(words, remedy=f"{NAME} --show-completion {shell}") from None
    return f"{written}" + (f"\n{reader}" if reader else "") + f"\nIt works in a new {shell}."
