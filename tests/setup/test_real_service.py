"""Apply against the embedded service: over HTTP in process, and as a process killed between requests."""

import asyncio
import os
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from assistant_runner.setup.apply import Applier
from assistant_runner.setup.drift import find_drift
from assistant_runner.setup.load import load_assistant_file
from assistant_runner.setup.lock import LOCK_NAME, read_lock
from assistant_runner.setup.planned import PlanOptions
from assistant_runner.setup.tools import definitions_from
from assistant_runner.setup.writing import file_document, to_yaml
from tests.conftest import REPOSITORY
from tests.service.conftest import running
from tests.setup.conftest import real_backend

FILE = """\
name: Wildfire
model: gpt-5-mini
instructions: Answer from the file.
temperature: 0.5
top_p: 0.9
response_format: {name: answer, schema: {type: object, properties: {}, required: []}}
metadata: {team: maps}
tools:
  - get_weather
  - file_search: {files: ['*.txt'], max_num_results: 5}
  - code_interpreter: {files: [data.csv]}
"""


def write(folder: Path, text: str = FILE) -> Path:
    (folder / "a.txt").write_text("acres")
    (folder / "b.txt").write_text("fires")
    (folder / "data.csv").write_text("1,2")
    path = folder / "assistant.yaml"
    path.write_text(text, encoding="utf-8")
    return path


async def apply(backend, path: Path):
    specs = load_assistant_file(path, environ={})
    applier = Applier(backend, read_lock(path.parent / LOCK_NAME))
    options = PlanOptions(define=definitions_from())
    plan = await applier.plan(specs, options)
    await applier.carry_out(plan)
    return plan, await applier.plan(specs, options)


async def test_s1_2_all_keys_survive_apply_and_show(tmp_path):
    path = write(tmp_path)
    async with real_backend(tmp_path / "data") as backend:
        _, after = await apply(backend, path)
        shown = file_document(after.assistants[0].assistant)

    assert after.is_empty
    assert shown["instructions"] == "Answer from the file."
    assert (shown["temperature"], shown["top_p"]) == (0.5, 0.9)
    assert shown["response_format"]["name"] == "answer"
    assert shown["metadata"] == {"team": "maps"}
    assert shown["tools"][1]["file_search"]["max_num_results"] == 5


async def test_s1_4_files_are_uploaded_indexed_and_attached_once(tmp_path):
    path = write(tmp_path)
    async with real_backend(tmp_path / "data") as backend:
        _, after = await apply(backend, path)
        [store] = (await backend.list_vector_stores()).data
        inside = (await backend.list_vector_store_files(store.id)).data
        files = (await backend.list_files()).data
        first, second = await apply(backend, path)

    assert after.assistants[0].assistant.tool_resources.file_search.vector_store_ids == [store.id]
    assert [one.status for one in inside] == ["completed", "completed"]
    assert len(files) == 3
    assert first.is_empty
    assert second.is_empty


async def test_what_show_prints_is_a_file_of_the_same_assistant(tmp_path):
    path = write(tmp_path)
    async with real_backend(tmp_path / "data") as backend:
        _, after = await apply(backend, path)
        text = to_yaml(file_document(after.assistants[0].assistant))
        (tmp_path / "copy").mkdir()
        copy = tmp_path / "copy" / "assistant.yaml"
        copy.write_text(text, encoding="utf-8")
        specs = load_assistant_file(copy, environ={})
        applier = Applier(backend, read_lock(copy.parent / LOCK_NAME))
        plan = await applier.plan(specs, PlanOptions(define=definitions_from()))

    assert plan.is_empty
    assert plan.assistants[0].found == "metadata"


KILLER = """
import os, sys
from assistant_runner.backends.client import Client
path, at, after = sys.argv[1], int(sys.argv[2]), sys.argv[3] == "after"
count = 0
send = Client.send

async def counted(self, request):
    global count
    meant = request.method == "POST" and request.path.endswith(path)
    count += meant
    now = meant and count == at
    if now and not after:
        os._exit(77)
    response = await send(self, request)
    if now:
        os._exit(77)
    return response

Client.send = counted
from assistant_runner.cli.main import main
main(sys.argv[4:])
"""


