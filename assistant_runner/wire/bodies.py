"""The request bodies of Assistants v2 with their limits (reference, sections 4, 7 and 13).

Each name is a check for one body: `check_run_create(document, "")` returns nothing or raises `Flaw`.
Closed where the protocol's schema is closed; inner objects that the schema leaves open stay open.
"""

import json
import math
from typing import Any

from assistant_runner.wire.checks import (
    Check,
    Flaw,
    anything,
    array,
    boolean,
    fields,
    integer,
    mapping,
    number,
    one_of,
    optional,
    string,
    string_or,
    tagged,
    wrong_type,
    wrong_value,
)

TEXT_LIMIT = 256_000
OUTPUT_LIMIT = 10_485_760
"""Characters of one tool output, and of all outputs of one submission together."""

HOSTED_TOOL_LIMIT = 65_536
"""Characters of one hosted tool's definition, as JSON: it is open below its type."""

IDENTIFIER = r"[a-zA-Z0-9_-]+"

metadata = optional(mapping(string(longest=512), most=16))


def _attribute(value: Any, path: str) -> None:
    if isinstance(value, str):
        string(longest=512)(value, path)
    elif not isinstance(value, bool | int | float):
        raise wrong_type(path, "a string, number, or boolean", value)
    elif isinstance(value, float) and not math.isfinite(value):
        raise wrong_value(path, "the number is too large.")


attributes = optional(mapping(_attribute, most=16))

ids = array(string())


def _static_sizes(value: Any, path: str) -> None:
    fields(
        {
            "max_chunk_size_tokens": integer(least=100, most=4096),
            "chunk_overlap_tokens": integer(least=0),
        },
        required=("max_chunk_size_tokens", "chunk_overlap_tokens"),
    )(value, path)
    if value["chunk_overlap_tokens"] * 2 > value["max_chunk_size_tokens"]:
        raise wrong_value(f"{path}.chunk_overlap_tokens", "must not exceed half of 'max_chunk_size_tokens'.")


chunking = optional(
    tagged(
        {
            "auto": fields({"type": anything}),
            "static": fields({"type": anything, "static": _static_sizes}, required=("type", "static")),
        }
    )
)

# tools, tool choice, response format

ranking_options = fields(
    {"score_threshold": number(least=0, most=1), "ranker": optional(one_of("auto", "default_2024_08_21"))},
    required=("score_threshold",),
    closed=False,
)

function_definition = fields(
    {
        "name": string(longest=64, shortest=1, pattern=IDENTIFIER),
        "description": optional(string()),
        "parameters": optional(fields({}, closed=False)),
        "strict": optional(boolean),
    },
    required=("name",),
    closed=False,
)


def _hosted(value: Any, path: str) -> None:
    size = len(json.dumps(value))
    if size > HOSTED_TOOL_LIMIT:
        raise wrong_value(
            path, f"definition too long. Expected at most {HOSTED_TOOL_LIMIT} characters, but got {size}."
        )


_mcp_fields = fields(
    {
        "server_label": string(longest=64, shortest=1, pattern=IDENTIFIER),
        "server_url": optional(string(shortest=1)),
        "connector_id": optional(string(shortest=1)),
        "tunnel_id": optional(string(shortest=1)),
        "authorization": optional(string()),
        "headers": optional(mapping(string(), most=64, longest_key=256)),
        "require_approval": optional(
            string_or(one_of("always", "never"), dict, anything, "a string or an object")
        ),
    },
    required=("server_label",),
    closed=False,
)


def _mcp(value: Any, path: str) -> None:
    """A hosted MCP server (responses reference, section 5.3): one way to reach it is needed."""
    _mcp_fields(value, path)
    if not any(value.get(name) for name in ("server_url", "connector_id", "tunnel_id")):
        name = f"{path}.server_url"
        raise Flaw(f"Missing required parameter: '{name}'.", code="missing_required_parameter", param=name)
    _hosted(value, path)


tool = tagged(
    {
        "code_interpreter": anything,
        "file_search": fields(
            {
                "file_search": optional(
                    fields(
                        {
                            "max_num_results": optional(integer(least=1, most=50)),
                            "ranking_options": optional(ranking_options),
                        },
                        closed=False,
                    )
                )
            },
            closed=False,
        ),
        "function": fields({"function": function_definition}, required=("function",), closed=False),
        "web_search": _hosted,
        "web_search_preview": _hosted,
        "mcp": _mcp,
    }
)

tool_choice = optional(
    string_or(
        one_of("none", "auto", "required"),
        dict,
        tagged(
            {
                "function": fields(
                    {"function": fields({"name": string(longest=64)}, required=("name",), closed=False)},
                    required=("function",),
                    closed=False,
                ),
                "code_interpreter": anything,
                "file_search": anything,
            }
        ),
        "a string or an object",
    )
)

