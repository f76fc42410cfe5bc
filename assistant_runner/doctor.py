"""What a person would check first when nothing works: one look at each, and what to do.

Nothing here raises: a check that fails is a finding. No secret is printed, only where it comes from
and what is wrong with its shape. Offline, no socket is opened.
"""

import asyncio
import importlib.util
import os
import shutil
import sqlite3
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict, dataclass
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from assistant_runner import __version__
from assistant_runner.backends.client import Client, fields_of
from assistant_runner.backends.connect import auth_of, direct_transport, http_client, key_source_of, target_of
from assistant_runner.backends.http import HttpBackend
from assistant_runner.backends.transport import HttpError, Request, Response, Transport
from assistant_runner.endpoints import is_local_host
from assistant_runner.errors import AssistantRunnerError, near_words
from assistant_runner.keys import key_fault
from assistant_runner.masking import mask
from assistant_runner.retries import NO_RETRIES
from assistant_runner.run.journal import Journal
from assistant_runner.settings import (
    ENV_PREFIX,
    HOME_VARIABLE,
    PROJECT_FILE,
    USER_FILE,
    LoadedSettings,
    Settings,
)

State = Literal["ok", "note", "warning", "fault"]

NEAR_S = 0.5
FAR_S = 8.0
CLOCK_SKEW_S = 120.0
LOW_SPACE_BYTES = 100 * 1024 * 1024
LOCAL_SERVERS: Mapping[int, str] = {
    11434: "Ollama",
    1234: "LM Studio",
    8080: "llama.cpp",
    8000: "vLLM",
    4891: "GPT4All",
}
KNOWN_KEYS = ("OPENAI_API_KEY", "AZURE_OPENAI_API_KEY", "WEATHERAPI_KEY")
OTHER_VARIABLES = tuple(ENV_PREFIX + word for word in ("HOME", "TRACEBACK", "LIVE_", "TEST_"))
PROXY_VARIABLES = ("HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY")
EXTRAS: Mapping[str, str] = {
    "azure": "azure.identity",
    "keyring": "keyring",
    "mcp": "mcp",
    "otel": "opentelemetry.sdk",
    "pdf": "pypdf",
}


@dataclass(frozen=True, slots=True)
class Finding:
    """One check's result. `exit_status` is 0 unless it is a fault."""

    check: str
    state: State
    found: str
    remedy: str | None = None
    exit_status: int = 0


@dataclass(frozen=True, slots=True)
class Diagnosis:
    findings: list[Finding]

    @property
    def exit_status(self) -> int:
        """The first fault's, 0 if there is none."""
        return next((finding.exit_status for finding in self.findings if finding.exit_status), 0)

    def document(self) -> dict[str, Any]:
        """What `--json` prints."""
        return {"ok": self.exit_status == 0, "findings": [asdict(finding) for finding in self.findings]}


async def diagnose(loaded: LoadedSettings, *, cwd: Path, offline: bool = False) -> Diagnosis:
    """All checks, in the order in which a person would make them."""
    findings = [
        _versions(),
        *_configuration(loaded, cwd),
        _state_folder(loaded),
        _data_folder(loaded),
        *_keys(loaded),
        *_proxies(loaded),
        *_tools(loaded, cwd),
        _extras(),
    ]
    if offline:
        return Diagnosis(
            [*findings, Finding("network", "note", "offline: nothing was tried over the network")]
        )
    network: list[Callable[[LoadedSettings], Awaitable[list[Finding]]]] = [
        _backend,
        _openai_key,
        _local_servers,
    ]
    for found in await asyncio.gather(*(check(loaded) for check in network)):
        findings.extend(found)
    return Diagnosis(findings)


def _fault(check: str, error: AssistantRunnerError) -> Finding:
    return Finding(check, "fault", mask(error.message), error.remedy, error.exit_status)


def _versions() -> Finding:
    python = ".".join(map(str, sys.version_info[:3]))
    return Finding(
        "version", "ok", f"assistant-runner {__version__}, Python {python}, SQLite {sqlite3.sqlite_version}"
    )


