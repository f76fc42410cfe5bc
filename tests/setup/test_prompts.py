"""Prompt files: rows S2.7 and S2.8."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assistant_runner.errors import UsageError
from assistant_runner.setup.document import FileInvalid
from assistant_runner.setup.prompts import load_prompt, picoschema, read_prompt, render
from tests.conftest import FIXTURES

REFERENCE = FIXTURES / "shapes"


def test_s2_8_the_reference_file_runs_unchanged():
    prompt = load_prompt("weatherPrompt", {"location": "Baltimore"}, cwd=REFERENCE)

    assert prompt.text == "What is the weather in Baltimore?"
    assert prompt.system == "Answer questions using the tools you have."
    assert prompt.tools == ("get_weather",)


@pytest.mark.parametrize(
    ("inputs", "words"),
    [
        pytest.param({}, "missing input 'location'", id="missing"),
        pytest.param({"location": "x", "loction": "y"}, "did you mean 'location'", id="unknown"),
    ],
)
def test_s2_8_a_missing_or_unknown_input_is_a_usage_error_that_names_it(inputs, words):
    with pytest.raises(UsageError, match=words):
        load_prompt("weatherPrompt", inputs, cwd=REFERENCE)


def test_s2_7_a_prompt_is_found_by_name_in_the_prompts_folder(tmp_path):
    (tmp_path / "prompts").mkdir()
    (tmp_path / "prompts" / "greet.prompt").write_text("Hello {{name}}!")

    assert load_prompt("greet", {"name": "Ada"}, cwd=tmp_path).text == "Hello Ada!"
    with pytest.raises(UsageError, match="did you mean 'greet'"):
        load_prompt("gret", {}, cwd=tmp_path)


def test_inputs_take_the_types_of_the_schema_and_defaults_fill_in(tmp_path):
    path = tmp_path / "p.prompt"
    path.write_text(
        "---\ninput:\n  schema:\n    n: integer\n    tags(array): string\n    tone?: string\n"
        "  default: {tone: calm}\n---\n{{n}} {{tone}}{{#each tags}} {{this}}{{/each}}"
    )

    assert load_prompt(str(path), {"n": "3", "tags": '["a", "b"]'}).text == "3 calm a b"
    with pytest.raises(UsageError, match="n: expected integer"):
        load_prompt(str(path), {"n": "three", "tags": "[]"})


def test_picoschema_becomes_json_schema():
    schema = picoschema(
        {"title": "string, of the book", "genre?(enum)": ["A", "B"], "o(object)": {"x": "number"}}
    )

    assert schema == {
        "type": "object",
        "properties": {
            "title": {"type": "string", "description": "of the book"},
            "genre": {"enum": ["A", "B"]},
            "o": {
                "type": "object",
                "properties": {"x": {"type": "number"}},
                "required": ["x"],
                "additionalProperties": False,
            },
        },
        "required": ["title", "o"],
        "additionalProperties": False,
    }


@pytest.mark.parametrize(
    ("text", "words"),
    [
        pytest.param("---\nsytem: x\n---\nhello", r"2:1: sytem: .*'system'", id="unknown-key"),
        pytest.param("---\ninput: {schema: {a: strng}}\n---\n{{a}}", "did you mean 'string'", id="type"),
        pytest.param("---\nsystem: x\nhello", r"1:1: front matter .* no line --- ends it", id="open-front"),
        pytest.param("a\n{{#if x}}b", r":2: .*not closed", id="open-block"),
        pytest.param("---\nsystem: x\n---\na\n{{run x}}", r":5: .*helpers", id="helper"),
    ],
)
def test_a_wrong_prompt_file_names_the_place(tmp_path, text, words):
    path = tmp_path / "p.prompt"
    path.write_text(text)

    with pytest.raises(FileInvalid, match=words):
        read_prompt(path)


@given(st.text())
def test_what_is_put_in_is_never_read_as_a_template(value):
    assert render("<{{a}}>", {"a": value, "b": "secret"}) == f"<{value}>"


def test_blocks_choose_and_repeat():
    template = "{{#if a}}A{{else}}N{{/if}}{{#unless a}}!{{/unless}}{{#each l}}[{{name}}]{{else}}none{{/each}}"

    assert render(template, {"a": True, "l": [{"name": "x"}, {"name": "y"}]}) == "A[x][y]"
    assert render(template, {"a": "", "l": []}) == "N!none"


def test_a_path_is_a_prompt_too():
    assert load_prompt(str(Path(REFERENCE) / "weatherPrompt.prompt"), {"location": "Oslo"}).text.endswith(
        "Oslo?"
    )


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        pytest.param("{a: {$ref: 'http://127.0.0.1:9/schema'}}", "leads nowhere", id="another's-schema"),
        pytest.param("{a: {type: 7}}", "7 is not valid", id="no-type"),
        pytest.param("{a: {pattern: '('}}", "not a 'regex'", id="no-pattern"),
    ],
)
def test_a_schema_that_cannot_be_used_is_named_with_its_line_and_nothing_is_fetched(tmp_path, schema, words):
    path = tmp_path / "p.prompt"
    path.write_text(f"---\ninput:\n  schema: {{type: object, properties: {schema}}}\n---\n{{{{a}}}}\n")

    with pytest.raises(FileInvalid, match=f"p.prompt:3.*{words}"):
        read_prompt(path)


def test_a_template_made_to_keep_us_busy_is_read_at_once(tmp_path):
    (tmp_path / "blanks.prompt").write_text("{{" + " " * 20_000)
    (tmp_path / "blocks.prompt").write_text("{{#if a}}" * 3_000)

    assert read_prompt(tmp_path / "blanks.prompt").inputs == ()
    with pytest.raises(FileInvalid, match="nested too deeply"):
        read_prompt(tmp_path / "blocks.prompt")
