"""From settings to an HTTP backend: form, key, proxy, certificates, headers.

A key goes only where it belongs: `OPENAI_API_KEY` to OpenAI and to the host of `OPENAI_BASE_URL`,
`AZURE_OPENAI_API_KEY` to the host of `AZURE_OPENAI_ENDPOINT` and to Azure's own names; any other
host gets the key that the settings name for it, or none.
"""

import ipaddress
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Generator, Mapping
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import httpx

from assistant_runner import __version__
from assistant_runner.backends.http import Form, HttpBackend
from assistant_runner.endpoints import refuse_dead_endpoint
from assistant_runner.errors import ConfigurationError, UsageError
from assistant_runner.keys import KeySource, Secret
from assistant_runner.settings import LoadedSettings, Settings

CONNECT_S = 10.0
READ_S = 120.0
"""Seconds without a byte before a request is given up; the run's own deadline is another matter."""

OPENAI_HOST = "api.openai.com"
AZURE_DOMAINS = (".openai.azure.com", ".cognitiveservices.azure.com", ".services.ai.azure.com")
SCOPES: Mapping[Form, str] = {
    "openai": "https://ai.azure.com/.default",
    "azure": "https://cognitiveservices.azure.com/.default",
    "foundry": "https://ai.azure.com/.default",
}


class KeyAuth(httpx.Auth):
    """Puts the key on a request; a key from a command is asked for again once when refused."""

    def __init__(self, secret: Secret, *, header: str, source: KeySource, environ: Mapping[str, str]) -> None:
        self._secret = secret
        self._header = header
        self._source = source
        self._environ = environ

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        self._put(request)
        response = yield request
        if response.status_code == 401 and self._source.renews:
            renewed = self._source.read(self._environ)
            if renewed is not None and renewed.value != self._secret.value:
                self._secret = renewed
                self._put(request)
                yield request

    def _put(self, request: httpx.Request) -> None:
        value = self._secret.value
        request.headers[self._header] = f"Bearer {value}" if self._header == "Authorization" else value


class EntraAuth(httpx.Auth):
    """A token of Microsoft Entra, by azure-identity's usual chain; it caches and renews."""

    def __init__(self, scope: str) -> None:
        try:
            from azure.identity.aio import DefaultAzureCredential
        except ImportError:
            raise ConfigurationError(
                "signing in to Azure needs the extra: azure", remedy="pip install 'assistant-runner[azure]'"
            ) from None
        self._scope = scope
        self._credential = DefaultAzureCredential()

    async def async_auth_flow(self, request: httpx.Request) -> AsyncGenerator[httpx.Request, httpx.Response]:
        from azure.core.exceptions import AzureError

        try:
            token = await self._credential.get_token(self._scope)
        except AzureError as error:
            raise ConfigurationError(
                f"no Entra token for {self._scope}: {type(error).__name__}",
                remedy="sign in (az login), set AZURE_CLIENT_ID and its fellows, or use a key",
            ) from None
        request.headers["Authorization"] = f"Bearer {token.token}"
        yield request

    async def aclose(self) -> None:
        await self._credential.close()


def form_of(settings: Settings) -> Form:
    """The form of the backend's URL: as the settings say, else by its host and path."""
    if settings.backend_form != "auto":
        return settings.backend_form
    parts = urlsplit(settings.backend)
    if "/api/projects/" in parts.path or (parts.hostname or "").endswith(".services.ai.azure.com"):
        return "foundry"
    if (parts.hostname or "").endswith(AZURE_DOMAINS):
        return "azure"
    return "openai"


def base_url_of(settings: Settings, form: Form) -> str:
    """Where the paths of the protocol begin; UsageError if the setting is no URL."""
    parts = urlsplit(settings.backend)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UsageError(
            f"backend {settings.backend!r} is neither 'embedded' nor a URL",
            remedy="give the base URL, for example http://127.0.0.1:8080/v1",
        )
    if parts.username or parts.password:
        raise UsageError(
            "the backend's URL holds a user or password", remedy="use backend_key_env or backend_headers"
        )
    path = parts.path.rstrip("/")
    if form == "azure" and "/openai" not in path:
        path = f"{path}/openai"
    if form == "openai" and not path:
        path = "/v1"
    return f"{parts.scheme}://{parts.netloc}{path}"


