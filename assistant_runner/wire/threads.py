"""Threads and messages (reference, sections 4.2 to 4.4 and 5)."""

from typing import Annotated, Any, Literal

from pydantic import Discriminator, Tag

from assistant_runner.wire.base import Metadata, RequestBody, UnknownVariant, Variant, WireObject, type_tag
from assistant_runner.wire.tools import NewToolResources, ToolResources


class Thread(WireObject):
    id: str
    object: Literal["thread"] = "thread"
    created_at: int
    metadata: Metadata | None = None
    tool_resources: ToolResources | None = None


class Text(WireObject):
    """`annotations` hold file citations and paths; `text[start_index:end_index]` is the marker."""

    value: str
    annotations: list[dict[str, Any]] = []


class TextPart(Variant):
    type: Literal["text"] = "text"
    text: Text


class ImageFile(WireObject):
    file_id: str
    detail: str | None = None


class ImageFilePart(Variant):
    type: Literal["image_file"] = "image_file"
    image_file: ImageFile


class ImageURL(WireObject):
    url: str
    detail: str | None = None


class ImageURLPart(Variant):
    type: Literal["image_url"] = "image_url"
    image_url: ImageURL


class RefusalPart(Variant):
    type: Literal["refusal"] = "refusal"
    refusal: str


MessagePart = Annotated[
    Annotated[TextPart, Tag("text")]
    | Annotated[ImageFilePart, Tag("image_file")]
    | Annotated[ImageURLPart, Tag("image_url")]
    | Annotated[RefusalPart, Tag("refusal")]
    | Annotated[UnknownVariant, Tag("unknown")],
    Discriminator(type_tag(frozenset({"text", "image_file", "image_url", "refusal"}))),
]


class MessageIncompleteDetails(WireObject):
    reason: str


class Attachment(WireObject):
    file_id: str | None = None
    tools: list[dict[str, Any]] | None = None


class Message(WireObject):
    id: str
    object: Literal["thread.message"] = "thread.message"
    created_at: int
    thread_id: str
    status: str | None = None
    incomplete_details: MessageIncompleteDetails | None = None
    completed_at: int | None = None
    incomplete_at: int | None = None
    role: str
    content: list[MessagePart]
    assistant_id: str | None = None
    run_id: str | None = None
    attachments: list[Attachment] | None = None
    metadata: Metadata | None = None

    def text(self) -> str:
        """The text and refusal parts, joined by line breaks; "" when there is none."""
        return "\n".join(
            part.text.value if isinstance(part, TextPart) else part.refusal
            for part in self.content
            if isinstance(part, TextPart | RefusalPart)
        )


class NewTextPart(Variant):
    """A text part as requests carry it: plain string, unlike the answer's (section 4.4)."""

    type: Literal["text"] = "text"
    text: str


NewMessagePart = Annotated[
    Annotated[NewTextPart, Tag("text")]
    | Annotated[ImageFilePart, Tag("image_file")]
    | Annotated[ImageURLPart, Tag("image_url")],
    Discriminator("type"),
]


class MessageCreate(RequestBody):
    role: Literal["user", "assistant"]
    content: str | list[NewMessagePart]
    attachments: list[Attachment] | None = None
    metadata: Metadata | None = None


class MetadataModify(RequestBody):
    """The body of message and run modify."""

    metadata: Metadata | None = None


class ThreadModify(RequestBody):
    metadata: Metadata | None = None
    tool_resources: ToolResources | None = None


class ThreadCreate(RequestBody):
    messages: list[MessageCreate] | None = None
    tool_resources: NewToolResources | None = None
    metadata: Metadata | None = None
