"""Logs: what the program did, for the person who has to find out why. Nothing is logged unless asked.

`-v` tells of runs, retries and waits; `-vv` of every request and answer as well, with headers and the
beginning of bodies. Whatever is written passes the mask: values of variables that hold secrets by
their names, and whatever looks like a key (case-116). Only our own loggers speak: other libraries
write headers without a mask.
"""

import logging
import os
import sys
from collections.abc import Mapping
from pathlib import Path

from assistant_runner.errors import ConfigurationError, printable
from assistant_runner.masking import mask
from assistant_runner.tooling.masking import secrets_of

ROOT = "assistant_runner"
FORMAT = "%(asctime)s.%(msecs)03d %(levelname)s %(name)s: %(message)s"


class MaskingFormatter(logging.Formatter):
    """Masks the whole line, tracebacks too."""

    def __init__(self, secrets: list[str]) -> None:
        super().__init__(FORMAT, datefmt="%Y-%m-%dT%H:%M:%S")
        self._secrets = secrets

    def format(self, record: logging.LogRecord) -> str:
        return mask(super().format(record), self._secrets)


class Talk(logging.Handler):
    """Warnings on stderr in their own words, masked; tracebacks are for those who ask for logs."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        super().__init__(logging.WARNING)
        self._environ = environ

    def emit(self, record: logging.LogRecord) -> None:
        if not logging.getLogger().handlers:  # else the program has a log of its own (serve)
            print(printable(masked(record.getMessage(), self._environ)), file=sys.stderr)


def say_warnings(environ: Mapping[str, str]) -> None:
    """What Python's handler of last resort does, without tracebacks; nothing if logs are configured."""
    logger = logging.getLogger(ROOT)
    if not logger.handlers:
        logger.addHandler(Talk(environ))


def configure_logs(verbosity: int, log_file: str | None, *, environ: Mapping[str, str]) -> None:
    """Lines to stderr at `verbosity` (0 none, 1 what happened, 2 requests too), and to a file: always
    everything. ConfigurationError if the file cannot be written; it is private (mode 0600)."""
    logger = logging.getLogger(ROOT)
    for handler in list(logger.handlers):
        logger.removeHandler(handler)
        handler.close()
    formatter = MaskingFormatter(secrets_of(environ))
    handlers: list[tuple[logging.Handler, int]] = []
    if not verbosity:
        handlers.append((Talk(environ), logging.WARNING))
    else:
        handlers.append(
            (logging.StreamHandler(sys.stderr), logging.INFO if verbosity == 1 else logging.DEBUG)
        )
    if log_file:
        handlers.append((_file_handler(Path(log_file).expanduser()), logging.DEBUG))
    for handler, level in handlers:
        handler.setLevel(level)
        handler.setFormatter(formatter)
        logger.addHandler(handler)
    logger.propagate = not verbosity and not log_file
    logger.setLevel(min((level for _, level in handlers), default=logging.WARNING))


def _file_handler(path: Path) -> logging.Handler:
    try:
        if not path.exists():
            os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600))
        return logging.FileHandler(path, encoding="utf-8")
    except OSError as error:
        raise ConfigurationError(
            f"log file {path} cannot be written: {error.strerror}", remedy="give another --log-file"
        ) from None


def masked(text: str, environ: Mapping[str, str]) -> str:
    """A text as a person may see it."""
    return mask(text, secrets_of(environ))
