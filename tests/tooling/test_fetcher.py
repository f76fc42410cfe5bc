"""The guarded client: strangers' addresses stay out, on every hop, in every spelling."""

import gzip
import socket
import time
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path

import httpx
import pytest

from assistant_runner.errors import ConfigurationError
from assistant_runner.tooling import fetcher
from assistant_runner.tooling.contract import ToolFailure
from assistant_runner.tooling.fetcher import AddressGuard, AddressRefused, guarded_client, why_refused
from tests.tooling.server import Reply, Seen, page, redirect, serve

PUBLIC = "93.184.216.34"
NAMES: Mapping[str, Sequence[str]] = {
    "safe.test": ["10.1.2.3"],
    "two.test": [PUBLIC, "192.168.1.1"],
    "six.test": ["fd00::1"],
    "mapped.test": ["::ffff:169.254.169.254"],
    "meta.test": ["169.254.169.254"],
    "nat64.test": ["64:ff9b::a9fe:a9fe"],
    "public.test": ["127.0.0.1"],
    "other.test": ["127.0.0.1"],
}


async def resolve(host: str, port: int) -> Sequence[str]:
    """Names of the table; addresses and odd spellings as the system reads them."""
    if host in NAMES:
        return NAMES[host]
    try:
        return [str(answer[4][0]) for answer in socket.getaddrinfo(host, port, flags=socket.AI_NUMERICHOST)]
    except socket.gaierror:
        raise OSError("no such name") from None


ATTACKS = [
    "http://127.0.0.1/",
    "http://127.0.0.1:443/",
    "http://127.1/",
    "http://127.0.1/",
    "http://2130706433/",
    "http://0x7f.1/",
    "http://0x7f000001/",
    "http://0177.0.0.1/",
    "http://017700000001/",
    "http://0/",
    "http://0.0.0.0/",
    "http://10.0.0.1/",
    "http://10.255.255.255/",
    "http://172.16.0.1/",
    "http://172.31.255.254/",
    "http://192.168.0.1/",
    "http://100.64.0.1/",
    "http://169.254.169.254/latest/meta-data/",
    "http://0xa9fea9fe/",
    "http://2852039166/",
    "http://168.63.129.16/metadata",
    "http://192.0.0.192/",
    "http://198.18.0.1/",
    "http://192.0.2.1/",
    "http://203.0.113.9/",
    "http://224.0.0.1/",
    "http://240.0.0.1/",
    "http://255.255.255.255/",
    "http://192.88.99.1/",
    "http://[::1]/",
    "http://[::]/",
    "http://[::ffff:127.0.0.1]/",
    "http://[::ffff:7f00:1]/",
    "http://[::ffff:10.0.0.1]/",
    "http://[::127.0.0.1]/",
    "http://[64:ff9b::7f00:1]/",
    "http://[64:ff9b:1::a00:1]/",
    "http://[2002:7f00:1::]/",
    "http://[2002:a00:1::1]/",
    "http://[2001:0:4136:e378:8000:63bf:3fff:fdd2]/",
    "http://[fd00:ec2::254]/",
    "http://[fe80::1]/",
    "http://[fec0::1]/",
    "http://[ff02::1]/",
    "http://[2001:db8::1]/",
    "http://safe.test/",
    "http://two.test/",
    "http://six.test/",
    "http://mapped.test/",
    "http://meta.test/",
    "http://nat64.test/",
    "http://safe.test./",
    "http://user@safe.test/",
    "http://user:pass@93.184.216.34/",
    "http://public.test@10.0.0.1/",
    "http://93.184.216.34:22/",
    "http://93.184.216.34:6379/",
    "http://93.184.216.34:25/",
    "ftp://93.184.216.34/",
    "file:///etc/passwd",
    "gopher://93.184.216.34/",
    "data:text/html,hello",
    "javascript:alert(1)",
    "unix:///var/run/docker.sock",
    "http:///path",
]


def test_the_corpus_is_large():
    assert len(set(ATTACKS)) >= 40


