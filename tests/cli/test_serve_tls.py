"""`serve` over https: Azure's packages refuse to send a token over plain http."""

import json
import ssl
import subprocess
import sys

import httpx
import pytest
import trustme

from tests.conftest import REPOSITORY


@pytest.fixture(scope="module")
def authority():
    return trustme.CA()


def test_a_client_that_trusts_the_certificate_gets_an_answer(authority, tmp_path, monkeypatch):
    chain, key = tmp_path / "chain.pem", tmp_path / "key.pem"
    issued = authority.issue_cert("127.0.0.1")
    chain.write_bytes(b"".join(part.bytes() for part in issued.cert_chain_pems))
    key.write_bytes(issued.private_key_pem.bytes())
    context = ssl.create_default_context()
    authority.configure_trust(context)
    words = ["serve", "--engine", "planner", "--data", ":memory:", "--port", "0", "--json"]
    words += ["--ssl-certfile", str(chain), "--ssl-keyfile", str(key)]
    monkeypatch.setenv("PYTHONPATH", str(REPOSITORY))
    process = subprocess.Popen(
        [sys.executable, "-m", "assistant_runner", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd=tmp_path,
    )
    try:
        url = json.loads(process.stdout.readline())["url"]
        answer = httpx.get(f"{url}/health", verify=context)
    finally:
        process.terminate()
        process.communicate(timeout=20)

    assert url.startswith("https://127.0.0.1:")
    assert answer.json()["status"] == "ok"


def test_a_certificate_that_is_none_is_named(cli, tmp_path):
    (tmp_path / "chain.pem").write_text("no certificate")

    outcome = cli("serve", "--port", "0", "--ssl-certfile", str(tmp_path / "chain.pem"))

    assert outcome.status == 3
    assert "chain.pem cannot be used" in outcome.stderr