async def run(folder: Path, *argv: str) -> tuple[int, str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *argv,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await asyncio.wait_for(process.communicate(), 60)
    return process.returncode or 0, output.decode()


@pytest.mark.parametrize(
    ("path", "at", "when"),
    [
        pytest.param("/files", 2, "after", id="second-upload-answer-lost"),
        pytest.param("/file_batches", 1, "before", id="before-the-files-are-added"),
        pytest.param("/assistants", 1, "after", id="assistant-answer-lost"),
    ],
)
async def test_a_killed_process_leaves_what_the_next_one_finishes(tmp_path, path, at, when):
    write(tmp_path)
    killer = tmp_path / "killer.py"
    killer.write_text(KILLER)
    async with running() as service:
        url = f"{service.url}/v1"
        command = ("assistant", "apply", "assistant.yaml", "--backend", url)
        killed = await run(tmp_path, str(killer), path, str(at), when, *command)
        again = await run(tmp_path, "-m", "assistant_runner", *command)

        assert killed[0] == 77, killed
        assert again[0] == 0, again
        assert not read_lock(tmp_path / LOCK_NAME).of(url).pending
        found = [(await service.get(f"/{kind}")).json()["data"] for kind in KINDS]
    assert [len(one) for one in found] == [1, 1, 3]


KINDS = ("assistants", "vector_stores", "files")


async def test_two_applies_at_once_make_one_of_everything(tmp_path):
    write(tmp_path)
    async with running() as service:
        command = ("-m", "assistant_runner", "assistant", "apply", "--backend", f"{service.url}/v1")
        both = await asyncio.gather(run(tmp_path, *command), run(tmp_path, *command))

        assert [status for status, _ in both] == [0, 0], both
        found = [(await service.get(f"/{kind}")).json()["data"] for kind in KINDS]
    assert [len(one) for one in found] == [1, 1, 3]


TEXTS = st.text(st.characters(exclude_categories=("Cs", "Cc"), include_characters="\n\t"), max_size=40)
NAMES = st.text(st.characters(exclude_categories=("Cs", "Cc")), min_size=1, max_size=20).filter(str.strip)
SCHEMAS = st.fixed_dictionaries(
    {"type": st.just("object"), "properties": st.dictionaries(NAMES, st.just({"type": "string"}), max_size=3)}
)
FUNCTIONS = st.builds(
    lambda name, words, schema: {
        "type": "function",
        "function": {"name": name, "description": words, "parameters": schema},
    },
    st.from_regex(r"[A-Za-z0-9_-]{1,20}", fullmatch=True),
    TEXTS,
    SCHEMAS,
)
FILES = st.fixed_dictionaries(
    {"name": NAMES, "model": st.sampled_from(["gpt-5-mini", "1.10", "no"])},
    optional={
        "description": TEXTS,
        "instructions": TEXTS,
        "temperature": st.floats(0, 2) | st.integers(0, 2),
        "top_p": st.floats(0.01, 1),
        "reasoning_effort": st.sampled_from(["low", "high"]),
        "response_format": st.sampled_from(["auto", "text", "json_object"]),
        "metadata": st.dictionaries(NAMES, TEXTS, max_size=3),
        "tools": st.lists(
            FUNCTIONS | st.sampled_from(["code_interpreter", "file_search"]),
            max_size=4,
            unique_by=lambda tool: tool if isinstance(tool, str) else tool["function"]["name"],
        ),
    },
)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(first=FILES, second=FILES)
async def test_the_plan_after_an_apply_is_empty(tmp_path, first, second):
    second["name"] = first["name"]
    path = tmp_path / "assistant.yaml"
    (tmp_path / LOCK_NAME).unlink(missing_ok=True)
    async with real_backend(tmp_path / "data") as backend:
        for document in (first, second):
            path.write_text(to_yaml(document), encoding="utf-8")
            [spec] = load_assistant_file(path, environ={})
            assert (spec.name, spec.model) == (document["name"], document["model"])
            assert (spec.instructions or "") == document.get("instructions", "")
            _, after = await apply(backend, path)
            assert after.is_empty, after.document()


async def test_drift_tells_what_it_made_and_the_backend_has_no_more(tmp_path):
    path = write(tmp_path)
    async with real_backend(tmp_path / "data") as backend:
        await apply(backend, path)
        applier = Applier(backend, read_lock(path.parent / LOCK_NAME))
        [store] = applier.records.stores.values()
        file = next(one for name, one in applier.records.files.items() if name.endswith("/a.txt"))
        await backend.delete_vector_store(store.id)
        await backend.delete_file(file.id)

        [drift] = await find_drift(applier, load_assistant_file(path, environ={}))

    assert f"vector store {store.id} is no longer there" in drift.what
    assert f"file a.txt ({file.id}) is no longer there" in drift.what
