import gzip
import zlib

import pytest

from assistant_runner.backends import transport
from assistant_runner.backends.transport import DecodingError, Headers, Origin, Request, Response


def response(*pieces, headers=()):
    async def body():
        for piece in pieces:
            yield piece

    async def leave():
        pass

    request = Request("GET", Origin("http", "unit.example.com", 80), "/", {})
    return Response(request, 200, list(headers), body(), leave)


def test_a_header_is_found_in_any_case_and_its_repetitions_are_joined():
    headers = Headers([(b"X-Request-ID", b"r1"), (b"via", b"a"), (b"Via", b"b")])

    assert (headers["x-request-id"], headers.get("X-REQUEST-ID"), headers["VIA"]) == ("r1", "r1", "a, b")
    assert "X-Request-Id" in headers
    assert headers.get("etag") is None
    assert dict(headers) == {"x-request-id": "r1", "via": "a, b"}


@pytest.mark.parametrize(
    ("origin", "authority"),
    [
        (Origin("http", "a.example.com", 80), "a.example.com"),
        (Origin("https", "a.example.com", 443), "a.example.com"),
        (Origin("https", "a.example.com", 80), "a.example.com:80"),
        (Origin("http", "::1", 8080), "[::1]:8080"),
    ],
)
def test_an_authority_leaves_out_the_port_that_the_scheme_means(origin, authority):
    assert origin.authority == authority


TEXT = b"data: one\n\n" * 3
ENCODED = {
    "gzip": gzip.compress(TEXT),
    "X-GZip": gzip.compress(TEXT),
    "deflate": zlib.compress(TEXT),
    "deflate, gzip": gzip.compress(zlib.compress(TEXT)),
    "identity": TEXT,
    "": TEXT,
}


@pytest.mark.parametrize("encoding", ENCODED)
async def test_a_compressed_body_is_read_although_none_was_asked_for(encoding):
    data = ENCODED[encoding]
    bytewise = [data[at : at + 1] for at in range(len(data))]

    answer = response(*bytewise, headers=[(b"Content-Encoding", encoding.encode())])

    assert await answer.read() == TEXT


async def test_deflate_without_its_frame_is_read_as_some_servers_send_it():
    bare = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    data = bare.compress(TEXT) + bare.flush()

    assert await response(data[:1], data[1:], headers=[(b"content-encoding", b"deflate")]).read() == TEXT


async def test_a_compressed_stream_is_decoded_as_it_comes():
    stream = zlib.compressobj(wbits=zlib.MAX_WBITS | 16)
    first = stream.compress(b"one") + stream.flush(zlib.Z_SYNC_FLUSH)
    answer = response(
        first, stream.compress(b"two") + stream.flush(), headers=[(b"content-encoding", b"gzip")]
    )

    assert [piece async for piece in answer] == [b"one", b"two"]


async def test_a_body_without_an_end_is_left(monkeypatch):
    monkeypatch.setattr(transport, "LONGEST_BODY", 10_000_000)
    bomb = gzip.compress(b"a" * 50_000_000)
    taken = 0

    async for piece in response(bomb, headers=[(b"content-encoding", b"gzip")]):
        assert len(piece) <= transport.UNFOLDED_AT_ONCE
        taken += len(piece)
    with pytest.raises(DecodingError, match="longer than 10 MB"):
        await response(bomb, headers=[(b"content-encoding", b"gzip")]).read()

    assert taken == 50_000_000


async def test_a_body_that_is_not_in_its_encoding_is_named():
    with pytest.raises(DecodingError, match="not gzip"):
        await response(b"plain text", headers=[(b"content-encoding", b"gzip")]).read()


@pytest.mark.parametrize(
    ("kind", "body", "text"),
    [
        pytest.param("text/html; charset=ISO-8859-1", b"\xe4", "ä", id="latin"),
        pytest.param('text/html; charset="utf-8"', "ä".encode(), "ä", id="quoted"),
        pytest.param("text/html; charset=nonsense", "ä".encode(), "ä", id="unknown"),
        pytest.param("application/json", b"\xff", "\ufffd", id="broken"),
    ],
)
async def test_text_is_read_in_the_charset_that_the_header_names(kind, body, text):
    answer = response(body, headers=[(b"content-type", kind.encode())])

    await answer.read()

    assert answer.text == text
