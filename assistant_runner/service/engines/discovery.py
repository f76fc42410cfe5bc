"""Local model servers on their usual loopback ports, found within 150 ms.

A server counts if it lists models at `/v1/models`. What its models can do is asked in its own way
where it has one (Ollama's `/api/show`, LM Studio's `/api/v0/models`); unknown stays unknown.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import httpx

USUAL_PORTS: Mapping[int, str] = {
    11434: "Ollama",
    1234: "LM Studio",
    8080: "llama.cpp",
    8000: "vLLM",
}
TELLING_PORTS: Mapping[int, str] = {11434: "Ollama", 1234: "LM Studio"}
PROBE_S = 0.15
ASK_S = 1.0
ABOUT_MODELS = 8
"""Ollama is asked about this many models at most."""


@dataclass(frozen=True, slots=True)
class LocalServer:
    """A server found: `supports` says which models call tools, where the server tells."""

    base_url: str
    maker: str
    models: tuple[str, ...]
    supports: Mapping[str, bool] = field(default_factory=dict)

    @property
    def best_model(self) -> str | None:
        """The first model that calls tools, or about which nothing else is known."""
        usable = [name for name in self.models if self.supports.get(name) is not False]
        sure = [name for name in usable if self.supports.get(name)]
        chosen = [*sure, *(name for name in usable if "embed" not in name.lower()), *self.models]
        return chosen[0] if chosen else None


async def find_local_server(
    ports: Mapping[int, str] = USUAL_PORTS, *, probe_s: float = PROBE_S
) -> LocalServer | None:
    """The first of the usual ports, in their order, on which a model server answers in time."""
    found = await find_local_servers(ports, probe_s=probe_s)
    return found[0] if found else None


async def find_local_servers(
    ports: Mapping[int, str] = USUAL_PORTS, *, probe_s: float = PROBE_S
) -> Sequence[LocalServer]:
    """Every server on the usual ports. All are probed at once; nothing leaves this machine."""
    if not ports:
        return []
    async with httpx.AsyncClient(trust_env=False, verify=False, timeout=probe_s) as client:
        probes = [asyncio.ensure_future(_probe(client, port, maker)) for port, maker in ports.items()]
        done, late = await asyncio.wait(probes, timeout=probe_s)
        for probe in late:
            probe.cancel()
        await asyncio.gather(*late, return_exceptions=True)
        servers = [server for probe in probes if probe in done and (server := probe.result()) is not None]
        return [await _with_abilities(client, server) for server in servers]


async def describe_server(base_url: str) -> LocalServer | None:
    """What a server at a known address says of its models; None if it is not of a kind that tells."""
    maker = TELLING_PORTS.get(urlsplit(base_url).port or 0)
    if maker is None:
        return None
    async with httpx.AsyncClient(trust_env=False, verify=False, timeout=ASK_S) as client:
        models = await _list(client, base_url)
        if models is None:
            return None
        return await _with_abilities(client, LocalServer(base_url, maker, models))


async def _probe(client: httpx.AsyncClient, port: int, maker: str) -> LocalServer | None:
    base_url = f"http://127.0.0.1:{port}/v1"
    models = await _list(client, base_url)
    return None if not models else LocalServer(base_url, maker, models)


async def _list(client: httpx.AsyncClient, base_url: str) -> tuple[str, ...] | None:
    """Ids of the models listed; None if this is no model server, or our own service."""
    document = await _get(client, f"{base_url}/models")
    data = document.get("data") if isinstance(document, Mapping) else None
    if not isinstance(data, list):
        return None
    found = [item for item in data if isinstance(item, Mapping) and isinstance(item.get("id"), str)]
    if any(item.get("owned_by") == "assistant-runner" for item in found):
        return None
    return tuple(item["id"] for item in found)


async def _with_abilities(client: httpx.AsyncClient, server: LocalServer) -> LocalServer:
    root = server.base_url.removesuffix("/v1")
    supports: dict[str, bool] = {}
    try:
        async with asyncio.timeout(ASK_S):
            if server.maker == "Ollama":
                for name in server.models[:ABOUT_MODELS]:
                    shown = await _post(client, f"{root}/api/show", {"model": name})
                    told = shown.get("capabilities") if isinstance(shown, Mapping) else None
                    if isinstance(told, list):
                        supports[name] = "tools" in told
            elif server.maker == "LM Studio":
                listed = await _get(client, f"{root}/api/v0/models")
                for item in listed.get("data", []) if isinstance(listed, Mapping) else []:
                    if isinstance(item, Mapping) and isinstance(item.get("capabilities"), list):
                        supports[str(item.get("id"))] = "tool_use" in item["capabilities"]
    except TimeoutError:
        pass
    return LocalServer(server.base_url, server.maker, server.models, supports)


async def _get(client: httpx.AsyncClient, url: str) -> Any:
    return await _ask(client.get(url))


async def _post(client: httpx.AsyncClient, url: str, body: Mapping[str, Any]) -> Any:
    return await _ask(client.post(url, json=dict(body)))


async def _ask(asking: Any) -> Any:
    """The JSON of a 200 answer; None for anything else: no server, no time, no JSON."""
    try:
        response: httpx.Response = await asking
        return response.json() if response.status_code == 200 else None
    except (httpx.HTTPError, ValueError):
        return None
