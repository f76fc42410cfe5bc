"""The same run in the three forms of address, against our own service on a real socket."""

import pytest

from assistant_runner.backends.connect import open_http
from assistant_runner.run.driver import Driver
from assistant_runner.run.request import Limits, RunRequest
from assistant_runner.settings import load_settings
from tests.fakes import workshop
from tests.run.world import open_world

CALL = {"tool_calls": [{"name": "get_weather", "arguments": {"city": "Oslo"}}]}


def get_weather(city: str) -> str:
    """Weather of a city."""
    return f"rain in {city}"


@pytest.mark.parametrize(
    ("path", "flags", "first"),
    [
        ("/v1", {}, "/v1/threads/runs"),
        ("", {"backend_form": "azure"}, "/openai/threads/runs"),
        ("/api/projects/p/", {}, "/api/projects/p/threads/runs"),
    ],
    ids=["openai", "azure", "foundry"],
)
async def test_a_run_with_a_tool_works_in_every_form(tmp_path, path, flags, first):
    async with open_world([CALL, {"text": "Rain."}], get_weather, plan=lambda seen: None) as world:
        backend = world.server.url.removesuffix("/v1") + path
        loaded = load_settings(
            {"backend": backend, **flags}, environ={"ASSISTANT_RUNNER_HOME": str(tmp_path)}, cwd=tmp_path
        )
        async with open_http(loaded) as backend:
            driver = Driver(backend, workshop(get_weather), limits=Limits(timeout_s=20))
            result = await driver.run(RunRequest(world.assistant_id, prompt="hello"))
            steps = await backend.list_run_steps(thread_id=result.run.thread_id, run_id=result.run.id)

    assert (result.text, len(steps.data)) == ("Rain.", 2)
    assert f"POST {first}" in world.server.paths()
