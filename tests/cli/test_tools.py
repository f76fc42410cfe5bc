"""`assistant-runner tools`, as a person uses it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import FIXTURES, REPOSITORY

SHAPES = FIXTURES / "shapes"


def test_list_shows_what_there_is(cli):
    outcome = cli("tools", "list")

    assert outcome.status == 0
    for name in ("get_weather", "get_wiki_url", "get_webpage", "foo_tool"):
        assert name in outcome.stdout


def test_words_of_strangers_do_not_move_the_cursor(cli, tmp_path: Path):
    (tmp_path / "mine").mkdir()
    text = r"\x1b[2J\x1b]0;owned\x07"
    (tmp_path / "mine" / "loud.py").write_text(f'def loud() -> str:\n    "Shout {text}"\n    return "a"\n')

    for words in (("list",), ("show", "loud"), ("lint", "loud")):
        outcome = cli("tools", *words, "--folder", "mine")

        assert not {"\x1b", "\x07"} & set(outcome.stdout + outcome.stderr)
    assert r"Shout \x1b[2J" in cli("tools", "list", "--folder", "mine").stdout


def test_list_says_what_could_not_be_loaded(cli, tmp_path: Path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "broken.py").write_text("raise RuntimeError('boom 17')\n")

    outcome = cli("tools", "list", "--folder", "mine", "--json")

    assert "broken.py, line 1: RuntimeError: boom 17" in outcome.stderr
    assert {tool["kind"] for tool in json.loads(outcome.stdout)} == {"static"}


def test_schema_gives_the_reference_definitions(cli):
    outcome = cli("tools", "schema", "get_weather", "get_wiki_url", "get_webpage")

    assert json.loads(outcome.stdout) == json.loads((SHAPES / "function-definitions.json").read_text())


def test_show_tells_all_about_one_tool(cli):
    document = json.loads(cli("tools", "show", "get_webpage", "--json").stdout)

    assert (document["effects"], document["fetches"], document["strict"]) == ("read", True, True)


def test_row_s0_20_a_tool_runs_alone(cli):
    outcome = cli("tools", "call", "get_weather", '{"city": "San Francisco, CA"}', "--offline")

    assert json.loads(outcome.stdout)["temp_c"] == 16.2
    assert "recordings" in outcome.stderr


def test_row_s1_23_raw_shows_the_whole_reply(cli):
    reference = json.loads((SHAPES / "get_weather.raw-output.json").read_text())[0]

    outcome = cli("tools", "call", "get_weather", '{"city": "San Francisco, CA"}', "--raw", "--offline")

    [document] = json.loads(outcome.stdout)
    assert list(document) == ["statusLine", "headers", "entity", "_debug", "original"]
    assert document["statusLine"] == reference["statusLine"]
    assert document["entity"] == reference["entity"]
    assert document["original"]["function"] == reference["original"]["function"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        pytest.param("{}", "missing city", id="missing"),
        pytest.param('{"city": 7}', "city must be string, got integer", id="type"),
        pytest.param('{"city"', "not valid JSON", id="no-json"),
        pytest.param("[]", "must be a JSON object", id="no-object"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(cli, arguments: str, words: str):
    outcome = cli("tools", "call", "get_weather", arguments, "--offline")

    assert outcome.status == 7
    assert words in outcome.stderr
    assert outcome.stdout == ""


def test_a_failed_call_has_its_own_status(cli):
    outcome = cli("tools", "call", "get_weather", '{"city": "Sablewick"}', "--offline")

    assert outcome.status == 7
    assert "recorded cities" in outcome.stderr


def test_a_failed_call_has_its_own_status_with_the_whole_reply_too(cli, tmp_path: Path, monkeypatch):
    (tmp_path / "ask.py").write_text(
        "from assistant_runner.tooling.contract import HttpReply\n"
        "def ask() -> HttpReply:\n    'Ask'\n"
        "    return HttpReply('HTTP/1.1', 404, 'Not Found', {'x': 'tok-123456'}, b'gone')\n"
    )
    monkeypatch.setenv("MY_TOKEN", "tok-123456")

    outcome = cli("tools", "call", "./ask.py:ask", "--raw")

    [document] = json.loads(outcome.stdout)
    assert outcome.status == 7
    assert (document["entity"], document["headers"]) == ("gone", {"x": "[secret]"})
    assert "error: HTTP 404 Not Found: gone" in outcome.stderr


def test_arguments_may_come_from_stdin(cli):
    outcome = cli("tools", "call", "get_wiki_url", "-", "--offline", stdin='{"city": "Kraków"}')

    assert json.loads(outcome.stdout)[1] == ["Kraków"]


def test_an_unknown_tool_lists_those_that_there_are(cli):
    outcome = cli("tools", "call", "get_wether", "{}")

    assert outcome.status == 3
    assert "did you mean get_weather?" in outcome.stderr


def test_new_writes_a_tool_that_works_and_whose_test_passes(cli, tmp_path: Path):
    written = cli("tools", "new", "greet")
    called = cli("tools", "call", "greet.py:greet", '{"who": "Ada"}')
    tested = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_greet.py"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(REPOSITORY), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        encoding="utf-8",
        timeout=60,
        check=False,
    )

    assert written.stdout.split() == ["greet.py", "test_greet.py"]
    assert called.stdout == "Hello, Ada.\n"
    assert "2 passed" in tested.stdout


@pytest.mark.parametrize("name", ["größe!", "../x", "1st", "foo-bar", "import", "calendar"])
def test_new_refuses_names_that_cannot_be(cli, name: str):
    assert cli("tools", "new", name).status == 2


def test_new_overwrites_nothing(cli):
    cli("tools", "new", "greet")

    assert cli("tools", "new", "greet").status == 2


BAD = '''
from assistant_runner.tooling.schema import tool

@tool
def do(A: str, b: str, c: str, d: str, e: str, f: dict[str, dict[str, list[int]]]) -> str:
    """Do it"""
    return ""
'''


def test_a_call_needs_one_tool(cli, tmp_path: Path):
    (tmp_path / "none.py").write_text("X = 1\n")
    (tmp_path / "two.py").write_text("def a() -> str:\n    'Do a'\ndef b() -> str:\n    'Do b'\n")

    none, two = cli("tools", "call", "./none.py"), cli("tools", "show", "./two.py")

    assert (none.status, two.status) == (3, 2)
    assert "none.py holds no tool" in none.stderr
    assert "./two.py holds several tools: a, b" in two.stderr


def test_lint_judges_as_a_model_would_see_it(cli, tmp_path: Path):
    (tmp_path / "bad.py").write_text(BAD)

    outcome = cli("tools", "lint", "./bad.py:do")
    strict = cli("tools", "lint", "./bad.py:do", "--profile", "pangu")

    for words in ("says little", "6 parameters", "A has no description", "when to use", "nested 3 levels"):
        assert words in outcome.stdout
    assert (outcome.status, strict.status) == (0, 3)


def test_lint_says_that_a_write_is_never_tried_again(cli, tmp_path: Path):
    (tmp_path / "pay.py").write_text(
        "from assistant_runner.tooling.schema import tool\n"
        "@tool(effects='write', retries=2)\ndef pay() -> str:\n    'Pay the open bill'\n    return ''\n"
    )

    assert "its retries are never used" in cli("tools", "lint", "./pay.py").stdout


def test_lint_leaves_with_3_if_a_module_cannot_be_loaded(cli, tmp_path: Path):
    (tmp_path / "broken.py").write_text("import no_such_module_here")

    outcome = cli("tools", "lint", "--folder", ".")

    assert outcome.status == 3


def test_lint_sees_tools_that_are_easily_confused(cli, tmp_path: Path):
    (tmp_path / "twins.py").write_text(
        'def get_a(x: int) -> int:\n    """Get the value of the thing"""\n    return x\n'
        'def get_b(x: int) -> int:\n    """Get the value of the things"""\n    return x\n'
    )

    outcome = cli("tools", "lint", "./twins.py:get_a", "./twins.py:get_b")

    assert "described almost like get_b" in outcome.stdout


def test_row_s0_2_neutral_definitions_become_a_providers_form_and_come_back(cli):
    reference = json.loads((SHAPES / "function-generator.output.json").read_text())

    converted = cli("tools", "convert", str(SHAPES / "function-generator.output.json"), "--to", "openai")
    back = cli("tools", "convert", "-", "--to", "neutral", stdin=converted.stdout)

    assert '"celcius"' in converted.stdout
    assert json.loads(back.stdout) in (reference, reference[0])


@pytest.mark.parametrize("arguments", [["no-such-file.json"], ["-", "--to", "klingon"]])
def test_convert_refuses_what_it_cannot_read_or_write(cli, arguments: list[str]):
    assert cli("tools", "convert", *arguments, stdin="{}").status == 2


def test_row_s4_13_of_very_many_tools_those_that_fit_are_offered(cli, tmp_path: Path):
    sensor = (
        'def get_value_{n}(name: str) -> str:\n    """Get the value of sensor {n}"""\n    return "{n}"\n\n\n'
    )
    (tmp_path / "many.py").write_text("".join(sensor.format(n=n) for n in range(80)))

    outcome = cli(
        "--offline",
        "--tool",
        "./many.py",
        "--tool",
        "get_weather",
        "--output",
        "run",
        "Is there mist in Kraków? weather",
    )

    document = json.loads(outcome.stdout)
    offered = [tool["function"]["name"] for tool in document["run"]["tools"]]
    assert len(offered) == 20
    assert "get_weather" in offered
    assert "Kraków" in document["messages"][0]["content"][0]["text"]["value"]


def test_row_s4_1_a_module_may_hold_a_dynamic_tool(cli, tmp_path: Path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "sums.py").write_text(
        "from assistant_runner.tooling.dynamic import dynamic_tool\n"
        "add = dynamic_tool('add', 'Add two integers', lambda v: v['a'] + v['b'],\n"
        "    input_schema={'a': 'integer', 'b': 'integer'}, output_schema={'type': 'integer'})\n"
    )

    listed = json.loads(cli("tools", "list", "--folder", "mine", "--json").stdout)
    called = cli("tools", "call", "add", '{"a": 1, "b": 2}', "--folder", "mine")

    assert {tool["name"]: tool["kind"] for tool in listed}["add"] == "dynamic"
    assert called.stdout == "3\n"
