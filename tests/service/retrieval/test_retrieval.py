"""Text out of files, chunks out of text, scores for chunks."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assistant_runner.service.retrieval import text
from assistant_runner.service.retrieval.search import score
from assistant_runner.service.retrieval.text import FileTooLong, UnsupportedFile, chunks_of, text_of


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("a.txt", b"\xef\xbb\xbfplain \xc3\xa9", "plain é"),
        ("a.md", b"# Title", "# Title"),
        ("a.csv", b"a,b\n1,2", "a,b\n1,2"),
        ("a.json", b'{"a":[1]}', '{\n "a": [\n  1\n ]\n}'),
        ("a.html", b"<p>One</p><script>x()</script><p>Two &amp; three</p>", "One\nTwo & three"),
        ("noend", b"plain", "plain"),
    ],
)
def test_the_text_of_a_file_goes_by_its_ending(tmp_path: Path, name: str, content: bytes, expected: str):
    path = tmp_path / "file"
    path.write_bytes(content)

    assert text_of(path, name) == expected


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.png", b"\x89PNG", "'.png' are not supported"),
        ("a.txt", b"\xff\xfe", "not text in UTF-8"),
        ("a.txt", b"a\0b", "not text"),
        ("a.pdf", b"no pdf", "PDF"),
    ],
)
def test_what_has_no_text_says_why(tmp_path: Path, name: str, content: bytes, words: str):
    path = tmp_path / "file"
    path.write_bytes(content)

    with pytest.raises(UnsupportedFile, match=words):
        text_of(path, name)


@pytest.mark.parametrize(
    ("limit", "value", "words"),
    [("PDF_READING_S", -1.0, "more than -1 s to read"), ("TEXT_LIMIT", -1, "please split it")],
)
def test_a_pdf_whose_pages_have_no_end_is_left(tmp_path: Path, monkeypatch, limit, value, words: str):
    pypdf = pytest.importorskip("pypdf")
    writer = pypdf.PdfWriter()
    writer.add_blank_page(10, 10)
    writer.write(tmp_path / "file")
    monkeypatch.setattr(text, limit, value)

    with pytest.raises(UnsupportedFile, match=words):
        text_of(tmp_path / "file", "a.pdf")


@given(st.text(alphabet="ab \n", max_size=3000), st.integers(100, 200), st.integers(0, 50))
def test_chunks_hold_every_word_and_none_is_too_long(text: str, size: int, overlap: int):
    chunks = chunks_of(text, max_chunk_size_tokens=size, chunk_overlap_tokens=overlap)

    assert all(0 < len(chunk) <= size * 4 for chunk in chunks)
    if len(text) <= size * 4:
        assert chunks == ([text.strip()] if text.strip() else [])


def test_neighbouring_chunks_overlap():
    text = " ".join(f"w{n}" for n in range(400))

    first, second, *_ = chunks_of(text, max_chunk_size_tokens=100, chunk_overlap_tokens=50)

    assert set(first.split()) & set(second.split())


def test_the_text_with_the_rarer_words_scores_higher():
    texts = ["fires and water", "water and earth", "air"]

    scores = score(texts, "fire water")

    assert scores[0] > scores[1] > scores[2] == 0
    assert all(0 <= value <= 1 for value in scores)


def test_an_empty_question_finds_nothing():
    assert score(["a"], "  ") == [0.0]
    assert score([], "a") == []


@pytest.mark.parametrize("size", [50, 401], ids=["text", "bytes"])
def test_a_file_with_more_text_than_a_store_takes_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
):
    monkeypatch.setattr(text, "TEXT_LIMIT", 40 if size == 50 else 100)
    path = tmp_path / "long.txt"
    path.write_text("x" * size)

    with pytest.raises(FileTooLong, match="please split it"):
        text_of(path, "long.txt")


def test_a_query_of_many_words_finds_what_one_of_few_finds():
    texts = ["The class of fires, 2021", "classes and a fire.", "nothing", "Größe"]
    few = "fire class größe"
    many = few + "".join(f" other{number}" for number in range(100))

    found = [[value > 0 for value in score(texts, query)] for query in (few, many)]

    assert found == [[True, True, False, True]] * 2
