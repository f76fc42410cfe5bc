import pytest

from assistant_runner.batch.reader import Record
from assistant_runner.batch.rows import RowShape, build_rows, row_limits
from assistant_runner.errors import UsageError
from assistant_runner.run.request import Limits


def build(*values, **shape):
    return list(build_rows((Record(n, v) for n, v in enumerate(values, 1)), RowShape(**shape)))


@pytest.mark.parametrize(
    ("record", "words"),
    [
        pytest.param({"prompt": 42}, "'prompt' is a number", id="number"),
        pytest.param({"prompt": ["a", "b"]}, "'prompt' is a list", id="list"),
        pytest.param({"prompt": None}, "'prompt' is null", id="null"),
        pytest.param({"text": "a"}, "there is no 'prompt' (columns: text)", id="missing"),
        pytest.param({"prompt": " \n"}, "the prompt is empty", id="blank"),
        pytest.param({"prompt": "a\0b"}, "NUL", id="nul"),
        pytest.param({"prompt": "\ud83d"}, "surrogate", id="half-a-pair"),
        pytest.param({"prompt": "a", "id": 1.5}, "an id is text or a whole number", id="id"),
        pytest.param({"prompt": "a", "metadata": [1]}, "'metadata' should be", id="metadata"),
        pytest.param({"prompt": "a", "limits": {"rouns": 1}}, "'limits' has no 'rouns'", id="limits"),
        pytest.param(42, "'prompt' is a number", id="bare-number"),
    ],
)
def test_case_072_what_is_no_prompt_is_a_problem_of_its_row(record, words):
    [bad, good] = build(record, {"prompt": "fine"})

    assert words in bad.problem
    assert good.problem is None


def test_case_074_equal_prompts_are_rows_of_their_own():
    rows = build({"prompt": "same"}, {"prompt": "same"}, {"id": "x", "prompt": "same"})

    assert len({row.key for row in rows}) == 3
    assert len({row.content_hash for row in rows}) == 1


def test_case_075_a_key_does_not_depend_on_the_place():
    before = build({"prompt": "a"}, {"prompt": "b"}, {"prompt": "b"})
    after = build({"prompt": "new"}, {"prompt": "a"}, {"prompt": "b"}, {"prompt": "b"})

    assert [row.key for row in after[1:]] == [row.key for row in before]


def test_an_id_used_twice_is_a_problem_of_the_second():
    [first, second] = build({"id": 7, "prompt": "a"}, {"id": "7", "prompt": "b"})

    assert first.problem is None
    assert "already used" in second.problem


def test_the_template_is_filled_from_the_columns():
    [row, bad] = build({"city": "Oslo"}, {"town": "Bergen"}, template="Weather in {{ city }}?")

    assert row.prompt == "Weather in Oslo?"
    assert "'city' is undefined" in bad.problem


def test_a_broken_template_is_a_usage_error():
    with pytest.raises(UsageError, match="the template, line 1"):
        build({"city": "Oslo"}, template="{{ city")


def test_a_row_has_settings_of_its_own():
    [row] = build(
        {
            "prompt": "a",
            "tools": "get_weather, get_wiki_url",
            "thread": "thread_1",
            "metadata": '{"k": "v"}',
            "temperature": "0.5",
            "limits": {"rounds": 2},
            "expect_contains": "Oslo",
        }
    )

    assert row.asks == {
        "tools": ["get_weather", "get_wiki_url"],
        "thread_id": "thread_1",
        "metadata": {"k": "v"},
        "temperature": 0.5,
    }
    assert row.expect == {"contains": "Oslo"}
    assert row_limits(row, Limits(timeout_s=5)) == Limits(rounds=2, timeout_s=5)


@pytest.mark.parametrize(
    "columns",
    [
        pytest.param({"tools": ["./evil.py:f"]}, id="file"),
        pytest.param({"tools": "get_weather, subprocess:getoutput"}, id="module"),
        pytest.param({"tools": ["../../evil"]}, id="name-that-is-a-path"),
        pytest.param({"assistant": "../evil/assistant.yaml"}, id="assistant-above"),
        pytest.param({"assistant": "/tmp/evil/assistant.yaml#A"}, id="assistant-elsewhere"),
    ],
)
def test_a_row_loads_no_code(columns, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    [row] = build({"prompt": "a", **columns})

    assert row.problem is not None
    assert any(word in row.problem for word in ("rows load no code", "may name a file of"))


def test_a_row_may_name_an_assistant_file_of_the_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    rows = build(
        *({"prompt": "a", "assistant": one} for one in ("sub/a.yaml", str(tmp_path / "a.yaml"), "Guide"))
    )

    assert [row.problem for row in rows] == [None] * 3


def test_expectations_do_not_change_what_is_asked():
    [one] = build({"prompt": "a", "expect": "x"})
    [two] = build({"prompt": "a", "expect": "y"})

    assert one.content_hash == two.content_hash


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        pytest.param({"id": "\ud800"}, "'id' holds half of a surrogate pair", id="id"),
        pytest.param({"metadata": {"a": "\ud800"}}, "'metadata' holds half", id="metadata"),
        pytest.param({"max_completion_tokens": float("inf")}, "should be a number", id="infinite"),
        pytest.param({"temperature": float("nan")}, "should be a number", id="nan"),
        pytest.param({"limits": {"timeout_s": -1}}, "above 0", id="negative-limit"),
    ],
)
def test_what_no_request_can_carry_is_a_problem_of_its_row(columns, words):
    [row, good] = build({"prompt": "p", **columns}, {"prompt": "q"})

    assert words in row.problem
    assert good.problem is None


def test_columns_whose_names_are_no_words_are_cells_of_the_row():
    [row] = build({"City Name": "Bergen", "if": "now"}, template="{{ row['City Name'] }}, {{ row['if'] }}?")

    assert row.prompt == "Bergen, now?"
