"""Request bodies: every limit of the reference has its code, its path and its words (sections 4, 13, 14)."""

from typing import Any

import pytest

from assistant_runner.wire import bodies
from assistant_runner.wire.checks import Check, Flaw
from tests.service.protocol import OPERATIONS

MODEL = {"model": "m"}
RUN = {"assistant_id": "asst_a"}
MESSAGE = {"role": "user", "content": "hi"}
FUNCTION = {"type": "function", "function": {"name": "f"}}


def flaw_of(check: Check, body: Any) -> tuple[str | None, str | None]:
    with pytest.raises(Flaw) as caught:
        check(body, "")
    return caught.value.code, caught.value.param


def code_of(check: Check, body: Any) -> str | None:
    try:
        check(body, "")
    except Flaw as flaw:
        return flaw.code
    return None


def with_tools(count: int) -> dict[str, Any]:
    return {"tools": [FUNCTION] * count}


ASSISTANT_FLAWS = {
    "no model": ({}, "missing_required_parameter", "model"),
    "model null": ({"model": None}, "invalid_type", "model"),
    "unknown key": ({**MODEL, "modle": 1}, "unknown_parameter", "modle"),
    "name": ({**MODEL, "name": "x" * 257}, "string_above_max_length", "name"),
    "description": ({**MODEL, "description": "x" * 513}, "string_above_max_length", "description"),
    "instructions": ({**MODEL, "instructions": "x" * 256_001}, "string_above_max_length", "instructions"),
    "tools": ({**MODEL, **with_tools(129)}, "array_above_max_length", "tools"),
    "tools no array": ({**MODEL, "tools": {}}, "invalid_type", "tools"),
    "tool no object": ({**MODEL, "tools": ["f"]}, "invalid_type", "tools[0]"),
    "tool type": ({**MODEL, "tools": [{"type": "browser"}]}, "invalid_value", "tools[0].type"),
    "tool without type": ({**MODEL, "tools": [{}]}, "missing_required_parameter", "tools[0].type"),
    "function name": (
        {**MODEL, "tools": [FUNCTION, {"type": "function", "function": {"name": "x" * 65}}]},
        "string_above_max_length",
        "tools[1].function.name",
    ),
    "function name letters": (
        {**MODEL, "tools": [{"type": "function", "function": {"name": "get weather"}}]},
        "invalid_value",
        "tools[0].function.name",
    ),
    "function missing": (
        {**MODEL, "tools": [{"type": "function"}]},
        "missing_required_parameter",
        "tools[0].function",
    ),
    "search results": (
        {**MODEL, "tools": [{"type": "file_search", "file_search": {"max_num_results": 51}}]},
        "integer_above_max_value",
        "tools[0].file_search.max_num_results",
    ),
    "threshold missing": (
        {**MODEL, "tools": [{"type": "file_search", "file_search": {"ranking_options": {}}}]},
        "missing_required_parameter",
        "tools[0].file_search.ranking_options.score_threshold",
    ),
    "metadata pairs": (
        {**MODEL, "metadata": {str(n): "" for n in range(17)}},
        "object_above_max_properties",
        "metadata",
    ),
    "metadata key": ({**MODEL, "metadata": {"k" * 65: ""}}, "string_above_max_length", "metadata"),
    "metadata value": ({**MODEL, "metadata": {"k": "v" * 513}}, "string_above_max_length", "metadata.k"),
    "metadata number": ({**MODEL, "metadata": {"k": 1}}, "invalid_type", "metadata.k"),
    "temperature high": ({**MODEL, "temperature": 2.1}, "decimal_above_max_value", "temperature"),
    "temperature low": ({**MODEL, "temperature": -1}, "decimal_below_min_value", "temperature"),
    "temperature text": ({**MODEL, "temperature": "1"}, "invalid_type", "temperature"),
    "top_p": ({**MODEL, "top_p": 1.5}, "decimal_above_max_value", "top_p"),
    "top_p boolean": ({**MODEL, "top_p": True}, "invalid_type", "top_p"),
    "effort": ({**MODEL, "reasoning_effort": "extreme"}, "invalid_value", "reasoning_effort"),
    "format word": ({**MODEL, "response_format": "json"}, "invalid_value", "response_format"),
    "format type": ({**MODEL, "response_format": {"type": "xml"}}, "invalid_value", "response_format.type"),
    "format name": (
        {**MODEL, "response_format": {"type": "json_schema", "json_schema": {}}},
        "missing_required_parameter",
        "response_format.json_schema.name",
    ),
    "code files": (
        {**MODEL, "tool_resources": {"code_interpreter": {"file_ids": ["file-a"] * 21}}},
        "array_above_max_length",
        "tool_resources.code_interpreter.file_ids",
    ),
    "stores": (
        {**MODEL, "tool_resources": {"file_search": {"vector_store_ids": ["vs_a", "vs_b"]}}},
        "array_above_max_length",
        "tool_resources.file_search.vector_store_ids",
    ),
    "both store forms": (
        {**MODEL, "tool_resources": {"file_search": {"vector_store_ids": ["vs_a"], "vector_stores": [{}]}}},
        "invalid_value",
        "tool_resources.file_search.vector_stores",
    ),
    "overlap": (
        {
            **MODEL,
            "tool_resources": {
                "file_search": {
                    "vector_stores": [
                        {
                            "chunking_strategy": {
                                "type": "static",
                                "static": {"max_chunk_size_tokens": 100, "chunk_overlap_tokens": 51},
                            }
                        }
                    ]
                }
            },
        },
        "invalid_value",
        "tool_resources.file_search.vector_stores[0].chunking_strategy.static.chunk_overlap_tokens",
    ),
}


