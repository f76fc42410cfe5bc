"""When to try again and how long to wait: the server's hints first, then growing waits with jitter.

Hints in the order of trust: `retry-after-ms`, `retry-after` (seconds or an HTTP date), a number of
seconds in the words of the error (cases 061 to 063). What makes no sense is no hint.
"""

import math
import random
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Protocol

_IN_WORDS = re.compile(
    r"(?:try again|retry)(?:\s+\w+)?\s+(?:in|after)\s+(?:"
    r"((?:\d+(?:\.\d+)?(?:ms|h|m|s))+)(?![a-z])"
    r"|(\d+(?:\.\d+)?)\s*(ms|milliseconds?|s|sec|seconds?|m|min|minutes?|h|hours?)\b)",
    re.IGNORECASE,
)
_UNITS_MS = {"ms": 1.0, "s": 1000.0, "m": 60_000.0, "h": 3_600_000.0}


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """`attempts` in all; waits double from `base_s` up to `cap_s`; a hint above `longest_s` ends it."""

    attempts: int = 4
    base_s: float = 0.5
    cap_s: float = 8.0
    longest_s: float = 60.0

    def wait_s(self, attempt: int, hint_s: float | None) -> float | None:
        """Seconds before the next attempt (`attempt` counts from 1); None: give up.

        At least the hint, a little more so that many clients do not come back at once.
        """
        if attempt >= self.attempts or (hint_s is not None and hint_s > self.longest_s):
            return None
        if hint_s:
            return hint_s * (1 + 0.05 * random.random())
        grown: float = min(self.cap_s, self.base_s * 2 ** (attempt - 1))
        return grown * (0.75 + 0.25 * random.random())


class Pacer(Protocol):
    """Someone who paces many runs at once, such as a batch: told of every request and every refusal."""

    async def before_request(self, *, urgent: bool = False) -> None:
        """Returns when one more request may be sent; asked before each attempt. `urgent`: a cancel, which
        frees what others wait for and has little time."""
        ...

    async def refused(self, hint_s: float | None) -> bool:
        """Returns when the request may be tried again (True), or that it should not be (False)."""
        ...


NO_RETRIES = RetryPolicy(attempts=1)


def wait_hint(headers: Mapping[str, str], message: str, *, now: datetime | None = None) -> float | None:
    """How long the server asks us to wait, in seconds; 0.0 for a moment that has passed."""
    milliseconds = _positive(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return milliseconds / 1000
    asked = headers.get("retry-after")
    seconds = _positive(asked)
    if seconds is not None:
        return seconds
    if asked and (moment := _date(asked)):
        return max(0.0, (moment - (now or datetime.now(UTC))).total_seconds())
    return hint_in_words(message)


def reset_hint(headers: Mapping[str, str]) -> float | None:
    """Seconds until a used-up limit is filled again, by the `x-ratelimit-*` headers; None if none is."""
    waits = []
    for what in ("requests", "tokens"):
        if headers.get(f"x-ratelimit-remaining-{what}", "").strip() in {"0", "-1"}:
            reset = headers.get(f"x-ratelimit-reset-{what}", "").strip()
            wait = _positive(reset) if reset else None
            waits.append(wait if wait is not None else duration(reset))
    return max((wait for wait in waits if wait is not None), default=None)


def hint_in_words(message: str) -> float | None:
    """Seconds named in an error's text: `Please retry after 6 seconds.`, `try again in 6m0s`."""
    found = _IN_WORDS.search(message)
    if not found:
        return None
    if found[1]:
        return duration(found[1].lower())
    number, unit = float(found[2]), found[3].lower()
    key = "ms" if unit.startswith(("ms", "milli")) else unit[0]
    return number * _UNITS_MS[key] / 1000


def duration(text: str) -> float | None:
    """Seconds of `6m0s`, `1h2m`, `250ms`, `1.5s`; None for anything else."""
    if not re.fullmatch(r"(?:\d+(?:\.\d+)?(?:ms|h|m|s))+", text):
        return None
    pieces = re.findall(r"(\d+(?:\.\d+)?)(ms|h|m|s)", text)
    return sum(float(number) * _UNITS_MS[unit] for number, unit in pieces) / 1000


def _positive(text: str | None) -> float | None:
    try:
        number = float(text) if text else -1.0
    except ValueError:
        return None
    return number if math.isfinite(number) and number >= 0 else None


def _date(text: str) -> datetime | None:
    try:
        moment = parsedate_to_datetime(text)
    except (ValueError, TypeError):
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
