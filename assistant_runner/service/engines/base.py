"""The engine: what thinks for our service. It knows nothing of threads or SQLite.

`turn` is one call of the model. The service builds the request from the thread and the run, turns
the events into messages, run steps and required actions, and calls again until nothing is asked.
An engine that needs memory between the turns of one run (reasoning items, a plan) yields `Carry`;
the service keeps the value with the run, survives a restart with it, and hands it back.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from assistant_runner.masking import mask
from assistant_runner.wire.runs import Usage
from assistant_runner.wire.tools import AssistantTool, ResponseFormat, ToolChoice

FinishReason = Literal["stop", "tool_calls", "length", "content_filter"]


@dataclass(frozen=True, slots=True)
class Abilities:
    """What an engine can do; asking for what it lacks is an error before any request.

    `file_search` and `code_interpreter`: the engine itself runs them (hosted). Where it does not,
    the service runs its own and offers them to the engine as functions. `hosted`: the tool types of
    `wire.tools.HOSTED_TOOLS` that the provider runs; nobody else can.
    """

    tools: bool = True
    strict: bool = False
    parallel: bool = True
    vision: bool = False
    json_schema: bool = False
    file_search: bool = False
    code_interpreter: bool = False
    hosted: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class TurnMessage:
    """A message of the thread. `content`: parts as the wire's answers have them, but image files
    carry their bytes as a data URL in an `image_url` part."""

    role: Literal["user", "assistant"]
    content: Sequence[Mapping[str, Any]]

    def text(self) -> str:
        return "\n".join(part["text"]["value"] for part in self.content if part.get("type") == "text")


@dataclass(frozen=True, slots=True)
class TurnCall:
    """A tool call that the model made in an earlier turn; `type` is function or a hosted tool's.

    Type `mcp`: an ApprovalRequest of that turn (`server_label` is its own), whose output is
    `{"approve": true}` or false.
    """

    id: str
    name: str
    arguments: str
    type: str = "function"
    server_label: str = ""


@dataclass(frozen=True, slots=True)
class TurnOutput:
    """What the call gave, as submitted (or as the service's own tool gave it)."""

    tool_call_id: str
    output: str


TurnItem = TurnMessage | TurnCall | TurnOutput


@dataclass(frozen=True, slots=True)
class TurnRequest:
    """One turn. `items`: oldest first; calls of one turn stand together, then their outputs.

    `turn` counts from 0 within the run (a forcing tool_choice applies to turn 0 only: the service
    sends `auto` afterwards). `max_completion_tokens` is what is left of the run's budget.
    `vector_store_ids`, `file_ids`: resources of hosted tools. `deadline_s`: seconds left of the run.
    """

    run_id: str
    turn: int
    model: str
    instructions: str
    items: Sequence[TurnItem]
    tools: Sequence[AssistantTool] = ()
    tool_choice: ToolChoice = "auto"
    parallel_tool_calls: bool = True
    response_format: ResponseFormat = "auto"
    temperature: float | None = None
    top_p: float | None = None
    reasoning_effort: str | None = None
    max_completion_tokens: int | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)
    carry: Any = None
    vector_store_ids: Sequence[str] = ()
    file_ids: Sequence[str] = ()
    deadline_s: float | None = None


@dataclass(frozen=True, slots=True)
class TextDelta:
    text: str


@dataclass(frozen=True, slots=True)
class RefusalDelta:
    text: str


@dataclass(frozen=True, slots=True)
class Annotate:
    """A finished annotation of the text so far, as the wire's message has it (section 8.1)."""

    annotation: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class CallDelta:
    """A piece of a function call; `index` counts calls of this turn from 0, without gaps.

    The first piece of an index carries `name` and, if the engine has one, `id` (the service makes
    one otherwise); `arguments` is the next piece of the text, perhaps the whole.
    """

    index: int
    name: str | None = None
    id: str | None = None
    arguments: str = ""


@dataclass(frozen=True, slots=True)
class BuiltinCall:
    """The model asks for a built-in tool that the *service* runs; it is called again afterwards.

    `arguments`: `{"input": code}` for code_interpreter, `{"query": words}` for file_search.
    """

    type: Literal["code_interpreter", "file_search"]
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class HostedActivity:
    """A built-in tool that the *engine* ran: a finished step tool call as the wire has it."""

    call: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ApprovalRequest:
    """A hosted MCP tool waits for approval; becomes a required action `submit_tool_approval`."""

    id: str
    server_label: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Notice:
    """Something that the user should be told and the model's answer must not carry."""

    text: str


@dataclass(frozen=True, slots=True)
class Carry:
    """JSON data to be handed back in the next turn of this run; replaces the last one."""

    value: Any


@dataclass(frozen=True, slots=True)
class Finish:
    """The last event of a turn. `usage` is None when the engine does not count."""

    reason: FinishReason
    usage: Usage | None = None


TurnEvent = (
    TextDelta
    | RefusalDelta
    | Annotate
    | CallDelta
    | BuiltinCall
    | HostedActivity
    | ApprovalRequest
    | Notice
    | Carry
    | Finish
)


class EngineError(Exception):
    """The turn failed; becomes `last_error`. `code`: server_error, rate_limit_exceeded, invalid_prompt.

    `retry_after_s` if the provider said how long to wait; `kind` is our own finer word
    (`authentication`, `unreachable`, `quota`, `content_filter`, `model_not_found`, `bad_answer`...).
    What looks like a key is cut out of the message: gateways repeat in their refusals what they were sent.
    """

    def __init__(
        self, code: str, message: str, *, kind: str = "provider", retry_after_s: float | None = None
    ) -> None:
        self.message = mask(message)
        super().__init__(self.message)
        self.code = code
        self.kind = kind
        self.retry_after_s = retry_after_s


class Engine(Protocol):
    """One provider of turns. `name` is what a user writes after `--engine`.

    `label` is for people: which model at which host. `uses_model` is False for engines without a
    language model (planner, script): answers are then marked so.
    """

    @property
    def name(self) -> str: ...

    @property
    def label(self) -> str: ...

    @property
    def uses_model(self) -> bool: ...

    def abilities(self, model: str) -> Abilities: ...

    def turn(self, request: TurnRequest) -> AsyncIterator[TurnEvent]:
        """The events of one turn, `Finish` last; EngineError if it fails. Cancellation stops it."""
        ...

    async def models(self) -> Sequence[Mapping[str, Any]]:
        """Models that can be reached: wire model objects, `supports` added where known."""
        ...

    async def aclose(self) -> None: ...
