import json
import xml.etree.ElementTree as ElementTree

import pytest

from assistant_runner.batch.codec import JsonlCodec
from assistant_runner.batch.junit import write_junit
from assistant_runner.batch.merge import merge_outputs
from assistant_runner.batch.report import gather, render_report
from assistant_runner.batch.source import Shard, parse_shard
from assistant_runner.errors import ConfigurationError, UsageError
from tests.batch.conftest import Bench, FakeRunner


async def test_shards_cover_the_input_once_and_merge_in_input_order(tmp_path):
    rows = [{"id": n, "prompt": f"p{n}"} for n in range(40)]
    parts = []
    for number in (1, 2, 3):
        folder = tmp_path / str(number)
        folder.mkdir()
        part = Bench(folder)
        part.write(*rows)
        await part.go(FakeRunner(), shard=Shard(number, 3))
        parts.append(part.output)

    merged = merge_outputs(parts, tmp_path / "all.jsonl", JsonlCodec())

    answers = [json.loads(line) for line in (tmp_path / "all.jsonl").read_text().splitlines()]
    assert [row["id"] for row in answers] == list(range(40))
    assert all(row["answer"] == f"re: p{row['id']}" for row in answers)
    assert (merged.rows, merged.failed, merged.doubled, merged.gaps) == (40, 0, 0, 0)


def line(index, **more):
    row = {"index": index, "key": f"k{index}", "status": "ok", "content_hash": "h", "fingerprint": "f"}
    return json.dumps(row | more) + "\n"


def test_a_merge_prefers_answers_and_says_what_is_missing(tmp_path):
    one, two = tmp_path / "1.jsonl", tmp_path / "2.jsonl"
    one.write_text(line(3, answer="kept") + line(0))
    two.write_text(line(3, status="failed") + line(1))

    merged = merge_outputs([one, two], tmp_path / "all.jsonl", JsonlCodec())

    rows = [json.loads(text) for text in (tmp_path / "all.jsonl").read_text().splitlines()]
    assert [row["index"] for row in rows] == [0, 1, 3]
    assert rows[2]["answer"] == "kept"
    assert (merged.doubled, merged.gaps) == (1, 1)


def test_a_missing_part_is_an_error(tmp_path):
    with pytest.raises(ConfigurationError, match="does not exist"):
        merge_outputs([tmp_path / "none.jsonl"], tmp_path / "all.jsonl", JsonlCodec())


@pytest.mark.parametrize("text", ["0/3", "4/3", "x", "1", "1/0"])
def test_a_shard_is_one_of_a_number(text):
    assert parse_shard("2/3") == Shard(2, 3)
    with pytest.raises(UsageError):
        parse_shard(text)


def test_junit_names_what_did_not_hold(tmp_path):
    checks = [{"name": "contains", "passed": False, "why": "the answer does not contain 'x'"}]
    rows = [
        {"id": "a", "status": "ok", "duration_s": 0.5},
        {"id": "b", "status": "ok", "answer": "\x00<b>", "passed": False, "checks": checks},
        {"id": None, "line": 3, "status": "failed", "error": {"kind": "run", "message": 'a "quote"'}},
    ]

    write_junit(tmp_path / "j.xml", rows, name="in.jsonl")

    suite = ElementTree.parse(tmp_path / "j.xml").getroot()
    assert {name: suite.get(name) for name in ("tests", "failures", "errors")} == {
        "tests": "3",
        "failures": "1",
        "errors": "1",
    }
    assert suite.find("testcase/failure").get("message") == "the answer does not contain 'x'"
    assert suite.find("testcase/error").get("message") == 'a "quote"'


def test_a_report_names_the_rows_with_a_call_whose_outcome_nobody_knows():
    rows = [{"index": n, "line": n + 1, "id": f"r{n}", "status": "ok"} for n in range(3)]
    rows[1]["warnings"] = ["book: the outcome of this call is unknown, its process was killed"]

    page = render_report(gather(rows), title="x", made_at=0)

    assert "<h2>Warnings</h2>" in page
    assert "<tr><th>r1<td class=why>book: the outcome" in page
