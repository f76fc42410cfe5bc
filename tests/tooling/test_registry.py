"""Finding tools by name, by file and by module, and the box that holds them."""

import json
import sys
from pathlib import Path

import pytest

from assistant_runner.errors import ConfigurationError
from assistant_runner.tooling.registry import Toolbox, default_tools, find_tools, load_tools
from tests.conftest import FIXTURES


def test_the_shipped_tools_emit_the_reference_definitions():
    reference = json.loads((FIXTURES / "shapes" / "function-definitions.json").read_text())

    emitted = [tool.function.document() for tool in default_tools().definitions()]

    assert emitted == reference


def test_tools_come_in_the_order_asked():
    box = load_tools(["foo_tool", "get_weather"])

    assert box.names() == ["foo_tool", "get_weather"]


def test_an_unknown_name_lists_what_there_is_and_the_nearest_one():
    with pytest.raises(ConfigurationError, match=r"did you mean get_weather\?.*foo_tool") as caught:
        load_tools(["get_wether"])

    assert caught.value.exit_status == 3


def test_a_file_and_a_name_in_it_are_an_address(tmp_path: Path):
    (tmp_path / "mine.py").write_text(
        'def ring(times: int) -> str:\n    """Ring a bell"""\n    return "ding"\n'
    )

    box = load_tools(["./mine.py:ring"], cwd=tmp_path)

    assert box["ring"].parameters["properties"] == {"times": {"type": "integer"}}


def test_a_module_and_a_name_in_it_are_an_address(tmp_path: Path):
    (tmp_path / "bells_of_a_test.py").write_text(
        'def ring() -> str:\n    """Ring a bell"""\n    return "ding"\n'
    )

    box = load_tools(["bells_of_a_test:ring"], cwd=tmp_path)

    assert box.names() == ["ring"]


def test_the_users_folder_wins_over_the_shipped_one(tmp_path: Path):
    (tmp_path / "foo_tool.py").write_text('def foo_tool() -> str:\n    """Return bar"""\n    return "bar"\n')

    box = load_tools(["foo_tool"], folder=tmp_path)

    assert box["foo_tool"].source == str(tmp_path / "foo_tool.py")


@pytest.mark.parametrize(
    ("source", "line", "words"),
    [
        pytest.param("import nothing_of_that_name\n", 1, "ModuleNotFoundError", id="import"),
        pytest.param("x = 1\n\ndef broken(:\n", 3, "SyntaxError", id="syntax"),
        pytest.param("\n\nraise RuntimeError('boom 17')\n", 3, "boom 17", id="raises"),
    ],
)
def test_a_broken_module_names_file_and_line(tmp_path: Path, source: str, line: int, words: str):
    (tmp_path / "broken.py").write_text(source)

    with pytest.raises(ConfigurationError, match=words) as caught:
        load_tools(["./broken.py:broken"], cwd=tmp_path)

    assert f"broken.py, line {line}" in caught.value.message


def test_a_broken_module_takes_no_other_tool_down(tmp_path: Path):
    (tmp_path / "broken.py").write_text("raise RuntimeError('boom 17')\n")
    (tmp_path / "whole.py").write_text('def whole() -> int:\n    """Count"""\n    return 1\n')

    catalogue = find_tools(folder=tmp_path)

    assert "whole" in catalogue.tools
    assert load_tools(["whole"], folder=tmp_path).names() == ["whole"]
    assert [("boom 17" in problem) for problem in catalogue.problems] == [True]


def test_a_file_without_a_tool_is_said_to_have_none(tmp_path: Path):
    (tmp_path / "empty.py").write_text("X = 1\n")

    with pytest.raises(ConfigurationError, match=r"empty.py holds no tool"):
        load_tools(["./empty.py"], cwd=tmp_path)


