"""Which engine thinks: by name, by the environment, by what answers on this machine."""

import subprocess
import sys
import time

import pytest

from assistant_runner.errors import BackendUnreachable, ConfigurationError, UsageError
from assistant_runner.service.engines.catalog import retirement_of
from assistant_runner.service.engines.choose import choose_engine, default_model
from tests.service.engines.fake_openai import (
    Reply,
    chat_text,
    fake_openai,
    html_reply,
    json_reply,
    message_item,
    response_stream,
)
from tests.service.engines.helpers import play, request

MODEL = {"id": "qwen3:4b", "object": "model", "created": 1, "owned_by": "library"}


async def choose(name="auto", environ=None, **options):
    engine = await choose_engine(name, environ=environ or {}, **{"ports": {}, **options})
    await engine.aclose()
    return engine


async def test_the_planner_is_what_is_left():
    engine = await choose()

    assert (engine.name, engine.uses_model) == ("planner", False)


@pytest.mark.parametrize(
    ("environ", "name", "label"),
    [
        pytest.param({"OPENAI_API_KEY": "sk-1"}, "responses", "api.openai.com", id="openai"),
        pytest.param({"OPENAI_API_KEY": " "}, "planner", "planner", id="empty-key"),
        pytest.param(
            {"AZURE_OPENAI_ENDPOINT": "https://unit.openai.azure.com", "AZURE_OPENAI_API_KEY": "k"},
            *("responses", "unit.openai.azure.com"),
            id="azure",
        ),
        pytest.param(
            {"OPENAI_BASE_URL": "http://127.0.0.1:9/v1", "OPENAI_API_KEY": "k"},
            "chat",
            "127.0.0.1",
            id="base-url",
        ),
    ],
)
async def test_the_environment_decides(environ, name, label):
    engine = await choose(environ=environ)

    assert engine.name == name
    assert label in engine.label


async def test_a_local_model_server_is_found_and_its_first_model_taken():
    async with fake_openai(chat_text("Ok"), models=[MODEL]) as fake:
        engine = await choose_engine("auto", environ={}, ports={fake.port: "llama.cpp"})
        turn = await play(engine, request("Hello", model=""))
        await engine.aclose()

    assert (engine.name, turn.text) == ("chat", "Ok")
    assert fake.bodies[-1]["model"] == "qwen3:4b"


async def test_ollama_is_asked_which_models_call_tools():
    shows = [
        json_reply({"capabilities": ["completion"]}),
        json_reply({"capabilities": ["completion", "tools"]}),
    ]
    models = [MODEL, {**MODEL, "id": "llama3.2"}]
    async with fake_openai(*shows, models=models) as fake:
        engine = await choose_engine("auto", environ={}, ports={fake.port: "Ollama"})
        abilities = [engine.abilities(name).tools for name in ("qwen3:4b", "llama3.2")]
        await engine.aclose()

    assert abilities == [False, True]
    assert "llama3.2" in engine.label


@pytest.mark.parametrize(
    "models",
    [
        pytest.param([], id="no-models"),
        pytest.param([{**MODEL, "owned_by": "assistant-runner"}], id="our-own-service"),
    ],
)
async def test_what_is_no_model_server_is_passed_over(models):
    async with fake_openai(html_reply(), models=models) as fake:
        engine = await choose(ports={fake.port: "vLLM", 9: "Ollama"})

    assert engine.name == "planner"


async def test_a_server_that_hangs_costs_no_more_than_the_probe():
    async with fake_openai(Reply()) as fake:
        fake.hang = True
        begun = time.perf_counter()
        engine = await choose(ports={fake.port: "vLLM"})

    assert engine.name == "planner"
    assert time.perf_counter() - begun < 1.0


async def test_an_offline_run_opens_no_socket():
    async with fake_openai(models=[MODEL]) as fake:
        engine = await choose(environ={"OPENAI_API_KEY": "k"}, offline=True, ports={fake.port: "vLLM"})

    assert engine.name == "planner"
    assert fake.asked == []


@pytest.mark.parametrize("name", ["responses", "chat"])
async def test_an_offline_run_with_a_model_is_a_usage_error(name):
    with pytest.raises(UsageError, match="offline"):
        await choose(name, offline=True)


@pytest.mark.parametrize("name", ["responses", "chat"])
async def test_a_named_engine_without_anything_to_ask_is_a_configuration_error(name):
    with pytest.raises(ConfigurationError, match="no model to ask") as caught:
        await choose(name)

    assert "OPENAI_API_KEY" in (caught.value.remedy or "")


async def test_case_064_an_empty_key_for_a_hosted_target_is_named_before_any_request():
    with pytest.raises(ConfigurationError, match="OPENAI_API_KEY"):
        await choose("responses", {"OPENAI_API_KEY": ""})
    with pytest.raises(ConfigurationError, match="MY_KEY"):
        await choose("chat", {"MY_KEY": ""}, base_url="https://gw.example.com/v1", key_env="MY_KEY")


