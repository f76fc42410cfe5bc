"""Assistant files out of what people still have: dumps of the old API, Foundry agents, prompt exports.

Each thing found becomes one assistant in the words of an assistant file, with a list of what could not
be carried over and why. Ids of files and vector stores of the old service mean nothing elsewhere: they
are reported, and kept only when told to.
"""

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from assistant_runner.setup.dumps import read_dump
from assistant_runner.setup.model import METADATA_PAIRS, REASONING_EFFORTS
from assistant_runner.setup.writing import file_document, to_yaml
from assistant_runner.wire.assistants import Assistant, AssistantModify

_NO_EFFECT = frozenset({"id", "object", "created_at", "tool_resources", "file_ids"})
_KNOWN = frozenset(AssistantModify.model_fields) - {"tool_resources"}
_VARIABLE = re.compile(r"\{\{\s*[\w.]+\s*\}\}")


@dataclass(slots=True)
class Rescued:
    """One assistant. `kind`: assistant, foundry agent, prompt. `lost`: what was not carried over, and why."""

    kind: str
    source: str
    document: dict[str, Any]
    lost: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        metadata = dict(self.document.get("metadata") or {})
        for key in list(metadata)[METADATA_PAIRS:]:
            del metadata[key]
            self.lost.append(f"metadata {key}: the protocol has 16 pairs, and one names this assistant")
            self.document["metadata"] = metadata

    @property
    def name(self) -> str:
        """The name in the file."""
        return str(self.document["name"])

    def report(self) -> dict[str, Any]:
        """For JSON: what was read, with a hash of its instructions."""
        text = str(self.document.get("instructions") or "")
        return {
            "kind": self.kind,
            "source": self.source,
            "name": self.name,
            "model": self.document.get("model"),
            "tools": len(self.document.get("tools") or []),
            "instructions_characters": len(text),
            "instructions_sha256": hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest(),
            "not_carried_over": self.lost,
        }


@dataclass(slots=True)
class Rescue:
    """All of a file. `strangers`: documents that are no assistant, in words."""

    path: Path
    found: list[Rescued] = field(default_factory=list)
    strangers: list[str] = field(default_factory=list)

    def file_text(self) -> str:
        """The text of an assistant file with all that was found."""
        heads = [f"From {self.path.name}."]
        if any(one.lost for one in self.found):
            heads.append("Not carried over:")
        for one in self.found:
            heads += [f"- {one.name}: {word}" for word in one.lost]
        documents = [one.document for one in self.found]
        document: Any = documents[0] if len(documents) == 1 else {"assistants": documents}
        return to_yaml(document, head="\n".join(heads))

    def report(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "file": str(self.path),
            "assistants": [one.report() for one in self.found],
            "not_assistants": self.strangers,
        }


def rescue(path: Path, *, keep_ids: bool = False) -> Rescue:
    """The assistants of a dump. ConfigurationError if the file cannot be read at all."""
    found = Rescue(path)
    for document in read_dump(path):
        for one in _members(document):
            _rescue_one(one, found, keep_ids)
    names: dict[str, int] = {}
    for item in found.found:
        count = names[item.name] = names.get(item.name, 0) + 1
        if count > 1:
            item.lost.append(f"the name {item.name!r}, which another has; it is numbered")
            item.document["name"] = f"{item.name} ({count})"
    return found


def _members(document: Any) -> Iterator[Any]:
    """The single objects of lists, pages, and maps that hold a list."""
    if isinstance(document, list):
        for one in document:
            yield from _members(one)
        return
    if isinstance(document, dict):
        for key in ("data", "assistants", "agents", "prompts", "value"):
            if isinstance(document.get(key), list) and "model" not in document:
                yield from _members(document[key])
                return
    yield document


