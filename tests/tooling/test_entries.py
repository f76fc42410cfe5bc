"""Tools of an assistant file: HTTP requests, commands, people."""

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from assistant_runner.errors import ConfigurationError
from assistant_runner.tooling.contract import Tool, ToolOutcome
from assistant_runner.tooling.entries import CommandEntry, HttpEntry, HumanEntry, McpEntry, build_tool
from assistant_runner.tooling.fetcher import guarded_client
from assistant_runner.tooling.gate import ToolGate
from assistant_runner.tooling.policy import Policy
from tests.tooling.server import Reply, Seen, Server, page, serve
from tests.tooling.support import make_context


async def run(tool: Tool, environ: dict[str, str] | None = None, **arguments: Any) -> ToolOutcome:
    async with guarded_client(allow_hosts=["127.0.0.1"]) as http:
        return await ToolGate(policy=Policy(writes="allow")).call(
            tool, arguments, make_context(http=http, environ=environ)
        )


def answer_json(seen: Seen) -> Reply:
    document = {"path": seen.path, "body": seen.body.decode(), "auth": seen.headers.get("authorization")}
    return page(json.dumps({"data": document}), kind="application/json")


def http(server: Server, path: str, **fields: Any) -> Tool:
    entry = {"name": "ask", "description": "Ask the service", "parameters": {"city": "string"}, **fields}
    return build_tool(HttpEntry.model_validate({**entry, "url": server.url + path}))


