"""Keys and where they come from: a variable, a file only its owner reads, a keyring, a command.

Never from config text, never printed: a Secret shows its source, not its value. What is wrong with
a key is found here, before it breaks a header deep in the stack (case-064).
"""

import os
import shlex
import stat
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from assistant_runner.errors import ConfigurationError

COMMAND_TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True)
class Secret:
    """A key. `source` is for people; `value` is never part of a repr."""

    value: str = field(repr=False)
    source: str


@dataclass(frozen=True, slots=True)
class KeySource:
    """Where to look, the first that is given. `keyring` is `service/user`."""

    env: str | None = None
    file: str | None = None
    keyring: str | None = None
    command: str | None = None

    @property
    def is_given(self) -> bool:
        return any((self.env, self.file, self.keyring, self.command))

    @property
    def renews(self) -> bool:
        """Whether asking again may give another key (a token that ran out)."""
        return self.command is not None and not (self.env or self.file or self.keyring)

    def describe(self) -> str:
        """For people, without the value; a command by its first word."""
        if self.env:
            return f"environment {self.env}"
        if self.file:
            return f"file {self.file}"
        if self.keyring:
            return f"keyring {self.keyring}"
        return f"command {shlex.split(self.command)[0]}" if self.command else "nowhere"

    def read(self, environ: Mapping[str, str]) -> Secret | None:
        """The key; None if no source is given. ConfigurationError names the source and the fault."""
        if self.env:
            return _checked(_from_env(self.env, environ), self.describe())
        if self.file:
            return _checked(_from_file(Path(self.file).expanduser()), self.describe())
        if self.keyring:
            return _checked(_from_keyring(self.keyring), self.describe())
        if self.command:
            return _checked(_from_command(self.command, environ), self.describe())
        return None


def _from_env(name: str, environ: Mapping[str, str]) -> str:
    if name not in environ:
        raise ConfigurationError(
            f"environment {name} is not set, and the key is read from there",
            remedy=f"export {name}=…",
            source=name,
        )
    return environ[name]


def _from_file(path: Path) -> str:
    try:
        mode = path.stat().st_mode
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(
            f"key file {path} cannot be read: {error}", remedy="correct the path or the file's rights"
        ) from None
    if os.name == "posix" and mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise ConfigurationError(
            f"key file {path} can be read by others (mode {stat.S_IMODE(mode):04o})",
            remedy=f"chmod 600 {path}",
        )
    return text.strip()


def _from_keyring(entry: str) -> str:
    service, _, user = entry.partition("/")
    try:
        import keyring
        import keyring.errors
    except ImportError:
        raise ConfigurationError(
            "a key in a keyring needs the extra: keyring", remedy="pip install 'assistant-runner[keyring]'"
        ) from None
    try:
        value = keyring.get_password(service, user)
    except keyring.errors.KeyringError as error:
        raise ConfigurationError(
            f"the keyring cannot be read: {type(error).__name__}", remedy="unlock it, or use another source"
        ) from None
    if value is None:
        raise ConfigurationError(
            f"the keyring has no entry {entry!r}", remedy=f"keyring set {service} {user or 'USER'}"
        )
    return str(value)


def _from_command(command: str, environ: Mapping[str, str]) -> str:
    words = shlex.split(command)
    try:
        done = subprocess.run(
            words, capture_output=True, text=True, timeout=COMMAND_TIMEOUT_S, env=dict(environ), check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ConfigurationError(
            f"key command {words[0]!r} did not work: {type(error).__name__}", remedy="run it by hand"
        ) from None
    if done.returncode:
        raise ConfigurationError(
            f"key command {words[0]!r} ended with status {done.returncode}", remedy="run it by hand"
        )
    return done.stdout.strip()


def _checked(value: str, source: str) -> Secret:
    """A key that can stand in a header: not empty, one line of plain ASCII without blanks."""
    if not value.strip():
        raise ConfigurationError(
            f"{source}: the key is empty", remedy=f"put a key there, or leave {source.split()[-1]} out"
        )
    fault = key_fault(value)
    if fault:
        raise ConfigurationError(
            f"{source}: the key {fault}", remedy="copy the key again, alone", source=source
        )
    return Secret(value, source)


def key_fault(value: str) -> str | None:
    """What is wrong with the shape of a key, in words; None if nothing."""
    if value != value.strip():
        return "begins or ends with white space"
    if any(letter.isspace() for letter in value):
        return "has white space inside"
    if not value.isascii() or not value.isprintable():
        return "has characters that no header may hold"
    if value[0] in "\"'" or value[-1] in "\"'":
        return "is in quotation marks"
    if value.lower().startswith("bearer"):
        return "begins with the word Bearer"
    return None
