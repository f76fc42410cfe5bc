"""From settings to an HTTP backend: form, key, proxy, certificates, headers.

A key goes only where it belongs: `OPENAI_API_KEY` to the host of `OPENAI_BASE_URL`,
`AZURE_OPENAI_API_KEY` to the host of `AZURE_OPENAI_ENDPOINT` and to Azure's own names; any other
host gets the key that the settings name for it, or none.
"""

import os
import re
import ssl
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from urllib.parse import SplitResult, parse_qs, urlsplit

from assistant_runner import __version__
from assistant_runner.backends.client import Client, Signer
from assistant_runner.backends.http import Form, HttpBackend
from assistant_runner.backends.transport import Field, Transport
from assistant_runner.endpoints import (
    VERSIONLESS,
    is_azure_host,
    is_local_host,
    normalise_endpoint,
    refuse_dead_endpoint,
)
from assistant_runner.errors import ConfigurationError, UsageError
from assistant_runner.keys import KeySource, Secret
from assistant_runner.settings import LoadedSettings, Settings

CONNECT_S = 10.0
READ_S = 120.0
"""Seconds without a byte before a request is given up; the run's own deadline is another matter."""

AZURE_VERSION = "2025-03-01-preview"
"""The Assistants API exists in dated preview versions only (reference, section 1)."""

SCOPES: Mapping[Form, str] = {
    "openai": "https://ai.azure.com/.default",
    "azure": "https://cognitiveservices.azure.com/.default",
    "foundry": "https://ai.azure.com/.default",
}


class KeyAuth:
    """Puts the key on a request; a key from a command is asked for again once when refused."""

    def __init__(self, secret: Secret, *, header: str, source: KeySource, environ: Mapping[str, str]) -> None:
        self._header = header
        self._source = source
        self._environ = environ
        self._use(secret)

    def _use(self, secret: Secret) -> None:
        self._secret = secret
        scheme = "Bearer " if self._header == "Authorization" else ""
        self._field = (self._header.encode(), f"{scheme}{secret.value}".encode())

    async def field(self) -> Field:
        return self._field

    def renew(self) -> bool:
        renewed = self._source.read(self._environ) if self._source.renews else None
        if renewed is None or renewed.value == self._secret.value:
            return False
        self._use(renewed)
        return True

    async def aclose(self) -> None: ...


class EntraAuth:
    """A token of Microsoft Entra, by azure-identity's usual chain; it caches and renews."""

    def __init__(self, scope: str) -> None:
        try:
            from azure.identity.aio import DefaultAzureCredential

            self._credential = DefaultAzureCredential()  # its own transport may be missing too
        except ImportError:
            raise ConfigurationError(
                "signing in to Azure needs the extra: azure", remedy="pip install 'assistant-runner[azure]'"
            ) from None
        self._scope = scope

    async def field(self) -> Field:
        from azure.core.exceptions import AzureError

        try:
            token = await self._credential.get_token(self._scope)
        except AzureError as error:
            raise ConfigurationError(
                f"no Entra token for {self._scope}: {type(error).__name__}",
                remedy="sign in (az login), set AZURE_CLIENT_ID and its fellows, or use a key",
            ) from None
        return b"Authorization", f"Bearer {token.token}".encode()

    def renew(self) -> bool:
        return False

    async def aclose(self) -> None:
        await self._credential.close()


@dataclass(frozen=True, slots=True)
class Target:
    """Where the paths of the protocol begin, and in which form; `notes` say what was changed."""

    base_url: str
    form: Form
    api_version: str | None = None
    notes: tuple[str, ...] = ()

    @property
    def host(self) -> str:
        return urlsplit(self.base_url).hostname or ""