def test_two_tools_of_one_name_are_an_error(tmp_path: Path):
    (tmp_path / "mine.py").write_text('def foo_tool() -> str:\n    """Return bar"""\n    return "bar"\n')

    with pytest.raises(ConfigurationError, match="two tools are called 'foo_tool'"):
        load_tools(["foo_tool", "./mine.py:foo_tool"], cwd=tmp_path)


def test_a_box_can_grow_while_the_program_runs():
    box = Toolbox()
    foo = load_tools(["foo_tool"])["foo_tool"]

    box.add(foo)

    assert [definition.function.name for definition in box.definitions()] == ["foo_tool"]


def test_a_tool_may_import_what_lies_beside_it(tmp_path: Path):
    (tmp_path / "helpers_of_a_test.py").write_text("WORD = 'ding'\n")
    (tmp_path / "bell.py").write_text(
        'from helpers_of_a_test import WORD\n\n\ndef bell() -> str:\n    """Ring"""\n    return WORD\n'
    )

    assert load_tools(["./bell.py:bell"], cwd=tmp_path)["bell"].handler() == "ding"


@pytest.fixture
def tides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An installed package whose entry points are called otherwise than what they lead to."""
    package = tmp_path / "tide_tables"
    package.mkdir()
    (package / "__init__.py").write_text('def low(city: str) -> str:\n    """Low tide"""\n    return city\n')
    about = tmp_path / "tide_tables-1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: tide-tables\nVersion: 1\n")
    points = "[assistant_runner.tools]\nebb = tide_tables:low\nwhole = tide_tables\n"
    (about / "entry_points.txt").write_text(points)
    monkeypatch.syspath_prepend(tmp_path)


@pytest.mark.usefixtures("tides")
@pytest.mark.parametrize("name", ["ebb", "low"])
def test_a_tool_of_an_entry_point_is_found_by_both_names(name: str):
    assert load_tools([name]).names() == ["low"]


@pytest.mark.usefixtures("tides")
def test_an_entry_point_that_is_a_module_says_what_to_name():
    with pytest.raises(ConfigurationError, match="tide_tables is a module, no tool") as caught:
        load_tools(["whole"])

    assert caught.value.remedy == "name a function in it: tide_tables:NAME"


def test_a_file_of_a_package_with_relative_imports_is_to_be_named_as_its_part(tmp_path: Path):
    inner = tmp_path / "tides" / "inner"
    inner.mkdir(parents=True)
    for folder in (inner, inner.parent):
        (folder / "__init__.py").touch()
    (inner / "core.py").write_text("from . import helper\n")

    with pytest.raises(ConfigurationError, match="line 1: ImportError") as caught:
        load_tools(["tides/inner/core.py:high"], cwd=tmp_path)

    assert str(caught.value.remedy).endswith("from the folder above that: tides.inner.core:NAME")


def test_a_file_without_docstrings_names_the_functions_that_lack_one(tmp_path: Path):
    (tmp_path / "mute.py").write_text("def one(x: int) -> int:\n    return x\n")

    with pytest.raises(ConfigurationError, match=r"mute\.py holds no tool: one without a docstring"):
        load_tools(["./mute.py"], cwd=tmp_path)


def test_a_module_beside_a_file_is_never_taken_from_another_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(sys, "path", [*sys.path])
    for place in ("a", "b"):
        (tmp_path / place).mkdir()
        (tmp_path / place / "tide_words.py").write_text(f"WORD = {place!r}\n")
        text = (
            f'from tide_words import WORD\n\ndef say_{place}() -> str:\n    """Say it"""\n    return WORD\n'
        )
        (tmp_path / place / "mine.py").write_text(text)

    first = load_tools(["a/mine.py"], cwd=tmp_path)

    assert first["say_a"].handler() == "a"
    with pytest.raises(ConfigurationError, match=r"imports tide_words, which is .*a.tide_words\.py"):
        load_tools(["b/mine.py"], cwd=tmp_path)
    del sys.modules["tide_words"]
