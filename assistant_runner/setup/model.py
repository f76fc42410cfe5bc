"""The assistant file's parts as models, and the assistant that comes out of them.

What each key means is in docs/assistant-file.md; limits are those of the protocol (reference, 4.1).
`AssistantSpec` is what the rest of the program sees: values, and where each came from.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, SecretStr, field_validator, model_validator

from assistant_runner.run.request import Limits
from assistant_runner.setup.checking import Duration, Entry
from assistant_runner.setup.document import KeyPath, Place
from assistant_runner.tooling.policy import Policy, PolicyRule
from assistant_runner.wire.base import Number
from assistant_runner.wire.tools import ResponseFormat, ToolChoice

IDENTITY_KEY = "assistant_runner"
METADATA_PAIRS = 15
"""What a file may say of the protocol's 16: one is ours."""
"""The metadata key by which an assistant of ours is found again if the lock is lost."""

FILE_KEY = "ASSISTANT_FILE_API_KEY"
"""Stands for a variable of the environment that holds the `api_key` of an assistant file."""

REASONING_EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
MetadataKey = str


class AssistantBody(Entry):
    """One assistant as the file has it. Keys of several forms are `Any` here and read by `reading`."""

    name: str = Field(min_length=1, max_length=256)
    model: str | None = Field(default=None, min_length=1)
    description: str | None = Field(default=None, max_length=512)
    instructions: Any = None
    temperature: int | float | None = Field(default=None, ge=0, le=2)
    top_p: int | float | None = Field(default=None, ge=0, le=1)
    reasoning_effort: Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"] | None = None
    response_format: Any = None
    tools: list[Any] | None = Field(default=None, max_length=128)
    tool_choice: Any = None
    parallel_tool_calls: bool | None = None
    tool_resources: Any = None
    metadata: dict[str, str] | None = None
    backend: Any = None
    engine: Any = None
    limits: Any = None
    policy: Any = None
    fix_schemas: bool = False

    @field_validator("metadata")
    @classmethod
    def _within_limits(cls, value: dict[str, str] | None) -> dict[str, str] | None:
        """16 pairs of the protocol, one of which is ours; keys to 64, values to 512 characters."""
        if value is None:
            return None
        if len(value) > METADATA_PAIRS:
            raise ValueError(
                f"expected at most {METADATA_PAIRS} pairs (the protocol's 16th names this assistant)"
            )
        for key, text in value.items():
            if len(key) > 64 or len(text) > 512:
                raise ValueError(f"{key!r}: expected at most 64 characters of key and 512 of value")
            if key == IDENTITY_KEY:
                raise ValueError(f"the key {IDENTITY_KEY} is ours; choose another")
        return value


class InstructionsEntry(Entry):
    """Exactly one of `text` and `file`; variables are expanded only with `expand: true`."""

    text: str | None = None
    file: str | None = None
    expand: bool = False

    @model_validator(mode="after")
    def _one_source(self) -> "InstructionsEntry":
        if (self.text is None) == (self.file is None):
            raise ValueError("expected one of text and file")
        return self


class LocalTool(Entry):
    """A tool of this machine by name or address, with what is changed for this assistant."""

    tool: str = Field(min_length=1)
    description: str | None = None
    when_to_use: str | None = None
    timeout: Duration | None = None
    retries: int | None = Field(default=None, ge=0, le=10)
    approval: Literal["policy", "always", "never"] | None = None
    effects: Literal["read", "write"] | None = None
    output: str | None = None
    output_cap: int | None = Field(default=None, ge=1)
    strict: bool | None = None


class FunctionEntry(Entry):
    """A function as the wire has it; nothing here can call it, so somebody else must answer."""

    name: str = Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class CodeInterpreterEntry(Entry):
    """`files`: paths and globs, uploaded; `file_ids`: files that the backend has already."""

    files: list[str] = []
    file_ids: list[str] = Field(default=[], max_length=20)


class RankingEntry(Entry):
    ranker: str | None = None
    score_threshold: int | float = Field(ge=0, le=1)


class ChunkingEntry(Entry):
    """Tokens."""

    size: int = Field(ge=100, le=4096)
    overlap: int = Field(ge=0)

    @model_validator(mode="after")
    def _half(self) -> "ChunkingEntry":
        if self.overlap * 2 > self.size:
            raise ValueError("expected an overlap of at most half the size")
        return self


