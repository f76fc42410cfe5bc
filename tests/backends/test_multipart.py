import httpx
import pytest

from assistant_runner.backends.multipart import form_data


@pytest.mark.parametrize(
    "filename",
    ["a.txt", 'say "hi".txt', "line\r\nbreak.txt", "back\\slash.txt", "Łódź.txt"],
    ids=["plain", "quotes", "line-break", "backslash", "letters"],
)
def test_a_form_is_written_as_other_clients_write_it(filename):
    content = b"\x00\r\n--not-the-boundary\r\n"

    kind, body = form_data(
        {"purpose": "assistants"}, filename=filename, content=content, content_type="text/plain"
    )

    other = httpx.Request(
        "POST",
        "http://x/",
        data={"purpose": "assistants"},
        files={"file": (filename, content, "text/plain")},
        headers={"Content-Type": kind},
    )
    assert body == other.read()
