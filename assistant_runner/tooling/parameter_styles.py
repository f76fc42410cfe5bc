"""How OpenAPI 3 writes lists and objects into paths, queries and headers: `style` and `explode`.

Values arrive decoded at a server, so separators are encoded with what stands around them. The styles
`label` and `matrix` mark a path with signs that encoding would change: they cannot be sent.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from assistant_runner.tooling.encoding import to_text

BY_PLACE = {"path": "simple", "query": "form", "header": "simple"}
"""The style of a parameter that names none."""

SEPARATORS = {"simple": ",", "form": ",", "spaceDelimited": " ", "pipeDelimited": "|", "deepObject": ","}


class Pairs(dict[str, str]):
    """An object of which every property is a parameter of the query."""


@dataclass(frozen=True, slots=True)
class Style:
    """How the values of the parameter `name` are written; `place`: path, query or header."""

    name: str
    place: str
    style: str
    explode: bool

    def written(self, value: Any) -> Any:
        """A list as one text or as several values, an object as one text or as pairs; else as it is."""
        separator = SEPARATORS[self.style]
        if isinstance(value, list):
            texts = [word(entry) for entry in value]
            return texts if self.explode and self.place == "query" else separator.join(texts)
        if not isinstance(value, Mapping):
            return value
        fields = {name: word(entry) for name, entry in value.items()}
        if self.style == "deepObject":
            return Pairs({f"{self.name}[{name}]": text for name, text in fields.items()})
        if self.explode and self.place == "query":
            return Pairs(fields)
        between = "=" if self.explode else separator
        return separator.join(f"{name}{between}{text}" for name, text in fields.items())


def style_of(parameter: Mapping[str, Any]) -> Style | None:
    """The style of a parameter, None if it cannot be sent in the one that it wants."""
    place = parameter["in"]
    style = parameter.get("style") or BY_PLACE[place]
    if style not in SEPARATORS or (place != "query" and style != "simple"):
        return None
    return Style(parameter["name"], place, style, bool(parameter.get("explode", style == "form")))


def word(value: Any) -> str:
    """A value as a text of a request: booleans in lower case, objects as JSON."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return to_text(value)