class TestHttp:
    @pytest.mark.parametrize(
        ("city", "path"),
        [
            ("Łódź", "/w/%C5%81%C3%B3d%C5%BA"),
            ("../admin?x=1#y", "/w/..%2Fadmin%3Fx%3D1%23y"),
            ("a b", "/w/a%20b"),
        ],
    )
    async def test_arguments_are_encoded_for_the_path(self, city: str, path: str):
        async with serve(answer_json) as server:
            outcome = await run(http(server, "/w/{city}", output="entity.data.path"), city=city)

        assert outcome.content == path

    async def test_arguments_fill_the_query_and_absent_ones_are_left_out(self):
        parameters = {
            "type": "object",
            "properties": {"city": {"type": "string"}, "unit": {"type": ["string", "null"]}},
            "required": ["city", "unit"],
            "additionalProperties": False,
        }
        async with serve(answer_json) as server:
            tool = http(server, "/w", parameters=parameters, query={"q": "{city}", "unit": "{unit}", "n": 3})
            outcome = await run(tool, city="a&b=c", unit=None)

        assert outcome.content["data"]["path"] == "/w?q=a%26b%3Dc&n=3"

    async def test_a_list_is_repeated_in_the_query_and_what_stands_in_the_address_stays(self):
        parameters = {"tags": {"type": "array", "items": {"type": "string"}}}
        async with serve(answer_json) as server:
            tool = http(server, "/w?v=2", parameters=parameters, query={"tag": "{tags}"})
            outcome = await run(tool, tags=["a", "b&c"])

        assert outcome.content["data"]["path"] == "/w?v=2&tag=a&tag=b%26c"

    @pytest.mark.parametrize("city", ["..", ".", ""])
    async def test_no_argument_leads_to_another_path(self, city: str):
        async with serve(answer_json) as server:
            outcome = await run(http(server, "/v1/{city}/w", parameters={"city": "string"}), city=city)

        assert outcome.content == f"ask: city is {city!r}, which cannot stand in a path"
        assert server.seen == []

    async def test_a_parameter_may_be_called_context(self):
        async with serve(answer_json) as server:
            tool = http(server, "/w", parameters={"context": "string"}, query={"c": "{context}"})
            outcome = await run(tool, context="x")

        assert outcome.content["data"]["path"] == "/w?c=x"

    async def test_a_body_takes_arguments_with_their_types(self):
        parameters = {"days": "integer", "city": "string"}
        body = {"place": {"name": "{city}", "note": "in {city}"}, "days": "{days}"}
        async with serve(answer_json) as server:
            tool = http(server, "/w", method="POST", parameters=parameters, body=body)
            outcome = await run(tool, city="Oslo", days=3)

        sent = json.loads(outcome.content["data"]["body"])
        assert sent == {"place": {"name": "Oslo", "note": "in Oslo"}, "days": 3}
        assert tool.effects == "write"

    async def test_without_a_body_a_post_sends_the_arguments_that_the_address_does_not_use(self):
        async with serve(answer_json) as server:
            tool = http(server, "/w/{city}", method="POST", parameters={"city": "string", "days": "integer"})
            outcome = await run(tool, city="Oslo", days=3)

        assert json.loads(outcome.content["data"]["body"]) == {"days": 3}

    async def test_a_form_and_headers_hold_values_as_json_spells_them(self):
        parameters = {"city": "string", "exact": "boolean", "near": {"type": "object"}}
        fields = {"method": "POST", "body_format": "form", "headers": {"authorization": "{exact}"}}
        async with serve(answer_json) as server:
            body = {"exact": "{exact}", "near": "{near}"}
            tool = http(server, "/{city}", parameters=parameters, body=body, **fields)
            outcome = await run(tool, city="a", exact=True, near={"km": 3})

        assert outcome.content["data"]["body"] == "exact=true&near=%7B%22km%22%3A3%7D"
        assert outcome.content["data"]["auth"] == "true"

    async def test_a_secret_header_comes_from_the_environment_and_is_never_shown(self):
        secret = {"authorization": {"env": "MY_TOKEN", "prefix": "Bearer "}}
        async with serve(answer_json) as server:
            tool = http(server, "/w", secret_headers=secret, parameters={})
            outcome = await run(tool, environ={"MY_TOKEN": "tok-123456"})
            without = await run(tool)

        assert server.seen[0].headers["authorization"] == "Bearer tok-123456"
        assert outcome.content["data"]["auth"] == "Bearer [secret]"
        assert without.content == "ask needs the environment variable MY_TOKEN"

    async def test_a_secret_is_not_shown_whatever_its_variable_is_called(self):
        secret = {"authorization": {"env": "ROOMS"}}
        async with serve(answer_json) as server:
            tool = http(server, "/w", secret_headers=secret, parameters={})
            outcome = await run(tool, environ={"ROOMS": "tok-123456\n"})
            broken = await run(tool, environ={"ROOMS": "tok-1\r\n23456"})

        assert outcome.content["data"]["auth"] == "[secret]"
        assert broken.content == "ask: the header authorization can only hold printable ASCII characters"

    async def test_a_secret_file_that_others_can_read_is_refused(self, tmp_path: Path):
        path = tmp_path / "token"
        path.write_text("tok-123456\n")
        async with serve(answer_json) as server:
            tool = http(server, "/w", parameters={}, secret_headers={"x-key": {"file": str(path)}})
            path.chmod(0o644)
            loose = await ToolGate().call(tool, {}, make_context())
            path.chmod(0o600)
            tight = await run(tool)

        assert "0600" in loose.content
        assert not tight.is_error

    async def test_an_error_status_is_an_error_with_the_reason(self):
        async with serve(lambda seen: page('{"why": "no"}', status=422, kind="application/json")) as server:
            outcome = await run(http(server, "/w", parameters={}))

        assert outcome.is_error
        assert '{"why":"no"}' in outcome.content

    async def test_a_private_address_is_refused_unless_allowed_by_name(self):
        async with serve(answer_json) as server, guarded_client() as client:
            outcome = await ToolGate().call(http(server, "/w", parameters={}), {}, make_context(http=client))

        assert outcome.is_error
        assert server.seen == []

    @pytest.mark.parametrize(
        ("url", "words"),
        [
            ("http://{city}/x", "a fixed host"),
            ("{city}", "a fixed host"),
            ("ftp://a.test/", "http:// or https://"),
            ("https://a.test/{town}", "{town} is no parameter; there are: city"),
        ],
    )
    def test_a_template_that_cannot_work_fails_at_load(self, url: str, words: str):
        entry = HttpEntry(name="ask", description="Ask", url=url, parameters={"city": "string"})

        with pytest.raises(ConfigurationError) as caught:
            build_tool(entry)

        assert words in caught.value.message

    def test_a_parameter_that_is_sent_nowhere_fails_at_load(self):
        entry = HttpEntry(name="ask", description="Ask", url="https://a.test/", parameters={"city": "string"})

        with pytest.raises(ConfigurationError, match="the parameter city is used nowhere"):
            build_tool(entry)


def command(code: str, **fields: Any) -> Tool:
    entry = {"name": "do", "description": "Do it", "parameters": {"n": "integer"}, **fields}
    return build_tool(CommandEntry.model_validate({**entry, "command": [sys.executable, "-c", code]}))


READ = "import json, sys; given = json.load(sys.stdin); "


