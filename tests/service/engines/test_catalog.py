"""What is known of OpenAI's models by their names."""

from datetime import date

import pytest

from assistant_runner.service.engines.catalog import (
    DEFAULT_MODEL,
    RETIREMENTS,
    reasons,
    retirement_of,
    supports_tools,
)


@pytest.mark.parametrize(
    ("model", "day"),
    [
        ("gpt-4o", "2027-01-14"),
        ("gpt-4o-mini", "2027-01-14"),
        ("gpt-4o-mini-2024-07-18", "2027-01-14"),
        ("gpt-4o-2024-05-13", "2026-10-23"),
        ("ft:gpt-4o-mini-2024-07-18:me::id", "2027-01-14"),
        ("gpt-5-mini", "2026-12-11"),
        ("gpt-4-0613", "2026-10-23"),
    ],
)
def test_a_model_its_snapshots_and_its_tunings_leave_together(model, day):
    retirement = retirement_of(model)

    assert retirement is not None
    assert retirement.day.isoformat() == day


@pytest.mark.parametrize("model", [DEFAULT_MODEL, "gpt-6.1-terra", "my-deployment", "qwen3:4b", "ft:", ""])
def test_others_have_no_date(model):
    assert retirement_of(model) is None


def test_no_suggestion_leaves_itself():
    assert [r.model for r in RETIREMENTS.values() if retirement_of(r.instead)] == []


def test_the_words_tell_past_from_future():
    retirement = RETIREMENTS["gpt-4o"]

    assert "leaves the OpenAI API on 2027-01-14; use" in retirement.words(date(2027, 1, 13))
    assert "left the OpenAI API on 2027-01-14; use" in retirement.words(date(2027, 1, 14))


@pytest.mark.parametrize(
    ("model", "known"),
    [
        ("gpt-5-mini", True),
        ("openai/gpt-oss-20b", True),
        ("text-embedding-3-small", False),
        ("whisper-1", False),
        ("nomic-embed-text", False),
        ("gpt-4o-mini-transcribe", False),
        ("qwen3:4b", None),
    ],
)
def test_tools_are_known_from_some_names(model, known):
    assert supports_tools(model) is known


def test_plain_models_are_not_sent_reasoning_parameters():
    assert [reasons(model) for model in ("gpt-4o", "ft:gpt-4o:x", "gpt-5", "o3")] == [
        False,
        False,
        True,
        True,
    ]
