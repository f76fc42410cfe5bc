"""Published clients against a real server: each program of `programs/` in a process of its own.

The interpreter that runs the tests is always tried; ASSISTANT_RUNNER_TEST_PYTHONS adds others (paths,
separated as in PATH), so that one package can be tried in several versions. ASSISTANT_RUNNER_TEST_NODE
names folders whose node_modules holds the npm package. What is not installed is skipped; nothing is
installed here.
"""

import asyncio
import json
import os
import shutil
import sys
from pathlib import Path

import pytest
import trustme

from tests.clients.recording import Exchange
from tests.clients.served import HERE, KEY, Served, served

PYTHONS = [
    sys.executable,
    *filter(None, os.environ.get("ASSISTANT_RUNNER_TEST_PYTHONS", "").split(os.pathsep)),
]
FOLDERS = list(filter(None, os.environ.get("ASSISTANT_RUNNER_TEST_NODE", "").split(os.pathsep))) or [""]
NEEDS = {
    "openai_sync": "openai",
    "openai_async": "openai",
    "azure_agents": "azure.ai.agents",
    "azure_projects": "azure.ai.projects",
    "langchain_assistant": "langchain_community.agents.openai_assistant",
    "litellm_assistants": "litellm",
    "llama_assistant": "llama_index.agent.openai",
    "autogen_assistant": "autogen_ext.agents.openai",
    "pyautogen_assistant": "autogen.agentchat.contrib.gpt_assistant_agent",
    "semantic_kernel_assistant": "semantic_kernel.connectors.ai.open_ai",
    "agency_swarm_assistant": "agency_swarm.agents",
}
"""The module that a program cannot do without."""
NODE_NEEDS = {
    "openai_node": "openai",
    "azure_agents_node": "@azure/ai-agents",
    "langchain_node": "langchain",
}
OVER_TLS = ("azure_agents", "azure_projects", "azure_agents_node")
"""Those whose bearer tokens are sent over TLS only."""
DEAD_PROXY = "http://127.0.0.1:9"
DEADLINE_S = 120
EXPECTED = (400, 401, 404)
"""Refusals that the programs ask for: a locked thread, a wrong key, an unknown id."""


@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize("program", NEEDS)
async def test_a_published_client_is_served_to_its_end(program: str, python: str, tmp_path: Path):
    code, _ = await run([python, "-c", f"import {NEEDS[program]}"], {})
    if code:
        pytest.skip(f"{NEEDS[program]} is not installed for {python}")
    await drive(program, [python, str(HERE / "programs" / f"{program}.py")], tmp_path)


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: Path(folder).name or "none")
@pytest.mark.parametrize("program", NODE_NEEDS)
async def test_a_published_client_for_node_is_served_to_its_end(program: str, folder: str, tmp_path: Path):
    node, package = shutil.which("node"), NODE_NEEDS[program]
    if node is None or not folder or not (Path(folder) / "node_modules" / package).is_dir():
        pytest.skip(f"node, or a folder with the npm package {package}, is not here")
    command = [node, str(HERE / "programs" / f"{program}.mjs")]
    await drive(program, command, tmp_path, NODE_CLIENT_FOLDER=folder)


async def drive(program: str, command: list[str], folder: Path, **variables: str) -> None:
    """Fails unless the program ends well and every answer was right in shape and rightly given."""
    async with served() as plain, served(**certificate(folder)) as secure:
        here = secure if program in OVER_TLS else plain
        authority = str(folder / "authority.pem")
        urls = {"SERVER_URL": here.url, "SERVER_PLAIN_URL": plain.url}
        code, said = await run(
            command, {**urls, "SERVER_CA": authority, "NODE_EXTRA_CA_CERTS": authority, **variables}
        )
    assert code == 0, said
    assert here.recorder.exchanges
    for one in (plain, secure):
        check_answers(one)


async def run(command: list[str], variables: dict[str, str]) -> tuple[int, str]:
    """Exit status and all that was said; the process can reach loopback only through no proxy."""
    proxies = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"), DEAD_PROXY)
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env={
            **os.environ,
            **proxies,
            "NO_PROXY": "127.0.0.1,localhost",
            "no_proxy": "127.0.0.1,localhost",
            "SERVER_KEY": KEY,
            **variables,
        },
    )
    try:
        async with asyncio.timeout(DEADLINE_S):
            said, _ = await process.communicate()
    except TimeoutError:
        process.kill()
        await process.wait()
        raise
    assert process.returncode is not None
    return process.returncode, said.decode(errors="replace")


def certificate(folder: Path) -> dict[str, str]:
    """An authority and a certificate for loopback, as uvicorn takes them."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(folder / "authority.pem")
    authority.issue_cert("127.0.0.1", "localhost").private_key_and_cert_chain_pem.write_to_path(
        folder / "server.pem"
    )
    return {"ssl_certfile": str(folder / "server.pem")}


def check_answers(here: Served) -> None:
    """Fails if an answer had a wrong shape, or a request was refused that a client rightly made."""
    assert here.recorder.flaws() == []
    assert [str(one) for one in here.recorder.exchanges if is_fault(one)] == []


def is_fault(exchange: Exchange) -> bool:
    if exchange.status == 200:
        return False
    code = json.loads(exchange.body)["error"]["code"]
    return exchange.status not in EXPECTED or code in ("unknown_url", "unknown_parameter", "invalid_beta")
