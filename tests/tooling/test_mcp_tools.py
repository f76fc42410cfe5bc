"""The tools of a real MCP server in a process of its own."""

import asyncio
import os
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

pytest.importorskip("mcp")

from assistant_runner.errors import ConfigurationError
from assistant_runner.tooling.entries import McpEntry
from assistant_runner.tooling.gate import ToolGate
from assistant_runner.tooling.mcp_tools import open_mcp, wire_name
from assistant_runner.tooling.policy import Policy
from tests.tooling.support import make_context

SERVER = str(Path(__file__).parent / "mcp_server.py")
ODD = McpEntry(name="odd", command=[sys.executable, str(Path(__file__).parent / "odd_mcp_server.py")])
STDIO = McpEntry(name="harbour", command=[sys.executable, SERVER])


def gate() -> ToolGate:
    return ToolGate(policy=Policy(writes="allow"))


async def test_a_servers_tools_are_listed_named_and_called():
    async with open_mcp(STDIO, environ=os.environ) as tools:
        by_name = {tool.name: tool for tool in tools}
        left = await gate().call(by_name["harbour__departures"], {"harbour": "Łódź"}, make_context())
        booked = await gate().call(by_name["harbour__book"], {"seats": "2"}, make_context(thread_id="t2"))

    assert list(by_name) == ["harbour__departures", "harbour__book"]
    assert left.content == {"harbour": "Łódź", "next": "07:00"}
    assert "2 seats booked" in booked.content
    assert [(tool.kind, tool.effects, tool.fetches) for tool in tools] == [
        ("mcp", "read", True),
        ("mcp", "write", True),
    ]


async def test_the_servers_own_error_reaches_the_model():
    async with open_mcp(STDIO, environ=os.environ) as tools:
        outcome = await gate().call(tools[1], {"seats": 4}, make_context())

    assert outcome.is_error
    assert "only three seats are left" in outcome.content
    assert outcome.content.startswith("<<<FETCHED from ")


async def test_arguments_are_checked_before_the_server_sees_them():
    async with open_mcp(STDIO, environ=os.environ) as tools:
        outcome = await gate().call(tools[1], {"seats": "many"}, make_context())

    assert outcome.rejected


async def test_approvals_hold_for_remote_tools_too():
    async with open_mcp(STDIO, environ=os.environ) as tools:
        outcome = await ToolGate().call(tools[1], {"seats": 1}, make_context())

    assert outcome.is_error
    assert "was not run" in outcome.content


async def test_tools_can_be_chosen():
    async with open_mcp(STDIO.model_copy(update={"tools": ["book"]}), environ=os.environ) as tools:
        assert [tool.name for tool in tools] == ["harbour__book"]

    with pytest.raises(ConfigurationError, match=r"no tool 'sail'; there are: departures, book"):
        async with open_mcp(STDIO.model_copy(update={"tools": ["sail"]}), environ=os.environ):
            pass


async def test_an_error_of_the_user_of_the_tools_stays_itself():
    with pytest.raises(KeyError, match="mine"):
        async with open_mcp(STDIO, environ=os.environ):
            raise KeyError("mine")


async def test_a_server_that_cannot_be_started_is_named():
    entry = McpEntry(name="harbour", command=["no-such-program-here"])

    with pytest.raises(ConfigurationError, match=r"harbour .no-such-program-here. cannot be reached"):
        async with open_mcp(entry, environ=os.environ):
            pass


async def test_a_server_that_fails_at_its_start_is_quoted():
    entry = McpEntry(name="harbour", command=[sys.executable, "-c", "raise SystemExit('no licence')"])

    with pytest.raises(ConfigurationError, match="no licence"):
        async with open_mcp(entry, environ=os.environ):
            pass


async def test_a_server_that_never_answers_is_given_up():
    entry = McpEntry(name="mute", command=[sys.executable, "-c", "input(); input()"], connect_timeout_s=1)

    with pytest.raises(ConfigurationError, match=r"mute .* cannot be reached: no answer within 1 s"):
        async with open_mcp(entry, environ=os.environ):
            pass


async def test_tools_that_cannot_be_used_are_left_out_and_the_others_work(caplog, capfd):
    async with open_mcp(ODD, environ=os.environ) as tools:
        read, _, leave = tools
        outcome = await gate().call(read, {"path": None, "line": None}, make_context())
        left = await gate().call(leave, {}, make_context(thread_id="t2"))
        back = await gate().call(read, {"path": None, "line": None}, make_context(thread_id="t3"))

    assert [tool.name for tool in tools] == ["odd__read_file", "odd__read_file_2", "odd__leave"]
    assert outcome.content == ['{"path": null}', "[resource: file:///b]"]
    assert "whether the call was done is not known" in left.content
    assert back.content == outcome.content
    said = [record.message for record in caplog.records if record.name.startswith("assistant_runner")]
    assert ["wrong" in said[0], "lost" in said[1], "far" in said[2]] == [True, True, True]
    assert said[3:] == ["the MCP server odd has ended: it is started again"]
    assert "Traceback" not in capfd.readouterr().err


async def test_a_call_that_ends_the_server_each_time_ends_it_twice_at_most():
    reading = ODD.model_copy(update={"tools": ["leave"], "effects": "read"})
    async with open_mcp(reading, environ=os.environ) as [leave]:
        outcome = await gate().call(leave, {}, make_context())

    assert outcome.content == (
        "its MCP server ended twice before it answered (this call may be what ends it)"
    )


async def test_calls_that_find_the_server_dead_share_one_new_start(caplog):
    async with open_mcp(ODD, environ=os.environ) as [read, _, leave]:
        await gate().call(leave, {}, make_context(thread_id="t2"))
        calls = (gate().call(read, {"path": None, "line": 1}, make_context(f"c{n}")) for n in range(5))
        outcomes = await asyncio.gather(*calls)

    assert [outcome.is_error for outcome in outcomes] == [False] * 5
    assert sum("started again" in record.message for record in caplog.records) == 1


async def test_a_tool_that_was_asked_for_and_cannot_be_used_is_an_error():
    with pytest.raises(ConfigurationError, match="leads nowhere"):
        async with open_mcp(ODD.model_copy(update={"tools": ["far"]}), environ=os.environ):
            pass


async def test_a_server_over_http_works_the_same_and_is_found_again():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    entry = McpEntry(name="harbour", url=f"http://127.0.0.1:{port}/mcp", headers={"x-test": "1"})
    async with AsyncExitStack() as stack:
        async with _serving(port):
            tools = await stack.enter_async_context(open_mcp(entry, environ=os.environ))
            first = await gate().call(tools[0], {"harbour": "Oslo"}, make_context())
        gone = await gate().call(tools[0], {"harbour": "Oslo"}, make_context())
        async with _serving(port):
            again = await gate().call(tools[0], {"harbour": "Oslo"}, make_context())

    assert first.content == again.content == {"harbour": "Oslo", "next": "07:00"}
    assert "has ended and does not come back" in gone.content


@asynccontextmanager
async def _serving(port: int) -> AsyncIterator[None]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        SERVER,
        str(port),
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        await _listening(port)
        yield
    finally:
        process.kill()
        await asyncio.wait_for(process.wait(), 10)


async def _listening(port: int) -> None:
    for _ in range(500):
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            await asyncio.sleep(0.02)
            continue
        writer.close()
        return
    raise AssertionError("the server did not start")


def test_names_fit_the_wire():
    assert wire_name("a", "b c/ü") == "a__b_c__"
    assert len(wire_name("a" * 40, "b" * 60)) == 64
