"""Tool results as plain JSON data and as the text that is submitted, whatever a tool returned.

Strict JSON: no NaN, no lone surrogates, no Python spellings. What had to be changed in a way that the
reader should know of comes back as notes. The limit counts the *encoded* text, in bytes of the request
body, so that 400,000 double quotes do not become 800,000 (cases 038 to 042).
"""

import dataclasses
import datetime
import decimal
import enum
import itertools
import json
import math
import os
import uuid
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pydantic import BaseModel

from assistant_runner.tooling.contract import HttpReply

DEFAULT_CAP = 400_000
MAX_DEPTH = 60
MAX_ITEMS = 100_000
MARK_ROOM = 240
"""Bytes kept free for the mark that says how much was left out."""

SIGNATURES = (
    (b"\x89PNG\r\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
    (b"%PDF-", "application/pdf"),
    (b"PK\x03\x04", "application/zip"),
    (b"\x1f\x8b", "application/gzip"),
    (b"\x7fELF", "a program"),
    (b"RIFF", "audio or video"),
    (b"OggS", "audio/ogg"),
    (b"ID3", "audio/mpeg"),
    (b"\x00\x00\x01\x00", "image/x-icon"),
    (b"SQLite format 3", "an SQLite database"),
    (b"BM", "image/bmp"),
    (b"7z\xbc\xaf\x27\x1c", "application/x-7z-compressed"),
    (b"\x28\xb5\x2f\xfd", "application/zstd"),
)


def to_plain(value: Any) -> tuple[Any, tuple[str, ...]]:
    """The value as plain JSON data (dict, list, str, int, float, bool, None), and notes."""
    notes: dict[str, None] = {}
    return _plain(value, notes, (), ""), tuple(notes)


def encode(content: Any, cap: int = DEFAULT_CAP) -> tuple[str, tuple[str, ...]]:
    """The text to submit and notes: a text as it is, everything else as compact JSON (row S0.15).

    `cap`: bytes of the text as it stands in a JSON request body; beyond it the text is cut and ends
    in a mark that says how much was left out.
    """
    plain, notes = to_plain(content)
    text = to_text(plain)
    cut, left_out = cut_text(text, cap)
    if left_out:
        notes = (*notes, f"output cut: {left_out} of {len(text)} characters left out")
    return cut, notes


def to_text(plain: Any) -> str:
    """Plain data as it is submitted: a text as it is, all else as compact JSON."""
    if isinstance(plain, str):
        return plain
    return json.dumps(plain, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def body_size(text: str) -> int:
    """Bytes of the text as a JSON string in a UTF-8 request body, without the quotes."""
    return len(json.dumps(text, ensure_ascii=False).encode("utf-8", "surrogatepass")) - 2


def cut_text(text: str, cap: int, *, advice: str = "") -> tuple[str, int]:
    """The text within `cap` bytes of body, and how many characters were left out (0: it fits).

    `advice` is put into the mark, such as how to read the rest.
    """
    if len(text) * 6 <= cap or (len(text) <= cap and body_size(text) <= cap):
        return text, 0
    room = max(cap - MARK_ROOM - len(advice.encode()), 0)
    low, high = 0, min(len(text), room)
    if body_size(text[:high]) > room:
        while low < high:
            middle = (low + high + 1) // 2
            if body_size(text[:middle]) <= room:
                low = middle
            else:
                high = middle - 1
    kept = high
    left_out = len(text) - kept
    words = f"[cut: {left_out:,} of {len(text):,} characters left out{'; ' + advice if advice else ''}]"
    return f"{text[:kept]}\n{words}", left_out


def kind_of_bytes(data: bytes) -> str | None:
    """What the first bytes say the data is, or None for what looks like text."""
    for signature, kind in SIGNATURES:
        if data.startswith(signature):
            return kind
    sample = data[:4096]
    if b"\x00" in sample and not sample.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "application/octet-stream"
    return None


def _plain(value: Any, notes: dict[str, None], above: tuple[int, ...], path: str) -> Any:
    match value:
        case None | bool():
            return value
        case str():
            return _text(str(value), notes)
        case enum.Enum():
            return _plain(value.value, notes, above, path)
        case int():
            return int(value)
        case float():
            return _number(float(value), notes, path)
        case bytes() | bytearray() | memoryview():
            return _bytes(bytes(value), notes)
        case decimal.Decimal():
            return str(value)
        case datetime.datetime() | datetime.date() | datetime.time():
            return value.isoformat()
        case datetime.timedelta():
            return value.total_seconds()
        case os.PathLike() | uuid.UUID():
            return _text(str(value), notes)
        case _ if _is_httpx(value, "URL"):
            return _text(str(value), notes)
        case BaseException():
            return f"{type(value).__name__}: {value}"
        case _:
            return _container(value, notes, above, path)


def _container(value: Any, notes: dict[str, None], above: tuple[int, ...], path: str) -> Any:
    if id(value) in above:
        notes[f"{path or 'the result'} holds itself; the inner one was left out"] = None
        return "[the same value again]"
    if len(above) >= MAX_DEPTH:
        notes[f"nested deeper than {MAX_DEPTH} levels; the rest was left out"] = None
        return "[nested too deeply]"
    inside = (*above, id(value))
    match value:
        case BaseModel():
            return _mapping(dict(value), notes, inside, path)
        case HttpReply():
            return _plain(value.entity, notes, inside, path)
        case _ if _is_httpx(value, "Response"):
            return _plain(_entity(value), notes, inside, path)
        case Mapping():
            return _mapping(value, notes, inside, path)
        case list() | tuple():
            return _items(value, notes, inside, path)
        case set() | frozenset():
            return sorted(_items(value, notes, inside, path), key=_order)
        case _ if dataclasses.is_dataclass(value) and not isinstance(value, type):
            shallow = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
            return _mapping(shallow, notes, inside, path)
        case Iterator() | range() | Iterable() if not isinstance(value, type):
            return _lazy(value, notes, inside, path)
        case _:
            return _stranger(value, notes, path)


def _mapping(value: Mapping[Any, Any], notes: dict[str, None], above: tuple[int, ...], path: str) -> Any:
    result: dict[str, Any] = {}
    for key, entry in value.items():
        name = key if isinstance(key, str) else _key(key, notes)
        name = _text(name, notes)
        if name in result:
            notes[f"two keys became {name!r}; the last one was kept"] = None
        result[name] = _plain(entry, notes, above, f"{path}.{name}" if path else name)
    return result


def _key(key: Any, notes: dict[str, None]) -> str:
    plain = _plain(key, notes, (), "a key")
    return plain if isinstance(plain, str) else json.dumps(plain, ensure_ascii=False)


def _items(value: Iterable[Any], notes: dict[str, None], above: tuple[int, ...], path: str) -> list[Any]:
    return [_plain(entry, notes, above, f"{path}[{index}]") for index, entry in enumerate(value)]


def _lazy(value: Iterable[Any], notes: dict[str, None], above: tuple[int, ...], path: str) -> Any:
    """A generator's items; one that does not end is cut, one that raises says so after its items."""
    found: list[Any] = []
    try:
        found.extend(itertools.islice(value, MAX_ITEMS + 1))
    except Exception as error:
        notes[f"the generator stopped with {type(error).__name__}: {error}"] = None
    if len(found) > MAX_ITEMS:
        found.pop()
        notes[f"the generator was cut after {MAX_ITEMS} items"] = None
    return _items(found, notes, above, path)


def _stranger(value: Any, notes: dict[str, None], path: str) -> Any:
    """Numbers and arrays of numeric libraries by `tolist`, anything else as its text, with a note."""
    if callable(getattr(value, "tolist", None)):
        return _plain(value.tolist(), notes, (), path)
    if callable(getattr(value, "isoformat", None)):
        return str(value.isoformat())
    notes[f"{path or 'the result'} is a {type(value).__name__}; sent as its text"] = None
    try:
        return _text(str(value), notes)
    except Exception:
        return f"[a {type(value).__name__} without text]"


def _text(text: str, notes: dict[str, None]) -> str:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        notes["characters that cannot be encoded were replaced"] = None
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def _number(value: float, notes: dict[str, None], path: str) -> float | None:
    if math.isfinite(value):
        return value
    notes[f"{path or 'the result'} was {value}; sent as null"] = None
    return None


def _bytes(data: bytes, notes: dict[str, None]) -> str:
    kind = kind_of_bytes(data)
    if kind is None:
        try:
            return data.decode("utf-8-sig")
        except UnicodeDecodeError:
            kind = "application/octet-stream"
    notes["binary data was replaced by its description"] = None
    return f"[binary data: {kind}, {len(data):,} bytes]"


def _is_httpx(value: Any, name: str) -> bool:
    """Whether it is that class of httpx or httpx2, which need not be imported to know."""
    return any(
        kind.__name__ == name and kind.__module__.partition(".")[0] in ("httpx", "httpx2")
        for kind in type(value).__mro__
    )


def _entity(response: Any) -> Any:
    try:
        return response.json()
    except ValueError:
        return response.content


def _order(value: Any) -> tuple[str, str]:
    return (type(value).__name__, json.dumps(value, ensure_ascii=False))
