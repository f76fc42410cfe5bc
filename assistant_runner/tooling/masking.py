"""Secrets out of tool outputs, errors and logs: what must not be printed is not submitted either.

A secret is the value of an environment variable whose name says so, or a value that we are handed.
"""

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import quote, quote_plus

SECRET_NAME = re.compile(
    r"(^|_|API|ACCESS|SECRET|PRIVATE|AUTH)(KEY|TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIAL)S?$",
    re.IGNORECASE,
)
SHORTEST_SECRET = 6
MASK = "[secret]"


def secrets_of(environ: Mapping[str, str]) -> list[str]:
    """The values of variables that hold secrets by their names, longest first."""
    found = {value for name, value in environ.items() if SECRET_NAME.search(name) and _worth_hiding(value)}
    return sorted(found, key=len, reverse=True)


class Masker:
    """Replaces known secrets, also as a URL or a JSON text holds them, by `[secret]`."""

    def __init__(self, secrets: Iterable[str]) -> None:
        words = {word for word in secrets if _worth_hiding(word)}
        words |= {
            spelled
            for word in words
            for spelled in (quote(word, safe=""), quote(word), quote_plus(word), json.dumps(word)[1:-1])
        }
        self._pattern = (
            re.compile("|".join(re.escape(word) for word in sorted(words, key=len, reverse=True)))
            if words
            else None
        )

    def mask(self, text: str) -> str:
        """The text without secrets."""
        return text if self._pattern is None else self._pattern.sub(MASK, text)

    def mask_value(self, value: Any) -> Any:
        """Plain JSON data without secrets, in keys too."""
        if self._pattern is None:
            return value
        if isinstance(value, str):
            return self.mask(value)
        if isinstance(value, dict):
            return {self.mask(name): self.mask_value(entry) for name, entry in value.items()}
        if isinstance(value, list):
            return [self.mask_value(entry) for entry in value]
        return value


def _worth_hiding(value: str) -> bool:
    """Short words and plain paths to files would mask half of every text."""
    return len(value) >= SHORTEST_SECRET and not value.startswith("/") and not value.isdigit()
