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
}
"""The module that a program cannot do without."""
OVER_TLS = ("azure_agents", "azure_projects")
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
    command = [python, str(HERE / "programs" / f"{program}.py")]
    async with served() as plain:
        if program not in OVER_TLS:
            code, said = await run(command, {"SERVER_URL": plain.url})
            exchanges = plain.recorder.exchanges
        else:
            async with served(**certificate(tmp_path)) as here:
                code, said = await run(
                    command,
                    {
                        "SERVER_URL": here.url,
                        "SERVER_PLAIN_URL": plain.url,
                        "SERVER_CA": str(tmp_path / "authority.pem"),
                    },
                )
                exchanges = here.recorder.exchanges + plain.recorder.exchanges
                check_answers(here)
        check_answers(plain)
    assert code == 0, said
    assert exchanges


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: Path(folder).name or "none")
async def test_the_npm_package_is_served_to_its_end(folder: str):
    node = shutil.which("node")
    if node is None or not folder:
        pytest.skip(
            "node, or a folder with the npm package openai in ASSISTANT_RUNNER_TEST_NODE, is not here"
        )
    async with served() as here:
        code, said = await run(
            [node, str(HERE / "programs" / "openai_node.mjs")],
            {"SERVER_URL": here.url, "NODE_CLIENT_FOLDER": folder},
        )
        check_answers(here)
    assert code == 0, said


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