def _rescue_one(one: Any, found: Rescue, keep_ids: bool) -> None:
    if not isinstance(one, dict):
        found.strangers.append(f"{type(one).__name__}, not an object")
        return
    kind = one.get("object")
    ident = str(one.get("id") or one.get("name") or f"number {len(found.found) + 1}")
    try:
        if kind == "assistant" or ident.startswith("asst_"):
            found.found.append(_from_assistant(one, ident, keep_ids))
        elif kind in ("agent", "agent.version") or "definition" in one or "versions" in one:
            found.found.append(_from_agent(one, ident, keep_ids))
        elif "model" in one or isinstance(one.get("prompt"), dict):
            inner = one["prompt"] if isinstance(one.get("prompt"), dict) and "model" not in one else one
            found.found.append(_from_prompt(inner, ident, keep_ids))
        else:
            keys = ", ".join(list(one)[:8])
            found.strangers.append(f"{kind or 'an object'} {ident} with the keys {keys}")
    except (ValidationError, ValueError, KeyError, TypeError, AttributeError) as error:
        words = str(error).splitlines()[0]
        found.strangers.append(f"{kind or 'an object'} {ident}: {words}")


def _from_assistant(data: Mapping[str, Any], ident: str, keep_ids: bool) -> Rescued:
    lost: list[str] = []
    tools = _tools(data.get("tools") or [], lost)
    resources = dict(data.get("tool_resources") or {})
    if data.get("file_ids"):  # version 1 of the API hung files on the assistant itself
        resources.setdefault("code_interpreter", {"file_ids": data["file_ids"]})
    kept = _resources(resources, lost, keep_ids)
    shown = {key: value for key, value in data.items() if key in _KNOWN}
    lost += [f"{key}: not a setting of an assistant" for key in data if key not in _KNOWN | _NO_EFFECT]
    if not data.get("name"):
        lost.append("the name: it has none, so its id stands for it")
    assistant = Assistant.model_validate(
        {"id": ident, "created_at": 0, "model": "", **shown, "tools": tools, "tool_resources": kept}
    )
    document = file_document(assistant)
    if not document["model"]:
        del document["model"]
        lost.append("the model: it names none")
    return Rescued("assistant", ident, document, lost)


def _from_agent(data: Mapping[str, Any], ident: str, keep_ids: bool) -> Rescued:
    """A Foundry agent: the definition of its latest version."""
    latest = (data.get("versions") or {}).get("latest") or data
    definition = dict(latest.get("definition") or {})
    kind = definition.pop("kind", "prompt")
    if kind != "prompt":
        raise ValueError(f"a {kind} agent, which is not a prompt with tools")
    name = latest.get("name") or data.get("name") or ident
    inner = {"name": name, "description": latest.get("description"), "metadata": latest.get("metadata")}
    rescued = _from_prompt({**definition, **{k: v for k, v in inner.items() if v}}, ident, keep_ids)
    rescued.kind = "foundry agent"
    version = latest.get("version")
    if version is not None:
        rescued.source = f"{ident} version {version}"
    return rescued


_PROMPT_KEYS = _KNOWN | {"input", "messages", "text", "reasoning", "tool_choice", "parallel_tool_calls"}
_PROMPT_SILENT = frozenset(
    {"id", "object", "created_at", "version", "store", "stream", "variables", "prompt"}
)


def _from_prompt(data: Mapping[str, Any], ident: str, keep_ids: bool) -> Rescued:
    """A stored prompt, or the body of a Responses request: what its instructions and settings say."""
    lost: list[str] = []
    texts = [data["instructions"]] if isinstance(data.get("instructions"), str) else []
    for message in data.get("messages") or data.get("input") or []:
        role = message.get("role") if isinstance(message, dict) else None
        if role in ("system", "developer"):
            texts.append(_text_of(message))
        else:
            lost.append(f"a message of {role or 'an unknown role'}: write it as a prompt file")
    resources: dict[str, Any] = {}
    tools = _tools(data.get("tools") or [], lost, resources)
    shown: dict[str, Any] = {key: data[key] for key in _KNOWN & set(data) if data[key] is not None}
    shown |= {"tools": tools, "tool_resources": _resources(resources, lost, keep_ids)}
    shown["instructions"] = "\n\n".join(text for text in texts if text) or None
    _prompt_settings(data, shown, lost)
    if any(_VARIABLE.search(text) for text in texts):
        lost.append("variables {{…}} in the instructions are kept as text; a prompt file can fill them in")
    lost += [
        f"{key}: not a setting of an assistant" for key in data if key not in _PROMPT_KEYS | _PROMPT_SILENT
    ]
    shown["name"] = data.get("name") or ident
    document = file_document(Assistant.model_validate({"id": ident, "created_at": 0, "model": "", **shown}))
    for key in ("tool_choice", "parallel_tool_calls"):
        value = data.get(key)
        if value is not None and value not in ("auto", True):
            document[key] = (
                {"function": value["name"]} if isinstance(value, dict) and "name" in value else value
            )
    if not document["model"]:
        del document["model"]
        lost.append("the model: it names none")
    return Rescued("prompt", ident, document, lost)


