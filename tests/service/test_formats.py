"""Answers against response formats."""

import http.server
import threading
from typing import Any

import pytest

from assistant_runner.service.failures import ApiError
from assistant_runner.service.formats import answer_flaw, check_format


def test_a_schema_that_points_elsewhere_is_not_fetched():
    asked: list[str] = []

    class Elsewhere(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_error(404)

        def log_message(self, *words: object) -> None:
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Elsewhere) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        schema = {"properties": {"a": {"$ref": f"http://127.0.0.1:{server.server_port}/schema"}}}
        flaw = answer_flaw(
            {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}, '{"a": 1}'
        )
        server.shutdown()

    assert asked == []
    assert flaw is not None
    assert flaw.startswith("its schema cannot be applied")


def test_a_schema_that_is_nested_too_deeply_is_refused_in_words():
    schema: dict[str, Any] = {}
    for _ in range(400):
        schema = {"not": schema}

    with pytest.raises(ApiError, match="nested too deeply") as caught:
        check_format(
            {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}, "response_format"
        )

    assert (caught.value.status, caught.value.param) == (400, "response_format.json_schema.schema")


def test_an_answer_that_is_nested_too_deeply_is_no_json():
    flaw = answer_flaw({"type": "json_object"}, "[" * 100_000)

    assert flaw is not None
    assert flaw.startswith("it is not JSON")


def test_a_pattern_made_to_keep_the_server_busy_is_judged_at_once():
    schema = {"type": "object", "properties": {"a": {"type": "string", "pattern": "^(a+)+$"}}}
    wanted = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}

    flaw = answer_flaw(wanted, f'{{"a": "{"a" * 100}!"}}')

    assert flaw is not None
    assert "does not match" in flaw