@pytest.mark.parametrize("url", ATTACKS)
async def test_case_092_an_attack_is_refused_before_any_connection(url: str, monkeypatch: pytest.MonkeyPatch):
    async def connect(*args: object, **options: object) -> object:
        pytest.fail(f"a connection was made: {args}")

    monkeypatch.setattr("httpcore.AnyIOBackend.connect_tcp", connect)
    async with guarded_client(resolve=resolve) as http:
        with pytest.raises(
            (AddressRefused, httpx.UnsupportedProtocol, httpx.InvalidURL, httpx.ConnectError)
        ) as caught:
            await http.get(url)

    if isinstance(caught.value, httpx.ConnectError):  # the system does not even know this spelling
        assert "cannot be resolved" in str(caught.value)


@pytest.mark.parametrize(
    "address", [PUBLIC, "1.1.1.1", "8.8.8.8", "2606:2800:220:1:248:1893:25c8:1946", "64:ff9b::808:808"]
)
def test_public_addresses_are_open(address: str):
    assert why_refused(address) is None


CHAINS = [
    pytest.param({"/": "http://safe.test/"}, "safe.test", id="one-hop"),
    pytest.param(
        {"/": "/b", "/b": "/c", "/c": "http://169.254.169.254/latest"}, "169.254.169.254", id="three-hops"
    ),
    pytest.param({"/": "http://[::1]/"}, "::1", id="six"),
    pytest.param({"/": "//10.0.0.1/"}, "10.0.0.1", id="scheme-relative"),
    pytest.param({"/": "http://2130706433/"}, "2130706433", id="one-number"),
    pytest.param({"/": "http://93.184.216.34:22/"}, "port 22", id="port"),
    pytest.param({"/": "http://user:pw@93.184.216.34/"}, "user name", id="user"),
    pytest.param({"/": "file:///etc/passwd"}, "file", id="file"),
    pytest.param({"/": "ftp://93.184.216.34/x"}, "ftp", id="ftp"),
]


@pytest.mark.parametrize(("hops", "words"), CHAINS)
async def test_every_hop_of_a_redirect_is_checked(hops: Mapping[str, str], words: str):
    async with (
        serve(lambda seen: redirect(hops[seen.path])) as server,
        guarded_client(allow_hosts=[f"public.test:{server.port}"], resolve=resolve) as http,
    ):
        with pytest.raises((AddressRefused, httpx.UnsupportedProtocol), match=words):
            await http.get(f"http://public.test:{server.port}/")

        assert len(server.seen) == len(hops)


async def test_redirects_are_capped():
    async with (
        serve(lambda seen: redirect(seen.path + "x")) as server,
        guarded_client(allow_hosts=["127.0.0.1"]) as http,
    ):
        with pytest.raises(httpx.TooManyRedirects):
            await http.get(server.url + "/")

        assert len(server.seen) == fetcher.MAX_REDIRECTS + 1


async def test_no_secret_goes_along_to_another_host():
    def answer(seen: Seen) -> Reply:
        if seen.path == "/same":
            return redirect("/hop")
        return redirect(f"http://other.test:{port}/end") if seen.path == "/hop" else page("end")

    async with serve(answer) as server:
        port = server.port
        async with guarded_client(allow_hosts=["*.test"], resolve=resolve) as http:
            secrets = {"authorization": "Bearer s", "x-api-key": "s", "cookie": "s=1", "user-agent": "me"}
            await http.get(f"http://public.test:{port}/same", headers=secrets)

    same, hop, end = (seen.headers for seen in server.seen)
    assert same["x-api-key"] == hop["x-api-key"] == "s"
    assert not {"authorization", "x-api-key", "cookie"} & set(end)
    assert end["user-agent"] == "me"
    assert end["host"] == f"other.test:{port}"


async def test_cookies_are_not_kept():
    async with (
        serve(lambda seen: Reply(200, b"", {"set-cookie": "a=1"})) as server,
        guarded_client(allow_hosts=["127.0.0.1"]) as http,
    ):
        await http.get(server.url)
        await http.get(server.url)

    assert "cookie" not in server.seen[1].headers


