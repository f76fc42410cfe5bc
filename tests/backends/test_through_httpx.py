import httpx
import pytest

from assistant_runner.backends import transport
from assistant_runner.backends.through_httpx import HttpxTransport
from tests.backends.caller import Caller


def caller(answer):
    return Caller(HttpxTransport(httpx.AsyncClient(transport=httpx.MockTransport(answer))), "http://x/v1")


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (httpx.ConnectError, transport.ConnectError),
        (httpx.ConnectTimeout, transport.ConnectTimeout),
        (httpx.PoolTimeout, transport.PoolTimeout),
        (httpx.ReadError, transport.ReadError),
        (httpx.ReadTimeout, transport.ReadTimeout),
        (httpx.WriteError, transport.WriteError),
        (httpx.WriteTimeout, transport.WriteTimeout),
        (httpx.ProxyError, transport.ProxyError),
        (httpx.RemoteProtocolError, transport.RemoteProtocolError),
        (httpx.UnsupportedProtocol, transport.UnsupportedProtocol),
        (httpx.LocalProtocolError, transport.TransportError),
        (httpx.DecodingError, transport.DecodingError),
    ],
)
async def test_an_error_of_httpx_becomes_the_one_of_the_seam(error, kind):
    def broken(request):
        raise error("oh")

    async with caller(broken) as client:
        with pytest.raises(transport.HttpError, match="oh") as caught:
            await client.get("/threads")

    assert type(caught.value) is kind


async def test_the_request_goes_out_as_it_is_and_the_body_comes_decoded():
    seen = []

    def answer(request):
        seen.append((str(request.url), dict(request.headers)))
        return httpx.Response(200, content=b"ok", headers={"set-cookie": "a=b"})

    async with caller(answer) as client:
        answers = [await client.get("/a%20b?limit=2") for _ in range(2)]

    assert [one.text for one in answers] == ["ok", "ok"]
    sent = {"host": "x", "accept": "*/*", "connection": "keep-alive"}
    assert seen == [("http://x/v1/a%20b?limit=2", sent)] * 2
