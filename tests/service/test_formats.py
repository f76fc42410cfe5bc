"""Answers against response formats."""

import http.server
import threading

from assistant_runner.service.formats import answer_flaw


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
