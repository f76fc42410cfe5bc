"""Tool definitions, tool choice, response format, tool resources (reference, section 7)."""

from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag

from assistant_runner.wire.base import Metadata, Number, UnknownVariant, Variant, WireObject, type_tag

HOSTED_TOOLS = ("web_search", "web_search_preview", "mcp")
"""Tools of later APIs that run at the model's provider (responses reference, section 5.3)."""


class FunctionDefinition(WireObject):
    """A function that the model may call; no `parameters` means no arguments."""

    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class FunctionTool(Variant):
    type: Literal["function"] = "function"
    function: FunctionDefinition


class CodeInterpreterTool(Variant):
    type: Literal["code_interpreter"] = "code_interpreter"


class RankingOptions(WireObject):
    score_threshold: Number
    ranker: str | None = None


class FileSearchOptions(WireObject):
    max_num_results: int | None = None
    ranking_options: RankingOptions | None = None


class FileSearchTool(Variant):
    type: Literal["file_search"] = "file_search"
    file_search: FileSearchOptions | None = None


AssistantTool = Annotated[
    Annotated[FunctionTool, Tag("function")]
    | Annotated[CodeInterpreterTool, Tag("code_interpreter")]
    | Annotated[FileSearchTool, Tag("file_search")]
    | Annotated[UnknownVariant, Tag("unknown")],
    Discriminator(type_tag(frozenset({"function", "code_interpreter", "file_search"}))),
]


class FunctionName(WireObject):
    name: str


class NamedToolChoice(WireObject):
    """`{"type": "function", "function": {"name": ...}}`, or a hosted tool by its type alone."""

    type: str
    function: FunctionName | None = None


ToolChoice = str | NamedToolChoice
"""`none`, `auto`, `required`, or one named tool."""


class JSONSchemaFormat(WireObject):
    """The inner object of a `json_schema` response format; `schema` is `json_schema` in Python."""

    name: str
    description: str | None = None
    json_schema: dict[str, Any] | None = Field(default=None, alias="schema")
    strict: bool | None = None


class ResponseFormatObject(WireObject):
    """`text`, `json_object`, or `json_schema` with its schema."""

    type: str
    json_schema: JSONSchemaFormat | None = None


ResponseFormat = str | ResponseFormatObject
"""`auto` or an object."""


class CodeInterpreterResources(WireObject):
    file_ids: list[str] | None = None


class FileSearchResources(WireObject):
    vector_store_ids: list[str] | None = None


class ToolResources(WireObject):
    code_interpreter: CodeInterpreterResources | None = None
    file_search: FileSearchResources | None = None


class StaticChunking(WireObject):
    chunk_overlap_tokens: int
    max_chunk_size_tokens: int


class ChunkingStrategy(WireObject):
    """`static` with sizes in tokens, `auto` in requests, `other` in answers."""

    type: str
    static: StaticChunking | None = None


class NewVectorStore(WireObject):
    """The `vector_stores` shortcut of create bodies: a store made on the way (section 4.1)."""

    file_ids: list[str] | None = None
    chunking_strategy: ChunkingStrategy | None = None
    metadata: Metadata | None = None


class NewFileSearchResources(WireObject):
    vector_store_ids: list[str] | None = None
    vector_stores: list[NewVectorStore] | None = None


class NewToolResources(WireObject):
    """`tool_resources` as create bodies take them."""

    code_interpreter: CodeInterpreterResources | None = None
    file_search: NewFileSearchResources | None = None
