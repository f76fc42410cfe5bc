"""What the documentation shows of tools is what works."""

import re
from pathlib import Path

import pytest

from assistant_runner.setup.load import load_assistant_file
from assistant_runner.tooling.registry import tools_of_file
from tests.conftest import REPOSITORY

PAGE = (REPOSITORY / "docs" / "tools.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def test_the_assistant_file_of_the_page_loads(tmp_path: Path):
    path = tmp_path / "assistant.yaml"
    path.write_text("name: T\nmodel: gpt-5-mini\n" + blocks("yaml")[0])

    [spec] = load_assistant_file(path, environ={})

    assert [use.kind for use in spec.tools] == ["local", "http", "command", "mcp", "openapi", "human"]
    assert [rule.action for rule in spec.policy.rules] == ["ask", "allow", "deny"]


@pytest.mark.parametrize(("index", "name"), [(0, "book_table"), (1, "add")])
def test_the_tools_of_the_page_are_tools(tmp_path: Path, index: int, name: str):
    path = tmp_path / "page.py"
    path.write_text(blocks("python")[index].replace("toolbox.add(", "made = (", 1))

    assert [tool.name for tool in tools_of_file(path)] == [name]
