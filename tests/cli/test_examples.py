"""The worked examples run offline, as their first lines say."""

import json

import pytest

from assistant_runner.setup.starting import example_names


@pytest.fixture
def example(cli):
    """An example, copied by `init --example` and applied; then asked."""

    def ask(name: str, prompt: str, *argv: str, profile: str | None = "offline"):
        assert cli("assistant", "init", "--example", name).status == 0
        applied = cli("assistant", "apply")
        assert applied.status == 0, applied.stderr
        outcome = cli(*(["--profile", profile] if profile else []), prompt, "--json", *argv)
        assert outcome.status == 0, outcome.stderr
        return json.loads(outcome.stdout)

    return ask


def test_there_are_four_and_each_is_tested_here():
    assert example_names() == ["deploy", "pangu", "san-francisco", "wildfire"]


def test_san_francisco_answers_with_two_calls_at_once_and_a_page(example):
    question = (
        "What is the weather and the wiki url of San Francisco? And what is the content of the wiki page?"
    )

    document = example("san-francisco", question, "--offline", profile=None)

    assert [call["name"] for call in document["tool_calls"]] == ["get_weather", "get_wiki_url", "get_webpage"]
    assert "16.2" in document["answer"]
    assert document["rounds"] == 2


def test_s1_5_wildfire_searches_the_file_on_the_backend_and_cites_it(example):
    document = example("wildfire", "How many acres burned in 2020?")

    assert document["answer"].startswith("In 2020 wildfires burned 10.1 million acres.")
    assert document["tool_calls"] == []


def test_deploy_does_nothing_without_a_person_and_deploys_once_with_a_yes(cli, tmp_path):
    question = ("Deploy the backend, tag v1.2.3, to production.", "--profile", "offline", "--json")
    cli("assistant", "init", "--example", "deploy")

    alone = cli(*question)
    there = (tmp_path / "deployments.log").exists()
    approved = cli(*question, "--approve", "deploy_backend")

    assert alone.status == 7
    assert "deploy_backend needs an approval" in alone.stderr
    assert not there
    assert approved.status == 0, approved.stderr
    [tags, deploy] = json.loads(approved.stdout)["tool_calls"]
    assert tags["output"] == {"tags": ["v1.2.3", "v1.2.2", "v1.2.1"]}
    assert deploy["output"]["status"] == "deployed"
    assert (tmp_path / "deployments.log").read_text() == "v1.2.3 production\n"


def test_s4_pangu_tools_answer_as_the_reference_says(example):
    document = example("pangu", "帮我预订A01会议室")

    outputs = [call["output"] for call in document["tool_calls"]]
    assert outputs[:4] == ["10:00到11:00的A01已预订成功", "x亿人民币", "未知", 3]
    assert document["tool_calls"][4]["is_error"]
    assert "Alipay" in outputs[4]["error"]
