"""What a caller asks of the driver, and what comes back."""

from dataclasses import dataclass, field
from typing import Any

from assistant_runner.wire.base import Metadata
from assistant_runner.wire.runs import Run, TruncationStrategy, Usage
from assistant_runner.wire.threads import Message, MessageCreate
from assistant_runner.wire.tools import AssistantTool, ResponseFormat, ToolChoice


@dataclass(frozen=True, slots=True)
class Limits:
    """Every wait and loop has an end. Seconds; characters for `output_cap`.

    `repeats`: how often one identical call (tool and arguments) is executed in a run (case-021).
    `bad_rounds`: rounds in a row in which every call was rejected (case-023, case-032).
    """

    rounds: int = 25
    timeout_s: float = 600.0
    tool_timeout_s: float = 60.0
    parallelism: int = 8
    repeats: int = 3
    bad_rounds: int = 3
    output_cap: int = 400_000
    total_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class RunRequest:
    """One run. `prompt` None runs the thread as it stands; `thread_id` None makes a new thread.

    `messages` are put before the prompt on a new thread. None means: as the assistant has it.
    `separate` creates the thread first and then the run (row S1.18) instead of both in one call.
    """

    assistant_id: str
    prompt: str | None = None
    thread_id: str | None = None
    messages: tuple[MessageCreate, ...] = ()
    model: str | None = None
    instructions: str | None = None
    additional_instructions: str | None = None
    tools: tuple[AssistantTool, ...] | None = None
    tool_choice: ToolChoice | None = None
    parallel_tool_calls: bool | None = None
    response_format: ResponseFormat | None = None
    temperature: float | None = None
    top_p: float | None = None
    reasoning_effort: str | None = None
    max_prompt_tokens: int | None = None
    max_completion_tokens: int | None = None
    truncation_strategy: TruncationStrategy | None = None
    metadata: Metadata | None = None
    separate: bool = False


@dataclass(frozen=True, slots=True)
class Round:
    """One required action, answered by one submission. `views`: the router's two views (row S1.11)."""

    number: int
    run: dict[str, Any]
    calls: list[dict[str, Any]]
    tool_outputs: list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class RunResult:
    """A run that completed. `messages`: this run's assistant messages in creation order (case-011).

    `thread_messages`: newest first, as `--output run` prints them. `usage` includes what the tools'
    summaries cost. `text` is the answer; "" if the run wrote none (case-013).
    """

    run: Run
    messages: list[Message]
    thread_messages: list[Message]
    rounds: list[Round]
    text: str
    usage: Usage | None
    duration_s: float
    warnings: list[str] = field(default_factory=list)

    def document(self) -> dict[str, Any]:
        """What `--json` prints."""
        return {
            "answer": self.text,
            "status": self.run.status,
            "run_id": self.run.id,
            "thread_id": self.run.thread_id,
            "assistant_id": self.run.assistant_id,
            "model": self.run.model,
            "rounds": len(self.rounds),
            "tool_calls": [
                {
                    "id": call["id"],
                    "name": call["function"]["name"],
                    "arguments": call["function"]["json_arguments"],
                    "is_error": bool(output.get("is_error", False)),
                    "output": output.get("content"),
                }
                for round_ in self.rounds
                for call, output in zip(round_.calls, round_.tool_outputs, strict=True)
            ],
            "usage": self.usage.document() if self.usage else None,
            "duration_s": round(self.duration_s, 3),
            "warnings": self.warnings,
        }

    def run_document(self) -> dict[str, Any]:
        """What `--output run` prints: `{messages: newest..oldest, run, original: {}}` (row S1.28)."""
        return {
            "messages": [message.document() for message in self.thread_messages],
            "run": self.run.document(),
            "original": {},
        }

    def iteration_documents(self) -> list[dict[str, Any]]:
        """What `--debug-iterations` adds as `_iteration_documents`: one entry a round (row S0.29).

        The stop condition of an iteration is that nothing is asked after it.
        """
        return [
            {
                "iteration": round_.number,
                "child_pipeline_output": {"run": round_.run, "tool_outputs": round_.tool_outputs},
                "stop_condition_evaluation": round_ is self.rounds[-1],
            }
            for round_ in self.rounds
        ]

    def router_document(self) -> list[dict[str, Any]]:
        """What `--output router` prints: one entry a round, empty on the bypass (row S1.31)."""
        return [
            {"view_1": [{"run": round_.run, "tool_outputs": []}], "view_2": round_.calls}
            for round_ in self.rounds
        ]