async def test_the_connection_goes_to_the_address_that_was_checked():
    answers = iter([["127.0.0.1"], ["10.0.0.1"]])

    async def rebinding(host: str, port: int) -> Sequence[str]:
        return next(answers)

    async with (
        serve(lambda seen: page("first")) as server,
        guarded_client(allow_hosts=[f"rebind.test:{server.port}"], resolve=rebinding) as http,
    ):
        reply = await http.get(f"http://rebind.test:{server.port}/")

    assert "first" in reply.text
    assert next(answers) == ["10.0.0.1"]  # asked once: nothing was resolved again for the connection


@pytest.mark.parametrize(
    ("entry", "host", "port", "allowed"),
    [
        ("127.0.0.1", "127.0.0.1", 9999, True),
        ("LOCALHOST", "localhost", 80, True),
        ("localhost:8000", "localhost", 8000, True),
        ("localhost:8000", "localhost", 8001, False),
        ("*.corp.test", "a.corp.test", 443, True),
        ("*.corp.test", "corp.test.evil", 443, False),
        ("corp.test", "xcorp.test", 443, False),
        ("[::1]", "::1", 80, True),
        ("", "anything.test", 80, False),
    ],
)
def test_hosts_are_allowed_by_name_alone(entry: str, host: str, port: int, allowed: bool):
    assert AddressGuard([entry]).allows(host, port) is allowed


