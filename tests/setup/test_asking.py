"""A question with an assistant file: its engine, key, model, limits and tools hold."""

import pytest

from assistant_runner.assembly import Question, open_runner
from assistant_runner.errors import RunGone
from assistant_runner.settings import load_settings
from assistant_runner.tooling.contract import Tool
from assistant_runner.tooling.dynamic import dynamic_tool
from assistant_runner.tooling.registry import Toolbox
from tests.service.engines.fake_openai import chat_calls, chat_text, fake_openai


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(folder, url: str) -> None:
    (folder / "assistant.yaml").write_text(
        "name: Key\nmodel: small-one\ninstructions: Be brief.\ntemperature: 0.25\n"
        f"engine: {{api: chat, base_url: '{url}', api_key: '${{MY_TEST_KEY:-fallback}}'}}\n"
        "limits: {rounds: 3, total_tokens: 5000}\nparallel_tool_calls: false\ntools: [get_weather]\n"
    )


def settings_in(folder, **environ: str):
    home = {"ASSISTANT_RUNNER_HOME": str(folder / "home")}
    return load_settings({}, environ={**home, **environ}, cwd=folder)


@pytest.mark.parametrize(
    ("environ", "key"), [({"MY_TEST_KEY": "sk-one"}, "sk-one"), ({}, "fallback")], ids=["variable", "default"]
)
async def test_what_the_file_says_reaches_the_model(folder, environ, key):
    async with fake_openai(chat_text("Hello.")) as server:
        write(folder, server.url)
        async with open_runner(settings_in(folder, **environ)) as runner:
            result = await runner.ask(Question(prompt="Hi"))

    [asked] = [one for one in server.asked if one.path.endswith("/chat/completions")]
    assert result.text == "Hello."
    assert asked.headers["authorization"] == f"Bearer {key}"
    body = asked.body
    assert (body["model"], body["temperature"], body["parallel_tool_calls"]) == ("small-one", 0.25, False)
    assert [tool["function"]["name"] for tool in body["tools"]] == ["get_weather"]


async def test_a_second_assistant_of_one_runner_brings_its_own_tools(folder):
    (folder / "other.yaml").write_text("name: Other\nmodel: second\ntools: [get_wiki_url]\n")
    async with fake_openai(chat_text("One."), chat_text("Two.")) as server:
        write(folder, server.url)
        async with open_runner(settings_in(folder)) as runner:
            await runner.ask(Question(prompt="Hi"))
            await runner.ask(Question(prompt="Hi", assistant="other.yaml"))

    bodies = [one.body for one in server.asked if one.path.endswith("/chat/completions")]
    assert [body["model"] for body in bodies] == ["small-one", "second"]
    assert [body["tools"][0]["function"]["name"] for body in bodies] == ["get_weather", "get_wiki_url"]


async def test_tools_named_for_the_question_go_with_it(folder):
    async with fake_openai(chat_text("Hello.")) as server:
        write(folder, server.url)
        async with open_runner(settings_in(folder)) as runner:
            await runner.ask(Question(prompt="Hi", tools=("get_webpage",)))

    [body] = [one.body for one in server.asked if one.path.endswith("/chat/completions")]
    assert [tool["function"]["name"] for tool in body["tools"]] == ["get_webpage"]


async def test_a_question_may_name_a_tool_that_the_runner_was_given(folder):
    def high_tide(city: str) -> str:
        """Tell when the next high tide of a city is"""
        return "18:20"

    async with fake_openai(chat_text("Hello.")) as server:
        flags = {"engine": "chat", "engine_base_url": server.url, "model": "m"}
        home = {"ASSISTANT_RUNNER_HOME": str(folder / "home")}
        settings = load_settings(flags, environ=home, cwd=folder)
        async with open_runner(settings, tools=[high_tide]) as runner:
            await runner.ask(Question(prompt="Hi", tools=("high_tide", "get_webpage")))

    [body] = [one.body for one in server.asked if one.path.endswith("/chat/completions")]
    offered = [tool["function"]["name"] for tool in body["tools"]]
    assert offered[:2] == ["high_tide", "get_webpage"]


