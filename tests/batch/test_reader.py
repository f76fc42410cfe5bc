import io
import json

import pytest

from assistant_runner.batch.reader import Record, read_records
from assistant_runner.errors import UsageError


class Pipe(io.RawIOBase):
    """Hands out its bytes in pieces of `size`, as a slow writer at the other end of a pipe does."""

    def __init__(self, data: bytes, size: int) -> None:
        self._data, self._size = data, size

    def readable(self) -> bool:
        return True

    def readinto(self, buffer) -> int:
        piece, self._data = self._data[: self._size], self._data[self._size :]
        buffer[: len(piece)] = piece
        return len(piece)


def read(data: bytes, *, name: str = "in.jsonl", piece: int = 1 << 16, **options) -> list[Record]:
    return list(read_records(io.BufferedReader(Pipe(data, piece)), name=name, **options))


THREE = '{"id":"a","prompt":"é\ufeff"}\n{"id":"b","prompt":"two"}\n{"id":"c","prompt":"three"}\n'


@pytest.mark.parametrize("piece", [1, 7, 1 << 16])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32"])
def test_case_067_068_marks_and_encodings_are_recognised(encoding, piece):
    records = read(THREE.encode(encoding), piece=piece)

    assert [record.value["id"] for record in records] == ["a", "b", "c"]
    assert records[0].value["prompt"] == "é\ufeff"
    assert not any("\0" in record.value["prompt"] for record in records)


def test_case_068_cp1252_is_refused_with_file_line_and_option():
    data = '{"prompt":"plain"}\n{"prompt":"café"}\n'.encode("cp1252")

    with pytest.raises(UsageError) as caught:
        read(data, name="orders.jsonl")

    assert "orders.jsonl, line 2" in str(caught.value)
    assert "--encoding" in caught.value.remedy
    assert read(data, encoding="cp1252")[1].value == {"prompt": "café"}


def test_case_069_blank_lines_are_no_records_and_keep_their_numbers():
    records = read(b'{"id":"a"}\n\n  \n{"id":"b"}\n\n\n\n')

    assert [(record.line, record.value["id"]) for record in records] == [(1, "a"), (4, "b")]


@pytest.mark.parametrize("piece", [1, 7, 4096])
def test_case_070_windows_line_ends_leave_nothing_behind(piece):
    lines = read(b"first\r\nsecond\r\nthird", name="prompts.txt", piece=piece)
    records = read(b'{"prompt":"a"}\r\n{"prompt":"b"}\r\n', piece=piece)

    assert [record.value for record in lines] == ["first", "second", "third"]
    assert [record.value["prompt"] for record in records] == ["a", "b"]


def test_case_071_unicode_separators_do_not_end_a_record():
    data = '{"prompt":"one\u2028two\u0085three"}\n{"prompt":"next"}\n'.encode()

    assert [record.value["prompt"] for record in read(data)] == ["one\u2028two\u0085three", "next"]


def test_a_line_that_is_not_json_is_one_bad_record():
    records = read(b'{"prompt":"a"}\n{"prompt":\n{"prompt":"b"}\n')

    assert [record.problem is None for record in records] == [True, False, True]
    assert records[1].problem.startswith("line 2 is not JSON: ")
    assert ", column " in records[1].problem


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        pytest.param(b' [ {"prompt":"a"},\n{"prompt":"b"} ] ', ["a", "b"], id="array"),
        pytest.param(b'{"prompt":"a"}\n{"prompt":"b"}\n', ["a", "b"], id="jsonl"),
        pytest.param(b'{\n "prompt":"a"\n}\n{\n "prompt":"b"\n}', ["a", "b"], id="documents"),
        pytest.param(b'{"prompt": "a"}', ["a"], id="one-document"),
    ],
)
@pytest.mark.parametrize("piece", [1, 4096])
def test_row_s0_28_documents_on_stdin_are_records_in_order(data, expected, piece):
    records = read(data, name="-", piece=piece)

    assert [record.value["prompt"] for record in records] == expected


def test_plain_lines_on_stdin_are_prompts():
    assert [record.value for record in read(b"What?\n\nWhy?\n", name="-")] == ["What?", "Why?"]


@pytest.mark.parametrize("piece", [3, 4096])
def test_csv_cells_may_hold_line_ends_and_rows_know_their_first_line(piece):
    data = b'id,prompt\r\n1,"two\r\nlines, and ""quotes"""\r\n\r\n2,plain\r\n3\r\n'

    records = read(data, name="in.csv", piece=piece)

    assert [record.line for record in records] == [2, 5, 6]
    assert records[0].value == {"id": "1", "prompt": 'two\nlines, and "quotes"'}
    assert records[2].value == {"id": "3", "prompt": None}


