"""Which values are secrets, and that they do not show."""

import pytest

from assistant_runner.tooling.masking import Masker, secrets_of


@pytest.mark.parametrize(
    ("name", "value", "secret"),
    [
        ("OPENAI_API_KEY", "sk-test-1", True),
        ("MY_TOKEN", "abc-123", True),
        ("APIKEY", "abc-123", True),
        ("DB_PASSWORD", "hunter22", True),
        ("aws_secret_access_key", "abc-123", True),
        ("MONKEY", "banana", False),
        ("TOKEN_LIMIT", "unlimited", False),
        ("SECRET_LEVEL", "public", False),
        ("SSL_KEY", "/etc/ssl/private/key.pem", False),
        ("SORT_KEY", "12345678", False),
        ("API_KEY", "abc", False),
    ],
)
def test_a_secret_is_known_by_the_name_of_its_variable(name: str, value: str, secret: bool):
    assert secrets_of({name: value}) == ([value] if secret else [])


def test_secrets_are_replaced_wherever_they_stand():
    masker = Masker(["sk-long-secret", "sk-long"])

    assert masker.mask_value({"sk-long": ["a sk-long-secret b", 1, None]}) == {
        "[secret]": ["a [secret] b", 1, None]
    }


@pytest.mark.parametrize(
    "spelled",
    ['k/y "1"+', "k%2Fy%20%221%22%2B", "k/y%20%221%22%2B", "k%2Fy+%221%22%2B", 'k/y \\"1\\"+'],
    ids=["plain", "encoded", "path", "form", "json"],
)
def test_a_secret_is_known_in_other_spellings(spelled: str):
    assert Masker(['k/y "1"+']).mask(f"a {spelled} b") == "a [secret] b"


def test_without_secrets_nothing_changes():
    value = {"a": ["b"]}

    assert Masker([]).mask_value(value) is value