def _configuration(loaded: LoadedSettings, cwd: Path) -> list[Finding]:
    paths = (loaded.folders.config / USER_FILE, cwd / PROJECT_FILE)
    read = [str(path) for path in paths if path.exists()]
    set_ = sorted(f"{name} ({origin})" for name, origin in loaded.origins.items() if origin != "default")
    words = f"read: {', '.join(read) if read else 'no config file'}"
    words += f"; set: {', '.join(set_) if set_ else 'nothing, all defaults'}"
    findings = [Finding("configuration", "ok", words)]
    if home := loaded.environ.get(HOME_VARIABLE):
        findings.append(Finding("folders", "note", f"all under {home} ({HOME_VARIABLE})"))
    settings = {f"{ENV_PREFIX}{name.upper()}" for name in Settings.model_fields}
    for name in sorted(loaded.environ):
        if name.startswith(ENV_PREFIX) and name not in settings and not name.startswith(OTHER_VARIABLES):
            near = near_words(name, settings)
            remedy = f"did you mean {near[0]}?" if near else "config show names the settings"
            findings.append(Finding("environment", "warning", f"{name} is no setting and is ignored", remedy))
    return findings


def _state_folder(loaded: LoadedSettings) -> Finding:
    try:
        with Journal(loaded.folders.state) as journal:
            count = len(journal.runs(limit=1000))
    except AssistantRunnerError as error:
        return _fault("state folder", error)
    return _space("state folder", loaded.folders.state, f"journal {journal.path}, {count} run(s)")


def _data_folder(loaded: LoadedSettings) -> Finding:
    folder = loaded.folders.data
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        return Finding(
            "data folder", "fault", f"{folder}: {error}", "set data_folder to one you can write to", 3
        )
    if not os.access(folder, os.W_OK):
        return Finding("data folder", "fault", f"{folder} cannot be written", "correct its rights", 3)
    return _space("data folder", folder, str(folder))


def _space(check: str, folder: Path, words: str) -> Finding:
    free = shutil.disk_usage(folder).free
    if free < LOW_SPACE_BYTES:
        return Finding(check, "warning", f"{words}; only {free // 1024 // 1024} MB free", "free some space")
    return Finding(check, "ok", words)


def _keys(loaded: LoadedSettings) -> list[Finding]:
    """Shape only: whether a key is accepted is seen where it is used."""
    findings = []
    for name in KNOWN_KEYS:
        value = loaded.environ.get(name)
        if value is None:
            findings.append(Finding(name, "note", "not set"))
        elif not value.strip():
            findings.append(Finding(name, "fault", "set, but empty", f"give it a value, or: unset {name}", 3))
        elif fault := key_fault(value):
            findings.append(Finding(name, "fault", f"set, but it {fault}", "copy the key again, alone", 3))
        else:
            findings.append(Finding(name, "ok", f"set, {len(value)} characters"))
    if loaded.settings.backend != "embedded":
        try:
            source = key_source_of(loaded, target_of(loaded.settings))
            if source.is_given:
                source.read(loaded.environ)
                findings.append(Finding("backend key", "ok", f"from {source.describe()}"))
            else:
                findings.append(Finding("backend key", "note", "none is sent to this backend"))
        except AssistantRunnerError as error:
            findings.append(_fault("backend key", error))
    return findings


def _proxies(loaded: LoadedSettings) -> list[Finding]:
    findings = []
    names = [name for upper in PROXY_VARIABLES for name in (upper, upper.lower())]
    for where, value in [
        ("setting proxy", loaded.settings.proxy),
        *((name, loaded.environ.get(name)) for name in names),
    ]:
        if not value:
            continue
        parts = urlsplit(value)
        if parts.scheme not in ("http", "https", "socks5", "socks5h") or not parts.hostname:
            words = f"{where}: {_without_password(value)} is no proxy URL"
            findings.append(Finding("proxy", "fault", words, "write http://host:port", 3))
        else:
            findings.append(
                Finding("proxy", "ok", f"{where}: {parts.scheme}://{parts.hostname}:{parts.port or ''}")
            )
    return findings or [Finding("proxy", "note", "none")]


def _without_password(value: str) -> str:
    return value.rpartition("@")[2]


def _tools(loaded: LoadedSettings, cwd: Path) -> list[Finding]:
    try:
        from assistant_runner.tooling.registry import default_tools, load_tools
    except ImportError:
        return []
    try:
        if loaded.settings.tools is None:
            toolbox = default_tools()
        else:
            folder = loaded.settings.tools_folder
            toolbox = load_tools(
                loaded.settings.tools,
                folder=Path(folder) if folder else loaded.folders.config / "tools",
                cwd=cwd,
            )
    except AssistantRunnerError as error:
        return [_fault("tools", error)]
    return [Finding("tools", "ok", ", ".join(toolbox) or "none")]


def _extras() -> Finding:
    def there(module: str) -> bool:
        try:
            return importlib.util.find_spec(module) is not None
        except ModuleNotFoundError:
            return False

    installed = [name for name, module in EXTRAS.items() if there(module)]
    missing = [name for name in EXTRAS if name not in installed]
    words = f"installed: {', '.join(installed) or 'none'}; not installed: {', '.join(missing) or 'none'}"
    return Finding("extras", "note", words)


