"""`assistant …`, `thread …` and `config …` on the command line."""

import json
from pathlib import Path

import pytest

from tests.conftest import FIXTURES

TOWN = "name: Town guide\nmodel: gpt-5-mini\ninstructions: Be brief.\ntools: [get_weather]\n"


@pytest.fixture
def town(tmp_path: Path) -> Path:
    path = tmp_path / "assistant.yaml"
    path.write_text(TOWN)
    return path


def test_plan_apply_plan_with_exit_statuses(cli, town):
    before = cli("assistant", "plan", "--detailed-exitcode")
    applied = cli("assistant", "apply", "--json")
    after = cli("assistant", "plan", "--detailed-exitcode", "--json")

    assert before.status == 20
    assert "create assistant 'Town guide'" in before.stdout
    [done] = json.loads(applied.stdout)["assistants"]
    assert (done["changed"], done["name"]) == (True, "Town guide")
    assert after.status == 0
    assert json.loads(after.stdout)["changes"] is False
    assert cli("assistant", "list").stdout.startswith(f"{done['id']}\tTown guide\tgpt-5-mini\tfrom a file")


def test_case_082_a_wrong_file_names_everything_and_sends_nothing(cli, town):
    town.write_text(TOWN.replace("instructions", "instrutions") + "temperture: 1\n")

    outcome = cli("assistant", "apply", "--json")

    assert outcome.status == 3
    error = json.loads(outcome.stdout)["error"]
    assert [one["line"] for one in error["problems"]] == [3, 5]
    assert [one["key"] for one in error["problems"]] == ["instrutions", "temperture"]
    assert cli("assistant", "list", "--json").stdout.strip() == "[]"


def test_a_tool_that_cannot_be_loaded_stops_before_any_request(cli, town):
    town.write_text(TOWN.replace("get_weather", "get_wether"))

    outcome = cli("assistant", "plan")

    assert outcome.status == 3
    assert "assistant.yaml:4:9: tools[0]" in outcome.stderr
    assert "did you mean get_weather" in outcome.stderr


def test_drift_shows_what_was_changed_by_hand(cli, town):
    cli("assistant", "apply")
    assert cli("assistant", "drift", "--detailed-exitcode").status == 0
    other = town.parent / "other.yaml"
    other.write_text(TOWN.replace("brief", "long"))
    lock = town.parent / "assistant-runner.lock"
    mine = lock.read_text()
    cli("assistant", "apply", "other.yaml")
    lock.write_text(mine)

    drift = cli("assistant", "drift", "--json", "--detailed-exitcode")
    plan = cli("assistant", "plan")

    assert drift.status == 20
    [one] = json.loads(drift.stdout)["assistants"]
    assert one["fields"] == {"instructions": "Be long."}
    assert "(changed by hand on the backend)" in plan.stdout


def test_destroy_asks_and_then_deletes(cli, town, monkeypatch):
    cli("assistant", "apply")

    refused = cli("assistant", "destroy", stdin="")
    done = cli("assistant", "destroy", "--yes")

    assert refused.status == 2
    assert "--yes" in refused.stderr
    assert done.stdout.startswith("deleted assistant asst_")
    assert cli("assistant", "list", "--json").stdout.strip() == "[]"


def test_destroy_says_what_was_gone_already(cli, town):
    cli("assistant", "apply")
    data = json.loads(cli("assistant", "destroy", "--json", "-y").stdout)["destroyed"]["/Town guide"]
    cli("assistant", "apply")
    lock = (town.parent / "assistant-runner.lock").read_text()
    cli("assistant", "destroy", "-y")
    (town.parent / "assistant-runner.lock").write_text(lock)

    again = cli("assistant", "destroy", "-y")

    assert data[0].startswith("deleted assistant asst_")
    assert again.stdout.startswith("gone already: assistant asst_")


def test_one_of_several_assistants_may_be_named_as_ask_names_it(cli, tmp_path):
    (tmp_path / "town.yaml").write_text("assistants: {A: {model: m}, B: {model: m}}\n")

    cli("assistant", "apply", "town.yaml#B")
    plan = cli("assistant", "plan", "town.yaml")
    wrong = cli("assistant", "plan", "town.yaml#C")

    assert "create assistant 'A'" in plan.stdout
    assert "create assistant 'B'" not in plan.stdout
    assert (wrong.status, "there are: A, B" in wrong.stderr) == (2, True)


def test_what_is_imported_from_a_backend_plans_to_no_more_than_our_mark(cli, town):
    cli("assistant", "apply")
    ident = json.loads(cli("assistant", "list", "--json").stdout)[0]["id"]

    first = cli("assistant", "import", ident, "-o", "copy.yaml")
    again = cli("assistant", "import", "Town guide", "-o", "copy.yaml")

    assert first.stderr.startswith("written")
    assert again.stderr.startswith("unchanged")
    assert "  - get_weather\n" in (town.parent / "copy.yaml").read_text()
    assert cli("assistant", "plan", "copy.yaml", "--detailed-exitcode").status == 0


def test_a_dump_is_rescued_with_a_report_and_never_written_over(cli, tmp_path):
    dump = str(FIXTURES / "dumps" / "assistant.json")

    dry = cli("assistant", "import", "--from", dump, "--dry-run", "--json")
    cli("assistant", "import", "--from", dump)
    (tmp_path / "assistant.yaml").write_text("name: mine\nmodel: m\n")
    refused = cli("assistant", "import", "--from", dump)

    report = json.loads(dry.stdout)
    assert report["status"] == "would be written"
    assert len(report["assistants"][0]["not_carried_over"]) == 2
    assert refused.status == 2
    assert (tmp_path / "assistant.yaml").read_text() == "name: mine\nmodel: m\n"


