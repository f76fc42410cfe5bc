"""Apply: what is made, what is left alone, and that nothing is made twice however it is cut off."""

from collections.abc import Callable
from datetime import date
from pathlib import Path

import pytest

from assistant_runner.errors import BackendUnreachable, ConfigurationError
from assistant_runner.setup.apply import Applied, Applier
from assistant_runner.setup.load import load_assistant_file
from assistant_runner.setup.lock import LOCK_NAME, read_lock
from assistant_runner.setup.planned import PlanOptions
from assistant_runner.wire.assistants import AssistantCreate
from assistant_runner.wire.files import FileBatchCreate
from tests.setup.memory import Killed, MemoryBackend

TOWN = """\
name: Town guide
model: gpt-5-mini
instructions: Be brief.
tools:
  - {type: function, function: {name: get_weather, parameters: {type: object, properties: {}}}}
"""
WITH_FILES = """\
name: Wildfire
model: gpt-5-mini
tools:
  - file_search: {files: ['*.txt'], max_num_results: 5}
  - code_interpreter: {files: [data.csv]}
"""


@pytest.fixture
def backend() -> MemoryBackend:
    return MemoryBackend()


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str], Path]:
    def write(text: str, name: str = "assistant.yaml") -> Path:
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return path

    return write


async def apply(backend: MemoryBackend, path: Path, *, prune: bool = False, **options) -> list[Applied]:
    specs = load_assistant_file(path, environ={})
    applier = Applier(backend, read_lock(path.parent / LOCK_NAME))
    return await applier.apply(specs, PlanOptions(**options), prune=prune)


def files_of(folder: Path, **contents: str) -> None:
    for name, text in contents.items():
        (folder / name.replace("_", ".")).write_text(text)


async def test_a_name_and_a_model_are_enough(backend, write):
    [done] = await apply(backend, write("name: Test Assistant\nmodel: gpt-4o-mini\n"))

    made = backend.assistants[done.assistant_id]
    assert (made.name, made.model, made.instructions, made.tools) == (
        "Test Assistant",
        "gpt-4o-mini",
        None,
        [],
    )


async def test_the_second_apply_writes_nothing(backend, write):
    path = write(TOWN)
    await apply(backend, path)
    lock = (path.parent / LOCK_NAME).read_bytes()
    backend.calls.clear()

    [done] = await apply(backend, path)

    assert not done.changed
    assert backend.calls == ["retrieve_assistant"]
    assert (path.parent / LOCK_NAME).read_bytes() == lock


async def test_case_085_an_assistant_that_is_there_is_updated_once(backend, write):
    old = await backend.create_assistant(
        AssistantCreate(model="gpt-5-mini", name="Town guide", instructions="old", description="kept")
    )
    path = write(TOWN)

    [first] = await apply(backend, path)
    writes = list(backend.writes)
    [second] = await apply(backend, path)

    assert first.assistant_id == old.id
    assert [change.name for change in first.plan.changes] == ["instructions", "tools", "metadata"]
    assert writes == ["create_assistant", "modify_assistant"]
    assert backend.writes == writes
    assert not second.changed
    assert backend.assistants[old.id].description == "kept"


async def test_what_the_file_no_longer_says_is_reset_and_what_it_never_said_is_left(backend, write):
    path = write(TOWN + "temperature: 0.2\n")
    [done] = await apply(backend, path)
    shown = backend.assistants[done.assistant_id]
    backend.assistants[shown.id] = shown.model_copy(update={"top_p": 0.5})

    await apply(backend, write(TOWN.replace("instructions: Be brief.\n", "")))

    shown = backend.assistants[done.assistant_id]
    assert (shown.temperature, shown.instructions, shown.top_p) == (None, None, 0.5)


async def test_pairs_of_metadata_are_left_alone_until_the_file_says_some(backend, write):
    old = await backend.create_assistant(AssistantCreate.of(model="m", name="A", metadata={"theirs": "1"}))
    path = write("name: A\nmodel: m\n")
    seen = []
    for text in ("", "", "metadata: {team: maps}\n", "metadata: {team: maps}\n", ""):
        path = write("name: A\nmodel: m\n" + text)
        [done] = await apply(backend, path)
        seen.append((done.changed, sorted(set(backend.assistants[old.id].metadata) - {"assistant_runner"})))

    assert seen == [(True, ["theirs"]), (False, ["theirs"]), (True, ["team"]), (False, ["team"]), (True, [])]


