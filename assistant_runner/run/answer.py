"""The answer: a run's assistant messages as text for a person."""

from collections.abc import Container, Sequence
from typing import Any

from assistant_runner.wire.threads import ImageFilePart, Message, RefusalPart, TextPart


def render_answer(messages: Sequence[Message]) -> tuple[str, list[str]]:
    """The text of the messages in creation order, and notes (images, an answer without text).

    Citation markers become numbered footnotes with the file id; a marker without an annotation
    stays as it is (case-056).
    """
    pieces: list[str] = []
    notes: list[str] = []
    footnotes: list[str] = []
    for message in messages:
        for part in message.content:
            if isinstance(part, TextPart):
                pieces.append(_with_footnotes(part.text.value, part.text.annotations, footnotes))
            elif isinstance(part, RefusalPart):
                pieces.append(part.refusal)
                notes.append("the model refused to answer")
            elif isinstance(part, ImageFilePart):
                notes.append(f"the reply holds an image: file {part.image_file.file_id}")
    text = "\n".join(piece for piece in pieces if piece)
    if footnotes:
        text += "\n\n" + "\n".join(f"[{number}] {name}" for number, name in enumerate(footnotes, start=1))
    if not text:
        notes.append("no text in the reply")
    return text, notes


def _with_footnotes(value: str, annotations: Sequence[dict[str, Any]], footnotes: list[str]) -> str:
    """The text with its markers replaced; places are those in the original text, never after an edit."""
    places: dict[tuple[int, int], int] = {}
    for annotation in annotations:
        source = annotation.get("file_citation") or annotation.get("file_path") or {}
        name = source.get("file_id")
        if not isinstance(name, str) or (place := _place(value, annotation, places)) is None:
            continue
        if name not in footnotes:
            footnotes.append(name)
        places[place] = footnotes.index(name) + 1
    pieces, end = [], 0
    for (begin, stop), number in sorted(places.items()):
        if begin >= end:
            pieces += [value[end:begin], f"[{number}]"]
            end = stop
    return "".join([*pieces, value[end:]])


def _place(
    value: str, annotation: dict[str, Any], taken: Container[tuple[int, int]]
) -> tuple[int, int] | None:
    """Where the marker stands: by its indexes if they point at it, else its first place not taken."""
    marker = annotation.get("text") or ""
    begin, stop = annotation.get("start_index"), annotation.get("end_index")
    if not isinstance(begin, int) or not isinstance(stop, int):
        begin = stop = 0
    if 0 <= begin < stop <= len(value) and (not marker or value[begin:stop] == marker):
        return begin, stop
    at = value.find(marker) if marker else -1
    while at >= 0 and (at, at + len(marker)) in taken:
        at = value.find(marker, at + 1)
    return (at, at + len(marker)) if at >= 0 else None
