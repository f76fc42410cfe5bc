"""Tools without Python, as an assistant file has them: HTTP requests, commands, MCP servers, people.

`{http: {...}}`, `{command: {...}}`, `{mcp: {...}}`, `{human: {...}}` in the file's `tools`; the models
here say what each may hold. `build_tool` makes a Tool of one; an MCP server has many and is opened
with `mcp_tools.open_mcp`.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from assistant_runner.errors import ConfigurationError
from assistant_runner.tooling.contract import (
    Approval,
    Effects,
    Handler,
    Tool,
    ToolFailure,
    ToolKind,
)
from assistant_runner.tooling.dynamic import described_tool, read_parameters, read_schema

NAME = r"^[a-zA-Z0-9_-]{1,64}$"
LABEL = r"^[a-zA-Z0-9_-]{1,40}$"


class _Entry(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class SecretRef(_Entry):
    """A value that is not in the file: from the environment variable `env` or the file `file`.

    `prefix` stands before it, such as `Bearer `. A file must be readable by its owner alone.
    """

    env: str | None = None
    file: str | None = None
    prefix: str = ""

    @model_validator(mode="after")
    def _one_source(self) -> "SecretRef":
        if (self.env is None) == (self.file is None):
            raise ValueError("expected one of env and file")
        return self

    def read(self, environ: Mapping[str, str], *, tool: str) -> str:
        """The value without its prefix; ToolFailure says what to set."""
        if self.env is not None:
            value = environ.get(self.env, "").strip()
            if not value:
                raise ToolFailure(f"{tool} needs the environment variable {self.env}", permanent=True)
            return value
        assert self.file is not None
        path = Path(self.file).expanduser()
        try:
            mode = path.stat().st_mode
            value = path.read_text(encoding="utf-8").strip()
        except OSError as error:
            raise ToolFailure(f"{tool} needs the file {path}: {error.strerror}", permanent=True) from None
        if os.name == "posix" and mode & 0o077:
            raise ToolFailure(f"{path} can be read by others; set its mode to 0600", permanent=True)
        return value


class DescribedEntry(_Entry):
    """What every tool of a file may say of itself. `output`: a selector into the result."""

    name: str = Field(pattern=NAME)
    description: str = Field(min_length=1)
    when_to_use: str = ""
    parameters: dict[str, Any] = {}
    output_schema: dict[str, Any] | None = None
    output: str | None = None
    output_cap: int | None = Field(default=None, ge=1)
    effects: Effects | None = None
    approval: Approval = "policy"
    timeout_s: float | None = Field(default=None, gt=0)
    retries: int = Field(default=0, ge=0, le=10)
    fetches: bool = False


class HttpEntry(DescribedEntry):
    """A request. `{name}` in url, query, headers and body stands for an argument.

    `body`: JSON; a text that is one placeholder takes the argument with its type. Without a body,
    POST, PUT and PATCH send the arguments that nothing else uses. `secret_headers`: values
    from outside the file. GET and HEAD read, other methods write unless `effects` says otherwise.
    """

    url: str
    method: Literal["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"] = "GET"
    query: dict[str, str | int | float | bool] = {}
    headers: dict[str, str] = {}
    secret_headers: dict[str, SecretRef] = {}
    body: Any = None
    body_format: Literal["json", "form"] = "json"


class CommandEntry(DescribedEntry):
    """A program: arguments as JSON on its stdin, the result on its stdout; no shell.

    `env`: the variables that it gets beside PATH, HOME and the locale. `cwd` is relative to the
    file's folder. It writes unless `effects` says otherwise.
    """

    command: list[str] = Field(min_length=1)
    env: list[str] = []
    cwd: str | None = None


class McpEntry(_Entry):
    """An MCP server: `command` (stdio) or `url` (streamable HTTP). Its tools are `<name>__<tool>`.

    `tools`: only these of its tools. `effects`: of tools whose annotations do not say that they only
    read. `approval`: of all its tools. `env`: variables handed to a command.
    """

    name: str = Field(pattern=LABEL)
    command: list[str] | None = None
    url: str | None = None
    env: list[str] = []
    cwd: str | None = None
    headers: dict[str, str] = {}
    secret_headers: dict[str, SecretRef] = {}
    tools: list[str] | None = None
    approval: Approval = "policy"
    effects: Effects = "write"
    timeout_s: float | None = Field(default=None, gt=0)
    connect_timeout_s: float = Field(default=20.0, gt=0)

    @model_validator(mode="after")
    def _one_way(self) -> "McpEntry":
        if (self.command is None) == (self.url is None):
            raise ValueError("expected one of command and url")
        return self

    @field_validator("command")
    @classmethod
    def _not_empty(cls, value: list[str] | None) -> list[str] | None:
        if value == []:
            raise ValueError("expected a program and its arguments")
        return value


class OpenApiEntry(_Entry):
    """Operations of an OpenAPI 3 file, each a tool. `document`: a path from the file's folder.

    `operations`: these alone, by operationId. `prefix` stands before their names. `server`: instead of
    the document's first. GET and HEAD read, other methods write.
    """

    document: str = Field(min_length=1)
    operations: list[str] | None = None
    server: str | None = None
    prefix: str = Field(default="", pattern=r"^[a-zA-Z0-9_-]{0,32}$")
    headers: dict[str, str] = {}
    secret_headers: dict[str, SecretRef] = {}
    approval: Approval = "policy"
    timeout_s: float | None = Field(default=None, gt=0)
    fetches: bool = False


class HumanEntry(_Entry):
    """A person to ask; several may stand beside each other with names and wording of their own."""

    name: str = Field(default="request_human_input", pattern=NAME)
    description: str | None = None
    when_to_use: str | None = None
    channel: str | None = None


ToolEntry = HttpEntry | CommandEntry | McpEntry | OpenApiEntry | HumanEntry
ENTRY_MODELS: dict[str, type[BaseModel]] = {
    "http": HttpEntry,
    "command": CommandEntry,
    "mcp": McpEntry,
    "openapi": OpenApiEntry,
    "human": HumanEntry,
}
"""By the key under which an entry stands in an assistant file's `tools`."""


