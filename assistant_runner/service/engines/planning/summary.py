"""A summary by extraction: the sentences that say most, in their own order. The text is data only."""

import re
from collections import Counter

from assistant_runner.service.engines.planning.lexicon import words as word_set

STOP_WORDS = word_set(
    "the a an of to in and is was are were for on at by with as from that this it its be has have had or not"
    " which who their his her they he she but also than more most one two new der die das und in den von zu"
    " mit ist im des auf für ein eine di il la e che un una per del della i w z na do się jest"
)
BOILERPLATE = re.compile(
    r"cookie|javascript|sign in|log in|subscribe|privacy policy|terms of use|all rights reserved|jump to"
    r"|table of contents|©",
    re.IGNORECASE,
)
SHORTEST, LONGEST = 25, 420
FENCES = (("<<<", ">>>"), ("```", "```"), ("~~~", "~~~"))
"""How the opening line of a fence begins and how its closing line ends."""
LONGEST_TEXT = 200_000
"""Characters of a text that are looked at."""


def split_prompt(prompt: str) -> tuple[str, str]:
    """The fenced text of a prompt (all of it if there is no fence) and the words around it."""
    lines = prompt.split("\n")
    for opening, closing in FENCES:
        first = next((n for n, line in enumerate(lines) if line.startswith(opening)), None)
        last = next((n for n in range(len(lines) - 1, -1, -1) if lines[n].rstrip().endswith(closing)), None)
        if first is not None and last is not None and last > first:
            around = lines[:first] + lines[last + 1 :]
            return "\n".join(lines[first + 1 : last]).strip(), "\n".join(around).strip()
    return prompt, ""


def summarise(text: str, question: str = "", *, sentences: int = 3, characters: int = 700) -> str:
    """Two to five sentences of the text (fewer if it has fewer), plain, in their own order."""
    found = split_sentences(text[:LONGEST_TEXT])
    if not found:
        return " ".join(text.split())[:characters]
    words = [_words(sentence) for sentence in found]
    frequency = Counter(word for sentence in words for word in set(sentence))
    asked = set(_words(question))
    scores = []
    for place, (sentence, its_words) in enumerate(zip(found, words, strict=True)):
        if not its_words:
            scores.append(0.0)
            continue
        weight = sum(frequency[word] for word in its_words) / (len(its_words) + 6)
        near = len(asked & set(its_words)) / (len(asked) or 1)
        first = 2.0 / (1 + place) + (0.4 if place < 4 else 0.0)
        odd = 0.5 if sentence.count("[") > 2 or sentence.count("|") > 1 else 1.0
        scores.append((weight / (max(frequency.values()) or 1) * 4 + 1.5 * near + first) * odd)
    ranked = sorted(range(len(found)), key=lambda place: -scores[place])
    kept: list[int] = []
    length = 0
    for place in ranked:
        if len(kept) >= sentences or (kept and length + len(found[place]) > characters):
            continue
        kept.append(place)
        length += len(found[place])
    return " ".join(found[place] for place in sorted(kept))


def split_sentences(text: str) -> list[str]:
    """Whole sentences of running text; menus, headings and notices left out."""
    clean = re.sub(r"\[\d+\]|\[edit\]", "", text)
    found = []
    for block in re.split(r"\n\s*\n|\n(?=[#*•|])|\n", clean):
        line = " ".join(block.split())
        for piece in re.split(r"(?<=[^A-Z\d\s][.!?])\s+(?=[\"“(]?[A-ZÀ-ÞĀ-Ž\d])|(?<=[。！？])", line):
            sentence = piece.strip()
            long_enough = len(sentence) >= (10 if re.search(r"[\u4e00-\u9fff]", sentence) else SHORTEST)
            if (
                long_enough
                and re.search(r"[.!?。！？][\"”)]?$", sentence)
                and not BOILERPLATE.search(sentence)
            ):
                found.append(sentence if len(sentence) <= LONGEST else sentence[: LONGEST - 1].rstrip() + "…")
    return list(dict.fromkeys(found))


def _words(text: str) -> list[str]:
    latin = [word.lower() for word in re.findall(r"[^\W\d_]{3,}", text)]
    pairs = [run[i : i + 2] for run in re.findall(r"[\u4e00-\u9fff]{2,}", text) for i in range(len(run) - 1)]
    return [word for word in latin if word not in STOP_WORDS] + pairs