class FileSearchEntry(Entry):
    """`files` become a vector store of ours; `vector_store_ids` name one that is there already."""

    files: list[str] = []
    file_ids: list[str] = []
    vector_store_ids: list[str] = Field(default=[], max_length=1)
    store_name: str | None = None
    max_num_results: int | None = Field(default=None, ge=1, le=50)
    ranking_options: RankingEntry | None = None
    chunking: ChunkingEntry | None = None
    expires_after_days: int | None = Field(default=None, ge=1, le=365)

    @model_validator(mode="after")
    def _one_store(self) -> "FileSearchEntry":
        if self.vector_store_ids and (self.files or self.file_ids):
            raise ValueError("expected files or vector_store_ids, not both: an assistant has one store")
        return self


class BackendEntry(Entry):
    """Where the assistant lives: exactly one of `url`, `foundry`, `azure`."""

    url: str | None = None
    foundry: str | None = None
    azure: str | None = None
    key_env: str | None = None
    key_file: str | None = None
    key_command: str | None = None
    key_keyring: str | None = None
    auth: Literal["auto", "key", "entra", "none"] | None = None
    scope: str | None = None
    api_version: str | None = None
    headers: dict[str, str] = {}
    ca_file: str | None = None
    proxy: str | None = None

    @model_validator(mode="after")
    def _one_place(self) -> "BackendEntry":
        if sum(one is not None for one in (self.url, self.foundry, self.azure)) != 1:
            raise ValueError("expected one of url, foundry and azure")
        return self


class EngineEntry(Entry):
    """What thinks, where the embedded service is the backend. `api_key` only out of a variable."""

    api: str = "auto"
    base_url: str | None = None
    key_env: str | None = None
    api_key: SecretStr | None = None
    script: str | None = None


class LimitsEntry(Entry):
    rounds: int | None = Field(default=None, ge=1)
    timeout: Duration | None = None
    tool_timeout: Duration | None = None
    parallelism: int | None = Field(default=None, ge=1)
    repeats: int | None = Field(default=None, ge=1)
    bad_rounds: int | None = Field(default=None, ge=1)
    output_cap: int | None = Field(default=None, ge=1)
    total_tokens: int | None = Field(default=None, ge=1)

    def over(self, base: Limits) -> Limits:
        """`base` with what the file says put over it."""
        from dataclasses import replace

        names = {"timeout": "timeout_s", "tool_timeout": "tool_timeout_s"}
        given = {names.get(k, k): v for k, v in self.model_dump(exclude_none=True).items()}
        return replace(base, **given)


class RuleEntry(Entry):
    """One rule of the policy: a glob over tool names, globs by argument, what to do, and why."""

    tool: str = "*"
    action: Literal["allow", "ask", "deny"]
    arguments: dict[str, str] = {}
    reason: str = ""
    even_with_fetched_text: bool = False


class PolicyEntry(Entry):
    """Which calls run, ask or are refused. The first rule that matches decides: first `rules` in
    order, then the globs of `deny`, of `ask`, of `allow`; then `writes` for what writes."""

    rules: list[RuleEntry] = []
    deny: list[str] = []
    ask: list[str] = []
    allow: list[str] = []
    writes: Literal["allow", "ask", "deny"] = "ask"

    def policy(self) -> Policy:
        """As the gate reads it."""
        rules = [PolicyRule(**rule.model_dump()) for rule in self.rules]
        for action in ("deny", "ask", "allow"):
            rules += [PolicyRule(tool=glob, action=action) for glob in getattr(self, action)]
        return Policy(rules=tuple(rules), writes=self.writes)


class CodeInterpreterIds(Entry):
    file_ids: list[str] | None = Field(default=None, max_length=20)


class FileSearchIds(Entry):
    vector_store_ids: list[str] | None = Field(default=None, max_length=1)


class ResourcesEntry(Entry):
    """`tool_resources` as the wire has it, for ids that exist already."""

    code_interpreter: CodeInterpreterIds | None = None
    file_search: FileSearchIds | None = None


