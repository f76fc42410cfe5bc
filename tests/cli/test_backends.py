"""What a person sees when the backend is not what it should be."""

import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from assistant_runner.retries import NO_RETRIES

KEY = "sk-test-SECRET-0001"


@pytest.fixture
def server():
    """A server that gives one answer to everything; `seen` keeps the requests."""

    class Handler(BaseHTTPRequestHandler):
        def answer(self):
            self.rfile.read(int(self.headers.get("content-length", 0)))
            self.server.seen.append((f"{self.command} {self.path}", dict(self.headers)))
            status, kind, body = self.server.reply
            self.send_response(status)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = answer  # noqa: N815

        def log_message(self, *args):
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    server.seen, server.reply = [], (404, "text/html", b"<html>Not Found</html>")
    server.url = f"http://127.0.0.1:{server.server_port}/v1"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def test_case_014_a_server_without_the_api_is_said_in_one_line_without_retries(cli, server):
    outcome = cli("ask", "--backend", server.url, "hello")

    assert outcome.status == 15
    assert outcome.stdout == ""
    assert "does not offer the Assistants API" in outcome.stderr
    assert "embedded" in outcome.stderr
    assert "serve" in outcome.stderr
    assert "Traceback" not in outcome.stderr
    assert len(server.seen) == 1


def test_case_014_openais_own_endpoint_is_refused_with_its_date_before_any_request(cli):
    outcome = cli("ask", "--backend", "https://api.openai.com/v1", "hello")

    assert outcome.status == 15
    assert "2026-08-26" in outcome.stderr


def json_reply(status, **error):
    return status, "application/json", json.dumps({"error": error} if error else {}).encode()


USED_UP = json_reply(429, message="x", code="insufficient_quota")
LOGIN = (200, "text/html", b"<html>log in</html>")


@pytest.mark.parametrize(
    ("reply", "status", "kind"),
    [
        pytest.param(json_reply(401, message="bad key"), 4, "authentication", id="401"),
        pytest.param(LOGIN, 15, "protocol", id="a-login-page"),
        pytest.param(json_reply(200), 15, "protocol", id="nonsense"),
        pytest.param(USED_UP, 9, "rate_limited", id="quota"),
    ],
)
def test_each_refusal_has_its_status_and_its_document(cli, server, reply, status, kind):
    server.reply = reply

    outcome = cli("ask", "--backend", server.url, "--json", "hello")

    document = json.loads(outcome.stdout)["error"]
    assert (outcome.status, document["exit_status"], document["kind"]) == (status, status, kind)


def test_a_backend_that_is_not_there_is_unreachable(cli, monkeypatch):
    monkeypatch.setattr("assistant_runner.backends.http.RetryPolicy", lambda: NO_RETRIES)

    outcome = cli("ask", "--backend", "http://127.0.0.1:9/v1", "hello")

    assert outcome.status == 15
    assert "cannot be reached" in outcome.stderr


def test_case_064_an_empty_key_stops_a_hosted_target_before_any_request(cli, monkeypatch):
    monkeypatch.setenv("ASSISTANT_RUNNER_BACKEND_KEY_ENV", "MY_KEY")
    monkeypatch.setenv("MY_KEY", "")

    outcome = cli("ask", "--backend", "https://host.example.com/v1", "hello")

    assert outcome.status == 3
    assert "MY_KEY" in outcome.stderr


def test_case_116_the_key_is_nowhere_to_be_read(cli, server, monkeypatch, tmp_path):
    monkeypatch.setenv("ASSISTANT_RUNNER_BACKEND_KEY_ENV", "MY_KEY")
    monkeypatch.setenv("MY_KEY", KEY)
    monkeypatch.setenv("ASSISTANT_RUNNER_TRACEBACK", "1")

    def broken(*args, **kwargs):
        raise RuntimeError(f"Authorization: Bearer {KEY}")

    refused = cli("ask", "--backend", server.url, "-vv", "--log-file", "log", "hello")
    monkeypatch.setattr("assistant_runner.backends.http.from_answer", broken)
    crashed = cli("ask", "--backend", server.url, "-vv", "--log-file", "log", "hello")

    assert server.seen[0][1]["Authorization"] == f"Bearer {KEY}"
    assert (refused.status, crashed.status) == (15, 1)
    everything = refused.stdout + refused.stderr + crashed.stdout + crashed.stderr
    assert "SECRET-0001" not in everything + (tmp_path / "log").read_text()
    assert "RuntimeError" in crashed.stderr
