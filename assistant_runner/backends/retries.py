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

_IN_WORDS = re.compile(
    r"(?:try again|retry)(?:\s+\w+)?\s+(?:in|after)\s+(\d+(?:\.\d+)?)\s*"
    r"(ms|milliseconds?|s|sec|seconds?|m|min|minutes?)\b",
    re.IGNORECASE,
)


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


def hint_in_words(message: str) -> float | None:
    """Seconds named in an error's text: `Please retry after 6 seconds.`, `try again in 200ms`."""
    found = _IN_WORDS.search(message)
    if not found:
        return None
    number, unit = float(found[1]), found[2].lower()
    if unit.startswith("ms") or unit.startswith("milli"):
        return number / 1000
    return number * 60 if unit.startswith("m") else number


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