ToolEntry = Any
"""LocalTool, FunctionEntry, CodeInterpreterEntry, FileSearchEntry, or an entry of the tool kit."""


@dataclass(frozen=True, slots=True)
class ToolUse:
    """One entry of `tools`, and where it stands. `kind`: local, function, code_interpreter,
    file_search, http, command, mcp, openapi."""

    kind: str
    entry: ToolEntry
    place: Place
    key: str


@dataclass(frozen=True, slots=True)
class FileUse:
    """One file to upload: found by a path or glob of the file. `purpose` is always `assistants`."""

    path: Path
    name: str
    place: Place


@dataclass(frozen=True, slots=True)
class AssistantSpec:
    """An assistant as its file describes it, valid, with nothing guessed.

    None: the file does not say. `given`: the keys that it does say; only those are sent to a backend.
    `identity` finds the assistant again by metadata. `where` has the place of each key, for messages.
    """

    name: str
    model: str | None
    source: Path
    description: str | None = None
    instructions: str | None = None
    temperature: Number | None = None
    top_p: Number | None = None
    reasoning_effort: str | None = None
    response_format: ResponseFormat | None = None
    tools: tuple[ToolUse, ...] = ()
    tool_choice: ToolChoice | None = None
    parallel_tool_calls: bool | None = None
    tool_resources: ResourcesEntry | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)
    backend: "str | BackendEntry | None" = None
    engine: EngineEntry | None = None
    limits: LimitsEntry = field(default_factory=LimitsEntry)
    policy: Policy | None = None
    fix_schemas: bool = False
    project: str = ""
    profile: str | None = None
    given: frozenset[str] = frozenset()
    places: Mapping[KeyPath, Place] = field(default_factory=dict)
    interpreter_files: tuple[FileUse, ...] = ()
    search_files: tuple[FileUse, ...] = ()

    @property
    def identity(self) -> str:
        """The value of our metadata key: `project/name`, shortened to what metadata hold."""
        return f"{self.project}/{self.name}"[:512]

    @property
    def folder(self) -> Path:
        """Paths in the file are relative to this folder."""
        return self.source.parent

    def place(self, key: str) -> Place:
        """Where a key stands; the file if it does not."""
        return self.places.get((key,), Place(self.source))

    def tool(self, kind: str) -> Any:
        """The entry of the one tool of a kind such as `file_search`; None if there is none."""
        return next((use.entry for use in self.tools if use.kind == kind), None)

    def secrets(self) -> dict[str, str]:
        """The key that the file took from a variable, under the name by which the layer speaks of it."""
        key = self.engine.api_key if self.engine else None
        return {FILE_KEY: key.get_secret_value()} if key and key.get_secret_value() else {}

    def settings_layer(self) -> dict[str, Any]:
        """What the file says in the words of Settings: a layer between environment and project file."""
        layer: dict[str, Any] = {}
        if isinstance(self.backend, str):
            layer["backend"] = self.backend
        elif self.backend:
            entry = self.backend
            layer["backend"] = entry.url or entry.foundry or entry.azure
            layer |= {
                f"backend_{name}": value
                for name in ("key_env", "key_file", "key_command", "key_keyring", "auth", "scope")
                if (value := getattr(entry, name))
            }
            if not entry.url:
                layer["backend_form"] = "foundry" if entry.foundry else "azure"
            layer |= {n: v for n in ("api_version", "ca_file", "proxy") if (v := getattr(entry, n))}
            if entry.headers:
                layer["backend_headers"] = entry.headers
        if self.engine:
            names = {
                "api": "engine",
                "base_url": "engine_base_url",
                "key_env": "engine_key_env",
                "script": "script",
            }
            layer |= {name: value for key, name in names.items() if (value := getattr(self.engine, key))}
            if self.engine.script:
                layer["script"] = str((self.folder / self.engine.script).resolve())
            if self.secrets() and not self.engine.key_env:
                layer["engine_key_env"] = FILE_KEY
        names = {"timeout": "timeout_s", "tool_timeout": "tool_timeout_s"}
        limits = self.limits.model_dump(exclude_none=True, exclude={"total_tokens"})
        return layer | {names.get(key, key): value for key, value in limits.items()}
