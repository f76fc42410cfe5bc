"""The tool contract: what a tool is, what it is given, what comes back.

One frozen value describes every kind of tool: a Python function, a dynamic tool, an HTTP request, a
command, an MCP server's tool, a question to a human. The model sees `definition()`; dispatch sees
`handler`. What a tool raises never leaves the gate: it becomes the outcome's content.
Names: 1 to 64 characters of a-z, A-Z, 0-9, `_` and `-` (reference, section 7.1).
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol

from assistant_runner.wire.runs import Usage
from assistant_runner.wire.tools import FunctionDefinition, FunctionTool

if TYPE_CHECKING:
    import httpx

Effects = Literal["read", "write"]
Approval = Literal["policy", "always", "never"]
ToolKind = Literal["static", "dynamic", "http", "command", "mcp", "openapi", "human"]


@dataclass(frozen=True, slots=True)
class Summary:
    """A summary and what it cost; `by` says who wrote it (a model's name, or `extraction`)."""

    text: str
    by: str
    usage: Usage | None = None


class Summarise(Protocol):
    """The run's engine, asked to summarise; `question` is what the reader wants to know.

    The text comes unfenced; whoever puts it before a language model fences it as data (case-101).
    """

    async def __call__(self, text: str, *, question: str, source: str) -> Summary: ...


@dataclass(frozen=True, slots=True)
class ToolContext:
    """What a handler may ask for beside its arguments: the world is handed in.

    `http` is the guarded fetcher's client (in an offline run: the recorded replies). `environ` is the
    environment that the tool may read. `deadline_s` is how long this call may take. `question` is the
    user's prompt. `recorded` says that replies come from recordings. `thread_id`: whose context the
    output goes into (fetched text in it makes `write` tools need approval); "" where there is none.
    `reads_on`: the model has the tool `read_output`.
    """

    tool_call_id: str
    http: "httpx.AsyncClient"
    environ: Mapping[str, str]
    deadline_s: float
    question: str = ""
    summarise: Summarise | None = None
    recorded: bool = False
    thread_id: str = ""
    reads_on: bool = False


@dataclass(frozen=True, slots=True)
class HttpReply:
    """A whole HTTP reply of a tool (row S1.23); only `entity` becomes the tool output.

    A handler may return it; the gate applies the tool's selector (`entity` by default) and
    `tools call --raw` shows `document()`.
    """

    http_version: str
    status_code: int
    status_text: str
    headers: Mapping[str, str]
    entity: Any
    debug: Mapping[str, Any] = field(default_factory=dict)

    def document(self, original: Any = None) -> dict[str, Any]:
        """`{statusLine, headers, entity, _debug, original}`."""
        return {
            "statusLine": {
                "httpVersion": self.http_version,
                "statusCode": self.status_code,
                "statusText": self.status_text,
            },
            "headers": dict(self.headers),
            "entity": self.entity,
            "_debug": dict(self.debug),
            "original": {} if original is None else original,
        }


class ToolFailure(Exception):
    """A handler's way to fail in words for the model; `hint` says whether trying again can help.

    `transient`: the same call may work at once (a tool that only reads is then tried again, up to
    its `retries`). `permanent`: no call of this tool can work until the user acts; the gate answers
    later ones from memory (case-110). `fetched`: the words are a stranger's.
    """

    def __init__(
        self,
        message: str,
        *,
        hint: str | None = None,
        transient: bool = False,
        permanent: bool = False,
        fetched: bool = False,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.transient = transient
        self.permanent = permanent
        self.fetched = fetched


Handler = Callable[..., Any] | Callable[..., Awaitable[Any]]
"""Called with the validated arguments by name, after the context if the tool takes it."""


@dataclass(frozen=True, slots=True)
class Tool:
    """One tool. `parameters` is the JSON Schema on the wire, always of type object.

    `scalar` names the one property of a tool that takes a bare value (wrapped on the wire, unwrapped
    for the call). `timeout_s`, `output_cap` (characters): None means the run's limit. `select` is a
    JMESPath expression into the result (a dotted path is one). `fetches`: the output holds text that
    strangers wrote. `effects_declared` False: nobody said what the tool does, so a call whose outcome a
    crash left unknown is not made again unasked. `source` says where the tool came from, for messages.
    """

    name: str
    description: str
    parameters: Mapping[str, Any]
    handler: Handler
    strict: bool | None = True
    when_to_use: str = ""
    input_description: str = ""
    output_description: str = ""
    output_schema: Mapping[str, Any] | None = None
    effects: Effects = "read"
    approval: Approval = "policy"
    timeout_s: float | None = None
    retries: int = 0
    select: str | None = None
    output_cap: int | None = None
    kind: ToolKind = "static"
    takes_context: bool = False
    scalar: str | None = None
    source: str = ""
    fetches: bool = False
    effects_declared: bool = True

    def definition(self) -> FunctionTool:
        """What the model is offered: the description with *when to use it* after it (row S4.4)."""
        what, when = self.description.strip(), self.when_to_use.strip()
        if when and what[-1:].isalnum():
            what += "."
        return FunctionTool(
            function=FunctionDefinition(
                name=self.name,
                description=f"{what} {when}".strip(),
                strict=self.strict,
                parameters=dict(self.parameters),
            )
        )


@dataclass(frozen=True, slots=True)
class ToolOutcome:
    """What a call gave, ready to submit: `content` is plain JSON data, `is_error` marks a failure.

    `raw` is the handler's whole result before the selector; `usage` what its summary cost.
    `waits_for` is set instead of a content when a person has to answer first. `rejected` marks a call
    that never reached the handler because its arguments do not fit (the run counts such rounds);
    `unasked` one that needed an approval which nobody was there to give (case-117). `fetched`: a stranger
    wrote the content.
    """

    content: Any
    is_error: bool = False
    rejected: bool = False
    unasked: bool = False
    raw: Any = None
    duration_s: float = 0.0
    usage: Usage | None = None
    notes: tuple[str, ...] = ()
    waits_for: Mapping[str, Any] | None = None
    fetched: bool = False


class Gate(Protocol):
    """The one way to a tool: policy, schema, approval, timeout, retry, cap, masking.

    Never raises but for cancellation: whatever happens is an outcome.
    """

    async def call(self, tool: Tool, arguments: Any, context: ToolContext) -> ToolOutcome: ...
