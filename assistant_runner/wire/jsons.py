"""JSON out and in, fast where it can be and exact everywhere.

orjson does the work where it is installed. What it cannot hold (integers beyond 64 bits, lone
surrogates) is written by the stdlib, so that every document comes back as it was given. Answers
are ASCII: a line separator inside a text can never be taken for the end of an event's line.
Requests are UTF-8.
"""

import json
from typing import Any

try:
    import orjson
except ImportError:  # no wheel for this platform
    orjson = None  # type: ignore[assignment]

_encode = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode
_encode_request = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode

_encode_record = json.JSONEncoder(separators=(",", ":"), default=str).encode

SLOW = b" "
"""Stands before a stored text that the stdlib wrote and must read."""


def answer_bytes(document: Any) -> bytes:
    """A document as answers and events carry it: compact, ASCII only."""
    if orjson is not None:
        try:
            data = orjson.dumps(document)
        except TypeError:
            return _encode(document).encode("ascii")
        if data.isascii():
            return data
    return _encode(document).encode("ascii")


def request_bytes(document: Any) -> bytes:
    """A document as a request carries it; a number that is none (NaN) goes out as the stdlib writes it."""
    if orjson is not None:
        try:
            data = orjson.dumps(document)
        except TypeError:
            return _encode_request(document).encode()
        if b"null" not in data:  # which may stand for a NaN
            return data
    return _encode_request(document).encode()


def stored_bytes(document: Any) -> bytes:
    """A document as the store keeps it; `loaded` gives it back."""
    if orjson is not None:
        try:
            return orjson.dumps(document)
        except TypeError:
            return SLOW + _encode(document).encode("ascii")
    return SLOW + _encode(document).encode("ascii")


def record_text(value: Any) -> str:
    """A value as our own records keep it: compact, what JSON does not know as text, NaN as null.

    Lone surrogates are escaped, so that the text can always be encoded.
    """
    if orjson is not None:
        try:
            return orjson.dumps(value, default=str).decode()
        except TypeError:
            pass
    return _encode_record(value)


def loaded(data: bytes) -> Any:
    """The document of stored bytes."""
    if orjson is None or data[:1] == SLOW:
        return json.loads(data)
    return orjson.loads(data)
