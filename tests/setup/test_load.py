"""Assistant files: what they may say, and what is said of them when they are wrong."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from assistant_runner.errors import ConfigurationError
from assistant_runner.setup.document import FileInvalid
from assistant_runner.setup.load import load_assistant_file
from assistant_runner.setup.model import AssistantSpec
from assistant_runner.setup.strict import check_strict, make_strict


@pytest.fixture
def load(tmp_path: Path) -> Callable[..., list[AssistantSpec]]:
    def load(text: str, name: str = "assistant.yaml", profile: str | None = None, **environ: str):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return load_assistant_file(path, environ=environ, profile=profile)

    return load


def problems(caught: pytest.ExceptionInfo[FileInvalid]) -> list[tuple[int, str]]:
    return [(one.place.line, one.key) for one in caught.value.problems]


def test_case_080_text_stays_text(load):
    [spec] = load(
        """\
name: 0123
model: 1.10
metadata: {on: on, version: 1.10, time: 12:30, code: 0123, answer: NO, day: 2024-01-01}
tools:
  - type: function
    function:
      name: deliver
      strict: true
      parameters:
        type: object
        properties: {country: {type: string, enum: [SE, NO, DK, 1.10]}}
        required: [country]
        additionalProperties: false
"""
    )

    assert (spec.name, spec.model) == ("0123", "1.10")
    assert spec.metadata == {
        "on": "on",
        "version": "1.10",
        "time": "12:30",
        "code": "0123",
        "answer": "NO",
        "day": "2024-01-01",
    }
    schema = spec.tools[0].entry.parameters
    assert schema["properties"]["country"]["enum"] == ["SE", "NO", "DK", "1.10"]
    assert schema["additionalProperties"] is False


def test_case_080_a_format_with_types_says_to_quote(load):
    with pytest.raises(FileInvalid) as caught:
        load('name = "x"\nmodel = 1.10\n', "assistant.toml")

    assert "assistant.toml:2:1: model: expected text; found the number 1.1" in str(caught.value)
    assert "quotes" in str(caught.value)


def test_case_081_an_unset_variable_is_named_with_its_place(load):
    text = "name: x\nmodel: m\nengine:\n  api: chat\n  api_key: ${RUNNER_TEST_KEY}\n"
    with pytest.raises(
        FileInvalid, match=r"assistant\.yaml:5:12: engine\.api_key: .*RUNNER_TEST_KEY is not set"
    ):
        load(text)

    [spec] = load(text, RUNNER_TEST_KEY="sk-1")
    assert spec.secrets() == {"ASSISTANT_FILE_API_KEY": "sk-1"}
    assert spec.settings_layer()["engine_key_env"] == "ASSISTANT_FILE_API_KEY"
    assert "sk-1" not in repr(spec)
    [spec] = load(text.replace("}", ":-fallback}"))
    assert list(spec.secrets().values()) == ["fallback"]


def test_case_081_defaults_dollars_and_instructions(load):
    [spec] = load(
        "name: a $$ ${A:-fallback} $$${A}\nmodel: m\nparallel_tool_calls: ${P:-false}\n"
        "instructions: costs $$5 ${not_a_var}\n",
        A="",
    )

    assert spec.name == "a $ fallback $"
    assert spec.parallel_tool_calls is False
    assert spec.instructions == "costs $$5 ${not_a_var}"


def test_case_081_instructions_are_expanded_when_asked(load, tmp_path):
    (tmp_path / "prompt.md").write_text("You serve ${TOWN}.")
    [spec] = load("name: x\nmodel: m\ninstructions: {file: prompt.md, expand: true}\n", TOWN="Turin")

    assert spec.instructions == "You serve Turin."


def test_case_082_all_misspelled_keys_are_reported_at_once(load):
    with pytest.raises(FileInvalid) as caught:
        load(
            "name: x\nmodel: m\ninstrutions: hello\ntemperture: 0.2\n"
            "tools:\n  - get_weather: {timeout_second: 5}\n"
        )

    assert problems(caught) == [
        (3, "instrutions"),
        (4, "temperture"),
        (6, "tools[0].get_weather.timeout_second"),
    ]
    for word in ("'instructions'", "'temperature'", "'timeout'"):
        assert f"did you mean {word}" in str(caught.value)
    assert caught.value.exit_status == 3


def test_a_number_that_is_wrong_is_one_problem(load):
    with pytest.raises(FileInvalid) as caught:
        load("name: x\nmodel: m\ntemperature: warm\ntop_p: 7\n")

    assert problems(caught) == [(3, "temperature"), (4, "top_p")]


CASE_083 = {
    "type": "object",
    "properties": {
        "place": {
            "type": "object",
            "properties": {"geo": {"type": ["object", "null"], "properties": {}, "required": []}},
            "required": ["geo"],
        },
        "stops": {"type": "array", "items": {"type": "object", "properties": {}, "required": []}},
    },
    "required": ["place", "stops"],
}


def test_case_083_every_open_object_is_found_by_its_path(load):
    tool = {"type": "function", "function": {"name": "go", "strict": True, "parameters": CASE_083}}
    with pytest.raises(FileInvalid) as caught:
        load(json.dumps({"name": "x", "model": "m", "tools": [tool]}), "assistant.json")

    root = "tools[0].function.parameters"
    assert {key for _, key in problems(caught)} == {
        root,
        f"{root}.properties.place",
        f"{root}.properties.place.properties.geo",
        f"{root}.properties.stops.items",
    }


def test_case_083_all_are_put_right_when_told(load):
    tool = {"type": "function", "function": {"name": "go", "strict": True, "parameters": CASE_083}}
    [spec] = load(
        json.dumps({"name": "x", "model": "m", "fix_schemas": True, "tools": [tool]}), "assistant.json"
    )

    assert check_strict(spec.tools[0].entry.parameters) == []


def test_case_084_an_optional_parameter_is_named_or_rewritten():
    schema = {
        "type": "object",
        "properties": {"city": {"type": "string"}, "units": {"type": "string", "enum": ["C", "F"]}},
        "required": ["city"],
        "additionalProperties": False,
    }

    [problem] = check_strict(schema)
    fixed = make_strict(schema)

    assert "units is optional" in problem.message
    assert "null" in problem.message
    assert "strict: false" in problem.message
    assert fixed["properties"]["units"] == {"type": ["string", "null"], "enum": ["C", "F", None]}
    assert fixed["required"] == ["city", "units"]
    assert check_strict(fixed) == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("", "empty", id="empty"),
        pytest.param("- a\n", "expected a map", id="a-list"),
        pytest.param("name: [x\n", "2:1: not valid YAML", id="not-yaml"),
        pytest.param("name: x\nname: y\nmodel: m\n", "2:1: name: written twice", id="twice"),
        pytest.param("model: m\n", "name: required", id="no-name"),
        pytest.param("name: x\nmodel: m\ntemperature: warm\n", "3:1: temperature: expected a", id="a-word"),
        pytest.param("name: x\nmodel: m\ntemperature: 3\n", "less than or equal to 2", id="too-hot"),
        pytest.param("name: x\nmodel: m\ntemperature: '1'\n", "found the text '1'", id="quoted"),
        pytest.param("name: x\nmodel: m\ntop_p: .nan\n", "finite", id="nan"),
        pytest.param("name: x\nmodel: m\ntools: get_weather\n", "tools: expected a list", id="not-a-list"),
        pytest.param("name: x\nmodel: m\ntools: [file_serch: {}]\n", "'file_search'", id="near-tool"),
        pytest.param("name: x\nmodel: m\ntools: [a, a]\n", "there twice", id="tool-twice"),
        pytest.param("name: x\nmodel: m\ntool_choice: maybe\n", "expected auto, none", id="choice"),
        pytest.param("name: x\nmodel: m\nlimits: {timeout: soon}\n", "such as 60s", id="duration"),
        pytest.param("name: x\nmodel: m\nbackend: somewhere\n", "embedded or a URL", id="backend"),
        pytest.param("name: x\nmodel: m\nengine: {api_key: sk-1}\n", "key_env", id="key-in-text"),
        pytest.param("name: x\nmodel: m\nname2: &a [*a]\n", "contains itself", id="endless-alias"),
        pytest.param("name: !!python/object:os.x y\nmodel: m\n", "is not known here", id="foreign-tag"),
        pytest.param(
            "name: x\nmodel: m\ntools: [file_search: {files: [no.pdf]}]\n", "finds no file", id="file"
        ),
        pytest.param("name: x\nmodel: m\nreasoning_effort: hihg\n", "did you mean 'high'", id="effort"),
        pytest.param("name: x\nmodel: m\nmetadata: {assistant_runner: y}\n", "is ours", id="our-key"),
        pytest.param("name: x\nmodel: m\nextends: base\n", "no file of that name", id="no-base"),
        pytest.param(
            "assistants: {A: {extends: B, model: m}, B: {extends: A}}\n", "extends itself", id="circle"
        ),
        pytest.param(
            "assistants: [{name: A, model: m}, {name: A, model: m}]\n", "is there already", id="two"
        ),
        pytest.param("assistants: {A: {model: m}}\nmodel: m\n", "belongs to an assistant", id="beside"),
        pytest.param("object: assistant\nid: asst_1\nname: x\n", "assistant import --from", id="a-dump"),
        pytest.param(
            "name: x\nmodel: m\nprofiles: {prod: {modle: y}}\n", "profiles.prod.modle", id="profile"
        ),
        pytest.param("name: x\nmodel: m\nprofiles: prod\n", "map of overlays", id="profiles"),
        pytest.param("name: x\n\tmodel: m\n", "2:1: not valid YAML", id="tab"),
        pytest.param(
            "name: x\nmodel: m\nlimits: {rounds: 0}\n", "greater than or equal to 1", id="no-rounds"
        ),
    ],
)
def test_a_wrong_file_is_refused_with_words_that_help(load, text, message):
    with pytest.raises(FileInvalid) as caught:
        load(text)

    assert message in str(caught.value)
    assert "assistant.yaml" in str(caught.value)


def test_the_same_assistant_in_three_formats_is_the_same(load):
    yaml = "name: x\nmodel: m\ntemperature: 1\ntools: [get_weather]\nlimits: {timeout: 1m30s}\n"
    toml = 'name = "x"\nmodel = "m"\ntemperature = 1\ntools = ["get_weather"]\n[limits]\ntimeout = "1m30s"\n'
    data = {"name": "x", "model": "m", "temperature": 1, "tools": ["get_weather"], "limits": {"timeout": 90}}

    specs = [load(yaml)[0], load(toml, "b.toml")[0], load(json.dumps(data), "c.json")[0]]

    assert [spec.settings_layer() for spec in specs] == [{"timeout_s": 90.0}] * 3
    assert len({(spec.name, spec.model, spec.temperature, spec.tools[0].entry) for spec in specs}) == 1


def test_a_profile_lies_over_the_file_and_extends_below_it(load, tmp_path):
    (tmp_path / "base.yaml").write_text("model: base\ntemperature: 1\nmetadata: {a: '1', b: '2'}\n")
    text = (
        "name: x\nextends: base.yaml\nmetadata: {b: '3'}\n"
        "profiles:\n  prod: {model: big, metadata: {c: '4'}}\n  dev: {temperature: 0}\n"
    )

    [plain], [prod] = load(text), load(text, profile="prod")

    assert (plain.model, plain.temperature, plain.metadata) == ("base", 1, {"a": "1", "b": "3"})
    assert (prod.model, prod.metadata) == ("big", {"a": "1", "b": "3", "c": "4"})
    with pytest.raises(FileInvalid, match="did you mean 'prod'"):
        load(text, profile="prd")


def test_several_assistants_in_one_file_share_defaults_and_extend_each_other(load):
    specs = load(
        "project: town\ndefaults: {model: m, temperature: 0}\n"
        "assistants:\n  Base: {abstract: true, instructions: Be brief.}\n"
        "  A: {extends: Base}\n  B: {extends: A, model: n}\n"
    )

    assert [(one.name, one.model, one.temperature, one.instructions) for one in specs] == [
        ("A", "m", 0, "Be brief."),
        ("B", "n", 0, "Be brief."),
    ]
    assert specs[0].identity == "town/A"


def test_a_folder_gives_all_its_assistant_files(load, tmp_path):
    load("name: a\nmodel: m\n")
    load("name: b\nmodel: m\n---\nname: c\nmodel: m\n", "x.assistant.yaml")
    load("name: d\nmodel: m\n", "assistants/d.yaml")
    (tmp_path / "package.json").write_text("{}")

    specs = load_assistant_file(tmp_path, environ={})

    assert [spec.name for spec in specs] == ["a", "b", "c", "d"]


def test_a_missing_file_has_a_remedy(tmp_path):
    with pytest.raises(ConfigurationError, match="no such file") as caught:
        load_assistant_file(tmp_path / "assistant.yml", environ={})

    assert "init" in caught.value.remedy


def test_a_schema_that_is_not_strict_is_named_where_it_stands(load):
    with pytest.raises(FileInvalid) as caught:
        load(
            """\
name: x
model: m
tools:
  - type: function
    function:
      name: go
      strict: true
      parameters:
        type: object
        additionalProperties: false
        required: []
        properties:
          units: {type: string}
"""
        )

    [problem] = caught.value.problems
    assert (problem.place.line, problem.place.column) == (13, 11)
    assert problem.key == "tools[0].function.parameters.properties.units"


def test_profiles_of_a_file_of_several_lie_over_all(load):
    text = "assistants: {A: {model: m}, B: {model: n}}\nprofiles: {prod: {model: big, temperature: 0}}\n"

    assert [(one.model, one.temperature) for one in load(text, profile="prod")] == [("big", 0), ("big", 0)]
    assert [one.model for one in load(text)] == ["m", "n"]
