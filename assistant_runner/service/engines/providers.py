"""Which provider stands behind an engine: endpoint and key, out of settings and environment.

A key goes only where it belongs: `OPENAI_API_KEY` to OpenAI and to the host of `OPENAI_BASE_URL`,
`AZURE_OPENAI_API_KEY` to Azure's names and to the host of `AZURE_OPENAI_ENDPOINT`, any other host gets
the key that the settings name for it. No SDK is imported here.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from assistant_runner.endpoints import Endpoint, normalise_endpoint
from assistant_runner.errors import ConfigurationError

OPENAI_BASE_URL = "https://api.openai.com/v1"
AZURE_SCOPE = "https://cognitiveservices.azure.com/.default"
FOUNDRY_SCOPE = "https://ai.azure.com/.default"


@dataclass(frozen=True, slots=True)
class Provider:
    """`key` is None where none is needed, or where `entra_scope` says how to get a token.

    `headers` are sent with every request; `ca_file` and `proxy` as in the settings.
    """

    endpoint: Endpoint
    key: str | None = field(default=None, repr=False)
    key_name: str | None = None
    entra_scope: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    ca_file: str | None = None
    proxy: str | None = None


def find_provider(
    environ: Mapping[str, str],
    *,
    base_url: str | None = None,
    key_env: str | None = None,
    api_version: str | None = None,
    scope: str | None = None,
    ca_file: str | None = None,
    proxy: str | None = None,
) -> Provider | None:
    """The provider that settings or environment name, None if neither does; ConfigurationError for a
    hosted one without a usable key (case-064)."""
    azure_host = _host(environ.get("AZURE_OPENAI_ENDPOINT"))
    version = (
        api_version or _given(environ, "AZURE_OPENAI_API_VERSION") or _given(environ, "OPENAI_API_VERSION")
    )
    if base_url:
        is_azure = True if azure_host and _host(base_url) == azure_host else None
        endpoint = normalise_endpoint(base_url, azure=is_azure, api_version=api_version)
    elif _given(environ, "OPENAI_BASE_URL"):
        endpoint = normalise_endpoint(environ["OPENAI_BASE_URL"], api_version=api_version)
    elif "OPENAI_API_KEY" in environ and (environ["OPENAI_API_KEY"].strip() or not azure_host):
        endpoint = normalise_endpoint(OPENAI_BASE_URL)
    elif azure_host:
        endpoint = normalise_endpoint(environ["AZURE_OPENAI_ENDPOINT"], azure=True, api_version=version)
    else:
        return None
    name = key_env or _key_name(endpoint, environ)
    key = _read_key(environ, name) if name else None
    entra = None
    if key is None and endpoint.kind == "azure" and not key_env:
        entra = scope or (FOUNDRY_SCOPE if endpoint.host.endswith(".services.ai.azure.com") else AZURE_SCOPE)
    elif key is None and not endpoint.is_local:
        raise ConfigurationError(
            f"no key for {endpoint.host}: {name + ' is not set' if name else 'no variable is named for it'}",
            remedy=f"set {name}" if name else "name the variable that holds its key: engine_key_env",
            variable=name,
        )
    return Provider(endpoint, key, name, entra, ca_file=ca_file, proxy=proxy)


def _key_name(endpoint: Endpoint, environ: Mapping[str, str]) -> str | None:
    """The variable whose key belongs to this host; None for a stranger."""
    named_by_base_url = endpoint.host == _host(environ.get("OPENAI_BASE_URL"))
    if endpoint.kind == "azure" and (_given(environ, "AZURE_OPENAI_API_KEY") or not named_by_base_url):
        return "AZURE_OPENAI_API_KEY"
    return "OPENAI_API_KEY" if endpoint.kind == "openai" or named_by_base_url else None


def _read_key(environ: Mapping[str, str], name: str) -> str | None:
    """The key without stray quotes and spaces; ConfigurationError if it cannot go into a header."""
    key = environ.get(name, "").strip().strip("\"'").strip()
    if not key:
        return None
    if not key.isascii() or not key.isprintable() or " " in key:
        raise ConfigurationError(
            f"the key in {name} has characters that no key has (a line break, a space, a special sign)",
            remedy=f"copy the key again into {name}",
            variable=name,
        )
    return key


def _given(environ: Mapping[str, str], name: str) -> str | None:
    return environ.get(name, "").strip() or None


def _host(url: str | None) -> str | None:
    if not url or not url.strip():
        return None
    text = url.strip()
    return urlsplit(text if "://" in text else f"https://{text}").hostname
