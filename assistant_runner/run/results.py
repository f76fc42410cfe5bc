"""Function results: what a tool gave, as the documents and the submission carry it.

Shapes: `function-result.output.json` and `message-appender.output.json` of the systems we succeed
(rows S0.13 to S0.16, S1.25, S1.26); the submission is `{tool_call_id, output}` with a string output
(reference, section 11).
"""

import json
from dataclasses import dataclass
from typing import Any

from assistant_runner.tooling.encoding import encode
from assistant_runner.wire.runs import ToolOutput


@dataclass(frozen=True, slots=True)
class FunctionResult:
    """One tool call's result. `content` is plain JSON data; `output` is the text to submit."""

    function_id: str
    name: str
    content: Any
    output: str
    is_error: bool = False
    duration_s: float = 0.0
    notes: tuple[str, ...] = ()

    def document(self) -> dict[str, Any]:
        """`{sl_role: TOOL, function_id, is_error, content}`."""
        return function_result(self.function_id, self.content, is_error=self.is_error)

    def tool_output(self) -> ToolOutput:
        return ToolOutput(tool_call_id=self.function_id, output=self.output)


def function_result(function_id: str, content: Any, *, is_error: bool | None = False) -> dict[str, Any]:
    """The function result document; a list of one object is unwrapped to it (row S0.14).

    `is_error` None leaves the key out, as the Assistants pipelines do (row S1.25).
    """
    if isinstance(content, list) and len(content) == 1 and isinstance(content[0], dict):
        content = content[0]
    document: dict[str, Any] = {"sl_role": "TOOL", "function_id": function_id}
    if is_error is not None:
        document["is_error"] = is_error
    return {**document, "content": content}


def render_output(content: Any, *, is_error: bool, cap: int) -> tuple[Any, str, tuple[str, ...]]:
    """Content as plain JSON data, the text to submit, and notes on what was changed or cut.

    Text goes as it is; anything else as compact JSON (row S0.15); an error as `{"error": ...}` so
    that the model can tell it from data. `cap` is in characters of the encoded text.
    """
    if is_error and not isinstance(content, dict):
        content = {"error": content if isinstance(content, str) else json.dumps(content, default=str)}
    text, notes = encode(content, cap)
    if isinstance(content, str):
        return text, text, tuple(notes)
    try:
        return json.loads(text), text, tuple(notes)
    except json.JSONDecodeError:  # cut at the cap: what is left is text
        return text, text, tuple(notes)