def target_of(settings: Settings) -> Target:
    """The target of the setting `backend`, whatever form of URL was pasted (cases 057 to 059).

    UsageError if it is no URL; ApiGone for OpenAI's own API.
    """
    url = settings.backend.strip()
    parts = urlsplit(url if "://" in url else f"//{url}")
    if "://" not in url and "." not in url and ":" not in url:
        raise UsageError(
            f"backend {settings.backend!r} is neither 'embedded' nor a URL",
            remedy="give the base URL, for example http://127.0.0.1:8080/v1",
        )
    if parts.username or parts.password:
        raise UsageError(
            "the backend's URL holds a user or password", remedy="use backend_key_env or backend_headers"
        )
    form = settings.backend_form
    if form == "foundry" or (form == "auto" and "/api/projects/" in parts.path):
        return _foundry_target(url, parts, settings.api_version)
    azure = {"auto": None, "azure": True, "openai": False}[form]
    if azure or (azure is None and is_azure_host(parts.hostname or "")):
        asked = next(iter(parse_qs(parts.query).get("api-version", [])), None)
        version = settings.api_version or asked or AZURE_VERSION
        dated = AZURE_VERSION if version.lower() in VERSIONLESS else version
        endpoint = normalise_endpoint(url, azure=True, api_version=dated)
        return Target(endpoint.base_url, "azure", dated, endpoint.notes)
    endpoint = normalise_endpoint(url, azure=False)
    refuse_dead_endpoint(endpoint.base_url)
    return Target(endpoint.base_url, "openai", None, endpoint.notes)


def _foundry_target(url: str, parts: SplitResult, version: str | None) -> Target:
    """The project of Foundry Agent Service in any form that a portal shows; `v1` unless told."""
    asked = next(iter(parse_qs(parts.query).get("api-version", [])), None)
    found = re.match(r"(?P<prefix>.*/api/projects/[^/]+)(?P<rest>/.*)?$", parts.path.rstrip("/"))
    if parts.scheme not in ("http", "https") or not parts.hostname or not found:
        raise UsageError(
            f"backend {url!r} is no project of Foundry Agent Service",
            remedy="give https://RESOURCE.services.ai.azure.com/api/projects/PROJECT",
        )
    rest = (found["rest"] or "").strip("/")
    notes = (f"left out {rest!r} at the end of the URL",) if rest else ()
    base_url = f"{parts.scheme}://{parts.netloc}{re.sub('/{2,}', '/', found['prefix'])}"
    return Target(base_url, "foundry", version or asked or "v1", notes)


def key_source_of(loaded: LoadedSettings, target: Target) -> KeySource:
    """The source of the backend's key: the settings', else the usual variable if it belongs there."""
    settings = loaded.settings
    given = KeySource(
        env=settings.backend_key_env,
        file=settings.backend_key_file,
        keyring=settings.backend_key_keyring,
        command=settings.backend_key_command,
    )
    if given.is_given:
        return given
    host = target.host
    if target.form == "openai":
        if host == _host_in(loaded.environ, "OPENAI_BASE_URL"):
            return KeySource(env="OPENAI_API_KEY")
    elif (
        target.form == "azure"
        and "AZURE_OPENAI_API_KEY" in loaded.environ
        and (is_azure_host(host) or host == _host_in(loaded.environ, "AZURE_OPENAI_ENDPOINT"))
    ):
        return KeySource(env="AZURE_OPENAI_API_KEY")
    return KeySource()


def _host_in(environ: Mapping[str, str], name: str) -> str | None:
    return urlsplit(environ.get(name, "")).hostname


def auth_of(loaded: LoadedSettings, target: Target) -> Signer | None:
    """How requests are signed; ConfigurationError before any request if the key is no key."""
    settings = loaded.settings
    if settings.backend_auth == "none":
        return None
    source = key_source_of(loaded, target)
    near = is_local_host(target.host)
    unsigned = settings.backend_auth == "auto" and not source.is_given
    if settings.backend_auth == "entra" or (unsigned and target.form != "openai" and not near):
        return EntraAuth(settings.backend_scope or SCOPES[target.form])
    if source.env and near and not loaded.environ.get(source.env, "").strip():
        return None  # a server near by needs no key (case-064)
    secret = source.read(loaded.environ)
    if secret is None:
        return None
    header = "api-key" if target.form == "azure" else "Authorization"
    return KeyAuth(secret, header=header, source=source, environ=loaded.environ)