async def test_case_086_an_id_that_is_gone_is_said_and_made_again_only_when_told(backend, write):
    path = write(TOWN)
    [first] = await apply(backend, path)
    await backend.delete_assistant(first.assistant_id)
    lock = (path.parent / LOCK_NAME).read_text()

    with pytest.raises(ConfigurationError, match=first.assistant_id) as caught:
        await apply(backend, path)
    assert "--recreate" in caught.value.remedy
    assert (path.parent / LOCK_NAME).read_text() == lock

    [again] = await apply(backend, path, recreate=True)
    assert again.assistant_id != first.assistant_id
    assert again.assistant_id in (path.parent / LOCK_NAME).read_text()


async def test_without_its_lock_everything_is_found_again(backend, write, tmp_path):
    files_of(tmp_path, a_txt="one", b_txt="two", data_csv="1,2")
    path = write(WITH_FILES)
    [first] = await apply(backend, path)
    (tmp_path / LOCK_NAME).unlink()
    backend.calls.clear()

    [second] = await apply(backend, path)

    assert second.assistant_id == first.assistant_id
    assert backend.writes == []


async def test_case_088_files_are_uploaded_once_and_old_copies_go(backend, write, tmp_path):
    files_of(tmp_path, a_txt="one", b_txt="two", data_csv="1,2")
    path = write(WITH_FILES)

    for _ in range(3):
        await apply(backend, path)
    assert backend.calls.count("upload_file") == 3
    files_of(tmp_path, b_txt="twO")
    await apply(backend, path)

    assert backend.calls.count("upload_file") == 4
    [inside] = backend.inside.values()
    assert sorted(backend.contents[one] for one in inside) == [b"one", b"twO"]
    assert sorted(file.filename for file in backend.files.values()) == ["a.txt", "b.txt", "data.csv"]


async def test_the_same_file_in_two_folders_is_uploaded_once(backend, write, tmp_path):
    for folder in ("x", "y", "z"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "a.txt").write_text("other" if folder == "z" else "same")
    files = "[file_search: {files: ['*/a.txt']}, code_interpreter: {files: [y/a.txt]}]"

    [applied] = await apply(backend, write(f"name: A\nmodel: m\ntools: {files}\n"))

    [inside] = backend.inside.values()
    assert (backend.calls.count("upload_file"), len(backend.files), len(inside)) == (2, 2, 2)
    assert applied.assistant_id in backend.assistants


async def test_one_file_of_two_assistants_is_uploaded_once_and_kept_until_nobody_needs_it(
    backend, write, tmp_path
):
    files_of(tmp_path, data_csv="1,2")
    use = "tools: [{code_interpreter: {files: [data.csv]}}]"
    text = f"defaults: {{model: m, {use}}}\nassistants: {{A: {{}}, B: {{}}}}\n".replace(
        "tools: [", "tools: ["
    )
    path = write(text)

    first, second = await apply(backend, path)
    assert backend.calls.count("upload_file") == 1
    await apply(backend, write(text.replace("B: {}", "B: {tools: []}")))

    assert len(backend.files) == 1
    resources = [backend.assistants[one.assistant_id].tool_resources for one in (first, second)]
    assert [len(one.code_interpreter.file_ids) for one in resources] == [1, 0]


@pytest.mark.parametrize(
    ("error", "after"),
    [
        pytest.param(Killed, False, id="killed-before-the-request"),
        pytest.param(Killed, True, id="killed-before-the-answer"),
        pytest.param(BackendUnreachable, True, id="answer-lost-on-the-network"),
    ],
)
async def test_cut_off_anywhere_the_next_apply_finishes_with_one_of_everything(write, tmp_path, error, after):
    files_of(tmp_path, a_txt="one", b_txt="two", data_csv="1,2")
    first, second = WITH_FILES, WITH_FILES.replace("5", "7") + "temperature: 1\n"
    for number in range(1, 60):
        (tmp_path / LOCK_NAME).unlink(missing_ok=True)
        files_of(tmp_path, a_txt="one")
        backend = MemoryBackend()
        backend.fail_at, backend.after, backend.error = number, after, error
        for text, change in ((first, "one"), (second, "changed")):
            files_of(tmp_path, a_txt=change)
            for _ in range(2):
                try:
                    await apply(backend, write(text))
                except (Killed, BackendUnreachable):
                    continue
        [assistant] = backend.assistants.values()
        [inside] = backend.inside.values()
        assert len(backend.stores) == 1
        assert sorted(backend.contents[one] for one in inside) == [b"changed", b"two"], number
        names = sorted(file.filename for file in backend.files.values())
        assert names == ["a.txt", "b.txt", "data.csv"], number
        assert assistant.tools[0].file_search.max_num_results == 7
        assert not read_lock(tmp_path / LOCK_NAME).of("memory").pending
        if len(backend.calls) < number:
            break
    else:
        raise AssertionError("more requests than expected")