@pytest.mark.parametrize(("body", "code", "param"), ASSISTANT_FLAWS.values(), ids=ASSISTANT_FLAWS)
def test_a_flaw_of_an_assistant_is_named(body: Any, code: str, param: str):
    assert flaw_of(bodies.check_assistant_create, body) == (code, param)


RUN_FLAWS = {
    "no assistant": ({}, "missing_required_parameter", "assistant_id"),
    "tools": ({**RUN, **with_tools(21)}, "array_above_max_length", "tools"),
    "prompt budget": ({**RUN, "max_prompt_tokens": 255}, "integer_below_min_value", "max_prompt_tokens"),
    "completion budget": (
        {**RUN, "max_completion_tokens": 1},
        "integer_below_min_value",
        "max_completion_tokens",
    ),
    "budget fraction": ({**RUN, "max_prompt_tokens": 300.5}, "invalid_type", "max_prompt_tokens"),
    "choice": ({**RUN, "tool_choice": "always"}, "invalid_value", "tool_choice"),
    "choice function": (
        {**RUN, "tool_choice": {"type": "function"}},
        "missing_required_parameter",
        "tool_choice.function",
    ),
    "choice type": ({**RUN, "tool_choice": 7}, "invalid_type", "tool_choice"),
    "stream": ({**RUN, "stream": "yes"}, "invalid_type", "stream"),
    "truncation": (
        {**RUN, "truncation_strategy": {"type": "last_messages"}},
        "missing_required_parameter",
        "truncation_strategy.last_messages",
    ),
    "truncation count": (
        {**RUN, "truncation_strategy": {"type": "last_messages", "last_messages": 0}},
        "integer_below_min_value",
        "truncation_strategy.last_messages",
    ),
    "message role": (
        {**RUN, "additional_messages": [MESSAGE, {"role": "system", "content": "x"}]},
        "invalid_value",
        "additional_messages[1].role",
    ),
}


@pytest.mark.parametrize(("body", "code", "param"), RUN_FLAWS.values(), ids=RUN_FLAWS)
def test_a_flaw_of_a_run_is_named(body: Any, code: str, param: str):
    assert flaw_of(bodies.check_run_create, body) == (code, param)


@pytest.mark.parametrize("name", ["additional_instructions", "additional_messages", "reasoning_effort"])
def test_create_thread_and_run_lacks_what_only_runs_take(name: str):
    assert flaw_of(bodies.check_thread_and_run_create, {**RUN, name: None}) == ("unknown_parameter", name)


MESSAGE_FLAWS = {
    "no role": ({"content": "x"}, "missing_required_parameter", "role"),
    "no content": ({"role": "user"}, "missing_required_parameter", "content"),
    "long": ({"role": "user", "content": "x" * 256_001}, "string_above_max_length", "content"),
    "no parts": ({"role": "user", "content": []}, "empty_array", "content"),
    "number": ({"role": "user", "content": 7}, "invalid_type", "content"),
    "answer's text": (
        {"role": "user", "content": [{"type": "text", "text": {"value": "x"}}]},
        "invalid_type",
        "content[0].text",
    ),
    "part type": ({"role": "user", "content": [{"type": "audio"}]}, "invalid_value", "content[0].type"),
    "detail": (
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x", "detail": "max"}}]},
        "invalid_value",
        "content[0].image_url.detail",
    ),
    "attachment tool": (
        {**MESSAGE, "attachments": [{"file_id": "file-a", "tools": [{"type": "function"}]}]},
        "invalid_value",
        "attachments[0].tools[0].type",
    ),
}


@pytest.mark.parametrize(("body", "code", "param"), MESSAGE_FLAWS.values(), ids=MESSAGE_FLAWS)
def test_a_flaw_of_a_message_is_named(body: Any, code: str, param: str):
    assert flaw_of(bodies.check_message_create, body) == (code, param)


