"""What is known about OpenAI's models without asking: when they leave, and which call no tools.

Dates: OpenAI's deprecations page (developers.openai.com/api/docs/deprecations, as of November 2026).
They hold for OpenAI's own endpoint: Azure retires by its own calendar, a local server never does. The
list of models that a server gives may carry `shutdown_date` as well; the table is for the time before
any request. A fine-tuned model leaves with its base.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date

DEFAULT_MODEL = "gpt-6-luna"
"""Small, cheap, calls tools, no date of leaving announced."""


@dataclass(frozen=True, slots=True)
class Retirement:
    """A model's last day and what its maker suggests instead."""

    model: str
    day: date
    instead: str

    def words(self, today: date) -> str:
        """One sentence: `gpt-4o leaves the OpenAI API on 2027-01-14; use gpt-6-luna instead.`"""
        verb = "leaves" if today < self.day else "left"
        return f"{self.model} {verb} the OpenAI API on {self.day.isoformat()}; use {self.instead} instead."


_DATES: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("2026-02-17", "gpt-6-luna", ("chatgpt-4o-latest",)),
    (
        "2026-07-23",
        "gpt-6.1-sol",
        (
            *("gpt-5-chat-latest", "gpt-5-codex", "gpt-5.1-chat-latest", "gpt-5.1-codex"),
            *("gpt-5.1-codex-max", "gpt-5.1-codex-mini", "gpt-5.2-codex", "computer-use-preview"),
            *("o3-deep-research", "o4-mini-deep-research", "gpt-4o-search-preview"),
            *("gpt-4o-mini-search-preview", "gpt-4o-audio-preview", "gpt-4o-mini-audio-preview"),
        ),
    ),
    ("2026-08-10", "gpt-6.1-sol", ("gpt-5.2-chat-latest", "gpt-5.3-chat-latest")),
    ("2026-10-23", "gpt-6.1-terra", ("gpt-3.5-turbo", "o4-mini")),
    (
        "2026-10-23",
        "gpt-6.1-sol",
        ("gpt-4", "gpt-4-1106-preview", "gpt-4-turbo", "gpt-4o-2024-05-13", "o1", "o1-pro", "o3-mini"),
    ),
    ("2026-10-23", "gpt-6-luna", ("gpt-4.1-nano",)),
    ("2026-12-11", "gpt-6.1-sol", ("gpt-5", "gpt-5-pro", "o3", "o3-pro")),
    ("2026-12-11", "gpt-6.1-terra", ("gpt-5-mini",)),
    ("2026-12-11", "gpt-6-luna", ("gpt-5-nano",)),
    ("2027-01-14", "gpt-6-luna", ("gpt-4o", "gpt-4o-mini", "gpt-4.1", "gpt-4.1-mini")),
    ("2027-04-01", "gpt-6.1-sol", ("gpt-5.1", "gpt-5.3-codex")),
    ("2027-04-01", "gpt-6-luna", ("gpt-5.4-nano",)),
)
RETIREMENTS: Mapping[str, Retirement] = {
    model: Retirement(model, date.fromisoformat(day), instead)
    for day, instead, models in _DATES
    for model in models
}
_SNAPSHOT = re.compile(r"-(?:\d{4}-\d{2}-\d{2}|\d{4})$")
_NO_TOOLS = re.compile(
    r"^(?:text-embedding|text-moderation|omni-moderation|whisper|tts|dall-e|gpt-image|chatgpt-image|sora"
    r"|babbage|davinci|gpt-3\.5-turbo-instruct|o1-mini|o1-preview|chatgpt-4o-latest)"
    r"|-(?:transcribe|tts|embedding|embed|realtime|image)\b|\b(?:embed|embedding|rerank|reranker)\b"
)
_TOOLS = re.compile(r"^(?:gpt-4o|gpt-4\.1|gpt-[5-9]|o3|o4|gpt-oss)")
_PLAIN = re.compile(r"^(?:gpt-3|gpt-4|chatgpt-4o)")


def retirement_of(model: str) -> Retirement | None:
    """When a model of OpenAI leaves: itself, its snapshots' base, or the base that it was tuned on."""
    name = model.split(":")[1] if model.startswith("ft:") and ":" in model[3:] else model
    found = RETIREMENTS.get(name) or RETIREMENTS.get(_SNAPSHOT.sub("", name))
    return None if found is None else Retirement(model, found.day, found.instead)


def supports_tools(model: str) -> bool | None:
    """True or False where it is known from the model's name alone, else None."""
    name = model.rsplit("/", 1)[-1].lower()
    if _NO_TOOLS.search(name):
        return False
    return True if _TOOLS.match(name) else None


def reasons(model: str) -> bool:
    """False for models known not to reason: they refuse reasoning parameters."""
    return _PLAIN.match(model.removeprefix("ft:").lower()) is None