def http_client(settings: Settings, *, base_url: str, signer: Signer | None) -> Client:
    """A client with the settings' proxy, certificates and headers; proxies of the environment count.

    Straight to the host it goes through our own pool; through a proxy, httpx does it.
    """
    proxied = _is_proxied(settings, base_url)
    plain = base_url.startswith("http://") and not proxied and not settings.ca_file
    context = None if plain else _tls_context(settings.ca_file)
    try:
        return Client(
            _through_httpx(context, proxy=settings.proxy) if proxied else direct_transport(context),
            base_url,
            headers={"User-Agent": f"assistant-runner/{__version__}", **settings.backend_headers},
            signer=signer,
            connect_s=CONNECT_S,
            read_s=READ_S,
        )
    except ValueError as error:  # a port or a host that is none
        raise ConfigurationError(f"{base_url}: {error}", remedy="correct the base URL") from None


def direct_transport(context: ssl.SSLContext | None = None) -> Transport:
    """Straight to the host: our own pool where there is its parser, httpx elsewhere."""
    try:
        from assistant_runner.backends.pool import PooledTransport
    except ImportError:
        return _through_httpx(context, trust_env=False)
    return PooledTransport(context=context)


def _through_httpx(
    context: ssl.SSLContext | None, *, proxy: str | None = None, trust_env: bool = True
) -> Transport:
    import httpx

    from assistant_runner.backends.through_httpx import HttpxTransport

    try:
        client = httpx.AsyncClient(
            verify=context or True,
            proxy=proxy,
            trust_env=trust_env,
            limits=httpx.Limits(max_connections=1024, max_keepalive_connections=256, keepalive_expiry=5.0),
        )
    except (ValueError, ImportError) as error:  # a proxy's URL that is none, a scheme without its library
        raise ConfigurationError(f"proxy: {error}", remedy="correct the proxy's URL") from None
    except httpx.InvalidURL:  # its words may hold a part of the proxy's password
        raise ConfigurationError(
            "the proxy's URL cannot be read", remedy="correct proxy, HTTPS_PROXY or HTTP_PROXY"
        ) from None
    return HttpxTransport(client)


def _tls_context(ca_file: str | None) -> ssl.SSLContext:
    """The usual authorities, and the file's. Reading them takes time: plain HTTP does without."""
    context = ssl.create_default_context()
    if ca_file:
        try:
            context.load_verify_locations(cafile=ca_file)
        except (OSError, ssl.SSLError) as error:
            raise ConfigurationError(
                f"ca_file {ca_file}: {error}", remedy="give a PEM file with the authority's certificate"
            ) from None
    return context


def _is_proxied(settings: Settings, base_url: str) -> bool:
    """Whether the settings or the environment put a proxy before this host."""
    if settings.proxy is not None:
        return True
    if sys.platform not in ("darwin", "win32") and not any(
        name.lower().endswith("_proxy") for name in os.environ
    ):
        return False  # urllib would find none either, and takes long to import
    import urllib.request

    parts = urlsplit(base_url)
    proxies = urllib.request.getproxies()
    named = parts.scheme in proxies or "all" in proxies
    return named and not urllib.request.proxy_bypass(parts.netloc.rpartition("@")[2])


@asynccontextmanager
async def open_http(loaded: LoadedSettings) -> AsyncIterator[HttpBackend]:
    """The HTTP backend that the settings name, closed at the end."""
    target = target_of(loaded.settings)
    client = http_client(loaded.settings, base_url=target.base_url, signer=auth_of(loaded, target))
    async with HttpBackend(
        client, label=target.base_url, form=target.form, api_version=target.api_version
    ) as backend:
        yield backend