def _prompt_settings(data: Mapping[str, Any], shown: dict[str, Any], lost: list[str]) -> None:
    effort = (data.get("reasoning") or {}).get("effort")
    if effort in REASONING_EFFORTS:
        shown["reasoning_effort"] = effort
    form = (data.get("text") or {}).get("format") or {}
    if form.get("type") == "json_schema":
        inner = {key: value for key, value in form.items() if key != "type"}
        shown["response_format"] = {"type": "json_schema", "json_schema": inner}
    elif form.get("type") == "json_object":
        shown["response_format"] = {"type": "json_object"}
    elif form.get("type") not in (None, "text"):
        lost.append(f"text.format {form['type']}: not known to the protocol")


def _text_of(message: Mapping[str, Any]) -> str:
    content = message.get("content")
    if isinstance(content, str):
        return content
    parts = [part.get("text") for part in content or [] if isinstance(part, dict)]
    return "\n".join(part for part in parts if isinstance(part, str))


def _tools(tools: list[Any], lost: list[str], resources: dict[str, Any] | None = None) -> list[Any]:
    """The protocol's tools out of those of the old API, of Foundry and of Responses."""
    kept = []
    for tool in tools:
        kind = tool.get("type")
        if kind == "function":
            kept.append(_function(tool))
        elif kind == "code_interpreter":
            kept.append({"type": kind})
            ids = (
                (tool.get("container") or {}).get("file_ids")
                if isinstance(tool.get("container"), dict)
                else None
            )
            if ids and resources is not None:
                resources["code_interpreter"] = {"file_ids": ids}
        elif kind in ("file_search", "retrieval"):
            options = dict(tool.get("file_search") or {})
            options |= {k: tool[k] for k in ("max_num_results", "ranking_options") if tool.get(k) is not None}
            kept.append(
                {"type": "file_search", "file_search": options} if options else {"type": "file_search"}
            )
            if tool.get("vector_store_ids") and resources is not None:
                resources["file_search"] = {"vector_store_ids": tool["vector_store_ids"]}
        elif kind == "mcp":
            label, url = tool.get("server_label"), tool.get("server_url")
            lost.append(f"the MCP server {label}: add - mcp: {{name: {label}, url: {url}}} under tools")
        elif kind == "openapi":
            name = (tool.get("openapi") or {}).get("name")
            lost.append(f"the OpenAPI tool {name}: write its requests as http tools")
        else:
            lost.append(f"the tool {kind}: only that service had it")
    return kept


def _function(tool: Mapping[str, Any]) -> dict[str, Any]:
    """A function in the protocol's nested form; Responses has it flat."""
    inner = tool.get("function") or {key: value for key, value in tool.items() if key != "type"}
    known = {k: v for k, v in inner.items() if k in ("name", "description", "parameters", "strict")}
    return {"type": "function", "function": known}


def _resources(resources: Mapping[str, Any], lost: list[str], keep_ids: bool) -> dict[str, Any] | None:
    files = (resources.get("code_interpreter") or {}).get("file_ids") or []
    stores = (resources.get("file_search") or {}).get("vector_store_ids") or []
    if keep_ids:
        kept: dict[str, Any] = {}
        if files:
            kept["code_interpreter"] = {"file_ids": files}
        if stores:
            kept["file_search"] = {"vector_store_ids": stores}
        return kept or None
    if files:
        lost.append(
            f"files {', '.join(files)}: get them, and name them under code_interpreter: {{files: […]}}"
        )
    for store in stores:
        lost.append(f"vector store {store}: get its files, and name them under file_search: {{files: […]}}")
    lost += [f"tool_resources.{key}" for key in resources if key not in ("code_interpreter", "file_search")]
    return None
