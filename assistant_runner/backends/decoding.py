"""Compressed bodies, piece by piece. We ask for none, but some gateways compress whatever they are asked.

`Content-Encoding` names the encodings in the order in which they were applied (RFC 9110, section 8.4).
Others than gzip and deflate are left as they are.
"""

import zlib
from typing import Protocol


class Decoder(Protocol):
    """ValueError if a piece is not in this encoding."""

    def decode(self, piece: bytes) -> bytes: ...
    def finish(self) -> bytes: ...


def decoder_for(encoding: str) -> Decoder | None:
    """What undoes the encodings of a header's value; None if nothing is to be done."""
    names = [name.strip().lower() for name in encoding.split(",")] if encoding else []
    chain = [_Inflate(name) for name in reversed(names) if name in ("gzip", "x-gzip", "deflate")]
    return None if not chain else chain[0] if len(chain) == 1 else _Chain(chain)


class _Inflate:
    """gzip, or deflate: with zlib's frame, as it should be, or bare, as some servers send it."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._start = b""
        self._stream = None if name == "deflate" else zlib.decompressobj(zlib.MAX_WBITS | 16)

    def decode(self, piece: bytes) -> bytes:
        if self._stream is None:
            self._start = piece = self._start + piece
            if len(piece) < 2:
                return b""
            framed = piece[0] & 15 == 8 and int.from_bytes(piece[:2]) % 31 == 0  # RFC 1950, section 2.2
            self._stream = zlib.decompressobj(zlib.MAX_WBITS if framed else -zlib.MAX_WBITS)
        try:
            return self._stream.decompress(piece)
        except zlib.error as error:
            raise ValueError(f"the body is not {self._name}: {error}") from None

    def finish(self) -> bytes:
        return self._stream.flush() if self._stream else b""


class _Chain:
    def __init__(self, decoders: list[_Inflate]) -> None:
        self._decoders = decoders

    def decode(self, piece: bytes) -> bytes:
        for decoder in self._decoders:
            piece = decoder.decode(piece)
        return piece

    def finish(self) -> bytes:
        data = b""
        for decoder in self._decoders:
            data = decoder.decode(data) + decoder.finish()
        return data
