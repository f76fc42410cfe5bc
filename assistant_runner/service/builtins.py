"""Built-in tools that the service runs itself: file_search and code_interpreter.

An engine with no hosted form of them is offered each as a function; its call comes back here
instead of going to the client, who never sees built-in calls in a required action.
"""

import json
from typing import Any

from assistant_runner.service.core import Core
from assistant_runner.service.engines.base import Abilities
from assistant_runner.service.interpreter.subprocess import InterpreterFailed, interpret
from assistant_runner.service.outputs import keep_output
from assistant_runner.service.retrieval.search import search_stores
from assistant_runner.service.store.base import Document

_AS_FUNCTIONS: dict[str, Document] = {
    "file_search": {
        "type": "function",
        "function": {
            "name": "file_search",
            "description": (
                "Search the files of this thread and assistant. The results carry a 'marker' each; write it "
                "after every statement that rests on that result, exactly as it stands."
            ),
            "parameters": {
                "type": "object",
                "properties": {"query": {"type": "string", "description": "words to look for"}},
                "required": ["query"],
                "additionalProperties": False,
            },
        },
    },
    "code_interpreter": {
        "type": "function",
        "function": {
            "name": "code_interpreter",
            "description": "Run Python code in a sandbox; what it prints is the result.",
            "parameters": {
                "type": "object",
                "properties": {"input": {"type": "string", "description": "Python source code"}},
                "required": ["input"],
                "additionalProperties": False,
            },
        },
    },
}
_KEYS = {"file_search": "query", "code_interpreter": "input"}


class BuiltinFailed(Exception):
    """The built-in tool could not be run at all."""


def offered_tools(tools: list[Document], abilities: Abilities, *, uses_model: bool) -> list[Document]:
    """A run's tools as its engine gets them: built-in ones it lacks become functions for a model."""
    if not uses_model:
        return tools
    return [
        _AS_FUNCTIONS[tool["type"]]
        if tool["type"] in _AS_FUNCTIONS and not getattr(abilities, tool["type"])
        else tool
        for tool in tools
    ]


def wanted_builtin(call: Document, tools: list[Document]) -> tuple[str, Document] | None:
    """The built-in call that a function call of a model means, or None if it is a function's."""
    name = call["function"]["name"]
    if name not in _KEYS or not any(tool["type"] == name for tool in tools):
        return None
    text = call["function"]["arguments"]
    try:
        arguments = json.loads(text or "{}")
    except ValueError:
        arguments = text
    key = _KEYS[name]
    value = arguments.get(key) if isinstance(arguments, dict) else None
    return name, {key: value if isinstance(value, str) else text}


async def run_builtin(
    core: Core, run: Document, world: str, kind: str, arguments: Document
) -> tuple[Document, Document]:
    """The record of the call as the step shows it, and what the service keeps beside it."""
    if kind == "code_interpreter":
        return await _interpret(core, run, world, arguments)
    return await _search(core, run, world, arguments)


async def _interpret(core: Core, run: Document, world: str, arguments: Document) -> tuple[Document, Document]:
    """Logs and images as the protocol shows them; other files are kept to be cited by their path."""
    settings = core.settings
    if settings.code_interpreter == "off" or (
        settings.code_interpreter == "script" and core.engine.uses_model
    ):
        raise BuiltinFailed("The tool code_interpreter is not offered by this service.")
    code = arguments.get("input", "")
    paths = []
    for file_id in resource_ids(core, run, world, "code_interpreter", "file_ids"):
        row = core.store.get("file", world, file_id)
        if row is not None:
            paths.append((row.doc["filename"], core.shelf.place(file_id)))
    try:
        outcome = await interpret(code, files=paths, timeout_s=settings.interpreter_timeout_s)
    except InterpreterFailed as error:
        raise BuiltinFailed(str(error)) from error
    outputs: list[Document] = [{"type": "logs", "logs": outcome.logs}] if outcome.logs else []
    made = {}
    for name, content in outcome.made:
        file_id = keep_output(core, world, name, content)
        made[name] = file_id
        if name.lower().endswith((".png", ".jpg", ".jpeg", ".gif", ".webp")):
            outputs.append({"type": "image", "image": {"file_id": file_id}})
    return {"input": code, "outputs": outputs}, {"made": made} if made else {}


async def _search(core: Core, run: Document, world: str, arguments: Document) -> tuple[Document, Document]:
    query = arguments.get("query", "")
    options: dict[str, Any] = {}
    for tool in run["tools"]:
        if tool["type"] == "file_search":
            options = tool.get("file_search") or {}
    ranking = options.get("ranking_options") or {"ranker": "default_2024_08_21", "score_threshold": 0}
    stores = resource_ids(core, run, world, "file_search", "vector_store_ids")
    found = await search_stores(
        core,
        world,
        stores,
        [query],
        most=options.get("max_num_results") or 20,
        threshold=ranking.get("score_threshold") or 0,
    )
    turn = sum(1 for row in core.store.scan("thread.run.step", run["id"]) if "results" in row.extra)
    kept = [
        {
            "marker": f"【{turn}:{index}†{entry['filename']}】",
            "file_id": entry["file_id"],
            "file_name": entry["filename"],
            "score": entry["score"],
            "content": entry["content"],
        }
        for index, entry in enumerate(found)
    ]
    shown = [{key: entry[key] for key in ("file_id", "file_name", "score")} for entry in kept]
    record = {
        "ranking_options": {
            "ranker": ranking.get("ranker") or "default_2024_08_21",
            "score_threshold": ranking.get("score_threshold") or 0,
        },
        "results": shown,
    }
    return record, {"query": query, "results": kept}


def resource_ids(core: Core, run: Document, world: str, tool: str, key: str) -> list[str]:
    """What the assistant's and the thread's resources together name for a built-in tool."""
    found = list(((run.get("tool_resources") or {}).get(tool) or {}).get(key) or [])
    thread = core.store.get("thread", world, run["thread_id"])
    if thread is not None:
        found += ((thread.doc.get("tool_resources") or {}).get(tool) or {}).get(key) or []
    return list(dict.fromkeys(found))
