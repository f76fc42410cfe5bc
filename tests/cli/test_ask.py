import json
import socket
import subprocess
import sys

import pytest

from tests.conftest import FIXTURES, REPOSITORY

SAN_FRANCISCO = (
    "What is the weather and the wiki url of San Francisco? And what is the content of the wiki page?"
)


def events_of(stdout: str) -> list[dict]:
    return [json.loads(line) for line in stdout.splitlines()]


def test_the_san_francisco_question_is_answered_by_chained_tools(cli):
    outcome = cli("--offline", SAN_FRANCISCO)

    assert outcome.status == 0
    assert "16.2" in outcome.stdout
    assert "https://en.wikipedia.org/wiki/San_Francisco" in outcome.stdout
    assert "get_webpage" in outcome.stderr
    assert "recorded" in outcome.stderr
    assert "no language model" in outcome.stderr


def test_two_calls_run_in_parallel_and_the_page_comes_after_its_url(cli):
    events = events_of(cli("--offline", "--jsonl", SAN_FRANCISCO).stdout)

    rounds = [
        [call["function"]["name"] for call in event["calls"]]
        for event in events
        if event["event"] == "round.started"
    ]
    assert rounds == [["get_weather", "get_wiki_url"], ["get_webpage"]]
    wiki = next(e for e in events if e["event"] == "call.finished" and e["tool"] == "get_wiki_url")
    url = json.loads(wiki["output"])[3][0]
    page = next(e for e in events if e["event"] == "call.started" and e["tool"] == "get_webpage")
    assert page["arguments"] == {"url": url}


def test_a_question_without_tools_takes_the_bypass(cli):
    outcome = cli("--offline", "--json", "What is 2 plus 2?")

    document = json.loads(outcome.stdout)
    assert "4" in document["answer"]
    assert (document["rounds"], document["tool_calls"]) == (0, [])
    assert cli("--offline", "--output", "router", "What is 2 plus 2?").stdout.strip() == "[]"


def test_the_router_output_has_the_reference_shape(cli):
    reference = json.loads((FIXTURES / "shapes" / "tool-call-router.view-1.json").read_text())[0]
    calls = json.loads((FIXTURES / "shapes" / "tool-call-router.view-2.json").read_text())

    first, second = json.loads(cli("--offline", "--output", "router", SAN_FRANCISCO).stdout)

    assert set(first["view_1"][0]["run"]) == set(reference["run"])
    assert first["view_1"][0]["tool_outputs"] == []
    assert [set(call["function"]) for call in first["view_2"]] == [set(call["function"]) for call in calls]
    assert [call["function"]["name"] for call in second["view_2"]] == ["get_webpage"]


def test_the_run_output_lists_messages_newest_first(cli):
    document = json.loads(cli("--offline", "--output", "run", "What is 2 plus 2?").stdout)

    assert [message["role"] for message in document["messages"]] == ["assistant", "user"]
    assert document["run"]["status"] == "completed"
    assert document["run"]["required_action"] is None
    assert document["original"] == {}


def test_row_s0_29_every_iteration_is_shown_with_its_stop_condition(cli):
    document = json.loads(cli("--offline", "--json", "--debug-iterations", SAN_FRANCISCO).stdout)

    iterations = document["_iteration_documents"]
    assert [sorted(entry) for entry in iterations] == [
        ["child_pipeline_output", "iteration", "stop_condition_evaluation"]
    ] * 2
    assert [entry["stop_condition_evaluation"] for entry in iterations] == [False, True]
    assert len(iterations[0]["child_pipeline_output"]["tool_outputs"]) == 2


@pytest.mark.parametrize(
    ("argv", "stdin"),
    [
        pytest.param(("-",), "What is 2 plus 2?", id="dash"),
        pytest.param((), "What is 2 plus 2?\n", id="pipe"),
        pytest.param(("ask",), '{"prompt": "What is 2 plus 2?"}', id="row-S0.26-json-document"),
    ],
)
def test_the_prompt_comes_from_a_pipe(cli, argv, stdin):
    outcome = cli(*argv, "--offline", stdin=stdin)

    assert outcome.status == 0
    assert "4" in outcome.stdout


def test_row_s0_28_many_documents_give_many_results_in_order(cli):
    documents = json.dumps([{"prompt": "What is 2 plus 2?"}, {"prompt": "What is 3 plus 4?"}])

    lines = cli("ask", "--offline", stdin=documents).stdout.splitlines()

    assert ["4" in lines[0], "7" in lines[1]] == [True, True]


