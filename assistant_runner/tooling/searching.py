"""Which tools fit a question, where there are more than a model can choose among (row S4.13).

Scored as a search engine would (BM25) over the words of names, descriptions and parameters; a word of a
tool's name counts more. Hosted tools are always kept, and the order stays as it was.
"""

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence

from assistant_runner.wire.tools import AssistantTool, FunctionDefinition, FunctionTool

NAME_WEIGHT = 3
SATURATION, LENGTH = 1.2, 0.75
WORD = re.compile(r"[^\W_]+")
CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
ENDINGS = ("ies", "ing", "ed", "es", "s")


def choose_tools(
    tools: Sequence[AssistantTool], question: str, *, limit: int, keep: Iterable[str] = ()
) -> list[AssistantTool]:
    """At most `limit` functions, those that fit the question best, beside all hosted tools.

    `keep`: names of functions that stay whatever their score. Ties are broken by the order given.
    """
    functions = [tool for tool in tools if isinstance(tool, FunctionTool)]
    if len(functions) <= limit:
        return list(tools)
    scores = _scores(functions, question)
    names = set(keep)
    ranked = sorted(
        range(len(functions)),
        key=lambda index: (functions[index].function.name not in names, -scores[index], index),
    )
    chosen = {id(functions[index]) for index in ranked[:limit]}
    return [tool for tool in tools if not isinstance(tool, FunctionTool) or id(tool) in chosen]


def _scores(functions: Sequence[FunctionTool], question: str) -> list[float]:
    texts = [_words_of(tool.function) for tool in functions]
    spread = Counter(word for text in texts for word in text)
    mean = sum(sum(text.values()) for text in texts) / len(texts) or 1.0
    wanted = set(_words(question))
    return [_score(text, wanted, spread, mean, len(texts)) for text in texts]


def _score(text: Counter[str], wanted: set[str], spread: Counter[str], mean: float, count: int) -> float:
    size = sum(text.values()) / mean
    total = 0.0
    for word in wanted & set(text):
        rarity = math.log(1 + (count - spread[word] + 0.5) / (spread[word] + 0.5))
        weight = text[word] * (SATURATION + 1)
        total += rarity * weight / (text[word] + SATURATION * (1 - LENGTH + LENGTH * size))
    return total


def _words_of(function: FunctionDefinition) -> Counter[str]:
    found: Counter[str] = Counter()
    for word in _words(function.name):
        found[word] += NAME_WEIGHT
    found.update(_words(function.description or ""))
    properties = (function.parameters or {}).get("properties", {})
    for name, schema in properties.items():
        found.update(_words(name))
        if isinstance(schema, dict):
            found.update(_words(str(schema.get("description", ""))))
    return found


def _words(text: str) -> list[str]:
    """Words in small letters without common endings; names such as `bookRoom` come apart."""
    return [_stem(word) for word in WORD.findall(CAMEL.sub(" ", text).casefold())]


def _stem(word: str) -> str:
    for ending in ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            return word[: -len(ending)]
    return word
