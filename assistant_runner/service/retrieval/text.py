"""The text of a file, and its chunks."""

import json
import time
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pypdf

CHARACTERS_PER_TOKEN = 4
TEXT_LIMIT = 5_000_000 * CHARACTERS_PER_TOKEN
"""Characters of one file (reference, section 13: 5,000,000 tokens)."""
PDF_READING_S = 300.0
"""For one PDF: a small one may hold the same page a million times."""
DEFAULT_CHUNKING = {"max_chunk_size_tokens": 800, "chunk_overlap_tokens": 400}

_WORDS = """
c cpp cs css csv go htm html java js json jsonl log md php py rb rst sh sql tex toml ts tsv txt xml yaml yml
"""
TEXT_SUFFIXES = frozenset(_WORDS.split())


class UnsupportedFile(Exception):
    """A file that no text can be had from; the message says why."""


class FileTooLong(UnsupportedFile):
    """A file with more text than a vector store takes."""

    def __init__(self) -> None:
        super().__init__(
            f"The file has more than {TEXT_LIMIT // CHARACTERS_PER_TOKEN} tokens (of {CHARACTERS_PER_TOKEN} "
            "characters); please split it."
        )


def text_of(path: Path, filename: str) -> str:
    """The text of a file by its name's ending; UnsupportedFile, FileTooLong."""
    suffix = filename.rpartition(".")[2].lower() if "." in filename else "txt"
    if suffix == "pdf":
        return _short_enough(_pdf(path))
    if suffix not in TEXT_SUFFIXES:
        raise UnsupportedFile(f"Files of type '.{suffix}' are not supported for file search.")
    if path.stat().st_size > 4 * TEXT_LIMIT:  # a character takes four bytes at most
        raise FileTooLong
    try:
        text = _short_enough(path.read_bytes().decode("utf-8-sig"))
    except UnicodeDecodeError:
        raise UnsupportedFile("The file is not text in UTF-8.") from None
    if "\0" in text:
        raise UnsupportedFile("The file is not text.")
    if suffix in ("html", "htm"):
        return _html(text)
    if suffix == "json":
        try:
            return json.dumps(json.loads(text), ensure_ascii=False, indent=1)
        except (ValueError, RecursionError):
            return text
    return text


def _short_enough(text: str) -> str:
    if len(text) > TEXT_LIMIT:
        raise FileTooLong
    return text


def chunks_of(text: str, *, max_chunk_size_tokens: int, chunk_overlap_tokens: int) -> list[str]:
    """Pieces of at most so many tokens (by estimate), overlapping, cut at white space where there is."""
    size = max_chunk_size_tokens * CHARACTERS_PER_TOKEN
    step = size - chunk_overlap_tokens * CHARACTERS_PER_TOKEN
    chunks: list[str] = []
    start = 0
    while start < len(text):
        end = min(len(text), start + size)
        if end < len(text):
            space = max(text.rfind(" ", start + step, end), text.rfind("\n", start + step, end))
            end = space if space > start else end
        piece = text[start:end].strip()
        if piece:
            chunks.append(piece)
        if end >= len(text):
            break
        start = max(start + 1, end - chunk_overlap_tokens * CHARACTERS_PER_TOKEN)
    return chunks


def _pdf(path: Path) -> str:
    try:
        import pypdf
    except ImportError:
        raise UnsupportedFile("PDF needs the extra 'pdf': pip install 'assistant-runner[pdf]'.") from None
    try:
        return "\n\n".join(_pages(pypdf.PdfReader(path)))
    except UnsupportedFile:
        raise
    except Exception as error:
        raise UnsupportedFile(f"The PDF cannot be read: {type(error).__name__}.") from error


def _pages(reader: "pypdf.PdfReader") -> Iterator[str]:
    """The text of each page; UnsupportedFile if there is no end in sight."""
    length, until = 0, time.monotonic() + PDF_READING_S
    for page in reader.pages:
        text = page.extract_text()
        length += len(text)
        if length > TEXT_LIMIT:
            raise FileTooLong
        if time.monotonic() > until:
            raise UnsupportedFile(f"The PDF takes more than {PDF_READING_S:g} s to read; please split it.")
        yield text


class _Words(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.words: list[str] = []
        self._skipped = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in ("script", "style"):
            self._skipped += 1

    def handle_endtag(self, tag: str) -> None:
        if tag in ("script", "style") and self._skipped:
            self._skipped -= 1
        if tag in ("p", "div", "li", "tr", "h1", "h2", "h3", "br"):
            self.words.append("\n")

    def handle_data(self, data: str) -> None:
        if not self._skipped:
            self.words.append(data)


def _html(text: str) -> str:
    parser = _Words()
    parser.feed(text)
    lines = (" ".join(line.split()) for line in "".join(parser.words).splitlines())
    return "\n".join(line for line in lines if line)
