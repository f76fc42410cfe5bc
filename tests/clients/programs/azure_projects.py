"""Azure's projects package (azure-ai-projects 1.x): its agents client, sync and async, over TLS."""

import asyncio
import os
import time
from typing import Any

from azure.ai.projects import AIProjectClient
from azure.ai.projects.aio import AIProjectClient as AsyncProjectClient
from azure.core.credentials import AccessToken

URL, KEY = os.environ["SERVER_URL"] + "/api/projects/demo", os.environ["SERVER_KEY"]
OPTIONS: dict[str, Any] = {"connection_verify": os.environ.get("SERVER_CA"), "retry_total": 0}


class Credential:
    def get_token(self, *scopes: str, **options: Any) -> AccessToken:
        return AccessToken(KEY, int(time.time()) + 3600)


class AsyncCredential:
    async def get_token(self, *scopes: str, **options: Any) -> AccessToken:
        return AccessToken(KEY, int(time.time()) + 3600)

    async def close(self) -> None: ...


def get_weather(city: str) -> str:
    """Weather of a city.

    :param city: name of the city
    """
    return "12 degrees"


def drive() -> None:
    from azure.ai.agents.models import FunctionTool, ToolSet

    with AIProjectClient(endpoint=URL, credential=Credential(), **OPTIONS) as project:
        agents = project.agents
        tools = ToolSet()
        tools.add(FunctionTool({get_weather}))
        agents.enable_auto_function_calls(tools)
        agent = agents.create_agent(model="conf-weather", name="a", instructions="x", toolset=tools)
        run = agents.create_thread_and_process_run(agent_id=agent.id, polling_interval=0.05)
        assert run.status == "completed", run
        text = agents.messages.get_last_message_text_by_role(thread_id=run.thread_id, role="assistant")
        assert text.text.value == "Oslo, Bergen and Tromsø are fine."


async def drive_later() -> None:
    async with AsyncProjectClient(endpoint=URL, credential=AsyncCredential(), **OPTIONS) as project:
        agent = await project.agents.create_agent(model="conf-plain")
        run = await project.agents.create_thread_and_process_run(agent_id=agent.id, polling_interval=0.05)
        assert run.status == "completed"


if __name__ == "__main__":
    drive()
    asyncio.run(drive_later())
