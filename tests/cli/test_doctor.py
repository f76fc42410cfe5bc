import json


def test_doctor_says_what_it_looked_at_and_leaves_with_0(cli):
    outcome = cli("doctor", "--offline")

    assert outcome.status == 0
    assert "ok  state folder:" in outcome.stdout
    assert "OPENAI_API_KEY: not set" in outcome.stdout


def test_doctor_prints_one_document_and_the_first_faults_status(cli, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-SECRET ")

    outcome = cli("doctor", "--offline", "--json")

    document = json.loads(outcome.stdout)
    assert (outcome.status, document["ok"]) == (3, False)
    assert "SECRET" not in outcome.stdout + outcome.stderr