@pytest.mark.parametrize(
    ("argv", "stdin", "status", "words"),
    [
        pytest.param(("ask", ""), None, 2, "prompt is empty", id="empty-prompt"),
        pytest.param(("ask", "-"), "  \n", 2, "prompt is empty", id="empty-pipe"),
        pytest.param(("doctr",), None, 2, "did you mean doctor", id="mistyped-command"),
        pytest.param(("--tool", "get_tides", "hello"), None, 3, "get_tides", id="unknown-tool"),
        pytest.param(
            ("--debug-iterations", "hi"), None, 2, "--json, --jsonl or --output run", id="no-document"
        ),
        pytest.param(("--output", "xml", "hello"), None, 2, "one of: text", id="unknown-output"),
        pytest.param(("--tool-choice", "get_tides", "hi"), None, 2, "get_tides", id="unknown-tool-choice"),
        pytest.param(("--engine", "magic", "hi"), None, 2, "magic", id="unknown-engine"),
        pytest.param(("-",), b"\xff\xfe caf\xe9", 2, "not UTF-8", id="not-utf-8"),
        pytest.param(("caf\udce9",), None, 2, "not UTF-8", id="argument-not-utf-8"),
        pytest.param(("-",), '{"prompt": "\\ud800"}', 2, "not UTF-8", id="half-a-character"),
        pytest.param(("-",), '[{"prompt": "a"}, {"promt": "b"}]', 2, "document 2", id="one-mistyped"),
        pytest.param(("-",), '{"prompt": "a"}\n{"prompt": "b"\n', 2, "line 2", id="one-line-cut-short"),
        pytest.param(("--data", "/dev/null/x", "hi"), None, 3, "/dev/null/x", id="no-data-folder"),
        pytest.param(("--backend", "http://127.0.0.1:9", "hi"), None, 15, "127.0.0.1:9", id="unreachable"),
    ],
)
def test_bad_input_gets_a_message_and_its_status(cli, argv, stdin, status, words):
    outcome = cli(*argv, stdin=stdin)

    assert outcome.status == status
    assert words in outcome.stderr
    assert "Traceback" not in outcome.stderr
    assert outcome.stdout == ""


@pytest.mark.parametrize("other", [("--json",), ("--output", "run")], ids=" ".join)
def test_events_and_another_form_of_output_exclude_each_other(cli, other):
    outcome = cli("--jsonl", *other, "hello")

    assert outcome.status == 2
    assert "exclude each other" in json.loads(outcome.stdout)["error"]["message"]


def test_an_error_is_a_json_document_when_json_is_asked(cli):
    outcome = cli("--json", "--tool", "get_tides", "hello")

    error = json.loads(outcome.stdout)["error"]
    assert (error["kind"], error["exit_status"]) == ("configuration", 3)


@pytest.mark.parametrize("head", ["def", "async def"])
def test_what_a_tool_prints_is_talk(cli, tmp_path, head: str):
    (tmp_path / "loud.py").write_text(
        f"print('loaded')\n{head} get_tides(city: str) -> str:\n    'Tides of a city'\n"
        "    print('asked')\n    return 'high'\n"
    )

    outcome = cli("--json", "--tool", "./loud.py:get_tides", "--tool-choice", "get_tides", "Tides of Oslo?")

    assert "high" in json.loads(outcome.stdout)["answer"]
    assert "loaded\n" in outcome.stderr
    assert "asked\n" in outcome.stderr


def test_a_tool_that_raises_is_told_and_ends_nothing(cli, tmp_path):
    (tmp_path / "broken.py").write_text(
        'def get_tides(city: str) -> str:\n    """Tides of a city."""\n    raise RuntimeError("boom 17")\n'
    )

    outcome = cli("--json", "--tool", "./broken.py:get_tides", "--tool-choice", "get_tides", "Tides of Oslo?")

    [call] = json.loads(outcome.stdout)["tool_calls"]
    assert outcome.status == 0
    assert call["is_error"] is True
    assert "boom 17" in call["output"]["error"]


def test_help_costs_no_heavy_import():
    probe = (
        "import sys\n"
        "from assistant_runner.cli.edge import run_edge\n"
        "from assistant_runner.cli.main import app\n"
        "run_edge(app, ['--help'])\n"
        "heavy = {'asyncio', 'openai', 'httpx', 'starlette', 'bs4', 'jsonschema'}\n"
        "print(sorted(heavy & set(sys.modules)), file=sys.stderr)"
    )

    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, cwd=REPOSITORY)

    assert "assistant-runner" in done.stdout.lower()
    assert done.stderr.strip() == "[]"


def test_case_113_a_narrow_code_page_loses_no_character(process):
    done = process("--offline", "What is the weather in Kraków?", env={"PYTHONIOENCODING": "ascii"})

    assert done.returncode == 0
    assert "Kraków" in done.stdout


def test_offline_opens_no_socket(cli, monkeypatch):
    touched = []
    monkeypatch.setattr(socket.socket, "connect", lambda self, address: touched.append(address))
    monkeypatch.setattr(socket, "getaddrinfo", lambda *args, **kwargs: touched.append(args))

    outcome = cli("--offline", SAN_FRANCISCO)

    assert outcome.status == 0
    assert touched == []
