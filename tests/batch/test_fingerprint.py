import pytest

from assistant_runner.assembly import Question
from assistant_runner.batch.fingerprint import Fingerprints, World, digest, settings_parts
from assistant_runner.settings import Settings


def parts(folder, question=Question("", assistant="assistant.yaml"), **settings):
    return digest(settings_parts(Settings(**settings), question, World(folder)))


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "assistant.yaml").write_text("name: A\nmodel: m\ninstructions: v1\n")
    return tmp_path


def test_case_076_changed_instructions_change_it_and_a_comment_does_not(folder):
    before = parts(folder)
    (folder / "assistant.yaml").write_text("# a note\nmodel: m\nname: A\ninstructions: v1\n")
    same = parts(folder)
    (folder / "assistant.yaml").write_text("name: A\nmodel: m\ninstructions: v2\n")

    assert same == before
    assert parts(folder) != before


def test_a_comment_above_the_tools_and_another_folder_do_not_change_it(tmp_path):
    text = "name: A\nmodel: m\ntools:\n  - ./own.py:find\n  - file_search: {files: ['*.md']}\n"
    text += "  - code_interpreter: {files: [data.csv]}\nengine: {api: script, script: s.json}\n"
    for name, head in (("here", ""), ("there", "# a note\n")):
        (tmp_path / name).mkdir()
        for file, words in (("assistant.yaml", head + text), ("a.md", "a"), ("data.csv", "1")):
            (tmp_path / name / file).write_text(words)
    here, there = tmp_path / "here", tmp_path / "there"

    same = parts(here, script=str(here / "s.json")) == parts(there, script="s.json")
    (there / "assistant.yaml").write_text(text.replace("own.py", "other.py"))

    assert same
    assert parts(here) != parts(there)


@pytest.mark.parametrize(
    "change",
    [{"model": "other"}, {"tools": ("get_weather",)}, {"engine": "planner"}, {"offline": True}],
    ids=["model", "tools", "engine", "offline"],
)
def test_what_changes_an_answer_changes_it(folder, change):
    assert parts(folder, **change) != parts(folder)


def test_limits_and_parallelism_do_not(folder):
    assert parts(folder, rounds=3, parallelism=2) == parts(folder)


def test_a_backend_that_moved_does_not(folder):
    assert parts(folder, backend="http://a:1/v1") == parts(folder, backend="http://b:2/v1") != parts(folder)


def test_a_rows_own_assistant_has_its_own(folder):
    prints = Fingerprints(settings_parts(Settings(), Question(""), World(folder.parent)), World(folder))

    assert prints.of(None) != prints.of("assistant.yaml")


def test_the_lone_assistant_file_of_the_folder_counts_without_being_named(folder):
    before = parts(folder, Question(""))
    (folder / "assistant.yaml").write_text("name: A\nmodel: m\ninstructions: v2\n")

    assert parts(folder, Question("")) != before


def test_what_is_kept_of_an_assistant_file_tells_no_secret(folder):
    (folder / "assistant.yaml").write_text("name: A\nmodel: m\ninstructions: the word is ${WORD}\n")

    kept = settings_parts(Settings(), Question(""), World(folder, {"WORD": "hush-7"}))

    assert "hush-7" not in str(kept)
    assert set(kept["assistant"]) == {"model", "instructions"}
