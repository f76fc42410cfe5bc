"""The tool with which a model asks a person (row S3.2): the run waits, nothing is executed here."""

from typing import Any

from assistant_runner.tooling.contract import Tool
from assistant_runner.tooling.dynamic import described_tool

HUMAN_TOOL = "request_human_input"
DESCRIPTION = "Ask a person a question and wait for the answer"
WHEN_TO_USE = "Use it when a decision, an approval or a fact is needed that only a person can give."


def human_parameters() -> dict[str, Any]:
    """`{question, context, options: {urgency, format, choices}}`, strict: choices null where unused."""
    return {
        "type": "object",
        "properties": {
            "question": {"type": "string", "description": "The question, whole and by itself"},
            "context": {"type": "string", "description": "What the person has to know to answer it"},
            "options": {
                "type": "object",
                "properties": {
                    "urgency": {"type": "string", "enum": ["low", "medium", "high"]},
                    "format": {"type": "string", "enum": ["free_text", "yes_no", "multiple_choice"]},
                    "choices": {
                        "type": ["array", "null"],
                        "items": {"type": "string"},
                        "description": "The answers to choose from; needed for multiple_choice, else null",
                    },
                },
                "required": ["urgency", "format", "choices"],
                "additionalProperties": False,
            },
        },
        "required": ["question", "context", "options"],
        "additionalProperties": False,
    }


def human_tool(
    *,
    name: str = HUMAN_TOOL,
    description: str = DESCRIPTION,
    when_to_use: str = WHEN_TO_USE,
    source: str = "",
) -> Tool:
    """A tool of kind human: the gate answers a call of it with `waits_for`."""
    return described_tool(
        name,
        description,
        _never_called,
        parameters=human_parameters(),
        kind="human",
        when_to_use=when_to_use,
        source=source,
    )


def _never_called(**arguments: Any) -> Any:
    raise AssertionError("a question to a person is not executed")