async def test_a_file_that_cannot_be_indexed_is_named_and_a_corrected_one_goes_through(
    backend, write, tmp_path
):
    files_of(tmp_path, a_txt="one", b_txt="two", data_csv="1,2")
    backend.unindexable = {"b.txt"}
    path = write(WITH_FILES)
    with pytest.raises(ConfigurationError, match=r"b\.txt: no text in it"):
        await apply(backend, path)

    backend.unindexable = set()
    await apply(backend, path)

    [inside] = backend.inside.values()
    assert [one.status for one in inside.values()] == ["completed", "completed"]
    assert backend.calls.count("upload_file") == 3
    assert len(backend.assistants) == 1


async def test_two_of_one_name_are_not_guessed_at(backend, write):
    for _ in range(2):
        await backend.create_assistant(AssistantCreate(model="m", name="Town guide"))
    path = write(TOWN)

    with pytest.raises(ConfigurationError, match="asst_0001"):
        await apply(backend, path)
    [done] = await apply(backend, path, adopt="asst_0002")

    assert done.assistant_id == "asst_0002"


async def test_destroy_takes_what_we_made_and_leaves_what_was_there(backend, write, tmp_path):
    old = await backend.create_assistant(AssistantCreate(model="m", name="Town guide"))
    files_of(tmp_path, a_txt="one", data_csv="1")
    await apply(backend, write(TOWN))
    await apply(backend, write(WITH_FILES, "b.assistant.yaml"))
    applier = Applier(backend, read_lock(tmp_path / LOCK_NAME))

    for identity in ("/Town guide", "/Wildfire"):
        await applier.destroy(identity)

    assert list(backend.assistants) == [old.id]
    assert (backend.files, backend.stores) == ({}, {})
    assert not (tmp_path / LOCK_NAME).exists()


async def test_prune_removes_what_is_no_longer_in_the_file_and_nothing_else(backend, write, tmp_path):
    text = "assistants: {A: {model: m}, B: {model: m}}\n"
    await apply(backend, write("name: Other\nmodel: m\n", "other.yaml"))
    await apply(backend, write(text))

    await apply(backend, write("assistants: {A: {model: m}}\n"))
    assert len(backend.assistants) == 3
    await apply(backend, write("assistants: {A: {model: m}}\n"), prune=True)

    assert sorted(one.name for one in backend.assistants.values()) == ["A", "Other"]


async def test_an_expired_store_is_made_again_and_the_old_one_goes(backend, write, tmp_path):
    files_of(tmp_path, a_txt="one", data_csv="1")
    path = write(WITH_FILES)
    await apply(backend, path)
    [old] = backend.stores
    backend.stores[old] = backend.stores[old].model_copy(update={"status": "expired"})

    [done] = await apply(backend, path)

    [new] = backend.stores
    assert new != old
    shown = backend.assistants[done.assistant_id].tool_resources
    assert shown.file_search.vector_store_ids == [new]
    assert backend.calls.count("upload_file") == 2


async def test_other_chunks_need_another_store_and_no_second_upload(backend, write, tmp_path):
    files_of(tmp_path, a_txt="one", data_csv="1")
    await apply(backend, write(WITH_FILES))
    [old] = backend.stores

    chunks = "max_num_results: 5, chunking: {size: 400, overlap: 100}"
    await apply(backend, write(WITH_FILES.replace("max_num_results: 5", chunks)))

    [new] = backend.stores
    assert new != old
    assert backend.calls.count("upload_file") == 2


async def test_a_model_that_leaves_is_told_in_the_plan(backend, write, tmp_path):
    [done] = await apply(backend, write("name: x\nmodel: gpt-4o\n"), today=date(2027, 1, 1))

    assert done.plan.notes == ["gpt-4o leaves the OpenAI API on 2027-01-14; use gpt-6-luna instead."]


async def test_file_search_that_is_taken_out_takes_its_store_and_files_with_it(backend, write, tmp_path):
    files_of(tmp_path, a_txt="one", data_csv="1")
    await apply(backend, write(WITH_FILES))

    [done] = await apply(backend, write("name: Wildfire\nmodel: gpt-5-mini\n"))

    assert (backend.stores, backend.files) == ({}, {})
    shown = backend.assistants[done.assistant_id]
    assert shown.tools == []
    assert shown.tool_resources.file_search.vector_store_ids == []


async def test_files_of_others_in_our_store_are_left_alone(backend, write, tmp_path):
    files_of(tmp_path, a_txt="one", data_csv="1")
    path = write(WITH_FILES)
    await apply(backend, path)
    [store] = backend.stores
    foreign = await backend.upload_file(filename="theirs.txt", content=b"x")
    await backend.create_file_batch(store, FileBatchCreate(files=[{"file_id": foreign.id}]))

    [done] = await apply(backend, path)

    assert foreign.id in backend.inside[store]
    assert any(foreign.id in note for note in done.plan.notes)