async def test_case_064_a_local_server_works_with_an_empty_key():
    async with fake_openai(chat_text("Ok")) as fake:
        engine = await choose_engine("chat", environ={"MY_KEY": ""}, base_url=fake.url, key_env="MY_KEY")
        turn = await play(engine, request("Hello"))
        await engine.aclose()

    assert turn.text == "Ok"


async def test_openais_key_does_not_go_to_a_stranger():
    async with fake_openai(chat_text("Ok")) as fake:
        engine = await choose_engine("chat", environ={"OPENAI_API_KEY": "sk-1"}, base_url=fake.url)
        await play(engine, request("Hello"))
        await engine.aclose()

    assert "authorization" not in fake.asked[0].headers


@pytest.mark.parametrize("key", ["sk-1\n2", "sk 1", "sk-ü"])
async def test_a_key_that_is_none_is_a_configuration_error_that_does_not_show_it(key):
    with pytest.raises(ConfigurationError) as caught:
        await choose("responses", {"OPENAI_API_KEY": key})

    assert "sk" not in caught.value.message


async def test_azure_without_a_key_needs_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "azure.identity.aio", None)

    with pytest.raises(ConfigurationError, match="azure"):
        await choose("responses", {"AZURE_OPENAI_ENDPOINT": "https://unit.openai.azure.com"})


async def test_the_responses_engine_on_any_base_url():
    async with fake_openai(response_stream(message_item("Ok"))) as fake:
        engine = await choose_engine("responses", environ={}, base_url=fake.url, aliases={"small": "m-1"})
        turn = await play(engine, request("Hello", model="small"))
        await engine.aclose()

    assert (turn.text, fake.bodies[0]["model"]) == ("Ok", "m-1")


async def test_an_unknown_engine_is_a_usage_error():
    with pytest.raises(UsageError, match="'gpt'"):
        await choose("gpt")


async def test_a_script_engine_needs_a_script():
    with pytest.raises(ConfigurationError, match="needs a script"):
        await choose("script")


def test_the_sdk_is_not_imported_by_runs_that_do_not_use_it():
    code = (
        "import asyncio, sys; from assistant_runner.service.engines.choose import choose_engine;"
        "asyncio.run(choose_engine('auto', environ={}, offline=True)); print('openai' in sys.modules)"
    )

    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )

    assert done.stdout.strip() == "False"


async def test_a_run_that_names_no_model_gets_the_first_that_calls_tools():
    listed = [{**MODEL, "id": "nomic-embed-text"}, MODEL]
    async with fake_openai(models=listed) as fake:
        engine = await choose_engine("chat", environ={}, base_url=fake.url)
        model = await default_model(engine)
        await engine.aclose()

    assert model == "qwen3:4b"


async def test_azure_needs_its_deployment_named():
    environ = {"AZURE_OPENAI_ENDPOINT": "https://unit.openai.azure.com", "AZURE_OPENAI_API_KEY": "k"}
    engine = await choose(environ=environ)

    with pytest.raises(ConfigurationError, match="deployment"):
        await default_model(engine)


async def test_a_server_that_cannot_be_asked_for_its_models_is_unreachable():
    engine = await choose_engine("chat", environ={}, base_url="http://127.0.0.1:9/v1")

    with pytest.raises(BackendUnreachable, match=r"127\.0\.0\.1:9"):
        await default_model(engine)
    await engine.aclose()


async def test_openais_default_is_a_model_without_a_date_of_leaving():
    engine = await choose(environ={"OPENAI_API_KEY": "sk-1"})

    assert retirement_of(await default_model(engine)) is None


async def test_azures_deployment_may_stand_in_the_environment():
    environ = {
        "AZURE_OPENAI_ENDPOINT": "https://unit.openai.azure.com",
        "AZURE_OPENAI_API_KEY": "k",
        "AZURE_OPENAI_DEPLOYMENT": "dep-a",
    }

    assert await default_model(await choose(environ=environ)) == "dep-a"


async def test_azure_as_the_sdk_names_it_takes_the_sdks_key():
    environ = {"OPENAI_BASE_URL": "https://unit.openai.azure.com/openai/v1/", "OPENAI_API_KEY": "k"}

    engine = await choose(environ=environ, model="dep-a")

    assert (engine.name, engine.label) == ("responses", "responses at unit.openai.azure.com (dep-a)")


@pytest.mark.parametrize(
    ("version", "name"),
    [("2024-10-21", "chat"), ("2025-03-01-preview", "responses"), ("2025-04-01-preview", "responses")],
)
async def test_azures_dated_form_is_asked_by_the_api_that_its_version_has(version, name):
    environ = {
        "AZURE_OPENAI_ENDPOINT": "https://unit.openai.azure.com",
        "AZURE_OPENAI_API_KEY": "k",
        "OPENAI_API_VERSION": version,
    }

    engine = await choose(environ=environ)
    await engine.aclose()

    assert engine.name == name
