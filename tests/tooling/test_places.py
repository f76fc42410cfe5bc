"""Place names as people write them."""

import pytest

from assistant_runner.tooling.places import Place, hint_fits, long_form, split_last_word, split_place


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("San Francisco, CA", Place("San Francisco", ("CA",))),
        ("  Łódź ", Place("Łódź")),
        ("Springfield , Illinois,USA", Place("Springfield", ("Illinois", "USA"))),
        (", ,", Place("")),
    ],
)
def test_the_name_stands_before_the_first_comma(text: str, place: Place):
    assert split_place(text) == place


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("White Fells OL", Place("White Fells", ("OL",))),
        ("Norwell New Mexico", Place("Norwell", ("New Mexico",))),
        ("Paris France", Place("Paris", ("France",))),
        ("Seoul South Korea", Place("Seoul", ("South Korea",))),
        ("Mexico City", None),
        ("New York", None),
        ("Oslo", None),
    ],
)
def test_last_words_are_split_off_where_they_look_like_a_region(text: str, place: Place | None):
    assert split_last_word(text) == place


@pytest.mark.parametrize(
    ("hint", "names", "fits"),
    [
        ("CA", ("California", "United States"), True),
        ("CA", ("Ontario", "Canada"), False),
        ("California", ("California", "United States of America"), True),
        ("USA", ("Nevada", "United States of America"), True),
        ("UK", ("England", "United Kingdom"), True),
        ("DC", ("Washington, D.C.", "United States"), True),
        ("D.C.", ("District of Columbia", "United States"), True),
        ("usa", ("Nevada", "United States of America"), True),
        ("deutschland", ("Bavaria", "Germany"), True),
        ("Czech Republic", ("Prague", "Czechia"), True),
        ("Turkey", ("Istanbul", "Türkiye"), True),
        ("OL", ("Oreland", "Norland"), True),
        ("OL", ("Vessia", "Norland"), False),
        ("Malopolska", ("Małopolska", "Poland"), True),
        ("Poland", (None, ""), False),
    ],
)
def test_a_hint_fits_the_region_or_country_it_speaks_of(hint: str, names: tuple[str | None, ...], fits: bool):
    assert hint_fits(hint, *names) is fits


def test_two_letters_are_a_state_before_they_are_a_country():
    assert (long_form("CA"), long_form("ca"), long_form("FR")) == ("California", "California", "FR")
