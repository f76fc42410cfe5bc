import ssl
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from assistant_runner.backends.client import Client
from assistant_runner.backends.connect import (
    KeyAuth,
    auth_of,
    http_client,
    key_source_of,
    open_http,
    target_of,
)
from assistant_runner.backends.pool import PooledTransport
from assistant_runner.backends.through_httpx import HttpxTransport
from assistant_runner.errors import ApiGone, BackendError, BackendUnreachable, ConfigurationError
from assistant_runner.keys import KeySource, Secret
from assistant_runner.retries import NO_RETRIES
from assistant_runner.settings import load_settings
from tests.backends import bodies
from tests.backends.faulty import Answer, FaultyServer
from tests.conftest import REPOSITORY


def loaded(tmp_path, environ=None, **flags):
    world = {"ASSISTANT_RUNNER_HOME": str(tmp_path), "PATH": "/usr/bin:/bin", **(environ or {})}
    return load_settings(flags, environ=world, cwd=tmp_path)


PROJECT = "https://unit.services.ai.azure.com/api/projects/p"


@pytest.mark.parametrize(
    ("backend", "form", "base_url", "version"),
    [
        ("http://127.0.0.1:8080", "openai", "http://127.0.0.1:8080/v1", None),
        ("http://127.0.0.1:8080/v1/", "openai", "http://127.0.0.1:8080/v1", None),
        ("127.0.0.1:8080", "openai", "http://127.0.0.1:8080/v1", None),
        ("https://gate.example.com/team-x/v1", "openai", "https://gate.example.com/team-x/v1", None),
        (
            "https://unit.openai.azure.com/",
            "azure",
            "https://unit.openai.azure.com/openai",
            "2025-03-01-preview",
        ),
        (
            "https://unit.openai.azure.com/openai/v1",
            "azure",
            "https://unit.openai.azure.com/openai",
            "2025-03-01-preview",
        ),
        (
            "https://unit.openai.azure.com/openai/deployments/a/chat/completions?api-version=2099-01-01",
            "azure",
            "https://unit.openai.azure.com/openai",
            "2099-01-01",
        ),
        (PROJECT, "foundry", PROJECT, "v1"),
        (PROJECT + "/", "foundry", PROJECT, "v1"),
        (PROJECT + "/threads?api-version=2025-05-01", "foundry", PROJECT, "2025-05-01"),
    ],
)
def test_the_form_and_the_base_follow_from_the_url(tmp_path, backend, form, base_url, version):
    target = target_of(loaded(tmp_path, backend=backend).settings)

    assert (target.form, target.base_url, target.api_version) == (form, base_url, version)


@pytest.mark.parametrize("backend", ["embeded", "ftp://x.y/v1", "https://user:secret@host/v1"])
def test_a_backend_that_is_no_url_is_refused(tmp_path, backend):
    with pytest.raises(ConfigurationError):
        target_of(loaded(tmp_path, backend=backend).settings)


def _source(world):
    return key_source_of(world, target_of(world.settings))


@pytest.mark.parametrize(
    ("backend", "environ", "source"),
    [
        pytest.param("https://other.example.com/v1", {"OPENAI_API_KEY": "sk-1"}, None, id="a-stranger"),
        pytest.param("http://127.0.0.1:1/v1", {"OPENAI_API_KEY": "sk-1"}, None, id="loopback"),
        pytest.param(
            "https://gate.example.com/v1",
            {"OPENAI_API_KEY": "sk-1", "OPENAI_BASE_URL": "https://gate.example.com/v1"},
            "OPENAI_API_KEY",
            id="the-base-url-of-the-environment",
        ),
    ],
)
def test_a_key_goes_only_where_it_belongs(tmp_path, backend, environ, source):
    assert _source(loaded(tmp_path, environ, backend=backend)).env == source


def test_case_064_an_empty_key_stops_before_any_request_for_a_hosted_target(tmp_path):
    world = loaded(tmp_path, {"MY_KEY": ""}, backend="https://host.example.com/v1", backend_key_env="MY_KEY")

    with pytest.raises(ConfigurationError, match="MY_KEY"):
        auth_of(world, target_of(world.settings))


def test_case_064_an_empty_key_is_no_matter_for_a_server_near_by(tmp_path):
    world = loaded(tmp_path, {"MY_KEY": ""}, backend="http://127.0.0.1:9/v1", backend_key_env="MY_KEY")

    assert auth_of(world, target_of(world.settings)) is None


async def test_a_key_of_a_command_is_asked_for_again_when_it_is_refused(tmp_path):
    counter = tmp_path / "count"
    command = f"sh -c 'echo x >> {counter}; wc -l < {counter} | tr -d \" \"'"
    auth = KeyAuth(
        Secret("stale", "test"),
        header="Authorization",
        source=KeySource(command=command),
        environ={"PATH": "/bin"},
    )
    seen = []

    def server(request):
        seen.append(request.headers["authorization"])
        return httpx.Response(401 if seen[-1] == "Bearer stale" else 200)

    transport = HttpxTransport(httpx.AsyncClient(transport=httpx.MockTransport(server)))
    async with Client(transport, "http://x", signer=auth) as client:
        answers = [(await client.fetch(client.request("GET", ""))).status for _ in range(2)]

    assert (answers, seen) == ([200, 200], ["Bearer stale", "Bearer 1", "Bearer 1"])


@pytest.mark.parametrize(
    "settings", [{"ca_file": "/no/such.pem"}, {"proxy": "gopher://x"}, {"proxy": "http://u:pa/ss@x"}]
)
def test_certificates_and_proxies_that_cannot_be_used_are_named(tmp_path, settings):
    with pytest.raises(ConfigurationError):
        http_client(loaded(tmp_path, **settings).settings, base_url="http://x", signer=None)


