"""`ask --prompt NAME -p key=value` (rows S2.7 and S2.8)."""

import json
import shutil

import pytest

from tests.conftest import FIXTURES


@pytest.fixture
def weather(tmp_path):
    shutil.copy(FIXTURES / "shapes" / "weatherPrompt.prompt", tmp_path)


def test_s2_8_the_reference_prompt_file_asks_with_its_tools(cli, weather):
    outcome = cli("ask", "--prompt", "weatherPrompt", "-p", "location=London", "--offline", "--json")

    assert outcome.status == 0, outcome.stderr
    document = json.loads(outcome.stdout)
    assert [call["name"] for call in document["tool_calls"]] == ["get_weather"]
    assert "11.1" in document["answer"]


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        pytest.param(["--prompt", "weatherPrompt"], "location", id="missing"),
        pytest.param(["--prompt", "weatherPrompt", "-p", "location=a", "-p", "x=1"], "'x'", id="unknown"),
        pytest.param(["--prompt", "weatherPrompt", "-p", "location"], "key=value", id="no-value"),
        pytest.param(["--prompt", "wetherPrompt"], "did you mean 'weatherPrompt'", id="name"),
        pytest.param(["--prompt", "weatherPrompt", "and words"], "exclude", id="both"),
        pytest.param(["hello", "-p", "a=b"], "--prompt", id="no-file"),
    ],
)
def test_what_is_wrong_is_a_usage_error_that_names_it(cli, weather, argv, words):
    outcome = cli("ask", *argv, "--offline")

    assert outcome.status == 2
    assert words in outcome.stderr


def test_tools_of_a_prompt_are_read_from_its_folder(cli, tmp_path):
    (tmp_path / "prompts").mkdir()
    (tmp_path / "prompts" / "own.py").write_text(
        'def get_town(name: str) -> str:\n    """Say where a town lies."""\n    return f"{name} lies here"\n'
    )
    (tmp_path / "prompts" / "where.prompt").write_text(
        "---\ntools: [./own.py:get_town]\n---\nget_town name {{name}}"
    )

    outcome = cli("ask", "--prompt", "where", "-p", "name=Turin", "--json", "--offline")

    assert outcome.status == 0, outcome.stderr
