"""What docs/assistant-file.md shows is true."""

import re

import pytest

from assistant_runner.setup.load import load_assistant_file
from assistant_runner.setup.prompts import load_prompt
from tests.conftest import REPOSITORY

PAGE = (REPOSITORY / "docs" / "assistant-file.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize("number", range(len(BLOCKS)), ids=lambda number: f"block-{number + 1}")
def test_each_yaml_block_is_an_assistant_file(tmp_path, number):
    text = BLOCKS[number].replace(
        "{…}", "{type: object, properties: {}, required: [], additionalProperties: false}"
    )
    if "name:" not in text.split("\n")[0] and "assistants:" not in text:
        text = "name: x\nmodel: m\n" + text
    (tmp_path / "docs").mkdir()
    for name in ("docs/a.pdf", "docs/a.md", "data.csv"):
        (tmp_path / name).write_text("text")
    (tmp_path / "assistant.yaml").write_text(text, encoding="utf-8")

    assert load_assistant_file(tmp_path / "assistant.yaml", environ={})


def test_the_prompt_file_of_the_page_renders(tmp_path):
    [prompt] = re.findall(r"```\n(---\nsystem.*?)```", PAGE, re.DOTALL)
    (tmp_path / "weatherPrompt.prompt").write_text(prompt)

    found = load_prompt("weatherPrompt", {"location": "Baltimore"}, cwd=tmp_path)

    assert found.text == "What is the weather in Baltimore?"


def test_every_key_of_a_file_is_on_the_page():
    from assistant_runner.setup.load import FILE_KEYS
    from assistant_runner.setup.model import AssistantBody

    missing = [key for key in (*AssistantBody.model_fields, *FILE_KEYS) if key not in PAGE]

    assert missing == []
