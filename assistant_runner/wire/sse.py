"""Server-sent events out of bytes, as they come, whatever the network cuts.

Lines end at LF, CR or CRLF and nowhere else: U+2028, U+0085 and form feeds are text (case-053), which
is why `str.splitlines` is not used. A character may be split between two chunks (case-052).
Rules: the WHATWG event stream format; streaming reference, section 2.
"""

import codecs
import re
from typing import NamedTuple

LINE_END = re.compile("\r\n|\n|\r")
LONGEST_LINE = 64 * 1024 * 1024
"""Characters; a stream without line ends, or without the ends of events, must not fill the memory."""


class Frame(NamedTuple):
    """One event: `name` is "" without an `event:` line; `data` has its lines joined by LF."""

    name: str
    data: str


class SseParser:
    """Feed it chunks of bytes, take frames. ValueError if a line or an event never ends."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8-sig")("replace")
        self._pieces: list[str] = []  # the line that is not finished yet
        self._length = 0
        self._after_cr = False
        self._name = ""
        self._data: list[str] = []
        self._data_length = 0

    def feed(self, chunk: bytes) -> list[Frame]:
        """The frames that this chunk completes, in order."""
        text = self._decoder.decode(chunk)
        if self._after_cr and text:
            self._after_cr = False
            text = text.removeprefix("\n")
        if not text:
            return []
        if "\r" in text:
            self._after_cr = text.endswith("\r")
            lines = LINE_END.split(text)
        else:
            lines = text.split("\n")
        self._pieces.append(lines[0])
        self._length += len(lines[0])
        if self._length > LONGEST_LINE:
            raise ValueError(f"a line of more than {LONGEST_LINE} characters")
        if len(lines) == 1:
            return []
        lines[0], rest = "".join(self._pieces), lines.pop()
        self._pieces, self._length = [rest], len(rest)
        return [frame for frame in map(self._take_line, lines) if frame]

    def finish(self) -> Frame | None:
        """The last frame if the body ended without its closing blank line."""
        if line := "".join(self._pieces):
            self._take_line(line)
        self._pieces = []
        return self._take_line("")

    def _take_line(self, line: str) -> Frame | None:
        if not line:
            frame = Frame(self._name, "\n".join(self._data)) if self._data else None
            self._name, self._data, self._data_length = "", [], 0
            return frame
        field, _, value = line.partition(":")
        if field == "data":
            self._data.append(value.removeprefix(" "))
            self._data_length += len(value) + 1
            if self._data_length > LONGEST_LINE:
                raise ValueError(f"an event of more than {LONGEST_LINE} characters")
        elif field == "event":
            self._name = value.removeprefix(" ")
        return None  # comments, id, retry and fields we do not know