def test_a_host_that_no_name_can_be_is_named(tmp_path):
    with pytest.raises(ConfigurationError, match="not allowed"):
        http_client(loaded(tmp_path).settings, base_url="http://api.\u2500.example/v1", signer=None)


async def test_openais_own_endpoint_is_refused_before_any_request(tmp_path):
    with pytest.raises(ApiGone, match="2026-08-26"):
        async with open_http(loaded(tmp_path, backend="https://api.openai.com/v1")):
            pass


@pytest.mark.parametrize(
    ("environ", "pooled"),
    [
        pytest.param({}, True, id="straight"),
        pytest.param({"HTTP_PROXY": "http://127.0.0.1:1"}, False, id="proxied"),
        pytest.param({"ALL_PROXY": "http://127.0.0.1:1"}, False, id="all-proxied"),
        pytest.param({"HTTP_PROXY": "http://127.0.0.1:1", "NO_PROXY": "api.test"}, True, id="excepted"),
    ],
)
async def test_requests_go_through_our_pool_unless_a_proxy_stands_before_the_host(
    tmp_path, monkeypatch, environ, pooled
):
    for name, value in environ.items():
        monkeypatch.setenv(name, value)

    async with http_client(loaded(tmp_path).settings, base_url="http://api.test/v1", signer=None) as client:
        assert isinstance(client.transport, PooledTransport) is pooled


async def test_foundry_is_signed_in_to_with_an_entra_token_of_its_scope(tmp_path, monkeypatch):
    identity = pytest.importorskip("azure.identity.aio")
    asked = []

    class Credential:
        async def get_token(self, scope):
            asked.append(scope)
            return type("Token", (), {"token": "entra-token"})

        async def close(self):
            asked.append("closed")

    monkeypatch.setattr(identity, "DefaultAzureCredential", Credential)
    seen = []

    def server(request):
        seen.append((str(request.url), request.headers["authorization"]))
        return httpx.Response(200, json={"object": "list", "data": []})

    monkeypatch.setattr(
        "assistant_runner.backends.connect.http_client",
        lambda settings, *, base_url, signer: Client(
            HttpxTransport(httpx.AsyncClient(transport=httpx.MockTransport(server))), base_url, signer=signer
        ),
    )
    async with open_http(loaded(tmp_path, backend=PROJECT, backend_scope="https://x/.default")) as backend:
        await backend.list_assistants()

    assert asked == ["https://x/.default", "closed"]
    assert seen == [(f"{PROJECT}/assistants?api-version=v1&limit=100&order=desc", "Bearer entra-token")]


@pytest.mark.parametrize("status", [400, 401, 429, 500])
@pytest.mark.parametrize("body", [bodies.error("I was sent plainword77"), "<p>I was sent plainword77"])
async def test_a_key_that_the_server_repeats_is_not_shown(tmp_path, status, body):
    async with FaultyServer(None, lambda seen: Answer(status, body)) as server:
        world = loaded(tmp_path, {"K": "plainword77"}, backend=server.url, backend_key_env="K")
        async with open_http(world) as backend:
            backend._retries = NO_RETRIES
            with pytest.raises(BackendError, match=r"I was sent \*\*\*") as caught:
                await backend.retrieve_thread("thread_1")

    assert "plainword77" not in str(caught.value.document())


TLS = Path(__file__).parent / "tls"


async def test_a_private_authority_is_trusted_when_it_is_named_and_refused_with_words_when_not(tmp_path):
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(TLS / "server.pem", TLS / "server.key")
    async with FaultyServer(None, lambda seen: Answer(200, bodies.thread()), tls=context) as server:
        async with open_http(loaded(tmp_path, backend=server.url, ca_file=str(TLS / "ca.pem"))) as backend:
            assert (await backend.retrieve_thread("thread_1")).id == "thread_1"
        async with open_http(loaded(tmp_path, backend=server.url)) as backend:
            backend._retries = NO_RETRIES
            with pytest.raises(BackendUnreachable, match="certificate") as caught:
                await backend.retrieve_thread("thread_1")

    assert "ca_file" in caught.value.remedy


@pytest.mark.parametrize("how", ["setting", "environment"])
async def test_requests_go_through_the_proxy(tmp_path, monkeypatch, how):
    async with FaultyServer(None, lambda seen: Answer(200, bodies.thread())) as proxy:
        flags = {"proxy": proxy.url.removesuffix("/v1")} if how == "setting" else {}
        if how == "environment":
            monkeypatch.setenv("HTTP_PROXY", proxy.url.removesuffix("/v1"))
        world = loaded(tmp_path, backend="http://backend.example.com/v1", **flags)
        async with open_http(world) as backend:
            await backend.retrieve_thread("thread_1")

    assert proxy.paths() == ["GET http://backend.example.com/v1/threads/thread_1"]


async def test_no_proxy_is_obeyed(tmp_path, monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    async with (
        FaultyServer(None, lambda seen: Answer(200, bodies.thread())) as server,
        open_http(loaded(tmp_path, backend=server.url)) as backend,
    ):
        assert (await backend.retrieve_thread("thread_1")).id == "thread_1"


def test_httpx_is_not_imported_before_a_proxy_wants_it():
    probe = (
        "import sys, assistant_runner.backends.connect as connect\n"
        "connect.direct_transport()\n"
        "print(sorted({'httpx', 'httpcore', 'rich', 'click', 'urllib.request'} & set(sys.modules)))"
    )

    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, cwd=REPOSITORY)

    assert done.stdout.strip() == "[]", done.stderr
