"""What all protocol objects share: tolerant reading, exact writing, closed requests.

An object that we read keeps fields and enum words that we have never seen and gives them back
unchanged: servers add fields, and a client that drops them breaks its user's round trip.
A request body that we accept is closed, as the protocol's are (reference, section 4).
"""

from collections.abc import Callable
from typing import Any, Generic, Literal, Self, TypeVar

from pydantic import BaseModel, ConfigDict

JsonValue = Any
"""Whatever JSON holds. Not pydantic's recursive type: it is slower and says no more."""

Metadata = dict[str, str]
Number = int | float
"""A JSON number, kept as it was written: 1 stays 1."""


class WireObject(BaseModel):
    """An object of the protocol as a server sends it; unknown fields survive."""

    model_config = ConfigDict(
        extra="allow", protected_namespaces=(), serialize_by_alias=True, defer_build=True
    )

    def document(self) -> dict[str, Any]:
        """The JSON document with exactly the fields that were given (nulls kept, absences kept)."""
        return self.model_dump(mode="json", exclude_unset=True)

    def full_document(self) -> dict[str, Any]:
        """The JSON document with every declared field, null where unset: what a server sends."""
        return self.model_dump(mode="json")


class Variant(WireObject):
    """A member of a union told apart by `type`: its word is part of the document even as a default."""

    def model_post_init(self, context: Any) -> None:
        self.__pydantic_fields_set__.add("type")


class RequestBody(BaseModel):
    """A request body: unknown keys are errors; fields left out are not sent."""

    model_config = ConfigDict(
        extra="forbid", protected_namespaces=(), serialize_by_alias=True, defer_build=True
    )

    def document(self) -> dict[str, Any]:
        return self.model_dump(mode="json", exclude_unset=True)

    @classmethod
    def of(cls, **fields: Any) -> Self:
        """A body with the fields that are not None: what a caller means by leaving one out."""
        return cls(**{name: value for name, value in fields.items() if value is not None})


ItemT = TypeVar("ItemT", bound=WireObject)


class Page(WireObject, Generic[ItemT]):
    """A list page; `first_id` and `last_id` are null on an empty page (reference, section 6)."""

    object: Literal["list"] = "list"
    data: list[ItemT]
    first_id: str | None = None
    last_id: str | None = None
    has_more: bool = False


class Deleted(WireObject):
    """The answer to DELETE; `object` is `<kind>.deleted`, for files plain `file`."""

    id: str
    object: str
    deleted: bool = True


def type_tag(known: frozenset[str]) -> Callable[[Any], str]:
    """A discriminator by the `type` field that sends unknown words to the tag `unknown`."""

    def tag(value: Any) -> str:
        word = value.get("type") if isinstance(value, dict) else getattr(value, "type", None)
        return word if isinstance(word, str) and word in known else "unknown"

    return tag


class UnknownVariant(WireObject):
    """A member of a union whose `type` this version does not know; kept as it came."""

    type: str | None = None