DUMP = """def dump() -> str:
    \"\"\"Everything\"\"\"
    return "x" * 5000
"""


@pytest.mark.parametrize("named", [True, False], ids=["named", "of-the-file"])
async def test_case_041_a_model_reads_on_in_an_output_of_the_users_tool_that_was_cut(folder, named):
    (folder / "dump.py").write_text(DUMP)
    call = {"index": 0, "id": "call_1", "type": "function", "function": {"name": "dump", "arguments": "{}"}}
    async with fake_openai(chat_calls(call), chat_text("Cut.")) as server:
        write(folder, server.url)
        if not named:
            path = folder / "assistant.yaml"
            path.write_text(path.read_text().replace("get_weather", "./dump.py:dump"))
        async with open_runner(settings_in(folder, ASSISTANT_RUNNER_OUTPUT_CAP="1000")) as runner:
            tools = ("./dump.py:dump",) if named else None
            await runner.ask(Question(prompt="Hi", tools=tools))

    bodies = [one.body for one in server.asked if one.path.endswith("/chat/completions")]
    assert {tool["function"]["name"] for tool in bodies[0]["tools"]} >= {"dump", "read_output"}
    assert "read_output with output_id" in bodies[1]["messages"][-1]["content"]


@pytest.mark.parametrize("effects", ["read", "write"])
async def test_a_run_that_the_backend_forgot_may_be_asked_anew_unless_its_tools_may_have_written(
    folder, effects
):
    schema = {"text": "string"}
    note = dynamic_tool("note", "Note it", str, input_schema=schema, effects=effects, approval="never")
    call = {
        "index": 0,
        "id": "call_1",
        "type": "function",
        "function": {"name": "note", "arguments": '{"text": "a"}'},
    }
    async with fake_openai(chat_calls(call), chat_text("Noted.")) as server:
        flags = {"engine": "chat", "engine_base_url": server.url, "model": "small-one"}
        loaded = load_settings(flags, environ={"ASSISTANT_RUNNER_HOME": str(folder / "home")}, cwd=folder)
        async with open_runner(loaded, tools=[note]) as runner:
            run = (await runner.ask(Question(prompt="Hi"))).run
            await runner.backend.delete_thread(run.thread_id)

            if effects == "read":
                assert await runner.take_up(run.id) is None
            else:
                with pytest.raises(RunGone, match=r"may have written \(note\)"):
                    await runner.take_up(run.id)


async def test_a_tool_that_is_replaced_while_the_program_runs_is_offered_from_the_next_run_on(folder):
    def lookup(words: str) -> Tool:
        return dynamic_tool("find_room", words, str, input_schema={"room": "string"})

    toolbox = Toolbox([lookup("Find a room by its name")])
    async with fake_openai(chat_text("One."), chat_text("Two.")) as server:
        flags = {"engine": "chat", "engine_base_url": server.url, "model": "small-one"}
        loaded = load_settings(flags, environ={"ASSISTANT_RUNNER_HOME": str(folder / "home")}, cwd=folder)
        async with open_runner(loaded, tools=toolbox) as runner:
            await runner.ask(Question(prompt="Hi"))
            toolbox.add(lookup("Find a room by its number"), replace=True)
            await runner.ask(Question(prompt="Hi"))

    bodies = [one.body for one in server.asked if one.path.endswith("/chat/completions")]
    words = [body["tools"][0]["function"]["description"] for body in bodies]
    assert words == ["Find a room by its name", "Find a room by its number"]


async def test_outputs_of_tools_that_come_later_can_be_read_on(folder):
    toolbox = Toolbox()

    async with open_runner(settings_in(folder, ASSISTANT_RUNNER_ENGINE="planner"), tools=toolbox):
        assert toolbox.names() == ["read_output"]