def build_tools(
    entry: HttpEntry | CommandEntry | OpenApiEntry | HumanEntry, *, folder: Path | None = None
) -> list[Tool]:
    """The tools that an entry describes: several of an OpenAPI document, else one."""
    if isinstance(entry, OpenApiEntry):
        from assistant_runner.tooling.openapi_tools import openapi_tools

        return openapi_tools(entry, folder=folder or Path.cwd())
    return [build_tool(entry, folder=folder)]


def build_tool(entry: HttpEntry | CommandEntry | HumanEntry, *, folder: Path | None = None) -> Tool:
    """The tool that an entry describes; ConfigurationError for a template or schema that cannot work.

    `folder`: the assistant file's, from which relative paths are read.
    """
    match entry:
        case HttpEntry():
            from assistant_runner.tooling.http_tool import http_tool

            return http_tool(entry)
        case CommandEntry():
            from assistant_runner.tooling.command_tool import command_tool

            return command_tool(entry, folder=folder or Path.cwd())
        case HumanEntry():
            from assistant_runner.tooling.human import DESCRIPTION, WHEN_TO_USE, human_tool

            return human_tool(
                name=entry.name,
                description=entry.description or DESCRIPTION,
                when_to_use=WHEN_TO_USE if entry.when_to_use is None else entry.when_to_use,
                source="assistant file",
            )
    raise ConfigurationError(
        f"{type(entry).__name__} is not one tool", remedy="open an MCP server with open_mcp"
    )


def entry_tool(
    entry: DescribedEntry, handler: Handler, *, kind: ToolKind, effects: Effects, source: str
) -> Tool:
    """A tool with what its entry says; the handler gets a bare value under the name `value`."""
    parameters, scalar = read_parameters(entry.parameters, entry.name)
    return described_tool(
        entry.name,
        entry.description,
        handler,
        parameters=parameters,
        kind=kind,
        scalar=scalar,
        when_to_use=entry.when_to_use,
        output_schema=None if entry.output_schema is None else read_schema(entry.output_schema, entry.name),
        effects=entry.effects or effects,
        approval=entry.approval,
        timeout_s=entry.timeout_s,
        retries=entry.retries,
        select=entry.output,
        output_cap=entry.output_cap,
        fetches=entry.fetches,
        takes_context=True,
        source=source,
    )
