"""What a batch may cost: looked at before each run, so that the rest stays resumable (status 8).

Prices are the user's (`[prices]` in the config), in any one currency per million tokens; a model
without a price is said, never guessed. Tokens and cost count over the whole output, also what earlier
invocations spent; rows and time count for this invocation.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from assistant_runner.errors import ConfigurationError

PER = 1_000_000


@dataclass(frozen=True, slots=True)
class Budget:
    """None means no bound. `max_time_s` in seconds, `max_cost` in the currency of the prices."""

    max_cost: float | None = None
    max_tokens: int | None = None
    max_rows: int | None = None
    max_time_s: float | None = None


def spent(row: Mapping[str, Any]) -> tuple[float, int]:
    """What a result row cost and how many tokens it took, 0 where nobody knows."""
    return float(row.get("cost") or 0), int((row.get("usage") or {}).get("total_tokens") or 0)


class Spending:
    """What was spent so far, and whether one more run fits."""

    def __init__(
        self,
        budget: Budget,
        prices: Mapping[str, Mapping[str, float]],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.cost = 0.0
        self.tokens = 0
        self.unpriced: set[str] = set()
        if budget.max_cost is not None and not prices:
            raise ConfigurationError(
                f"--max-cost {budget.max_cost:g} cannot be kept to: the config has no prices",
                remedy='set them per million tokens: [prices."MODEL"] with input = … and output = …',
            )
        self._budget = budget
        self._prices = prices
        self._clock = clock
        self._began = clock()
        self._started = 0
        self._running = 0
        self._finished = 0
        self._dearest = (0.0, 0)

    @property
    def priced(self) -> bool:
        """Whether the config has prices at all."""
        return bool(self._prices)

    def price(self, model: str | None, usage: Mapping[str, Any] | None) -> float | None:
        """The cost of this usage, None if the model has no price."""
        prices = self._prices.get(model or "")
        if prices is None or usage is None:
            if model and usage is not None and self._prices:
                self.unpriced.add(model)
            return None
        prompt = (usage.get("prompt_tokens") or 0) * prices.get("input", 0.0)
        completion = (usage.get("completion_tokens") or 0) * prices.get("output", 0.0)
        return round((prompt + completion) / PER, 10)

    def before(self, *, cost: float, tokens: int) -> None:
        """Count what earlier invocations spent."""
        self.cost += cost
        self.tokens += tokens

    def start(self) -> None:
        self._started += 1
        self._running += 1

    def finish(self, row: Mapping[str, Any]) -> None:
        """Count a row that just ended."""
        cost, tokens = spent(row)
        self._running -= 1
        self._finished += 1
        self.cost += cost
        self.tokens += tokens
        self._dearest = (max(self._dearest[0], cost), max(self._dearest[1], tokens))

    def must_wait(self) -> bool:
        """Whether one more run has to wait for those that run: it fits if they cost less than is set aside.

        The first run goes alone, as nobody knows what one costs.
        """
        if not self._running or (self._budget.max_cost is None and self._budget.max_tokens is None):
            return False
        return not self._finished or self.exhausted() is not None

    def exhausted(self) -> str | None:
        """Which bound one more run would pass, in words; None if it fits.

        For it and for each that runs as much is set aside as the dearest so far took.
        """
        limit = self._budget
        cost = self.cost + self._dearest[0] * (self._running + 1)
        tokens = self.tokens + self._dearest[1] * (self._running + 1)
        if limit.max_rows is not None and self._started >= limit.max_rows:
            return f"--max-rows {limit.max_rows} is reached"
        if limit.max_time_s is not None and self._clock() - self._began >= limit.max_time_s:
            return f"--max-time {limit.max_time_s:g} s is reached"
        if limit.max_tokens is not None and (self.tokens >= limit.max_tokens or tokens > limit.max_tokens):
            return f"--max-tokens {limit.max_tokens}: {self.tokens} are spent and one more row may pass it"
        if limit.max_cost is not None and self.unpriced:
            names = ", ".join(sorted(self.unpriced))
            return f"--max-cost {limit.max_cost:g} cannot be kept to: no price is known for {names}"
        if limit.max_cost is not None and (self.cost >= limit.max_cost or cost > limit.max_cost):
            return f"--max-cost {limit.max_cost:g}: {self.cost:.4f} is spent and one more row may pass it"
        return None
