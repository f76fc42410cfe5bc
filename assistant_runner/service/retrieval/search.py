"""A small BM25 over the chunks of vector stores; the real index is a matter of its own."""

import math
import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from assistant_runner.aside import aside
from assistant_runner.service.core import Core
from assistant_runner.service.store.base import Document

_WORD = re.compile(r"\w+")
_K1, _B = 1.2, 0.75
FEW_WORDS = 32


async def search_stores(
    core: Core,
    world: str,
    store_ids: Sequence[str],
    queries: Sequence[str],
    *,
    most: int,
    threshold: float = 0.0,
    accepts: Callable[[Document], bool] = lambda attributes: True,
) -> list[Document]:
    """`{file_id, filename, score, attributes, content}` of the best chunks, best first; scores 0 to 1."""
    chunks: list[tuple[Document, str]] = []
    for store_id in store_ids:
        for file_row in _all(core, "vector_store.file", store_id):
            attributes = file_row.doc.get("attributes") or {}
            if file_row.doc["status"] != "completed" or not accepts(attributes):
                continue
            name_row = core.store.get("file", world, file_row.id)
            chunk_row = core.store.get("chunks", store_id, file_row.id)
            if name_row is None or chunk_row is None:
                continue
            head = {
                "file_id": file_row.id,
                "filename": name_row.doc["filename"],
                "attributes": attributes,
            }
            chunks.extend((head, text) for text in chunk_row.doc["chunks"])
    texts = [text for _, text in chunks]
    scores = await aside(lambda: score(texts, " ".join(queries)), name="search")
    order = sorted(range(len(texts)), key=lambda index: (-scores[index], index))
    found = []
    for index in order[:most]:
        if scores[index] <= 0 or scores[index] < threshold:
            break
        head, text = chunks[index]
        found.append({**head, "score": round(scores[index], 4), "content": [{"type": "text", "text": text}]})
    return found


def score(texts: Sequence[str], query: str) -> list[float]:
    """BM25 of each text for a query, brought between 0 and 1."""
    words = set(_words(query))
    if not texts or not words:
        return [0.0] * len(texts)
    find = _finder(words)
    counts = [Counter(map(_stem, find(text.lower()))) for text in texts]
    lengths = [len(text) or 1 for text in texts]
    average = sum(lengths) / len(lengths)
    weights = {}
    for word in words:
        having = sum(1 for count in counts if word in count)
        weights[word] = math.log(1 + (len(texts) - having + 0.5) / (having + 0.5))
    scores = []
    for count, length in zip(counts, lengths, strict=True):
        total = 0.0
        for word in words:
            times = count[word]
            if times:
                total += weights[word] * times * (_K1 + 1) / (times + _K1 * (1 - _B + _B * length / average))
        best = sum(weights.values()) * (_K1 + 1)
        scores.append(min(1.0, total / best) if best else 0.0)
    return scores


def _finder(words: set[str]) -> Callable[[str], list[str]]:
    """Finds these words in a lower-case text, and perhaps others: a few are found quicker than all."""
    if len(words) > FEW_WORDS:
        return _WORD.findall
    return re.compile(rf"\b(?:{'|'.join(map(re.escape, words))})s?\b").findall


def _words(text: str) -> list[str]:
    return [_stem(word) for word in _WORD.findall(text.lower())]


def _stem(word: str) -> str:
    """English plurals only."""
    return word[:-1] if len(word) > 3 and word.endswith("s") and not word.endswith("ss") else word


def _all(core: Core, kind: str, parent: str) -> list[Any]:
    rows: list[Any] = []
    after: str | None = None
    more = True
    while more:
        page, more = core.store.page(kind, parent, limit=500, order="asc", after=after)
        rows.extend(page)
        after = page[-1].id if page else None
    return rows
