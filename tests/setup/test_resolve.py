"""What a user may name as the assistant of a question."""

from pathlib import Path

import pytest

from assistant_runner.errors import NotFound, UsageError
from assistant_runner.setup.finding import compare_tools
from assistant_runner.setup.lock import LOCK_NAME
from assistant_runner.setup.planned import PlanOptions
from assistant_runner.setup.resolve import resolve_assistant
from assistant_runner.wire.assistants import Assistant, AssistantCreate
from tests.setup.memory import MemoryBackend


@pytest.fixture
def backend() -> MemoryBackend:
    return MemoryBackend()


async def resolve(backend: MemoryBackend, reference: str | None, cwd: Path):
    return await resolve_assistant(
        backend, reference, cwd=cwd, environ={}, state=cwd / "state", options=PlanOptions()
    )


async def test_a_lone_file_is_used_named_and_leaves_no_lock_in_the_folder(backend, tmp_path):
    (tmp_path / "assistant.yaml").write_text("name: Town guide\nmodel: m\n")

    first = await resolve(backend, None, tmp_path)
    backend.calls.clear()
    second = await resolve(backend, None, tmp_path)

    assert first.assistant_id == second.assistant_id
    assert "assistant.yaml" in first.note
    assert backend.calls == ["retrieve_assistant"]
    assert not (tmp_path / LOCK_NAME).exists()


@pytest.mark.parametrize("reference", ["asst_0002", "asst_0002:Other", "Other"])
async def test_s1_33_an_assistant_by_id_by_suggestion_and_by_name(backend, tmp_path, reference):
    for name in ("Town guide", "Other"):
        await backend.create_assistant(AssistantCreate(model="m", name=name))

    found = await resolve(backend, reference, tmp_path)

    assert (found.assistant_id, found.spec) == ("asst_0002", None)


async def test_one_of_several_in_a_file_is_picked_by_name(backend, tmp_path):
    (tmp_path / "a.yaml").write_text("assistants: {A: {model: m}, B: {model: n}}\n")

    found = await resolve(backend, "a.yaml#B", tmp_path)

    assert found.assistant.model == "n"
    with pytest.raises(UsageError, match="A, B"):
        await resolve(backend, "a.yaml", tmp_path)


async def test_an_unknown_name_says_what_is_near(backend, tmp_path):
    await backend.create_assistant(AssistantCreate(model="m", name="Town guide"))

    with pytest.raises(NotFound, match="Town guide"):
        await resolve(backend, "Town gide", tmp_path)
    assert await resolve(backend, None, tmp_path) is None


async def test_a_changed_file_is_applied_before_the_question(backend, tmp_path):
    (tmp_path / "assistant.yaml").write_text("name: Town guide\nmodel: m\n")
    first = await resolve(backend, None, tmp_path)
    (tmp_path / "assistant.yaml").write_text("name: Town guide\nmodel: n\n")

    second = await resolve(backend, None, tmp_path)

    assert (second.assistant_id, second.assistant.model) == (first.assistant_id, "n")


def test_case_087_functions_without_a_local_tool_are_listed():
    names = ("get_weather", "check_tide")
    tools = [{"type": "function", "function": {"name": name}} for name in names]
    assistant = Assistant.model_validate({"id": "asst_1", "created_at": 1, "model": "m", "tools": tools})

    difference = compare_tools(assistant, ["get_weather", "get_wiki_url"])

    assert (difference.missing, difference.unused) == (("check_tide",), ("get_wiki_url",))