def test_a_csv_row_with_too_many_cells_is_one_bad_record():
    records = read(b"id\tprompt\n1\ta\tb\n2\tc\n", name="in.tsv")

    assert records[0].problem == "line 2 has 3 cells, the header has 2 columns"
    assert records[1].value == {"id": "2", "prompt": "c"}


@pytest.mark.parametrize(
    ("name", "data", "words"),
    [
        pytest.param("in.json", b'[{"prompt":"a"},', "the array is not closed", id="array-cut"),
        pytest.param("in.json", b'[{"prompt":"a"} {"prompt":"b"}]', "expected ','", id="no-comma"),
        pytest.param("in.json", b'[{"prompt":"a"}] x', "after the array", id="text-after"),
        pytest.param("in.json", b'[\n{"prompt":"a"},\n{"prompt" 1}]', "line 3", id="broken-element"),
        pytest.param("in.csv", b"a,a\n1,2\n", "'a' more than once", id="header-twice"),
        pytest.param("in.csv", b"a,b\r1,2\r", "line 1: .*a carriage return outside", id="lone-returns"),
        pytest.param("in.csv", b'a,b\n"1"x,2\n', "line 2: the table is broken", id="stray-quote"),
    ],
)
def test_what_spoils_the_file_is_an_error_with_its_line(name, data, words):
    with pytest.raises(UsageError, match=words.replace("(", r"\(")):
        read(data, name=name)


def test_comments_are_left_out_only_when_asked():
    data = b"# note\nask\n"

    assert [record.value for record in read(data, name="p.txt")] == ["# note", "ask"]
    assert [record.value for record in read(data, name="p.txt", comment="#")] == ["ask"]


def test_records_leave_before_the_input_ends():
    def pieces():
        yield from (json.dumps({"prompt": str(n)}).encode() + b"\n" for n in range(3))
        raise AssertionError("read too far")

    class Endless(io.RawIOBase):
        source = pieces()

        def readable(self) -> bool:
            return True

        def readinto(self, buffer) -> int:
            piece = next(self.source)
            buffer[: len(piece)] = piece
            return len(piece)

    records = read_records(io.BufferedReader(Endless()), name="in.jsonl")

    assert next(records).value == {"prompt": "0"}
    assert next(records).value == {"prompt": "1"}


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b'\xef\xbb\xbfid;prompt\r\n1;"well; now, then"\r\n', id="as-spreadsheets-write-it"),
        pytest.param(b'sep=;\r\nid;prompt\r\n1;"well; now, then"\r\n', id="sep-line"),
        pytest.param(b'id\tprompt\n1\t"well; now, then"\n', id="tabs"),
        pytest.param(b'"id","prompt"\n1,"well; now, then"\n', id="commas"),
        pytest.param(b'id,"prompt"\n1,"well; now, then"\n', id="commas-and-quotes"),
    ],
)
def test_the_header_shows_what_parts_the_cells_of_a_csv(data):
    [record] = read(data, name="in.csv")

    assert record.value == {"id": "1", "prompt": "well; now, then"}


def test_a_semicolon_within_one_column_of_commas_parts_nothing():
    [record] = read(b'prompt,"a;b"\nx,y\n', name="in.csv")

    assert record.value == {"prompt": "x", "a;b": "y"}


def test_columns_without_a_name_are_left_out():
    [record] = read(b"id,prompt,,\r\n1,hello,,\r\n", name="in.csv")

    assert record.value == {"id": "1", "prompt": "hello"}


def test_a_line_inside_of_a_cell_is_no_comment():
    records = read(b'# note\n\nid,prompt\n1,"see\n# one"\n# no\n2,b\n', name="in.csv", comment="#")

    assert [(record.line, record.value["prompt"]) for record in records] == [(4, "see\n# one"), (7, "b")]


def test_comment_lines_are_left_out_of_json_too():
    data = b'[\n  // first\n  {"id": "a"},\n// second\n  {"id": "b"}\n]\n'

    records = read(data, name="in.json", comment="//")

    assert [(record.line, record.value["id"]) for record in records] == [(3, "a"), (5, "b")]


def test_broken_json_is_named_by_the_line_where_it_breaks():
    with pytest.raises(UsageError, match="line 4: the JSON is broken") as caught:
        read(b'[\n{"id": "a"},\n{"id": "b",\n // what?\n "x": 1}\n]\n', name="in.json")

    assert caught.value.facts["line"] == 4
    assert "--comments" in caught.value.remedy
