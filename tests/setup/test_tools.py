"""The tools of an assistant file, loaded and changed."""

import json

import pytest

from assistant_runner.setup.document import FileInvalid
from assistant_runner.setup.load import load_assistant_file
from assistant_runner.setup.tools import definitions_from, load_spec_tools, open_spec_tools

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


OPENAPI = {
    "openapi": "3.0.0",
    "info": {"title": "Tides", "version": "1"},
    "servers": [{"url": "https://tides.example"}],
    "paths": {
        "/tide/{harbour}": {
            "get": {
                "operationId": "getTide",
                "summary": "Tide of a harbour",
                "parameters": [
                    {"name": "harbour", "in": "path", "required": True, "schema": {"type": "string"}}
                ],
            }
        }
    },
}


async def test_tools_without_python_stand_in_the_file(tmp_path):
    (tmp_path / "tides.json").write_text(json.dumps(OPENAPI))
    spec = spec_of(
        tmp_path,
        "  - http: {name: get_town, description: A town, url: 'https://towns.example/{name}', timeout: 5s,\n"
        "      parameters: {type: object, required: [name],\n"
        "      properties: {name: {type: string, enum: [NO, 1.10]}}}}\n"
        "  - command: {name: deploy, description: Deploy, command: [deploy, --now]}\n"
        "  - openapi: {document: tides.json}\n"
        "  - human: {name: ask_boss}\n",
    )

    async with open_spec_tools(spec, environ={}) as tools:
        definitions = [definitions_from(boxes={spec.identity: tools})(spec, use) for use in spec.tools]

    assert tools.names() == ["get_town", "deploy", "getTide", "ask_boss"]
    assert [len(one) for one in definitions] == [1, 1, 1, 1]
    assert tools["get_town"].timeout_s == 5.0
    assert tools["get_town"].parameters["properties"]["name"]["enum"] == ["NO", "1.10"]
    assert tools["deploy"].effects == "write"


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        pytest.param("http: {name: a, descripton: b, url: c}", "did you mean 'description'", id="key"),
        pytest.param("http: {name: a b, description: b, url: c}", "name", id="name"),
        pytest.param("mcp: {name: a}", "expected one of command and url", id="mcp"),
        pytest.param("command: {name: a, description: b, command: []}", "command", id="command"),
        pytest.param("http: {name: a, description: b, url: c, timeout: soon}", "such as 60s", id="timeout"),
        pytest.param("htpp: {name: a}", "did you mean 'http'", id="kind"),
    ],
)
def test_a_wrong_entry_names_key_and_place(tmp_path, entry, words):
    with pytest.raises(FileInvalid) as caught:
        spec_of(tmp_path, f"  - {entry}\n")

    assert words in str(caught.value)
    assert "assistant.yaml:4:" in str(caught.value)


async def test_an_mcp_server_that_does_not_answer_is_named_with_its_place(tmp_path):
    spec = spec_of(tmp_path, "  - mcp: {name: maps, command: [no-such-program-here]}\n")

    with pytest.raises(FileInvalid, match=r"assistant\.yaml:4:5: tools\[0\]\.mcp: .*maps"):
        async with open_spec_tools(spec, environ={"PATH": "/usr/bin"}):
            pass