class TestLimits:
    async def get(self, reply: Reply, *, max_bytes: int = 1_000_000) -> httpx.Response:
        async with (
            serve(lambda seen: reply) as server,
            guarded_client(allow_hosts=["127.0.0.1"], max_bytes=max_bytes) as http,
        ):
            return await http.get(server.url)

    async def test_a_reply_within_the_limit_is_whole(self):
        reply = await self.get(Reply(200, b"x" * 999_999))

        assert len(reply.content) == 999_999

    async def test_a_large_reply_is_refused(self):
        with pytest.raises(ToolFailure, match="larger than 1 MB"):
            await self.get(Reply(200, b"x" * 1_000_001))

    async def test_an_endless_reply_without_a_length_is_refused(self):
        with pytest.raises(ToolFailure, match="larger than 1 MB"):
            await self.get(Reply(200, b"x" * 3_000_000, length=False))

    @pytest.mark.parametrize("layers", [1, 2])
    async def test_a_decompression_bomb_is_stopped(self, layers: int):
        body = b"\x00" * 200_000_000
        for _ in range(layers):
            body = gzip.compress(body, 1)
        reply = Reply(200, body, {"content-encoding": "gzip" if layers == 1 else "gzip, gzip"})

        with pytest.raises(ToolFailure):
            await self.get(reply)

    async def test_what_is_not_the_coding_it_says_is_a_failure_in_words(self):
        with pytest.raises(ToolFailure, match="not the gzip that it says"):
            await self.get(Reply(200, b"no gzip at all", {"content-encoding": "gzip"}))

    @pytest.mark.parametrize("rest", [gzip.compress(b" and more"), b"\0\0"], ids=["member", "padding"])
    async def test_all_members_of_a_gzip_file_are_read_and_what_follows_is_not(self, rest: bytes):
        reply = Reply(200, gzip.compress(b"words") + rest, {"content-encoding": "gzip"})

        assert (await self.get(reply)).text == ("words and more" if rest.startswith(b"\x1f") else "words")

    async def test_only_what_can_be_undone_is_asked_for(self):
        async with (
            serve(lambda seen: page("x")) as server,
            guarded_client(allow_hosts=["127.0.0.1"]) as http,
        ):
            await http.get(server.url)

        assert server.seen[0].headers["accept-encoding"] == "gzip, deflate"

    async def test_a_reply_that_drips_is_given_up(self, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setattr(fetcher, "WHOLE_REPLY_S", -1.0)

        with pytest.raises(ToolFailure, match="took longer"):
            await self.get(Reply(200, zlib.compress(b"x"), {"content-encoding": "deflate"}))


async def test_the_environments_proxy_is_not_used(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    async with (
        serve(lambda seen: page("direct")) as server,
        guarded_client(allow_hosts=["127.0.0.1"]) as http,
    ):
        reply = await http.get(server.url)

    assert "direct" in reply.text


@pytest.mark.parametrize("text", [None, "no certificate"], ids=["missing", "no-pem"])
def test_an_authority_that_cannot_be_read_is_a_fault_of_the_settings(text: str | None, tmp_path: Path):
    path = tmp_path / "ca.pem"
    if text is not None:
        path.write_text(text)

    with pytest.raises(ConfigurationError, match=r"ca\.pem"):
        guarded_client(ca_file=str(path))


class TestPoliteness:
    async def test_a_short_pause_that_a_host_asks_for_is_kept(self):
        replies = iter([Reply(429, b"", {"retry-after": "0.2"}), page("there")])
        async with (
            serve(lambda seen: next(replies)) as server,
            guarded_client(allow_hosts=["127.0.0.1"]) as http,
        ):
            await http.get(server.url)
            started = time.monotonic()
            reply = await http.get(server.url)

        assert reply.status_code == 200
        assert time.monotonic() - started >= 0.15

    async def test_in_a_long_pause_nothing_is_sent(self):
        async with (
            serve(lambda seen: Reply(503, b"", {"retry-after": "600"})) as server,
            guarded_client(allow_hosts=["127.0.0.1"]) as http,
        ):
            await http.get(server.url)
            with pytest.raises(ToolFailure, match="asked to be left alone"):
                await http.get(server.url)

            assert len(server.seen) == 1


class TestCache:
    async def get_twice(
        self, first: Reply, second: Reply, tmp_path: Path
    ) -> tuple[list[httpx.Response], int]:
        replies = iter([first, second])
        async with (
            serve(lambda seen: next(replies)) as server,
            guarded_client(allow_hosts=["127.0.0.1"], cache=tmp_path / "cache" / "http.sqlite3") as http,
        ):
            got = [await http.get(server.url), await http.get(server.url)]
            return got, len(server.seen)

    async def test_a_page_that_may_be_kept_is_fetched_once(self, tmp_path: Path):
        kept = Reply(
            200, gzip.compress(b"kept"), {"cache-control": "max-age=600", "content-encoding": "gzip"}
        )

        replies, requests = await self.get_twice(kept, page("again"), tmp_path)

        assert [reply.text for reply in replies] == ["kept", "kept"]
        assert requests == 1

    @pytest.mark.parametrize("status", [404, 410, 503])
    async def test_case_098_an_error_is_never_kept(self, status: int, tmp_path: Path):
        error = Reply(
            status,
            b"gone",
            {"cache-control": "max-age=600", "last-modified": "Mon, 01 Jan 2029 00:00:00 GMT"},
        )

        replies, requests = await self.get_twice(error, page("there"), tmp_path)

        assert [reply.status_code for reply in replies] == [status, 200]
        assert requests == 2

    @pytest.mark.parametrize("name", ["authorization", "x-api-key", "cookie", "cache-control"])
    async def test_what_was_asked_for_by_somebody_is_for_nobody_else(self, name: str, tmp_path: Path):
        cache = tmp_path / "http.sqlite3"
        async with (
            serve(lambda seen: Reply(200, b"yours", {"cache-control": "max-age=600"})) as server,
            guarded_client(allow_hosts=["127.0.0.1"], cache=cache) as http,
        ):
            await http.get(server.url, headers={name: "tok-123456"})
            await http.get(server.url, headers={name: "tok-654321"})
            await http.get(server.url)

        assert len(server.seen) == 3
        assert b"tok-" not in cache.read_bytes()
        assert cache.stat().st_mode & 0o777 == 0o600

    async def test_what_must_not_be_kept_is_not(self, tmp_path: Path):
        secret = Reply(200, b"secret", {"cache-control": "no-store"})

        _, requests = await self.get_twice(secret, page("again"), tmp_path)

        assert requests == 2
