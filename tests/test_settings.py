"""Settings: which layer wins, and what is said of a wrong one."""

from pathlib import Path

import pytest

from assistant_runner.errors import ConfigurationError, UsageError
from assistant_runner.settings import find_folders, load_settings


@pytest.fixture
def home(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "home" / "config").mkdir(parents=True)
    return {"ASSISTANT_RUNNER_HOME": str(tmp_path / "home")}


def test_each_layer_lies_over_the_one_below(home, tmp_path):
    (tmp_path / "home" / "config" / "config.toml").write_text('model = "user"\nrounds = 1\nrepeats = 1\n')
    (tmp_path / "assistant-runner.toml").write_text('model = "project"\nrounds = 2\nparallelism = 2\n')
    environ = {**home, "ASSISTANT_RUNNER_MODEL": "environment", "ASSISTANT_RUNNER_PARALLELISM": ""}
    layer = {"rounds": 3, "model": "file", "timeout_s": 5.0}

    loaded = load_settings(
        {"model": "flag", "engine": None},
        environ=environ,
        cwd=tmp_path,
        assistant_file=("assistant.yaml", layer),
    )

    settings = loaded.settings
    assert (settings.model, settings.rounds, settings.repeats, settings.parallelism) == ("flag", 3, 1, 2)
    assert loaded.origins["model"] == "flag"
    assert loaded.origins["rounds"] == "assistant.yaml"
    assert loaded.origins["parallelism"] == str(tmp_path / "assistant-runner.toml")
    assert loaded.origins["repeats"].endswith("config.toml")
    assert loaded.origins["engine"] == "default"


def test_s2_13_the_model_comes_from_the_config_and_a_flag_wins(home, tmp_path):
    (tmp_path / "assistant-runner.toml").write_text('model = "project"\n')

    assert load_settings({}, environ=home, cwd=tmp_path).settings.model == "project"
    assert load_settings({"model": "other"}, environ=home, cwd=tmp_path).settings.model == "other"


def test_all_unknown_keys_are_named_at_once_with_line_and_nearest_key(home, tmp_path):
    (tmp_path / "assistant-runner.toml").write_text('# mine\nmodell = "x"\n\ntimeout = 5\napi_key = "sk-1"\n')

    with pytest.raises(ConfigurationError) as caught:
        load_settings({}, environ=home, cwd=tmp_path)

    text = str(caught.value)
    assert "assistant-runner.toml:2: unknown key 'modell'; did you mean 'model'?" in text
    assert "assistant-runner.toml:4: unknown key 'timeout'; did you mean 'timeout_s'?" in text
    assert "assistant-runner.toml:5: api_key: secrets are not read from config text" in text
    assert "sk-1" not in text


def test_a_value_of_the_wrong_type_names_where_it_came_from(home, tmp_path):
    with pytest.raises(ConfigurationError, match="environment ASSISTANT_RUNNER_ROUNDS: rounds"):
        load_settings({}, environ={**home, "ASSISTANT_RUNNER_ROUNDS": "many"}, cwd=tmp_path)


def test_one_variable_moves_all_folders(home, tmp_path):
    folders = find_folders(home)

    assert {folder.parent for folder in (folders.config, folders.data, folders.state, folders.cache)} == {
        tmp_path / "home"
    }


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        pytest.param({"if_active": "maybe"}, "--if-active: Input should be 'fail'", id="no-such-choice"),
        pytest.param({"timeout_s": 0.0}, "--timeout: Input should be greater than 0", id="no-time"),
        pytest.param({"timeout_s": float("nan")}, "--timeout: Input should be", id="no-number"),
        pytest.param({"tool_timeout_s": float("inf")}, "--tool-timeout: Input should be", id="endless"),
        pytest.param({"poll_interval_s": -1.0}, "--poll-interval: Input should be", id="backwards"),
    ],
)
def test_a_flag_that_cannot_be_is_named_as_it_was_written(home, tmp_path, flags, words):
    with pytest.raises(UsageError, match=words):
        load_settings(flags, environ=home, cwd=tmp_path)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        pytest.param("rounds = 0\n", "rounds: Input should be greater than or equal to 1", id="no-rounds"),
        pytest.param('tools = "x"\n', r"tools: Input should be a list \(got 'x'\)", id="no-list"),
        pytest.param("[prices.m]\ninput = -1\n", r"prices\.m\.input: Input should be", id="negative-price"),
    ],
)
def test_a_value_that_makes_no_sense_is_refused_in_the_words_of_the_file(home, tmp_path, text, words):
    (tmp_path / "assistant-runner.toml").write_text(text)

    with pytest.raises(ConfigurationError, match=words):
        load_settings({}, environ=home, cwd=tmp_path)


def test_a_variable_for_a_list_is_refused_instead_of_ignored(home, tmp_path):
    with pytest.raises(ConfigurationError, match="ASSISTANT_RUNNER_TOOLS: tools is a list or table"):
        load_settings({}, environ={**home, "ASSISTANT_RUNNER_TOOLS": "a,b"}, cwd=tmp_path)


def test_a_home_of_nobody_is_a_configuration_error(tmp_path):
    with pytest.raises(ConfigurationError, match="ASSISTANT_RUNNER_HOME: ~nobody-of-this-name/x"):
        load_settings({}, environ={"ASSISTANT_RUNNER_HOME": "~nobody-of-this-name/x"}, cwd=tmp_path)