response_format = optional(
    string_or(
        one_of("auto"),
        dict,
        tagged(
            {
                "text": anything,
                "json_object": anything,
                "json_schema": fields(
                    {
                        "json_schema": fields(
                            {
                                "name": string(longest=64, shortest=1, pattern=IDENTIFIER),
                                "description": optional(string()),
                                "schema": optional(fields({}, closed=False)),
                                "strict": optional(boolean),
                            },
                            required=("name",),
                            closed=False,
                        )
                    },
                    required=("json_schema",),
                    closed=False,
                ),
            }
        ),
        "a string or an object",
    )
)

reasoning_effort = optional(one_of("none", "minimal", "low", "medium", "high", "xhigh", "max"))
temperature = optional(number(least=0, most=2))
top_p = optional(number(least=0, most=1))

# tool resources

_code_files = optional(fields({"file_ids": optional(array(string(), longest=20))}, closed=False))

_new_store = fields(
    {
        "file_ids": optional(array(string(), longest=10_000)),
        "chunking_strategy": chunking,
        "metadata": metadata,
    },
    closed=False,
)


def _resources(*, shortcut: bool) -> Check:
    search: dict[str, Check] = {"vector_store_ids": optional(array(string(), longest=1))}
    if shortcut:
        search["vector_stores"] = optional(array(_new_store, longest=1))
    inner = fields(
        {"code_interpreter": _code_files, "file_search": optional(fields(search, closed=False))}, closed=False
    )

    def check(value: Any, path: str) -> None:
        inner(value, path)
        found = value.get("file_search") or {}
        if "vector_stores" not in found:
            return
        name = f"{path}.file_search.vector_stores"
        if not shortcut:
            raise Flaw(f"Unknown parameter: '{name}'.", code="unknown_parameter", param=name)
        if found["vector_stores"] and found.get("vector_store_ids"):
            raise wrong_value(name, "give either 'vector_store_ids' or 'vector_stores', not both.")

    return optional(check)


new_resources = _resources(shortcut=True)
resources = _resources(shortcut=False)

# messages

_detail = optional(one_of("auto", "low", "high"))

message_part = tagged(
    {
        "text": fields({"text": string(longest=TEXT_LIMIT)}, required=("text",), closed=False),
        "image_file": fields(
            {
                "image_file": fields(
                    {"file_id": string(), "detail": _detail}, required=("file_id",), closed=False
                )
            },
            required=("image_file",),
            closed=False,
        ),
        "image_url": fields(
            {"image_url": fields({"url": string(), "detail": _detail}, required=("url",), closed=False)},
            required=("image_url",),
            closed=False,
        ),
    }
)

attachment = fields(
    {
        "file_id": string(),
        "tools": optional(array(tagged({"code_interpreter": anything, "file_search": anything}))),
    },
    closed=False,
)

check_message_create = fields(
    {
        "role": one_of("user", "assistant"),
        "content": string_or(
            string(longest=TEXT_LIMIT),
            list,
            array(message_part, shortest=1),
            "a string or an array",
        ),
        "attachments": optional(array(attachment)),
        "metadata": metadata,
    },
    required=("role", "content"),
)

check_metadata_modify = fields({"metadata": metadata})

# threads

check_thread_create = fields(
    {
        "messages": optional(array(check_message_create)),
        "tool_resources": new_resources,
        "metadata": metadata,
    }
)
check_thread_modify = fields({"tool_resources": resources, "metadata": metadata})

# assistants

_assistant: dict[str, Check] = {
    "model": string(shortest=1),
    "name": optional(string(longest=256)),
    "description": optional(string(longest=512)),
    "instructions": optional(string(longest=TEXT_LIMIT)),
    "tools": optional(array(tool, longest=128)),
    "tool_resources": new_resources,
    "metadata": metadata,
    "temperature": temperature,
    "top_p": top_p,
    "reasoning_effort": reasoning_effort,
    "response_format": response_format,
}
check_assistant_create = fields(_assistant, required=("model",))
check_assistant_modify = fields(
    _assistant | {"model": optional(string(shortest=1)), "tool_resources": resources}
)

# runs


def _truncation(value: Any, path: str) -> None:
    fields(
        {"type": one_of("auto", "last_messages"), "last_messages": optional(integer(least=1))},
        required=("type",),
        closed=False,
    )(value, path)
    if value["type"] == "last_messages" and value.get("last_messages") is None:
        name = f"{path}.last_messages"
        raise Flaw(f"Missing required parameter: '{name}'.", code="missing_required_parameter", param=name)


_run: dict[str, Check] = {
    "assistant_id": string(),
    "model": optional(string(shortest=1)),
    "instructions": optional(string(longest=TEXT_LIMIT)),
    "tools": optional(array(tool, longest=20)),
    "metadata": metadata,
    "temperature": temperature,
    "top_p": top_p,
    "stream": optional(boolean),
    "max_prompt_tokens": optional(integer(least=256)),
    "max_completion_tokens": optional(integer(least=256)),
    "truncation_strategy": optional(_truncation),
    "tool_choice": tool_choice,
    "parallel_tool_calls": optional(boolean),
    "response_format": response_format,
}
check_run_create = fields(
    _run
    | {
        "additional_instructions": optional(string(longest=TEXT_LIMIT)),
        "additional_messages": optional(array(check_message_create)),
        "reasoning_effort": reasoning_effort,
    },
    required=("assistant_id",),
)
check_thread_and_run_create = fields(
    _run | {"thread": optional(check_thread_create), "tool_resources": resources},
    required=("assistant_id",),
)


