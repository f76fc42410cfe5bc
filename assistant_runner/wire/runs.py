"""Runs, required actions, tool outputs, run steps (reference, sections 4.5 to 4.7, 5, 9)."""

from typing import Annotated, Any, Literal

from pydantic import Discriminator, Tag

from assistant_runner.wire.base import (
    Metadata,
    Number,
    RequestBody,
    UnknownVariant,
    Variant,
    WireObject,
    type_tag,
)
from assistant_runner.wire.threads import MessageCreate, ThreadCreate
from assistant_runner.wire.tools import AssistantTool, ResponseFormat, ToolChoice, ToolResources

TERMINAL = frozenset({"completed", "failed", "cancelled", "expired", "incomplete"})
ACTIVE = frozenset({"queued", "in_progress", "requires_action", "cancelling"})
SETTLED = TERMINAL | {"requires_action"}


class FunctionCall(WireObject):
    """`arguments` is the model's text: JSON by convention, not by guarantee (case-024 to case-031)."""

    name: str
    arguments: Any = None


class ToolCall(WireObject):
    """One call that a required action asks for."""

    id: str
    type: str = "function"
    function: FunctionCall


class SubmitToolOutputsAction(WireObject):
    tool_calls: list[ToolCall]


class RequiredAction(WireObject):
    """What a run waits for; `type` may be a word that this version does not know."""

    type: str
    submit_tool_outputs: SubmitToolOutputsAction | None = None


class LastError(WireObject):
    code: str
    message: str


class RunIncompleteDetails(WireObject):
    reason: str | None = None


class TruncationStrategy(WireObject):
    type: str
    last_messages: int | None = None


class Usage(WireObject):
    """Tokens."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class Run(WireObject):
    id: str
    object: Literal["thread.run"] = "thread.run"
    created_at: int
    assistant_id: str
    thread_id: str
    status: str
    started_at: int | None = None
    expires_at: int | None = None
    cancelled_at: int | None = None
    failed_at: int | None = None
    completed_at: int | None = None
    required_action: RequiredAction | None = None
    last_error: LastError | None = None
    model: str
    instructions: str | None = None
    tools: list[AssistantTool]
    tool_resources: ToolResources | None = None
    metadata: Metadata | None = None
    temperature: Number | None = None
    top_p: Number | None = None
    max_completion_tokens: int | None = None
    max_prompt_tokens: int | None = None
    truncation_strategy: TruncationStrategy | None = None
    incomplete_details: RunIncompleteDetails | None = None
    usage: Usage | None = None
    response_format: ResponseFormat | None = None
    tool_choice: ToolChoice | None = None
    parallel_tool_calls: bool | None = None

    @property
    def is_terminal(self) -> bool:
        return self.status in TERMINAL

    @property
    def is_settled(self) -> bool:
        return self.status in SETTLED


class RunOptions(RequestBody):
    """What both run-creating bodies share."""

    assistant_id: str
    model: str | None = None
    instructions: str | None = None
    tools: list[AssistantTool] | None = None
    metadata: Metadata | None = None
    temperature: Number | None = None
    top_p: Number | None = None
    stream: bool | None = None
    max_prompt_tokens: int | None = None
    max_completion_tokens: int | None = None
    truncation_strategy: TruncationStrategy | None = None
    tool_choice: ToolChoice | None = None
    parallel_tool_calls: bool | None = None
    response_format: ResponseFormat | None = None


class RunCreate(RunOptions):
    additional_instructions: str | None = None
    additional_messages: list[MessageCreate] | None = None
    reasoning_effort: str | None = None


class ThreadAndRunCreate(RunOptions):
    thread: ThreadCreate | None = None
    tool_resources: ToolResources | None = None


class ToolOutput(RequestBody):
    tool_call_id: str
    output: str


class ToolOutputsSubmit(RequestBody):
    tool_outputs: list[ToolOutput]
    stream: bool | None = None


class StepFunction(WireObject):
    name: str
    arguments: str
    output: str | None = None


class FunctionStepCall(Variant):
    id: str
    type: Literal["function"] = "function"
    function: StepFunction


class CodeInterpreterRecord(WireObject):
    """`outputs`: `{type: logs, logs}` or `{type: image, image: {file_id}}`."""

    input: str
    outputs: list[dict[str, Any]]


class CodeInterpreterStepCall(Variant):
    id: str
    type: Literal["code_interpreter"] = "code_interpreter"
    code_interpreter: CodeInterpreterRecord


class FileSearchRecord(WireObject):
    """`results`: `{file_id, file_name, score, content?}`."""

    ranking_options: dict[str, Any] | None = None
    results: list[dict[str, Any]] | None = None


class FileSearchStepCall(Variant):
    id: str
    type: Literal["file_search"] = "file_search"
    file_search: FileSearchRecord


StepToolCall = Annotated[
    Annotated[FunctionStepCall, Tag("function")]
    | Annotated[CodeInterpreterStepCall, Tag("code_interpreter")]
    | Annotated[FileSearchStepCall, Tag("file_search")]
    | Annotated[UnknownVariant, Tag("unknown")],
    Discriminator(type_tag(frozenset({"function", "code_interpreter", "file_search"}))),
]


class MessageCreation(WireObject):
    message_id: str


class MessageCreationDetails(Variant):
    type: Literal["message_creation"] = "message_creation"
    message_creation: MessageCreation


class ToolCallsDetails(Variant):
    type: Literal["tool_calls"] = "tool_calls"
    tool_calls: list[StepToolCall]


StepDetails = Annotated[
    Annotated[MessageCreationDetails, Tag("message_creation")]
    | Annotated[ToolCallsDetails, Tag("tool_calls")]
    | Annotated[UnknownVariant, Tag("unknown")],
    Discriminator(type_tag(frozenset({"message_creation", "tool_calls"}))),
]


class RunStep(WireObject):
    id: str
    object: Literal["thread.run.step"] = "thread.run.step"
    created_at: int
    run_id: str
    assistant_id: str
    thread_id: str
    type: str
    status: str
    step_details: StepDetails
    last_error: LastError | None = None
    expired_at: int | None = None
    cancelled_at: int | None = None
    failed_at: int | None = None
    completed_at: int | None = None
    metadata: Metadata | None = None
    usage: Usage | None = None
