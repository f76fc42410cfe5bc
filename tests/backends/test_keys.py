import pytest

from assistant_runner.errors import ConfigurationError
from assistant_runner.keys import KeySource


def test_a_key_never_shows_itself():
    secret = KeySource(env="MY_KEY").read({"MY_KEY": "sk-test-SECRET-0001"})

    assert secret.value == "sk-test-SECRET-0001"
    assert "SECRET" not in repr(secret) + str(secret)
    assert secret.source == "environment MY_KEY"


@pytest.mark.parametrize(
    ("environ", "words"),
    [
        pytest.param({}, "MY_KEY is not set", id="unset"),
        pytest.param({"MY_KEY": ""}, "MY_KEY: the key is empty", id="empty"),
        pytest.param({"MY_KEY": " sk-SECRET"}, "white space", id="blank-before"),
        pytest.param({"MY_KEY": "sk-SECRET\n"}, "white space", id="line-break"),
        pytest.param({"MY_KEY": "sk-SECRET-ä"}, "no header may hold", id="not-ascii"),
        pytest.param({"MY_KEY": '"sk-SECRET"'}, "quotation marks", id="quoted"),
        pytest.param({"MY_KEY": "Bearer:sk-SECRET"}, "word Bearer", id="bearer"),
    ],
)
def test_case_064_what_is_no_key_is_named_with_its_variable_and_not_shown(environ, words):
    with pytest.raises(ConfigurationError, match=words) as caught:
        KeySource(env="MY_KEY").read(environ)

    assert "SECRET" not in str(caught.value.document())


def test_a_key_file_is_read_without_its_line_break(tmp_path):
    path = tmp_path / "key"
    path.write_text("sk-one\n")
    path.chmod(0o600)

    assert KeySource(file=str(path)).read({}).value == "sk-one"


def test_a_key_file_that_others_can_read_is_refused(tmp_path):
    path = tmp_path / "key"
    path.write_text("sk-one")
    path.chmod(0o644)

    with pytest.raises(ConfigurationError, match="mode 0644") as caught:
        KeySource(file=str(path)).read({})

    assert "chmod 600" in caught.value.remedy


def test_a_command_gives_a_key():
    source = KeySource(command="printf 'sk-%s\\n' made")

    assert source.read({"PATH": "/usr/bin:/bin"}).value == "sk-made"
    assert source.renews


@pytest.mark.parametrize("command", ["false --token SECRET", "/no/such/command SECRET"])
def test_a_command_that_fails_is_named_without_its_arguments(command):
    with pytest.raises(ConfigurationError, match="key command") as caught:
        KeySource(command=command).read({"PATH": "/usr/bin:/bin"})

    assert "SECRET" not in str(caught.value.document())