def check_submit(value: Any, path: str) -> None:
    """The outputs of one required action, whose sum is limited as one output is, or its approvals."""
    if isinstance(value, dict) and value.get("tool_approvals") is not None:
        _submit_approvals(value, path)
        return
    _submit(value, path)
    total = sum(len(entry["output"]) for entry in value["tool_outputs"])
    if total > OUTPUT_LIMIT:
        raise Flaw(
            f"Invalid 'tool_outputs': outputs too long. Expected at most {OUTPUT_LIMIT} characters in all, "
            f"but got {total} instead.",
            code="string_above_max_length",
            param="tool_outputs",
        )


_submit = fields(
    {
        "tool_outputs": array(
            fields(
                {"tool_call_id": string(), "output": string(longest=OUTPUT_LIMIT)},
                required=("tool_call_id", "output"),
                closed=False,
            )
        ),
        "tool_approvals": optional(anything),
        "stream": optional(boolean),
    },
    required=("tool_outputs",),
)


def _no_outputs(value: Any, path: str) -> None:
    if value not in (None, []):
        raise wrong_value(path, "give either 'tool_outputs' or 'tool_approvals', not both.")


def _no_headers(value: Any, path: str) -> None:
    if value not in (None, {}):
        raise wrong_value(path, "headers of an MCP server belong to its tool, not to an approval.")


_submit_approvals = fields(
    {
        "tool_approvals": array(
            fields(
                {"tool_call_id": string(), "approve": boolean, "headers": _no_headers},
                required=("tool_call_id", "approve"),
                closed=False,
            )
        ),
        "tool_outputs": _no_outputs,
        "stream": optional(boolean),
    },
    required=("tool_approvals",),
)

# files and vector stores

_expires_after = optional(
    fields(
        {"anchor": one_of("last_active_at"), "days": integer(least=1, most=365)},
        required=("anchor", "days"),
        closed=False,
    )
)

check_vector_store_create = fields(
    {
        "file_ids": optional(array(string(), longest=500)),
        "name": optional(string()),
        "description": optional(string()),
        "expires_after": _expires_after,
        "chunking_strategy": chunking,
        "metadata": metadata,
    }
)
check_vector_store_modify = fields(
    {"name": optional(string()), "expires_after": _expires_after, "metadata": metadata}
)

_store_file = {"file_id": string(), "chunking_strategy": chunking, "attributes": attributes}
check_vector_store_file_create = fields(_store_file, required=("file_id",))
check_vector_store_file_modify = fields({"attributes": attributes}, required=("attributes",))

_batch = fields(
    {
        "file_ids": optional(array(string(), longest=2000, shortest=1)),
        "files": optional(array(check_vector_store_file_create, longest=2000, shortest=1)),
        "chunking_strategy": chunking,
        "attributes": attributes,
    }
)


def check_file_batch_create(value: Any, path: str) -> None:
    _batch(value, path)
    given = [name for name in ("file_ids", "files") if value.get(name) is not None]
    if not given:
        raise Flaw(
            "Missing required parameter: 'file_ids'.", code="missing_required_parameter", param="file_ids"
        )
    if len(given) == 2:
        raise wrong_value("files", "give either 'file_ids' or 'files', not both.")


def _filter_value(value: Any, path: str) -> None:
    entries = value if isinstance(value, list) else [value]
    for entry in entries:
        if not isinstance(entry, str | int | float):
            raise wrong_type(path, "a string, number, boolean, or an array of strings or numbers", entry)


_comparison = fields(
    {"type": anything, "key": string(), "value": _filter_value}, required=("type", "key", "value")
)


def _filter(value: Any, path: str, depth: int = 0) -> None:
    if depth > 16:
        raise wrong_value(path, "filters are nested too deeply; at most 16 levels.")

    def nested(entry: Any, entry_path: str) -> None:
        _filter(entry, entry_path, depth + 1)

    compound = fields({"type": anything, "filters": array(nested)}, required=("type", "filters"))
    comparisons = dict.fromkeys(("eq", "ne", "gt", "gte", "lt", "lte", "in", "nin"), _comparison)
    tagged({**comparisons, "and": compound, "or": compound})(value, path)


check_vector_store_search = fields(
    {
        "query": string_or(
            string(shortest=1), list, array(string(shortest=1), shortest=1), "a string or an array"
        ),
        "rewrite_query": optional(boolean),
        "max_num_results": optional(integer(least=1, most=50)),
        "filters": optional(_filter),
        "ranking_options": optional(
            fields(
                {
                    "ranker": optional(one_of("none", "auto", "default-2024-11-15")),
                    "score_threshold": optional(number(least=0, most=1)),
                }
            )
        ),
    },
    required=("query",),
)
