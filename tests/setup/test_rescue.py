"""Rescue of assistants: dumps, printed objects, Foundry agents, prompt exports."""

import json

import pytest

from assistant_runner.errors import ConfigurationError
from assistant_runner.setup.dumps import parse_dump
from assistant_runner.setup.load import load_assistant_file
from assistant_runner.setup.rescue import rescue
from tests.conftest import FIXTURES

DUMPS = FIXTURES / "dumps"


@pytest.mark.parametrize("path", sorted(DUMPS.glob("[a-p]*.*")), ids=lambda path: path.stem)
def test_what_was_rescued_loads_as_an_assistant_file(path, tmp_path):
    found = rescue(path)
    target = tmp_path / "assistant.yaml"
    target.write_text(found.file_text(), encoding="utf-8")

    specs = load_assistant_file(target, environ={})

    assert [spec.name for spec in specs] == [one.name for one in found.found]
    assert [spec.instructions for spec in specs] == [one.document.get("instructions") for one in found.found]


def test_an_assistant_object_keeps_its_settings_and_says_what_is_lost(tmp_path):
    [one] = rescue(DUMPS / "assistant.json").found

    assert one.document["temperature"] == 0.2
    assert one.document["response_format"] == "json_object"
    assert one.document["metadata"] == {"team": "maths"}
    assert [t if isinstance(t, str) else next(iter(t)) for t in one.document["tools"]] == [
        "code_interpreter",
        "file_search",
        "type",
    ]
    assert any("file-1" in word for word in one.lost)
    assert any("vs_1" in word for word in one.lost)
    assert "top_p" not in one.document


def test_a_sixteenth_pair_of_metadata_is_named_so_that_the_file_can_be_applied(tmp_path):
    pairs = {f"k{n}": "v" for n in range(16)}
    dump = tmp_path / "dump.json"
    dump.write_text(json.dumps({"id": "asst_1", "object": "assistant", "model": "m", "metadata": pairs}))
    (tmp_path / "assistant.yaml").write_text((found := rescue(dump)).file_text())

    [spec] = load_assistant_file(tmp_path / "assistant.yaml", environ={})

    assert spec.metadata == {f"k{n}": "v" for n in range(15)}
    assert any(word.startswith("metadata k15") for word in found.found[0].lost)


def test_ids_are_kept_when_told_to():
    [one] = rescue(DUMPS / "assistant.json", keep_ids=True).found

    assert one.document["tools"][0] == {"code_interpreter": {"file_ids": ["file-1"]}}
    assert one.document["tools"][1]["file_search"]["vector_store_ids"] == ["vs_1"]
    assert one.lost == []


def test_a_page_gives_all_its_assistants_and_names_what_is_none():
    found = rescue(DUMPS / "assistants-page.json")

    assert [one.name for one in found.found] == ["Helper", "Helper (2)"]
    assert found.found[1].document["tools"] == ["file_search"]
    assert any("file-9" in word for word in found.found[1].lost)
    assert found.strangers == ["thread thread_x with the keys id, object, created_at, metadata"]


def test_a_foundry_agent_is_read_from_its_latest_version():
    [one] = rescue(DUMPS / "foundry-agent.json").found

    assert (one.kind, one.name, one.document["model"]) == ("foundry agent", "travel-helper", "gpt-5-mini")
    assert one.document["description"] == "Plans trips"
    assert len(one.document["tools"]) == 2
    assert any("bing_grounding" in word for word in one.lost)
    assert any("https://maps.example/mcp" in word for word in one.lost)


def test_a_prompt_export_becomes_instructions_and_settings():
    [one] = rescue(DUMPS / "prompt-export.json").found

    assert one.document["instructions"] == "You answer about {{town}}."
    assert one.document["reasoning_effort"] == "low"
    assert one.document["response_format"]["name"] == "answer"
    for word in ("a message of user", "web_search_preview", "max_output_tokens", "variables"):
        assert any(word in line for line in one.lost), word


def test_a_print_of_python_is_data_and_never_run():
    [document] = parse_dump("Assistant(id='asst_1', tools=[Tool(type='code_interpreter')], top_p=-1)")

    assert document == {"id": "asst_1", "tools": [{"type": "code_interpreter"}], "top_p": -1}
    with pytest.raises(ConfigurationError):
        list(parse_dump("Assistant(id=__import__('os').getcwd())"))


def test_several_documents_one_after_the_other_are_all_read():
    assert list(parse_dump('{"a": 1}\n\n{"b": 2} [3]')) == [{"a": 1}, {"b": 2}, [3]]
    with pytest.raises(ConfigurationError, match="dump:2:"):
        list(parse_dump('{"a": 1}\n{"b": '))


def test_the_report_has_a_hash_of_each_text():
    report = rescue(DUMPS / "assistant.json").report()

    [one] = report["assistants"]
    assert one["instructions_characters"] == 65
    assert len(one["instructions_sha256"]) == 64
    assert json.dumps(report)
