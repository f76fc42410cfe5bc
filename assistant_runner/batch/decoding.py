"""Bytes to lines of text, in any encoding that says what it is, with flat memory.

A line ends at LF or CR LF and nowhere else: U+2028, U+0085 and their kin are characters of a prompt
(case-071). An encoding is never guessed from the locale (case-068): a byte-order mark, the NUL pattern
of UTF-16, what the caller says, else UTF-8, strictly.
"""

import codecs
import io
from collections.abc import Iterator

from assistant_runner.errors import UsageError

CHUNK_BYTES = 1 << 16
_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


def detect_encoding(head: bytes) -> str:
    """The encoding that the first bytes of an input show: by mark, by NULs, else `utf-8`."""
    for mark, encoding in _MARKS:
        if head.startswith(mark):
            return encoding
    sample = head[:1024]
    evens, odds = sample[0::2].count(0), sample[1::2].count(0)
    if odds > len(sample) // 5 and evens * 4 < odds:
        return "utf-16-le"
    if evens > len(sample) // 5 and odds * 4 < evens:
        return "utf-16-be"
    return "utf-8"


def read_text(source: io.BufferedReader, *, name: str, encoding: str | None = None) -> Iterator[str]:
    """The text in pieces as they arrive. UsageError names file, line and the option when bytes do not fit."""
    head = source.read1(CHUNK_BYTES)
    while 0 < len(head) < 4:
        more = source.read1(CHUNK_BYTES)
        if not more:
            break
        head += more
    chosen = encoding or detect_encoding(head)
    try:
        decoder = codecs.getincrementaldecoder(chosen)("strict")
    except LookupError:
        raise UsageError(
            f"no encoding is called {chosen!r}",
            remedy="give --encoding a name such as utf-8, utf-16 or cp1252",
        ) from None
    line, first, chunk = 1, True, head
    while True:
        try:
            text = decoder.decode(chunk, final=not chunk)
        except UnicodeDecodeError as error:
            line += error.object[: error.start].count(b"\n")
            raise UsageError(
                f"{name}, line {line}: the bytes are not {chosen}: {error.reason} "
                f"(0x{error.object[error.start]:02x})",
                remedy="say what the file is written in: --encoding cp1252 (or another name)",
                file=name,
                line=line,
            ) from None
        line += text.count("\n")
        if first and text:
            text, first = text.removeprefix("\ufeff"), False
        if text:
            yield text
        if not chunk:
            return
        chunk = source.read1(CHUNK_BYTES)


def split_lines(texts: Iterator[str]) -> Iterator[str]:
    """Lines without their ends, however the pieces were cut. The last may lack its end."""
    parts: list[str] = []
    for text in texts:
        if "\n" not in text:
            parts.append(text)
            continue
        first, *rest = text.split("\n")
        parts.append(first)
        yield "".join(parts).removesuffix("\r")
        for line in rest[:-1]:
            yield line.removesuffix("\r")
        parts = [rest[-1]]
    last = "".join(parts)
    if last:
        yield last.removesuffix("\r")