class _Dated:
    """A transport that notes when the server thinks its answers went out."""

    def __init__(self, transport: Transport, dates: list[str]) -> None:
        self._transport = transport
        self._dates = dates

    async def send(self, request: Request, connect_s: float | None, read_s: float | None) -> Response:
        response = await self._transport.send(request, connect_s, read_s)
        self._dates.append(response.headers.get("date", ""))
        return response

    async def aclose(self) -> None:
        await self._transport.aclose()


async def _backend(loaded: LoadedSettings) -> list[Finding]:
    settings = loaded.settings
    dates: list[str] = []
    if settings.backend == "embedded":
        return [Finding("backend", "ok", "embedded: in this process, no server needed")]
    try:
        target = target_of(settings)
        client = http_client(settings, base_url=target.base_url, signer=auth_of(loaded, target))
        client.connect_s = client.read_s = FAR_S
        client.transport = _Dated(client.transport, dates)
        async with HttpBackend(
            client,
            label=target.base_url,
            form=target.form,
            api_version=target.api_version,
            retries=NO_RETRIES,
        ) as backend:
            started = time.monotonic()
            await backend.list_assistants(limit=1)
            took_s = time.monotonic() - started
    except AssistantRunnerError as error:
        return [_fault("backend", error), *_clock(dates)]
    return [
        Finding("backend", "ok", f"{target.base_url} ({target.form}) answers in {took_s:.2f} s"),
        *_clock(dates),
    ]


def _clock(dates: list[str]) -> list[Finding]:
    for text in dates:
        try:
            skew_s = time.time() - parsedate_to_datetime(text).timestamp()
        except (ValueError, TypeError):
            continue
        if abs(skew_s) > CLOCK_SKEW_S:
            words = f"this machine's clock is {abs(skew_s):.0f} s {'ahead' if skew_s > 0 else 'behind'}"
            return [Finding("clock", "warning", words, "set the clock: tokens and certificates depend on it")]
        return [Finding("clock", "ok", f"within {max(1, abs(round(skew_s)))} s of the backend's")]
    return []


async def _openai_key(loaded: LoadedSettings) -> list[Finding]:
    """Whether the provider takes the key, asked where the engines would send it."""
    key = loaded.environ.get("OPENAI_API_KEY", "")
    if not key.strip() or key_fault(key):
        return []
    base_url = (
        loaded.settings.engine_base_url
        or loaded.environ.get("OPENAI_BASE_URL")
        or "https://api.openai.com/v1"
    )
    host = urlsplit(base_url).hostname or base_url
    try:
        signed = fields_of({"Authorization": f"Bearer {key}"})
        async with http_client(loaded.settings, base_url=base_url, signer=None) as client:
            client.connect_s = client.read_s = NEAR_S if is_local_host(host) else FAR_S
            answer = await client.fetch(client.request("GET", "models", headers=signed))
    except AssistantRunnerError as error:
        return [_fault("engine endpoint", error)]
    except (HttpError, ValueError) as error:
        words = f"{host}: {type(error).__name__} {mask(str(error), [key])}".strip()
        return [Finding("engine endpoint", "warning", words, "check the network, the proxy and the base URL")]
    if answer.status in (401, 403):
        words = f"{host} refuses the key ({answer.status})"
        return [Finding("engine key", "fault", words, "make a new key, or check its project and rights", 4)]
    if answer.is_success:
        return [Finding("engine key", "ok", f"{host} accepts it")]
    return [
        Finding("engine endpoint", "warning", f"{host} answered {answer.status} to GET models", "look there")
    ]


async def _local_servers(_loaded: LoadedSettings) -> list[Finding]:
    transport = direct_transport()

    async def look(port: int) -> str | None:
        client = Client(transport, f"http://127.0.0.1:{port}/v1", connect_s=NEAR_S, read_s=NEAR_S)
        try:
            answer = await client.fetch(client.request("GET", "models"))
            models = [str(model.get("id")) for model in answer.json().get("data") or []]
        except (HttpError, ValueError, AttributeError):
            return None
        return f"{LOCAL_SERVERS[port]}'s port {port}: {', '.join(models[:5]) or 'no model'}"

    try:
        found = [one for one in await asyncio.gather(*map(look, LOCAL_SERVERS)) if one]
    finally:
        await transport.aclose()
    if found:
        return [Finding("local model servers", "ok", "; ".join(found))]
    return [Finding("local model servers", "note", "none answers on the usual ports")]