def test_threads_are_imported_once_and_exported_again(cli, tmp_path):
    dump = str(FIXTURES / "dumps" / "threads.jsonl")

    dry = json.loads(cli("thread", "import", dump, "--dry-run", "--json").stdout)
    first = json.loads(cli("thread", "import", dump, "--json").stdout)
    second = json.loads(cli("thread", "import", dump, "--json").stdout)
    ident = first["items"][0]["thread_id"]
    exported = cli("thread", "export", ident, "-o", "out.jsonl")

    assert (dry["messages_written"], first["messages_written"], second["messages_written"]) == (0, 5, 0)
    assert first["whole"] is True
    assert first["items"][0]["texts_sha256"] in exported.stderr
    lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [line["object"] for line in lines] == ["thread"] + ["thread.message"] * 3


def test_init_writes_a_file_that_plans(cli, tmp_path):
    first = cli(
        "assistant", "init", "--name", "Ü: 'a' #1", "--instructions", "a: b\nc", "--file", "*.md", stdin=""
    )
    (tmp_path / "a.md").write_text("text")
    plan = cli("assistant", "plan", "--json")

    assert first.status == 0
    [one] = json.loads(plan.stdout)["plans"][0]["assistants"]
    assert one["name"] == "Ü: 'a' #1"
    assert cli("assistant", "init", "--name", "other", stdin="").status == 2


def test_the_schema_is_a_schema(cli):
    import jsonschema

    schema = json.loads(cli("config", "schema").stdout)

    jsonschema.Draft202012Validator.check_schema(schema)


@pytest.mark.parametrize(
    ("text", "fits"),
    [
        pytest.param(TOWN, True, id="one"),
        pytest.param(
            "assistants: {A: {model: m}, B: {model: n, tools: [file_search]}}\n", True, id="several"
        ),
        pytest.param(TOWN + "modell: x\n", False, id="unknown-key"),
        pytest.param(TOWN + "temperature: 3\n", False, id="too-hot"),
        pytest.param("name: x\ntools: [{file_search: {filez: [a]}}]\n", False, id="below-a-tool"),
    ],
)
def test_the_schema_says_what_the_loader_says(cli, town, text, fits):
    import jsonschema
    from ruamel.yaml import YAML

    town.write_text(text)
    schema = json.loads(cli("config", "schema").stdout)

    valid = jsonschema.Draft202012Validator(schema).is_valid(YAML(typ="safe", pure=True).load(text))

    assert valid is fits
    assert (cli("assistant", "plan", "--model", "m").status == 0) is fits


def test_config_show_says_where_each_value_comes_from(cli, town, monkeypatch):
    town.write_text(
        TOWN + "limits: {rounds: 3}\nbackend: {url: http://127.0.0.1:1/v1, headers: {x-key: sk-1}}\n"
    )
    monkeypatch.setenv("ASSISTANT_RUNNER_MODEL", "from-here")
    monkeypatch.setenv("ASSISTANT_RUNNER_PROXY", "http://user:word-1@proxy:3128")

    outcome = cli("config", "show", "--origin", "--json")

    document = json.loads(outcome.stdout)
    assert document["settings"]["rounds"] == 3
    assert document["origins"]["rounds"].endswith("assistant.yaml")
    assert document["origins"]["model"] == "environment ASSISTANT_RUNNER_MODEL"
    assert "sk-1" not in outcome.stdout
    assert document["settings"]["proxy"] == "http://user:(hidden)@proxy:3128"


def test_case_087_a_function_that_is_not_here_is_named_before_the_run(cli, town):
    function = "{type: function, function: {name: check_tide, parameters: {type: object, properties: {}}}}"
    town.write_text(TOWN.replace("[get_weather]", f"[get_weather, {function}]"))

    outcome = cli("What is 2 plus 2?", "--offline")

    assert outcome.status == 0, outcome.stderr
    assert "check_tide" in outcome.stderr
    assert "assistant 'Town guide' from assistant.yaml" in outcome.stderr


def test_an_unreachable_backend_says_how_to_go_on(cli, town):
    outcome = cli("assistant", "apply", "--backend", "http://127.0.0.1:1/v1")

    assert outcome.status == 15
    assert not (town.parent / "assistant-runner.lock").exists()


def test_assistants_of_one_folder_on_two_backends_share_the_lock(cli, town):
    (town.parent / "far.assistant.yaml").write_text("name: Far\nmodel: m\nbackend: http://127.0.0.1:1/v1\n")

    outcome = cli("assistant", "apply")

    assert outcome.status == 15
    assert cli("assistant", "plan", "assistant.yaml", "--detailed-exitcode").status == 0


def test_a_question_takes_over_nobody_elses_assistant_and_survives_a_deleted_one(cli, town, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    (other / "assistant.yaml").write_text("project: other\n" + TOWN)
    cli("assistant", "apply", "other")

    first = json.loads(cli("What is 2 plus 2?", "--offline", "--json").stdout)["assistant_id"]
    listed = json.loads(cli("assistant", "list", "--json").stdout)
    cli("assistant", "apply")
    cli("assistant", "destroy", "-y")
    again = cli("What is 2 plus 2?", "--offline", "--json")

    assert listed[0]["id"] == first
    assert len(listed) == 2
    assert again.status == 0, again.stderr
    assert json.loads(again.stdout)["assistant_id"] != first
