"""The answer: a run's assistant messages as text for a person."""

import re
from collections.abc import Sequence
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
    numbers: dict[str, int] = {}
    for annotation in annotations:
        marker = annotation.get("text")
        source = annotation.get("file_citation") or annotation.get("file_path") or {}
        name = source.get("file_id")
        if not marker or not name:
            continue
        if name not in footnotes:
            footnotes.append(name)
        numbers[marker] = footnotes.index(name) + 1
    if not numbers:
        return value
    pattern = "|".join(re.escape(marker) for marker in sorted(numbers, key=len, reverse=True))
    return re.sub(pattern, lambda match: f"[{numbers[match.group()]}]", value)
