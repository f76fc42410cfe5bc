import csv
import json
import multiprocessing
import os

import pytest

from assistant_runner.batch.codec import CsvCodec, JsonlCodec
from assistant_runner.batch.lock import is_locked, output_lock
from assistant_runner.batch.output import ResultStore, read_results
from assistant_runner.errors import ConfigurationError


def row(number: int, answer: str = "fine", **more):
    return {
        "index": number,
        "line": number + 1,
        "id": None,
        "key": f"k{number}",
        "status": "ok",
        "answer": answer,
        "content_hash": f"h{number}",
        "fingerprint": "f",
        **more,
    }


def lines(path):
    return [json.loads(line)["index"] for line in path.read_text().splitlines()]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "out.jsonl"


def open_store(path, **options):
    store = ResultStore(path, JsonlCodec(), **options)
    store.load()
    return store


def test_rows_wait_on_disk_for_those_before_them(path):
    store = open_store(path)
    for number in (2, 1, 3):
        store.put(number, row(number))
    assert lines(path) == []
    pending = path.parent / "out.jsonl.batch" / "pending.jsonl"
    assert sorted(lines(pending)) == [1, 2, 3]

    store.put(0, row(0))

    assert lines(path) == [0, 1, 2, 3]
    assert store.backlog == 0


def test_rows_that_waited_are_found_after_a_kill(path):
    store = open_store(path)
    store.put(0, row(0))
    store.put(2, row(2))
    os.close(store._out)  # the process dies here: nothing is finished

    again = open_store(path)

    assert again.index.get("k0").place == "output"
    assert again.index.get("k2").place == "pending"
    assert again.read(again.index.get("k2"))["index"] == 2


def test_a_torn_last_line_is_cut_off(path):
    store = open_store(path)
    store.put(0, row(0))
    store.close()
    with path.open("ab") as stream:
        stream.write(b'{"index":1,"li')

    again = open_store(path)

    assert again.index.get("k0") is not None
    assert path.read_bytes().endswith(b"}\n")
    assert lines(path) == [0]


@pytest.mark.parametrize(
    "text", ['{"a": 1}\n{"a": 2}\n', "hello\nworld\n", "no line end"], ids=["json", "text", "one-line"]
)
def test_a_file_that_is_no_output_is_not_touched(path, text):
    path.write_text(text)

    with pytest.raises(ConfigurationError, match="no result of a batch"):
        open_store(path)

    assert path.read_text() == text


def test_case_071_an_output_line_is_one_line_for_the_strictest_reader(path):
    store = open_store(path)
    store.put(0, row(0, "one\u2028two\u2029three\x85four \ud800"))
    store.close()

    text = path.read_text(encoding="utf-8")

    assert len(text.splitlines()) == 1
    assert json.loads(text)["answer"].startswith("one\u2028two\u2029three\x85four")
    assert [found["key"] for found in read_results(path, JsonlCodec())] == ["k0"]


def test_csv_rows_come_back_as_they_were(tmp_path):
    codec = CsvCodec()
    path = tmp_path / "out.csv"
    rows = [
        row(0, 'two\nlines "quoted"', usage={"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}),
        row(1, "", id="7", tool_calls=[{"name": "t"}], original={"x": 1}),
        row(2, None, id=7, status="failed", error={"kind": "run", "exit_status": 11}),
        row(3, "a lone\rreturn"),
        row(4, "long" * 100_000),
    ]
    store = ResultStore(path, codec)
    store.load()
    for number, one in enumerate(rows):
        store.put(number, one)
    store.close()
    with path.open("ab") as stream:
        stream.write(b'5,6,,ok,"half a')

    again = ResultStore(path, codec)
    again.load()
    found = list(read_results(path, codec))

    assert [{name: one[name] for name in want} for one, want in zip(found, rows, strict=True)] == rows
    assert again.index.get("k2").status == "failed"


@pytest.mark.parametrize("ident", ["7", 7, '"q"', "true", "[1]", 1.5, None], ids=str)
def test_an_id_lies_in_its_csv_cell_as_the_input_had_it(ident):
    codec = CsvCodec()

    line = codec.encode(row(0, id=ident))

    cell = next(csv.reader([line.decode()]))[2]
    assert cell == ("" if ident is None else str(ident))
    assert codec.decode(line)["id"] == ident


def test_the_header_is_written_once(tmp_path):
    path = tmp_path / "out.csv"
    for number in range(3):
        store = ResultStore(path, CsvCodec())
        store.load()
        for before in range(number):
            store.known(before, store.index.get(f"k{before}"))
        store.put(number, row(number))
        store.close()

    assert path.read_text().count("index,line") == 1
    assert len(list(read_results(path, CsvCodec()))) == 3


def _hold(path, ready, release):
    with output_lock(path, output="out"):
        ready.set()
        release.wait(10)


def test_two_processes_on_one_output_are_refused(tmp_path):
    context = multiprocessing.get_context("spawn")
    ready, release = context.Event(), context.Event()
    other = context.Process(target=_hold, args=(tmp_path / "lock", ready, release))
    other.start()
    ready.wait(10)
    try:
        with (
            pytest.raises(ConfigurationError, match=f"another process \\(pid {other.pid}\\) is writing out"),
            output_lock(tmp_path / "lock", output="out"),
        ):
            pass
        assert is_locked(tmp_path / "lock")
    finally:
        other.kill()
        other.join()

    with output_lock(tmp_path / "lock", output="out"):
        assert is_locked(tmp_path / "lock")


def test_a_full_disk_is_an_error_with_a_remedy(path):
    store = open_store(path)
    os.close(store._out)
    store._out = os.open("/dev/full", os.O_WRONLY)

    with pytest.raises(ConfigurationError, match="cannot be written: No space left"):
        store.put(0, row(0))


def test_a_reader_of_standard_output_that_is_gone_is_no_matter_of_a_file():
    store = ResultStore(None, JsonlCodec())
    reader, writer = os.pipe()
    os.close(store._out)
    os.close(reader)
    store._out = writer

    with pytest.raises(BrokenPipeError):
        store.put(0, row(0))
    store.close()


def test_rows_that_flow_back_cost_the_same_however_many_wait(path, monkeypatch):
    monkeypatch.setattr("assistant_runner.batch.output.PENDING_KEEP_BYTES", 0)
    store = open_store(path)
    for number in range(1, 1001):
        store.put(number, row(number))
    store.close()
    again = open_store(path)
    steps = []
    again.index._db.set_progress_handler(lambda: steps.append(1) and None, 1000)

    for number in range(1000):
        again.known(number, again.index.get(f"k{number or 1}"))
    again.index._db.set_progress_handler(None, 0)
    again.close()

    assert len(steps) < 200  # thousands of SQLite's instructions; counting what waits took 3,000