class TestCommand:
    async def test_arguments_come_on_stdin_and_the_result_on_stdout(self):
        outcome = await run(command(READ + "print(json.dumps({'twice': 2 * given['n']}))"), n=21)

        assert outcome.content == {"twice": 42}

    async def test_text_stays_text(self):
        outcome = await run(command("print('Łódź 5')"), n=1)

        assert outcome.content == "Łódź 5"

    async def test_a_status_is_an_error_with_the_end_of_stderr(self):
        outcome = await run(command("import sys; print('no such room', file=sys.stderr); sys.exit(4)"), n=1)

        assert outcome.is_error
        assert outcome.content == "do exited with status 4: no such room"

    async def test_a_status_without_stderr_is_an_error_with_the_end_of_stdout(self):
        outcome = await run(command('import sys; print(\'{"error": "full"}\'); sys.exit(1)'), n=1)

        assert outcome.content == 'do exited with status 1: {"error": "full"}'

    async def test_a_folder_that_is_not_there_is_named(self):
        outcome = await run(command("", cwd="no-such-folder"), n=1)

        assert outcome.content.endswith("no-such-folder is not there")

    async def test_only_the_allowed_environment_is_passed(self):
        environ = {"PATH": os.environ["PATH"], "OPENAI_API_KEY": "sk-secret-1", "ROOM": "blue"}
        code = (
            "import json, os; print(json.dumps([os.environ.get('ROOM'), os.environ.get('OPENAI_API_KEY')]))"
        )

        outcome = await run(command(code, env=["ROOM"]), environ, n=1)

        assert outcome.content == ["blue", None]

    async def test_nothing_in_an_argument_is_interpreted(self, tmp_path: Path):
        tool = command(READ + "print(given['n'])", parameters={"n": "string"})

        outcome = await run(tool, n=f"$(touch {tmp_path}/x); `id` && rm -rf /")

        assert outcome.content.startswith("$(touch")
        assert not (tmp_path / "x").exists()

    async def test_a_timeout_ends_the_program_and_its_children(self, tmp_path: Path):
        mark = tmp_path / "pid"
        code = (
            "import subprocess, sys, time; "
            f"child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)']); "
            f"open({str(mark)!r}, 'w').write(str(child.pid)); time.sleep(60)"
        )

        outcome = await run(command(code, timeout_s=1.5), n=1)

        assert "timed out after 1.5 s" in outcome.content
        child = int(mark.read_text())
        for _ in range(200):
            if not _alive(child):
                break
            await asyncio.sleep(0.01)
        assert not _alive(child)

    async def test_what_a_program_leaves_running_is_not_waited_for(self, tmp_path: Path):
        child = "import sys, time; open('up', 'w').close(); time.sleep(20)"
        script = (
            f"import os, subprocess, sys, time; child = subprocess.Popen([sys.executable, '-c', {child!r}])\n"
            "while not os.path.exists('up'): time.sleep(0.01)\n"
            "print(child.pid)"
        )
        tool = command(script, cwd=str(tmp_path))

        outcome = await run(tool, n=1)

        os.kill(int(outcome.content), signal.SIGKILL)  # it was left alone
        assert not outcome.is_error

    async def test_a_program_that_is_not_there_is_said_to_be_missing(self):
        tool = build_tool(CommandEntry(name="do", description="Do", command=["no-such-program-here"]))

        outcome = await run(tool)

        assert "no-such-program-here cannot be started" in outcome.content

    async def test_a_program_that_ignores_its_stdin_is_no_error(self):
        outcome = await run(command("print(1)", parameters={"n": "string"}), n="x" * 1_000_000)

        assert outcome.content == "1"

    def test_a_command_writes_unless_it_says_otherwise(self):
        assert command("").effects == "write"
        assert command("", effects="read").effects == "read"


def _alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return False
    return state != "Z"


def test_several_people_can_be_asked():
    boss = build_tool(HumanEntry(name="ask_boss", description="Ask the boss", when_to_use=""))
    anybody = build_tool(HumanEntry())

    assert (boss.name, boss.kind, boss.description) == ("ask_boss", "human", "Ask the boss")
    assert anybody.name == "request_human_input"
    assert list(anybody.parameters["properties"]) == ["question", "context", "options"]


@pytest.mark.parametrize(
    ("model", "fields"),
    [
        pytest.param(HttpEntry, {"name": "a b", "description": "x", "url": "http://a"}, id="name"),
        pytest.param(HttpEntry, {"name": "a", "description": "", "url": "http://a"}, id="description"),
        pytest.param(
            HttpEntry, {"name": "a", "description": "x", "url": "http://a", "metod": "GET"}, id="unknown-key"
        ),
        pytest.param(CommandEntry, {"name": "a", "description": "x", "command": []}, id="no-program"),
        pytest.param(McpEntry, {"name": "a"}, id="no-way"),
        pytest.param(McpEntry, {"name": "a", "command": ["x"], "url": "http://a"}, id="two-ways"),
    ],
)
def test_an_entry_that_cannot_be_is_refused(model: Any, fields: dict[str, Any]):
    with pytest.raises(ValidationError):
        model.model_validate(fields)
