"""The assistant: what a run is made from (reference, sections 4.1 and 5)."""

from typing import Literal

from assistant_runner.wire.base import Metadata, Number, RequestBody, WireObject
from assistant_runner.wire.tools import AssistantTool, NewToolResources, ResponseFormat, ToolResources


class Assistant(WireObject):
    id: str
    object: Literal["assistant"] = "assistant"
    created_at: int
    name: str | None = None
    description: str | None = None
    model: str
    instructions: str | None = None
    tools: list[AssistantTool]
    tool_resources: ToolResources | None = None
    metadata: Metadata | None = None
    temperature: Number | None = None
    top_p: Number | None = None
    response_format: ResponseFormat | None = None


class AssistantModify(RequestBody):
    """Omitted is unchanged; a list or map replaces the stored one; null resets."""

    model: str | None = None
    name: str | None = None
    description: str | None = None
    instructions: str | None = None
    tools: list[AssistantTool] | None = None
    tool_resources: NewToolResources | None = None
    metadata: Metadata | None = None
    temperature: Number | None = None
    top_p: Number | None = None
    reasoning_effort: str | None = None
    response_format: ResponseFormat | None = None


class AssistantCreate(AssistantModify):
    model: str
