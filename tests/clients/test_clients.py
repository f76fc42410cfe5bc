"""Official clients, each in the version that is there: Python's of this environment, others by path.

`ASSISTANT_RUNNER_TEST_PYTHONS`: interpreters (colon between) whose environments hold other versions
of `openai`. `ASSISTANT_RUNNER_TEST_NODE`: a folder whose node_modules holds the npm package.
"""

import asyncio
import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.service.conftest import running, script

HERE = Path(__file__).parent
CALL = {"name": "f", "arguments": {"a": 1}}
SCRIPT = script(plain=[{"text": "Hello there."}], round=[{"tool_calls": [CALL, CALL]}, {"text": "All set."}])
EXPECTED = {
    "assistants": ["Test Assistant"],
    "first": "requires_action",
    "second": "completed",
    "text": "All set.",
    "streamed": [['f{"a": 1}', 'f{"a": 1}'], "All set."],
    "batch": "completed",
    "error": "Cannot cancel run with status 'completed'.",
    "deleted": True,
}
PYTHONS = [sys.executable, *filter(None, os.environ.get("ASSISTANT_RUNNER_TEST_PYTHONS", "").split(":"))]


async def driven(*command: str, cwd: str | None = None) -> dict[str, Any]:
    """What a client saw of a fresh server."""
    async with running(SCRIPT) as server:
        process = await asyncio.create_subprocess_exec(
            *command,
            f"{server.url}/v1",
            cwd=cwd,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        async with asyncio.timeout(60):
            out, errors = await process.communicate()
        assert process.returncode == 0, errors.decode()
        return json.loads(out)


@pytest.mark.parametrize("python", PYTHONS)
async def test_a_python_client_sees_a_run_through(python: str):
    seen = await driven(python, str(HERE / "drive_openai.py"))

    assert {key: seen[key] for key in EXPECTED} == EXPECTED
    assert seen["async"] == "Hello there."
    assert seen["events"][0] == "thread.created"
    assert seen["events"][-1] == "thread.run.completed"


async def test_the_npm_client_sees_a_run_through():
    folder = os.environ.get("ASSISTANT_RUNNER_TEST_NODE")
    node = shutil.which("node")
    if not folder or not node:
        pytest.skip("no folder with the npm package openai is named")
    seen = await driven(node, str(HERE / "drive_openai.mjs"), cwd=folder)

    assert {key: seen[key] for key in EXPECTED} == EXPECTED
    assert seen["events"][-1] == "thread.run.completed"
