import pytest

from assistant_runner.backends.client import Client, fields_of
from assistant_runner.errors import ConfigurationError


@pytest.mark.parametrize(
    ("base_url", "url"),
    [
        ("http://api.example.com/v1/", "http://api.example.com/v1/threads?limit=2"),
        ("https://api.example.com:8443", "https://api.example.com:8443/threads?limit=2"),
        ("http://[::1]:8080/a b", "http://[::1]:8080/a%20b/threads?limit=2"),
        ("http://straße.example/v1", "http://xn--strae-oqa.example/v1/threads?limit=2"),
        ("http://user:secret@api.example.com/v1", "http://api.example.com/v1/threads?limit=2"),
    ],
)
def test_a_path_lies_below_the_base_url(base_url, url):
    request = Client(None, base_url).request("GET", "threads", query="limit=2")

    assert request.url == url
    assert request.headers[b"host"] == (b"Host", url.split("/")[2].encode())


def test_a_header_replaces_the_default_of_the_same_name_in_any_case():
    client = Client(None, "http://x/v1", headers={"user-agent": "unit", "HOST": "other", "X-Team": "maps"})

    request = client.request("GET", "threads", headers=fields_of({"x-team": "roads"}))

    sent = [name + b": " + value for name, value in request.headers.values()]
    assert sent == [
        b"HOST: other",
        b"Accept: */*",
        b"Connection: keep-alive",
        b"user-agent: unit",
        b"x-team: roads",
    ]


@pytest.mark.parametrize(
    ("method", "body", "length"),
    [("GET", b"", None), ("DELETE", b"", None), ("POST", b"", b"0"), ("POST", "ä".encode(), b"2")],
)
def test_a_body_has_its_length_in_bytes(method, body, length):
    request = Client(None, "http://x/v1").request(method, "threads", body=body)

    assert request.headers.get(b"content-length", (b"", None))[1] == length


@pytest.mark.parametrize("headers", [{"X-A": "one\r\nX-B: two"}, {"X-A": "Łódź"}, {"X-\nA": "1"}])
def test_a_header_that_http_cannot_carry_is_named(headers):
    with pytest.raises(ConfigurationError, match="no header may hold"):
        Client(None, "http://x/v1", headers=headers)