OTHER_FLAWS = {
    "outputs": (bodies.check_submit, {"tool_outputs": "x"}, "invalid_type", "tool_outputs"),
    "output size": (
        bodies.check_submit,
        {"tool_outputs": [{"tool_call_id": "call_a", "output": "x" * (bodies.OUTPUT_LIMIT + 1)}]},
        "string_above_max_length",
        "tool_outputs[0].output",
    ),
    "output sum": (
        bodies.check_submit,
        {"tool_outputs": [{"tool_call_id": "a", "output": "x" * 6_000_000}] * 2},
        "string_above_max_length",
        "tool_outputs",
    ),
    "store days": (
        bodies.check_vector_store_create,
        {"expires_after": {"anchor": "last_active_at", "days": 366}},
        "integer_above_max_value",
        "expires_after.days",
    ),
    "store files": (
        bodies.check_vector_store_create,
        {"file_ids": ["file-a"] * 501},
        "array_above_max_length",
        "file_ids",
    ),
    "attribute": (
        bodies.check_vector_store_file_create,
        {"file_id": "file-a", "attributes": {"a": []}},
        "invalid_type",
        "attributes.a",
    ),
    "attributes missing": (
        bodies.check_vector_store_file_modify,
        {},
        "missing_required_parameter",
        "attributes",
    ),
    "batch empty": (bodies.check_file_batch_create, {}, "missing_required_parameter", "file_ids"),
    "batch both": (
        bodies.check_file_batch_create,
        {"file_ids": ["file-a"], "files": [{"file_id": "file-a"}]},
        "invalid_value",
        "files",
    ),
    "batch size": (
        bodies.check_file_batch_create,
        {"file_ids": ["file-a"] * 2001},
        "array_above_max_length",
        "file_ids",
    ),
    "query": (bodies.check_vector_store_search, {"query": [""]}, "string_below_min_length", "query[0]"),
    "results": (
        bodies.check_vector_store_search,
        {"query": "x", "max_num_results": 51},
        "integer_above_max_value",
        "max_num_results",
    ),
    "filter": (
        bodies.check_vector_store_search,
        {"query": "x", "filters": {"type": "and", "filters": [{"type": "like"}]}},
        "invalid_value",
        "filters.filters[0].type",
    ),
    "ranker spelling": (
        bodies.check_vector_store_search,
        {"query": "x", "ranking_options": {"ranker": "default_2024_08_21"}},
        "invalid_value",
        "ranking_options.ranker",
    ),
}


@pytest.mark.parametrize(("check", "body", "code", "param"), OTHER_FLAWS.values(), ids=OTHER_FLAWS)
def test_a_flaw_of_another_body_is_named(check: Check, body: Any, code: str, param: str):
    assert flaw_of(check, body) == (code, param)


def test_the_words_are_those_that_clients_match():
    body = {**MODEL, "name": "é" * 300}

    with pytest.raises(Flaw) as caught:
        bodies.check_assistant_create(body, "")

    assert caught.value.message == (
        "Invalid 'name': string too long. Expected a string with maximum length 256, "
        "but got a string with length 300 instead."
    )


CHECKS = {
    "POST /assistants": bodies.check_assistant_create,
    "POST /assistants/{assistant_id}": bodies.check_assistant_modify,
    "POST /threads": bodies.check_thread_create,
    "POST /threads/{thread_id}": bodies.check_thread_modify,
    "POST /threads/runs": bodies.check_thread_and_run_create,
    "POST /threads/{thread_id}/messages": bodies.check_message_create,
    "POST /threads/{thread_id}/messages/{message_id}": bodies.check_metadata_modify,
    "POST /threads/{thread_id}/runs": bodies.check_run_create,
    "POST /threads/{thread_id}/runs/{run_id}": bodies.check_metadata_modify,
    "POST /threads/{thread_id}/runs/{run_id}/submit_tool_outputs": bodies.check_submit,
    "POST /vector_stores": bodies.check_vector_store_create,
    "POST /vector_stores/{vector_store_id}": bodies.check_vector_store_modify,
    "POST /vector_stores/{vector_store_id}/search": bodies.check_vector_store_search,
    "POST /vector_stores/{vector_store_id}/files": bodies.check_vector_store_file_create,
    "POST /vector_stores/{vector_store_id}/files/{file_id}": bodies.check_vector_store_file_modify,
    "POST /vector_stores/{vector_store_id}/file_batches": bodies.check_file_batch_create,
}
WITH_BODY = [
    operation
    for operation in OPERATIONS
    if operation.get("request") and operation["request"]["content_type"] == "application/json"
]


@pytest.mark.parametrize("operation", WITH_BODY, ids=lambda operation: operation["operation_id"])
def test_a_body_takes_exactly_the_keys_of_the_protocol(operation: dict[str, Any]):
    schema = operation["request"]["schema"]
    check = CHECKS[f"{operation['method']} {operation['path']}"]

    for name in schema["properties"]:
        assert code_of(check, {name: None}) != "unknown_parameter", name
    with pytest.raises(Flaw, match="Unknown parameter: 'surprise'"):
        check({"surprise": 1}, "")
    for name in schema.get("required", ()):
        assert flaw_of(check, {}) == ("missing_required_parameter", schema["required"][0]), name


def test_nulls_mean_not_set():
    nullable = dict.fromkeys(("name", "instructions", "tools", "metadata", "temperature", "top_p"))

    bodies.check_assistant_create({**MODEL, **nullable, "response_format": None}, "")
    bodies.check_run_create({**RUN, "tool_choice": None, "truncation_strategy": None, "stream": None}, "")


def test_function_names_of_frameworks_are_taken():
    names = ["Plugin-function", "a", "x" * 64, "get_weather", "_", "9"]

    bodies.check_assistant_create(
        {**MODEL, "tools": [{"type": "function", "function": {"name": name}} for name in names]}, ""
    )
