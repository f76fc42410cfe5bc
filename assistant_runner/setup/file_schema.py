"""The JSON Schema of an assistant file, for editors: built from the models that check the file.

Editors complete keys and underline misspelled ones with it; what it cannot say (globs that find nothing,
strict schemas) the loader says.
"""

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from assistant_runner.setup.model import (
    AssistantBody,
    BackendEntry,
    CodeInterpreterEntry,
    EngineEntry,
    FileSearchEntry,
    FunctionEntry,
    InstructionsEntry,
    LimitsEntry,
    LocalTool,
    PolicyEntry,
    ResourcesEntry,
)
from assistant_runner.tooling.entries import ENTRY_MODELS

SCHEMA_ID = "https://json-schema.org/draft/2020-12/schema"
_DURATION = {"description": "Seconds, or text such as 60s, 10m, 1h30m.", "type": ["number", "string"]}
_WORDS = {
    "name": "The assistant's name; together with project it is how the assistant is found again.",
    "model": "Model or deployment; an alias of model_aliases; without it the default model is used.",
    "instructions": "The system prompt: text, or {file} or {text} with expand: true to put in variables.",
    "tools": "Names, addresses (./my_tools.py:book_table), hosted tools, http, command, mcp, functions.",
    "extends": "An assistant of this file, or a file, that this one lies over. Maps are merged.",
    "profiles": "Overlays by name, chosen with --profile or ASSISTANT_RUNNER_PROFILE.",
    "project": "Keeps assistants of one name apart on a shared backend.",
    "abstract": "Only there to be extended.",
    "fix_schemas": "Make strict function schemas strict instead of refusing them.",
    "policy": "Which tool calls run, ask a person, or are refused.",
    "limits": "Limits of a run.",
    "backend": "embedded, a base URL, or a map.",
    "engine": "What thinks, where the backend is embedded.",
}


def file_schema() -> dict[str, Any]:
    """A self-contained JSON Schema (2020-12)."""
    definitions: dict[str, Any] = {}
    assistant = _assistant(definitions)
    several = {
        "type": "object",
        "required": ["assistants"],
        "additionalProperties": False,
        "patternProperties": {"^x-": {}},
        "properties": {
            "$schema": {"type": "string"},
            "project": {"type": "string", "description": _WORDS["project"]},
            "defaults": {"$ref": "#/$defs/overlay"},
            "profiles": _map_of({"$ref": "#/$defs/overlay"}, _WORDS["profiles"]),
            "assistants": {
                "anyOf": [
                    {"type": "array", "items": {"$ref": "#/$defs/overlay"}},
                    _map_of({"anyOf": [{"$ref": "#/$defs/overlay"}, {"type": "null"}]}, "By name."),
                ]
            },
        },
    }
    overlay = {key: value for key, value in assistant.items() if key != "required"}
    definitions |= {"assistant": assistant, "overlay": overlay, "assistants": several}
    return {
        "$schema": SCHEMA_ID,
        "title": "Assistant file of assistant-runner",
        "if": {"required": ["assistants"]},
        "then": {"$ref": "#/$defs/assistants"},
        "else": {"anyOf": [{"$ref": "#/$defs/assistant"}, {"$ref": "#/$defs/extending"}]},
        "$defs": {**definitions, "extending": {**overlay, "required": ["extends"]}},
    }


def _assistant(definitions: dict[str, Any]) -> dict[str, Any]:
    schema = _model(AssistantBody, definitions)
    properties = schema["properties"]
    text = {"type": "string"}
    forms: Mapping[str, list[Any]] = {
        "instructions": [text, _model(InstructionsEntry, definitions)],
        "response_format": [{"enum": ["auto", "text", "json_object"]}, {"type": "object"}],
        "tool_choice": [
            {"enum": ["auto", "none", "required", "file_search", "code_interpreter"]},
            {"type": "object"},
        ],
        "tool_resources": [_model(ResourcesEntry, definitions)],
        "backend": [text, _model(BackendEntry, definitions)],
        "engine": [text, _model(EngineEntry, definitions)],
        "limits": [_model(LimitsEntry, definitions)],
        "policy": [_model(PolicyEntry, definitions)],
    }
    for name, options in forms.items():
        properties[name] = {"anyOf": options}
    properties["tools"] = {"type": "array", "maxItems": 128, "items": {"$ref": "#/$defs/tool"}}
    definitions["tool"] = {"anyOf": _tools(definitions)}
    properties["temperature"] = {"type": ["number", "null"], "minimum": 0, "maximum": 2}
    properties["top_p"] = {"type": ["number", "null"], "minimum": 0, "maximum": 1}
    properties |= {
        "extends": {"anyOf": [text, {"type": "array", "items": text}]},
        "profiles": _map_of({"type": "object"}, ""),
        "project": text,
        "abstract": {"type": "boolean"},
        "$schema": text,
    }
    for name, words in _WORDS.items():
        properties[name] = {**properties[name], "description": words}
    schema["patternProperties"] = {"^x-": {}}
    return schema


def _tools(definitions: dict[str, Any]) -> list[Any]:
    local = _model(LocalTool, definitions)
    named = {**local, "properties": {**local["properties"], "name": {"type": "string"}}}
    named.pop("required", None)
    hosted: dict[str, type[BaseModel]] = {
        "code_interpreter": CodeInterpreterEntry,
        "file_search": FileSearchEntry,
    }
    keyed: dict[str, type[BaseModel]] = dict(hosted)
    keyed |= {"function": FunctionEntry, **ENTRY_MODELS}
    options: list[Any] = [
        {"type": "string", "examples": ["get_weather", "code_interpreter", "./my_tools.py:book_table"]},
        {**named, "anyOf": [{"required": ["tool"]}, {"required": ["name"]}]},
        {"type": "object", "required": ["type"], "properties": {"type": {"enum": [*hosted, "function"]}}},
    ]
    for key, model in keyed.items():
        entry = _model(model, definitions)
        if key in ENTRY_MODELS:
            entry["properties"]["timeout"] = _DURATION
        inner = {"anyOf": [entry, {"type": "null"}]} if key in hosted else entry
        options.append(
            {"type": "object", "required": [key], "additionalProperties": False, "properties": {key: inner}}
        )
    options.append(
        {
            "type": "object",
            "description": "A local tool by name, with what is changed.",
            "minProperties": 1,
            "maxProperties": 1,
            "propertyNames": {"not": {"enum": [*keyed, "tool", "name", "type"]}},
            "additionalProperties": {"anyOf": [{**local, "required": []}, {"type": "null"}]},
        }
    )
    return options


def _map_of(value: Any, words: str) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": value, **({"description": words} if words else {})}


def _model(model: type[BaseModel], definitions: dict[str, Any]) -> dict[str, Any]:
    """The schema of a model; what it refers to goes to `definitions`."""
    schema = model.model_json_schema(ref_template="#/$defs/{model}")
    definitions |= schema.pop("$defs", {})
    schema.pop("title", None)
    for name, field in schema.get("properties", {}).items():
        field.pop("title", None)
        if name in ("timeout", "tool_timeout"):
            schema["properties"][name] = dict(_DURATION)
    return schema