def key_source_of(loaded: LoadedSettings, form: Form) -> KeySource:
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
    host = urlsplit(settings.backend).hostname or ""
    if form == "openai":
        if host == OPENAI_HOST or host == _host_in(loaded.environ, "OPENAI_BASE_URL"):
            return KeySource(env="OPENAI_API_KEY")
    elif "AZURE_OPENAI_API_KEY" in loaded.environ and (
        host.endswith(AZURE_DOMAINS) or host == _host_in(loaded.environ, "AZURE_OPENAI_ENDPOINT")
    ):
        return KeySource(env="AZURE_OPENAI_API_KEY")
    return KeySource()


def _host_in(environ: Mapping[str, str], name: str) -> str | None:
    return urlsplit(environ.get(name, "")).hostname


def is_near(host: str) -> bool:
    """Whether the host is this machine or a private network: a key may be missing there."""
    if host == "localhost" or host.endswith((".localhost", ".local", ".internal")):
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return "." not in host
    return address.is_loopback or address.is_private


def auth_of(loaded: LoadedSettings, form: Form) -> httpx.Auth | None:
    """How requests are signed; ConfigurationError before any request if the key is no key."""
    settings = loaded.settings
    if settings.backend_auth == "none":
        return None
    source = key_source_of(loaded, form)
    host = urlsplit(settings.backend).hostname or ""
    if settings.backend_auth == "entra" or (
        settings.backend_auth == "auto" and not source.is_given and form != "openai" and not is_near(host)
    ):
        return EntraAuth(settings.backend_scope or SCOPES[form])
    if source.env and is_near(host) and not loaded.environ.get(source.env, "").strip():
        return None  # a server near by needs no key (case-064)
    secret = source.read(loaded.environ)
    if secret is None:
        return None
    header = "api-key" if form == "azure" else "Authorization"
    return KeyAuth(secret, header=header, source=source, environ=loaded.environ)


def http_client(settings: Settings, *, base_url: str, auth: httpx.Auth | None) -> httpx.AsyncClient:
    """A client with the settings' proxy, certificates and headers; proxies of the environment count."""
    context = ssl.create_default_context()
    if settings.ca_file:
        try:
            context.load_verify_locations(cafile=settings.ca_file)
        except (OSError, ssl.SSLError) as error:
            raise ConfigurationError(
                f"ca_file {settings.ca_file}: {error}",
                remedy="give a PEM file with the authority's certificate",
            ) from None
    try:
        return httpx.AsyncClient(
            base_url=base_url,
            auth=auth,
            headers={"User-Agent": f"assistant-runner/{__version__}", **settings.backend_headers},
            verify=context,
            proxy=settings.proxy,
            timeout=httpx.Timeout(READ_S, connect=CONNECT_S),
            limits=httpx.Limits(max_connections=1024, max_keepalive_connections=256, keepalive_expiry=5.0),
        )
    except (ValueError, ImportError) as error:  # a proxy's URL that is none, a scheme without its library
        raise ConfigurationError(f"proxy: {error}", remedy="correct the proxy's URL") from None


@asynccontextmanager
async def open_http(loaded: LoadedSettings) -> AsyncIterator[HttpBackend]:
    """The HTTP backend that the settings name, closed at the end."""
    settings = loaded.settings
    refuse_dead_endpoint(settings.backend)
    form = form_of(settings)
    base_url = base_url_of(settings, form)
    auth = auth_of(loaded, form)
    client = http_client(settings, base_url=base_url, auth=auth)
    backend = HttpBackend(client, label=base_url, form=form, api_version=settings.api_version)
    try:
        async with backend:
            yield backend
    finally:
        if isinstance(auth, EntraAuth):
            await auth.aclose()
