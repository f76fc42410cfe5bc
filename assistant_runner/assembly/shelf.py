"""What runs of one assistant are made with: its tools, their gate, their HTTP client, its own assistant."""

import hashlib
import json
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from assistant_runner.backends.base import Backend
from assistant_runner.settings import LoadedSettings
from assistant_runner.setup.finding import compare_tools, every
from assistant_runner.tooling.fence import FENCE_RULE, FetchedThreads
from assistant_runner.tooling.gate import Approve, ToolGate
from assistant_runner.tooling.masking import secrets_of
from assistant_runner.tooling.policy import Policy, PolicyRule
from assistant_runner.tooling.registry import Toolbox, load_tools, shipped_folder
from assistant_runner.tooling.spill import READER_NAME, Spill
from assistant_runner.wire.assistants import Assistant, AssistantCreate

if TYPE_CHECKING:
    import httpx

    from assistant_runner.setup.model import AssistantSpec


log = logging.getLogger(__name__)

OWN_KEY = "assistant_runner.default"
DEFAULT_INSTRUCTIONS = f"Answer with the tools you have. {FENCE_RULE}"


@dataclass(frozen=True, slots=True)
class Shelf:
    """What runs of one assistant are made with: its tools, its gate, and its file if it came from one."""

    toolbox: Toolbox
    gate: ToolGate
    spec: "AssistantSpec | None" = None


def with_reader(toolbox: Toolbox, *, growing: bool = False) -> Toolbox:
    """The toolbox, with `read_output` beside tools that are not shipped: their outputs may be cut.

    `growing`: tools of somebody's own may come later.
    """
    own = growing or any(not tool.source.startswith(str(shipped_folder())) for tool in toolbox.values())
    if own and READER_NAME not in toolbox:
        toolbox.add(load_tools([READER_NAME])[READER_NAME])
    return toolbox


def tool_gate(
    loaded: LoadedSettings, toolbox: Toolbox, spec: "AssistantSpec | None", approve: Approve | None
) -> ToolGate:
    """The gate of a run's tools: what was approved beforehand, the file's policy, then the person.

    Outputs are capped, and long ones kept whole beside the journal.
    """
    policy = (spec.policy if spec else None) or Policy()
    for words in policy.idle_rules(toolbox):
        log.warning("%s", words)
    given = tuple(
        PolicyRule(tool=glob, action="allow", even_with_fetched_text=True) for glob in loaded.settings.approve
    )
    return ToolGate(
        policy=policy.model_copy(update={"rules": (*given, *policy.rules)}),
        approve=approve,
        output_cap=loaded.settings.output_cap,
        secrets=secrets_of(loaded.environ),
        spill=output_spill(loaded),
        fetched=FetchedThreads(loaded.folders.state / "fetched-threads.txt"),
    )


def output_spill(loaded: LoadedSettings) -> Spill:
    """Where whole outputs are kept."""
    return Spill(loaded.folders.state / "outputs")


def tool_client(loaded: LoadedSettings) -> "httpx.AsyncClient":
    """The HTTP client that tools are handed: guarded and cached, or the recorded replies offline."""
    settings = loaded.settings
    if settings.offline:
        from assistant_runner.tooling.recorded import recorded_client

        return recorded_client()
    from assistant_runner.tooling.fetcher import guarded_client

    return guarded_client(
        allow_hosts=settings.allow_hosts,
        ca_file=settings.ca_file,
        cache=loaded.folders.cache / "tools-http.sqlite3",
    )


def tools_folder(loaded: LoadedSettings) -> Path:
    folder = loaded.settings.tools_folder
    return Path(folder) if folder else loaded.folders.config / "tools"


async def own_assistant(backend: Backend, toolbox: Toolbox, *, model: str) -> Assistant:
    """The assistant of questions that name none: found again by what it is made of, else created."""
    body = AssistantCreate(
        model=model,
        name="assistant-runner",
        instructions=DEFAULT_INSTRUCTIONS,
        tools=list(toolbox.definitions()),
    )
    made_of = hashlib.sha256(json.dumps(body.document(), sort_keys=True).encode()).hexdigest()[:32]
    async for assistant in every(lambda after: backend.list_assistants(after=after)):
        if (assistant.metadata or {}).get(OWN_KEY) == made_of:
            return assistant
    return await backend.create_assistant(body.model_copy(update={"metadata": {OWN_KEY: made_of}}))


def tool_warnings(assistant: Assistant, toolbox: Toolbox) -> list[str]:
    """What to say before a run whose assistant offers functions that are not here (case-087)."""
    missing = compare_tools(assistant, toolbox.names()).missing
    if not missing:
        return []
    return [
        f"the assistant offers {', '.join(missing)}, which is not here: calls of it are answered by an error"
    ]
