import pytest
from hypothesis import given
from hypothesis import strategies as st

from assistant_runner.wire.sse import Frame, SseParser


def parse(*chunks: bytes) -> list[Frame]:
    parser = SseParser()
    frames = [frame for chunk in chunks for frame in parser.feed(chunk)]
    last = parser.finish()
    return [*frames, last] if last else frames


def one_by_one(body: bytes) -> list[bytes]:
    return [body[at : at + 1] for at in range(len(body))]


def test_case_052_a_character_split_between_chunks_is_whole():
    body = "event: a\ndata: Łódź 🌧 北\n\n".encode()

    assert parse(*one_by_one(body)) == [Frame("a", "Łódź 🌧 北")]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"], ids=["LF", "CRLF", "CR"])
@pytest.mark.parametrize("cut", [one_by_one, lambda body: [body]], ids=["bytewise", "whole"])
def test_case_053_all_line_ends_work_and_unicode_separators_stay(end, cut):
    text = "a\u2028b\u0085c\fd"
    body = f"event: x{end}data: {text}{end}{end}event: done{end}data: [DONE]{end}{end}".encode()

    assert parse(*cut(body)) == [Frame("x", text), Frame("done", "[DONE]")]


def test_an_event_after_lone_crs_is_given_at_once():
    parser = SseParser()

    assert list(parser.feed(b"data: 1\r\r")) == [Frame("", "1")]


def test_comments_retry_and_ids_are_no_events_and_data_lines_join():
    body = b": ping\n\nretry: 3\nid: 7\n\ndata: a\ndata:b\ndata\n\n"

    assert parse(body) == [Frame("", "a\nb\n")]


def test_a_byte_order_mark_is_no_text():
    assert parse(b"\xef\xbb\xbfevent: a\ndata: 1\n\n") == [Frame("a", "1")]


def test_a_last_frame_without_its_blank_line_is_not_lost():
    assert parse(b"event: done\ndata: [DONE]") == [Frame("done", "[DONE]")]


def test_a_line_that_never_ends_is_refused(monkeypatch):
    monkeypatch.setattr("assistant_runner.wire.sse.LONGEST_LINE", 10)

    with pytest.raises(ValueError, match="more than 10"):
        parse(b"data: 12", b"3456789")


def test_an_event_that_never_ends_is_refused(monkeypatch):
    monkeypatch.setattr("assistant_runner.wire.sse.LONGEST_LINE", 10)

    assert parse(b"data:1234\ndata:1234\n\n", b"data:1234\ndata:1234\n\n")
    with pytest.raises(ValueError, match="an event of more than 10"):
        parse(b"data:1234\ndata:1234\ndata:\n")


@given(
    st.lists(st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"])), min_size=1),
    st.data(),
)
def test_frames_do_not_depend_on_where_the_network_cuts(texts, data):
    body = "".join(f"event: e\r\ndata: {text}\r\n\r\n" for text in texts).encode()
    cut = data.draw(st.integers(0, len(body)))

    assert parse(body[:cut], body[cut:]) == [Frame("e", text) for text in texts]
