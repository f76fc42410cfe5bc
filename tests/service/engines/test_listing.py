"""The models that can be reached."""

import pytest

from assistant_runner.errors import NotFound
from assistant_runner.service.engines.listing import find_model, list_reachable
from assistant_runner.service.engines.planner import PlannerEngine
from tests.service.engines.fake_openai import fake_openai, json_reply

MODEL = {"id": "qwen3:4b", "object": "model", "created": 1, "owned_by": "library"}


async def test_local_servers_are_listed_beside_the_chosen_engine():
    async with fake_openai(json_reply({"capabilities": ["completion", "tools"]}), models=[MODEL]) as fake:
        rows = await list_reachable(PlannerEngine(), ports={fake.port: "Ollama"})

    assert [(row["id"], row["engine"], row["supports"], row["chosen"]) for row in rows] == [
        ("planner", "planner", {"tools": True}, True),
        ("qwen3:4b", "chat", {"tools": True}, False),
    ]
    assert rows[1]["at"].startswith("Ollama at http://127.0.0.1:")


async def test_an_alias_is_followed():
    row = await find_model("small", [{"id": "qwen3:4b", "supports": {"tools": None}}], {"small": "qwen3:4b"})

    assert (row["id"], row["alias"], row["reachable"]) == ("qwen3:4b", "small", True)


async def test_the_nearest_names_are_suggested():
    with pytest.raises(NotFound) as caught:
        await find_model("qwen3:4", [{"id": "qwen3:4b", "supports": {"tools": None}}], {})

    assert "qwen3:4b" in (caught.value.remedy or "")
