"""Threads, carried over once, in order, with a report."""

import json
from pathlib import Path

import pytest

from assistant_runner.errors import ConfigurationError
from assistant_runner.setup.dumps import read_dump
from assistant_runner.setup.threads import (
    Ledger,
    ThreadReport,
    export_hash,
    export_lines,
    export_thread,
    import_thread,
    read_threads,
)
from tests.conftest import FIXTURES
from tests.setup.memory import Killed, MemoryBackend

DUMP = FIXTURES / "dumps" / "threads.jsonl"


async def import_all(backend: MemoryBackend, folder: Path, documents=None) -> list[ThreadReport]:
    dumps, _ = read_threads(documents or read_dump(DUMP))
    ledger = Ledger.read(folder / "ledger.json")
    return [await import_thread(backend, dump, ledger) for dump in dumps]


def texts(backend: MemoryBackend, thread_id: str) -> list[tuple[str, str]]:
    return [(one.role, one.text()) for one in backend.messages[thread_id]]


async def test_messages_come_oldest_first_whole_and_with_a_report(tmp_path):
    backend = MemoryBackend()

    first, second = await import_all(backend, tmp_path)

    assert texts(backend, first.thread_id) == [
        ("user", "Weather in Oslo?"),
        ("assistant", "Rain【4:0†a.pdf】."),
        ("user", "And tomorrow? ☀"),
    ]
    assert (first.read, first.written, first.in_order, first.is_whole) == (3, 3, True, True)
    assert first.sha256 == first.sha256_there
    for word in ("image_file", "1 annotations", "1 attachments"):
        assert any(word in line for line in first.lost), word
    assert (second.source, second.read, second.written) == ("thread_two", 3, 2)
    assert any("role system" in line for line in second.lost)
    assert backend.threads[first.thread_id].metadata == {"user": "ada", "imported_from": "thread_one"}
    assert backend.messages[first.thread_id][0].metadata == {
        "k": "v",
        "imported_id": "msg_1",
        "imported_created_at": "101",
    }


async def test_a_second_import_adds_nothing(tmp_path):
    backend = MemoryBackend()
    first = await import_all(backend, tmp_path)
    writes = list(backend.writes)

    second = await import_all(backend, tmp_path)

    assert backend.writes == writes
    assert [one.status for one in second] == ["already there", "already there"]
    assert [one.thread_id for one in second] == [one.thread_id for one in first]


@pytest.mark.parametrize("after", [False, True], ids=["before-the-request", "answer-lost"])
async def test_cut_off_anywhere_the_next_import_goes_on(tmp_path, after):
    for number in range(1, 10):
        backend = MemoryBackend()
        backend.fail_at, backend.after = number, after
        (tmp_path / "ledger.json").unlink(missing_ok=True)
        with pytest.raises(Killed):
            await import_all(backend, tmp_path)

        reports = await import_all(backend, tmp_path)

        assert all(one.is_whole for one in reports)
        assert [len(backend.messages[one.thread_id]) for one in reports] == [3, 2], number


async def test_a_longer_dump_adds_what_is_new_and_a_changed_one_is_refused(tmp_path):
    backend = MemoryBackend()
    dump = {"thread_id": "t", "messages": [{"role": "user", "content": "a"}]}
    await import_all(backend, tmp_path, [dump])
    dump["messages"].append({"role": "assistant", "content": "b"})

    [longer] = await import_all(backend, tmp_path, [dump])

    assert (longer.status, longer.written) == ("extended", 1)
    dump["messages"][0] = {"role": "user", "content": "x"}
    with pytest.raises(ConfigurationError, match="others now"):
        await import_all(backend, tmp_path, [dump])


async def test_what_is_exported_can_be_imported_again(tmp_path):
    backend, other = MemoryBackend(), MemoryBackend("other")
    [first, _] = await import_all(backend, tmp_path)
    thread, messages = await export_thread(backend, first.thread_id)
    lines = [json.loads(line) for line in export_lines(thread, messages)]

    [copy] = await import_all(other, tmp_path, lines)

    assert texts(other, copy.thread_id) == texts(backend, first.thread_id)
    assert copy.sha256 == export_hash(messages)


def test_runs_and_unknown_things_are_counted():
    _, strangers = read_threads(read_dump(DUMP))

    assert strangers == ["1 × thread.run"]
