from datetime import UTC, datetime

import pytest

from assistant_runner.retries import RetryPolicy, hint_in_words, reset_hint, wait_hint

NOW = datetime(2026, 11, 29, 12, 0, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        pytest.param({"retry-after": "Sun, 29 Nov 2026 12:00:05 GMT"}, 5.0, id="date"),
        pytest.param({"retry-after": "Sun, 29 Nov 2026 11:00:00 GMT"}, 0.0, id="past-date"),
        pytest.param({"retry-after": "0.493"}, 0.493, id="decimal"),
        pytest.param({"retry-after": "-5"}, None, id="negative"),
        pytest.param({"retry-after": "120junk"}, None, id="rubbish"),
        pytest.param({"retry-after": ""}, None, id="empty"),
        pytest.param({"retry-after": "inf"}, None, id="endless"),
        pytest.param({"retry-after-ms": "250", "retry-after": "9"}, 0.25, id="milliseconds-first"),
    ],
)
def test_case_062_wait_hints_of_every_form(headers, expected):
    assert wait_hint(headers, "", now=NOW) == expected


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("Rate limit hit. Please retry after 6 seconds.", 6.0),
        ("Try again in 2 seconds.", 2.0),
        ("Please try again in 350ms.", 0.35),
        ("please try again in 1m", 60.0),
        ("No luck.", None),
    ],
)
def test_case_063_the_wait_in_the_words_is_a_hint(message, expected):
    assert wait_hint({}, message) == expected


def test_waits_grow_follow_hints_and_end():
    policy = RetryPolicy(attempts=3, base_s=1, cap_s=8, longest_s=10)

    assert 0.75 <= policy.wait_s(1, None) <= 1
    assert 1.5 <= policy.wait_s(2, 0.0) <= 2
    assert 4 <= policy.wait_s(1, 4) <= 4.2
    assert policy.wait_s(1, 11) is None
    assert policy.wait_s(3, None) is None


@pytest.mark.parametrize(
    ("message", "seconds"),
    [
        ("Please try again in 6m0s. Visit the docs", 360),
        ("Please try again in 20ms.", 0.02),
        ("Please try again in 1.5s.", 1.5),
        ("Please retry after 6 seconds.", 6),
        ("Try again in 2 minutes", 120),
        ("Please try again in 1h2m3s", 3723),
        ("Please try again in 2 moons", None),
    ],
)
def test_reads_durations_in_words(message, seconds):
    assert hint_in_words(message) == (None if seconds is None else pytest.approx(seconds))


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "1m0s"}, 60),
        ({"x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "12"}, 12),
        ({"x-ratelimit-remaining-tokens": "5", "x-ratelimit-reset-tokens": "12"}, None),
        ({"x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "soon"}, None),
        ({}, None),
    ],
)
def test_reads_when_a_used_up_limit_is_filled_again(headers, seconds):
    assert reset_hint(headers) == seconds
