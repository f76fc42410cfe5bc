"""Where an OpenAI-style API begins, out of whatever a person pasted; and which endpoints are dead.

Portals show an endpoint in many forms: the resource, with `/openai`, with `/openai/v1`, a project of
Foundry, a whole deployment URL with its api-version. Each is reduced once, here, to the base under
which an SDK's paths lie (responses reference, section 9; cases 057 to 059). Pure functions.
"""

import ipaddress
import re
from dataclasses import dataclass
from typing import Literal
from urllib.parse import parse_qs, urlsplit

from assistant_runner.errors import ApiGone, ConfigurationError

ASSISTANTS_GONE = "2026-08-26"
OPENAI_HOSTS = frozenset({"api.openai.com", "eu.api.openai.com", "us.api.openai.com"})
AZURE_SUFFIXES = (
    ".openai.azure.com",
    ".openai.azure.us",
    ".openai.azure.cn",
    ".services.ai.azure.com",
    ".cognitiveservices.azure.com",
    ".api.cognitive.microsoft.com",
    ".models.ai.azure.com",
)
OPERATIONS = re.compile(
    r"/(?:chat/completions|completions|responses|embeddings|models|assistants|threads|conversations)(?:/.*)?$"
)
VERSIONLESS = frozenset({"v1", "preview", "latest"})
"""Values of api-version that belong to the v1 path, which needs none."""

EndpointKind = Literal["openai", "azure", "compatible"]


@dataclass(frozen=True, slots=True)
class Endpoint:
    """`base_url`: no slash at its end, an SDK's paths go right behind it.

    `api_version` is set for Azure's dated form only; `deployment` if the pasted URL named one;
    `notes` say in words what was changed.
    """

    base_url: str
    kind: EndpointKind
    api_version: str | None = None
    deployment: str | None = None
    notes: tuple[str, ...] = ()

    @property
    def host(self) -> str:
        return urlsplit(self.base_url).hostname or ""

    @property
    def site(self) -> str:
        """The host as words name it, with its port if the address has one."""
        return urlsplit(self.base_url).netloc.rpartition("@")[2]

    @property
    def is_local(self) -> bool:
        """True for this machine and private networks: such servers may need no key."""
        return is_local_host(self.host)


def normalise_endpoint(
    url: str, *, azure: bool | None = None, api_version: str | None = None, add_path: bool = True
) -> Endpoint:
    """The endpoint of a URL in any form; ConfigurationError if it is no URL.

    `azure`: None decides by the host. `api_version`: asks for the dated form. `add_path=False` leaves
    the path as it is (a gateway that wants exactly what was given).
    """
    text = url.strip()
    if "://" not in text and text:
        scheme = "http" if is_local_host(re.split(r"[:/]", text, maxsplit=1)[0]) else "https"
        text = f"{scheme}://{text}"
    parts = urlsplit(text)
    try:
        host, port = parts.hostname or "", parts.port
    except ValueError:
        host, port = "", None
    if parts.scheme not in {"http", "https"} or not host or re.search(r"[\s<>{}]", text):
        raise ConfigurationError(
            f"the endpoint {url!r} is not a URL",
            remedy="give the base URL, such as https://NAME.openai.azure.com or http://127.0.0.1:8080/v1",
        )
    origin = f"{parts.scheme}://{f'[{host}]' if ':' in host else host}{f':{port}' if port else ''}"
    path = re.sub(r"/{2,}", "/", parts.path).rstrip("/")
    is_azure = azure if azure is not None else is_azure_host(host)
    if not add_path:
        kind: EndpointKind = "azure" if is_azure else "openai" if host in OPENAI_HOSTS else "compatible"
        return Endpoint(origin + path, kind, api_version)
    if is_azure or "/openai/deployments/" in path:
        asked = api_version or next(iter(parse_qs(parts.query).get("api-version", [])), None)
        return _azure(origin, path, asked)
    return _plain(origin, path, "openai" if host in OPENAI_HOSTS else "compatible")


def is_azure_host(host: str) -> bool:
    """True for the names that Azure gives its resources; a gateway's own name is not known here."""
    return host.lower().endswith(AZURE_SUFFIXES)


def is_local_host(host: str) -> bool:
    """True for loopback, private and link-local addresses and names without a dot."""
    try:
        address = ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return "." not in host or host.endswith((".localhost", ".local", ".internal"))
    return address.is_loopback or address.is_private or address.is_link_local


def refuse_dead_endpoint(base_url: str) -> None:
    """ApiGone if the Assistants API is asked of OpenAI itself: it was switched off on 2026-08-26."""
    if (urlsplit(base_url.strip()).hostname or "").lower() not in OPENAI_HOSTS:
        return
    raise ApiGone(
        f"OpenAI switched its Assistants API off on {ASSISTANTS_GONE}: {base_url} no longer serves it",
        remedy="leave the backend as embedded: our service speaks the protocol here, and your key is used "
        "for the model behind it (engine responses)",
        gone_since=ASSISTANTS_GONE,
        base_url=base_url,
    )


def _azure(origin: str, path: str, asked: str | None) -> Endpoint:
    notes: list[str] = []
    deployment: str | None = None
    path = re.sub(r"/openai(?=/|$)", "/openai", path, flags=re.IGNORECASE)
    prefix, found, rest = f"{path}/".partition("/openai/")
    if found:
        named = re.match(r"deployments/([^/]+)", rest)
        if named:
            deployment = named.group(1)
            notes.append(f"took the deployment {deployment!r} from the URL")
        elif rest.strip("/") not in {"", "v1"}:
            notes.append(f"left out {rest.strip('/').removeprefix('v1/')!r} at the end of the URL")
    else:
        prefix = OPERATIONS.sub("", path)
        if prefix != path:
            notes.append(f"left out {path[len(prefix) :].strip('/')!r} at the end of the URL")
    if "/api/projects/" in f"{prefix}/":
        prefix, _, project = prefix.partition("/api/projects/")
        notes.append(f"took the resource of the project {project.strip('/')!r}")
    base = origin + prefix.rstrip("/") + "/openai"
    if asked and asked.lower() not in VERSIONLESS:
        notes.append(f"dated form with api-version {asked}")
        return Endpoint(base, "azure", asked, deployment, tuple(notes))
    return Endpoint(f"{base}/v1", "azure", None, deployment, tuple(notes))


def _plain(origin: str, path: str, kind: EndpointKind) -> Endpoint:
    shorter = OPERATIONS.sub("", path)
    notes = (
        (f"left out {path[len(shorter) :].strip('/')!r} at the end of the URL",) if shorter != path else ()
    )
    if not shorter or (_is_ollama(origin) and re.fullmatch("/api(?:/.*)?", shorter)):
        shorter = "/v1"
    return Endpoint(origin + shorter, kind, notes=notes)


def _is_ollama(origin: str) -> bool:
    """Ollama's own API, at /api, stands beside its /v1; elsewhere /api may be the base itself."""
    return origin.endswith(":11434") or "ollama" in origin
