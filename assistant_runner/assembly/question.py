"""One question: what a user may say of it, the request it becomes, what the journal keeps of it."""

import functools
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assistant_runner.errors import UsageError
from assistant_runner.run.request import Limits, RunRequest
from assistant_runner.settings import LoadedSettings
from assistant_runner.wire.base import Metadata
from assistant_runner.wire.tools import AssistantTool, NamedToolChoice, ResponseFormat, ToolChoice

if TYPE_CHECKING:
    from pydantic import TypeAdapter

    from assistant_runner.run.journal import JournalRun
    from assistant_runner.setup.model import AssistantSpec
    from assistant_runner.tooling.registry import Toolbox


@dataclass(frozen=True, slots=True)
class Question:
    """One question as a user puts it. None means: as the settings or the assistant have it.

    `assistant`: an id, a name, or the path of an assistant file. `tools`: names or addresses of
    local tools (`get_weather`, `./my_tools.py:book_table`).
    """

    prompt: str
    assistant: str | None = None
    tools: tuple[str, ...] | None = None
    thread_id: str | None = None
    model: str | None = None
    instructions: str | None = None
    tool_choice: ToolChoice | None = None
    parallel_tool_calls: bool | None = None
    response_format: ResponseFormat | None = None
    temperature: float | None = None
    top_p: float | None = None
    max_prompt_tokens: int | None = None
    max_completion_tokens: int | None = None
    metadata: Metadata | None = None
    limits: Limits | None = None


def limits_of(loaded: LoadedSettings) -> Limits:
    """The limits that the settings say."""
    settings = loaded.settings
    return Limits(
        rounds=settings.rounds,
        timeout_s=settings.timeout_s,
        tool_timeout_s=settings.tool_timeout_s,
        parallelism=settings.parallelism,
        repeats=settings.repeats,
        bad_rounds=settings.bad_rounds,
        output_cap=settings.output_cap,
    )


def check_tool_choice(choice: ToolChoice | None, toolbox: "Toolbox") -> None:
    """UsageError if it names a function that is not offered (row S1.15)."""
    if isinstance(choice, dict):
        choice = NamedToolChoice.model_validate(choice)
    if isinstance(choice, NamedToolChoice) and choice.type == "function":
        name = choice.function.name if choice.function else ""
        if name not in toolbox:
            raise UsageError(
                f"--tool-choice {name!r}: no such tool",
                remedy=f"there are: {', '.join(toolbox.names()) or 'none'}",
            )


def named_functions(choice: ToolChoice | None) -> list[str]:
    """The function that a tool choice names, if it does."""
    if isinstance(choice, dict):
        choice = NamedToolChoice.model_validate(choice)
    return [choice.function.name] if isinstance(choice, NamedToolChoice) and choice.function else []


def request_for(
    question: Question,
    assistant_id: str,
    spec: "AssistantSpec | None" = None,
    *,
    tools: tuple[AssistantTool, ...] | None = None,
) -> RunRequest:
    """The run that the question asks for; what it leaves open is as the assistant's file says."""
    parallel = question.parallel_tool_calls
    return RunRequest(
        assistant_id=assistant_id,
        prompt=question.prompt,
        thread_id=question.thread_id,
        model=question.model,
        instructions=question.instructions,
        tools=tools,
        tool_choice=question.tool_choice or (spec.tool_choice if spec else None),
        parallel_tool_calls=spec.parallel_tool_calls if spec and parallel is None else parallel,
        response_format=question.response_format,
        temperature=question.temperature,
        top_p=question.top_p,
        max_prompt_tokens=question.max_prompt_tokens,
        max_completion_tokens=question.max_completion_tokens,
        metadata=question.metadata,
    )


def about_runs(loaded: LoadedSettings) -> dict[str, Any]:
    """What the journal keeps with every question, so that another process can take its run up: settings
    (no secrets: headers and the proxy are left out) and folder."""
    values = loaded.settings.model_dump(mode="json", exclude={"backend_headers", "proxy"})
    return {
        "settings": {name: value for name, value in values.items() if loaded.origins[name] != "default"},
        "folder": str(Path.cwd()),
    }


def question_of(run: "JournalRun") -> Question:
    """The question of a journal's run."""
    return _question_form().validate_python(run.about["question"])


@functools.cache
def _question_form() -> "TypeAdapter[Question]":
    """Made once: it takes some milliseconds."""
    from pydantic import TypeAdapter

    return TypeAdapter(Question)
