"""The tools of an assistant file, loaded and changed."""

import pytest

from assistant_runner.setup.document import FileInvalid
from assistant_runner.setup.load import load_assistant_file
from assistant_runner.setup.tools import definitions_from, load_spec_tools

OWN = '''
def book_table(people: int) -> str:
    """Book a table."""
    return f"table for {people}"
'''


def spec_of(folder, tools: str):
    path = folder / "assistant.yaml"
    path.write_text(f"name: x\nmodel: m\ntools:\n{tools}")
    (folder / "own.py").write_text(OWN)
    [spec] = load_assistant_file(path, environ={})
    return spec


def test_addresses_are_relative_to_the_file_and_changes_lie_over_the_tool(tmp_path, monkeypatch):
    monkeypatch.chdir("/")
    spec = spec_of(
        tmp_path,
        "  - get_weather: {timeout: 5s, output: entity.current}\n"
        "  - {tool: './own.py:book_table', approval: always, effects: write, description: Reserve.}\n"
        "  - code_interpreter\n",
    )

    tools = load_spec_tools(spec)

    assert tools.names() == ["get_weather", "book_table"]
    assert (tools["get_weather"].timeout_s, tools["get_weather"].select) == (5.0, "entity.current")
    assert (tools["book_table"].approval, tools["book_table"].effects) == ("always", "write")
    assert tools["book_table"].definition().function.description == "Reserve."


def test_every_tool_that_cannot_be_loaded_is_named_with_its_line(tmp_path):
    spec = spec_of(tmp_path, "  - get_wether\n  - get_weather\n  - ./own.py:book_tabel\n")

    with pytest.raises(FileInvalid) as caught:
        load_spec_tools(spec)

    assert [(one.place.line, one.key) for one in caught.value.problems] == [(4, "tools[0]"), (6, "tools[2]")]
    assert "did you mean get_weather" in str(caught.value)
    with pytest.raises(FileInvalid, match=r"assistant\.yaml:4"):
        definitions_from()(spec, spec.tools[0])


def test_the_policy_of_the_file_decides_in_order(tmp_path):
    spec = spec_of(
        tmp_path,
        "  - get_weather\npolicy:\n  deny: [drop_*]\n  allow: ['*']\n"
        "  rules: [{tool: deploy, action: ask, arguments: {env: prod}}]\n",
    )

    assert [(rule.tool, rule.action) for rule in spec.policy.rules] == [
        ("deploy", "ask"),
        ("drop_*", "deny"),
        ("*", "allow"),
    ]
    with pytest.raises(FileInvalid, match=r"policy\.rules\[0\]\.actoin: unknown key; did you mean 'action'"):
        spec_of(tmp_path, "  - get_weather\npolicy: {rules: [{actoin: ask}]}\n")
