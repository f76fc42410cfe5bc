"""Which tools a text speaks of: evidence from names, concepts, descriptions; the best tool claims a word."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from assistant_runner.service.engines.planning.lexicon import (
    ASKS_BACK,
    CJK_WORDS,
    CONTRARY,
    CONTRARY_WITHIN,
    GENERIC,
    NEGATIONS,
    PHRASES,
    REQUEST_WORDS,
    WRITE_VERBS,
    concepts_of,
    split_name,
    stem,
)
from assistant_runner.service.engines.planning.text import Text
from assistant_runner.wire.tools import FunctionDefinition

DESCRIPTION_WORDS_WANTED = 2
COVERAGE_WANTED = 0.34
MOST_EVIDENCE = 60
"""Places in the text that are looked at for one tool."""


@dataclass(frozen=True)
class Candidate:
    """A function with its words prepared."""

    function: FunctionDefinition

    @property
    def name(self) -> str:
        return self.function.name

    @cached_property
    def properties(self) -> dict[str, dict[str, Any]]:
        properties = (self.function.parameters or {}).get("properties")
        if not isinstance(properties, dict):
            return {}
        return {name: schema if isinstance(schema, dict) else {} for name, schema in properties.items()}

    @cached_property
    def required(self) -> tuple[str, ...]:
        required = (self.function.parameters or {}).get("required")
        return tuple(str(name) for name in required) if isinstance(required, list) else ()

    @cached_property
    def name_words(self) -> tuple[str, ...]:
        return split_name(self.name)

    @cached_property
    def topic(self) -> tuple[str, ...]:
        """What the name is about: concepts where known, else stems; reading verbs left out."""
        words = [word for word in self.name_words if word not in GENERIC and not word.isdigit()]
        return tuple(dict.fromkeys(_term(word) for word in words))

    @cached_property
    def verb(self) -> str | None:
        """The writing verb of the name (`delete_user`), as a term; None if the tool only reads."""
        first = self.name_words[0] if self.name_words else ""
        return _term(first) if first in WRITE_VERBS and len(self.name_words) > 1 else None

    @cached_property
    def description_terms(self) -> frozenset[str]:
        texts = [self.function.description or ""]
        for name, schema in self.properties.items():
            texts += [name.replace("_", " "), str(schema.get("description") or "")]
            texts += [str(value) for value in schema.get("enum") or ()]
        words = {word.lower() for text in texts for word in re.findall(r"[^\W\d_]{3,}", text)}
        terms = {_term(word) for word in words if word not in GENERIC and word not in REQUEST_WORDS}
        return frozenset(terms | {pair for text in texts for pair in cjk_pairs(text)})


@dataclass(frozen=True, slots=True)
class Evidence:
    """A place in the text that speaks of a tool's topic."""

    term: str
    start: int
    end: int
    sentence: int


@dataclass(slots=True)
class Match:
    """A tool that the text asks for, and where. `named`: the text has the tool's very name."""

    candidate: Candidate
    evidence: list[Evidence] = field(default_factory=list)
    named: bool = False
    score: float = 0.0


def own_words(candidates: Sequence[Candidate]) -> frozenset[str]:
    """Words of the tools' names: they are topics, not proper names."""
    return frozenset(word for candidate in candidates for word in (*candidate.name_words, candidate.name))


def find_terms(text: Text) -> list[Evidence]:
    """Every term of the text with its place, concepts found by phrase and in Chinese included."""
    found: list[Evidence] = []
    for token in text.tokens:
        if token.kind == "word":
            lower = token.lower
            pieces = [lower, *re.split(r"[-'’_]", lower), *split_name(token.text)]
            for term in dict.fromkeys(_term(piece) for piece in pieces if piece):
                found.append(Evidence(term, token.start, token.end, token.sentence))
            for concept in concepts_of(lower):
                found.append(Evidence(concept, token.start, token.end, token.sentence))
        elif token.kind == "cjk":
            for word, concept in CJK_WORDS:
                for match in re.finditer(re.escape(word), token.text):
                    start = token.start + match.start()
                    found.append(Evidence(concept, start, start + len(word), token.sentence))
            for offset in range(len(token.text) - 1):
                pair = token.text[offset : offset + 2]
                found.append(Evidence(pair, token.start + offset, token.start + offset + 2, token.sentence))
    lower_text = text.value.lower()
    for concept, pattern in PHRASES:
        for match in re.finditer(pattern, lower_text):
            sentence = next((t.sentence for t in text.tokens if t.start >= match.start()), 0)
            found.append(Evidence(concept, match.start(), match.end(), sentence))
    unique = {(item.term, item.start): item for item in found}
    return sorted(unique.values(), key=lambda item: (item.start, item.term))


def match_tools(text: Text, candidates: Sequence[Candidate]) -> list[Match]:
    """The tools that the text asks for, in the order in which it speaks of them.

    A word is claimed by the tool whose name it explains best; a tool that claims no word is not
    asked for. Statements, greetings and negated clauses ask for nothing.
    """
    terms = [item for item in find_terms(text) if not _is_negated(text, item)]
    asking = {
        number
        for number, sentence in enumerate(text.sentences)
        if sentence.is_request and not sentence.is_greeting
    }
    contrary = _contrary(text)
    matches = []
    for candidate in candidates:
        match = _match_one(text, candidate, terms, _asking_for(candidate, text, asking, contrary))
        if match is not None:
            matches.append(match)
    claimed: list[Match] = []
    for match in matches:
        own = [
            item
            for item in match.evidence
            if match.named
            or all(
                other.score <= match.score
                for other in matches
                if other is not match and any(item.start == o.start for o in other.evidence)
            )
        ]
        if own:
            claimed.append(Match(match.candidate, own, match.named, match.score))
    if not claimed:
        asked = [(c, _asking_for(c, text, asking, contrary)) for c in candidates]
        claimed = _by_description(asked, terms)
    return sorted(claimed, key=lambda match: match.evidence[0].start)


def _contrary(text: Text) -> dict[int, set[str]]:
    """The sentences, by number, that want something cancelled or deleted, and which of the two."""
    found: dict[int, set[str]] = {}
    for number in range(len(text.sentences)):
        tokens = [token for token in text.tokens if token.sentence == number and token.kind == "word"]
        concepts = {c for token in tokens[:CONTRARY_WITHIN] for c in concepts_of(token.lower)}
        if concepts & CONTRARY:
            found[number] = concepts & CONTRARY
    return found


def _asking_for(
    candidate: Candidate, text: Text, asking: set[int], contrary: dict[int, set[str]]
) -> set[int]:
    """The asking sentences less those that want the opposite of what a tool does, or ask whether it was
    done."""
    own = {*candidate.topic, *candidate.description_terms}
    return {
        number
        for number in asking
        if (number not in contrary or contrary[number] & own)
        and not (candidate.verb and ASKS_BACK.search(text.sentences[number].text))
    }


def _takes_url(candidate: Candidate) -> bool:
    return any(
        split_name(name)[-1:] in (("url",), ("uri",), ("link",)) or schema.get("format") in {"uri", "url"}
        for name, schema in candidate.properties.items()
        if name in candidate.required
    )


def _match_one(text: Text, candidate: Candidate, terms: Sequence[Evidence], asking: set[int]) -> Match | None:
    spoken = [
        Evidence(candidate.name, hit.start(), hit.end(), _sentence_at(text, hit.start()))
        for hit in re.finditer(rf"(?<![\w-]){re.escape(candidate.name)}(?![\w-])", text.value)
    ]
    if spoken and ("_" in candidate.name or "-" in candidate.name or len(candidate.topic) > 1):
        spoken = [item for item in spoken if not _is_negated(text, item)]
        return Match(candidate, spoken, named=True, score=10.0) if spoken else None
    topic = set(candidate.topic)
    evidence = [item for item in terms if item.term in topic and item.sentence in asking][:MOST_EVIDENCE]
    hit_terms = {item.term for item in evidence}
    if not hit_terms and candidate.verb is None and _takes_url(candidate):
        addresses = [t for t in text.tokens if t.kind == "url" and t.sentence in asking]
        found = [Evidence("url", t.start, t.end, t.sentence) for t in addresses]
        return Match(candidate, found, score=0.5) if found else None
    if not hit_terms or len(hit_terms) / len(topic) < COVERAGE_WANTED:
        return None
    if candidate.verb is not None and candidate.verb not in hit_terms:
        return None
    weak = len(candidate.description_terms & {item.term for item in terms} - hit_terms)
    score = len(hit_terms) + len(hit_terms) / len(topic) + 0.1 * min(weak, 5)
    return Match(candidate, evidence, score=score)


def _by_description(asked: Sequence[tuple[Candidate, set[int]]], terms: Sequence[Evidence]) -> list[Match]:
    """The one tool whose description shares most with the text, if that is two words or more.

    `asked`: tools with the sentences that may ask for them.
    """
    best: list[Match] = []
    for candidate, asking in asked:
        evidence = [e for e in terms if e.term in candidate.description_terms and e.sentence in asking]
        distinct = {item.term for item in evidence}
        if candidate.verb is None and len(distinct) >= DESCRIPTION_WORDS_WANTED:
            best.append(Match(candidate, _joined(evidence), score=float(len(distinct))))
    if not best:
        return []
    top = max(match.score for match in best)
    winners = [match for match in best if match.score == top]
    return winners if len(winners) == 1 else []


def _joined(evidence: Sequence[Evidence]) -> list[Evidence]:
    """Overlapping pairs of Chinese characters made one; the longest run alone, if there are any."""
    runs: list[Evidence] = []
    for item in evidence:
        last = runs[-1] if runs else None
        if last is not None and item.start < last.end:
            runs[-1] = Evidence(last.term, last.start, max(last.end, item.end), last.sentence)
        else:
            runs.append(item)
    longest = max(runs, key=lambda run: run.end - run.start)
    return [longest] if len(runs) < len(evidence) else runs


def _is_negated(text: Text, item: Evidence) -> bool:
    """True if a negation stands before the word in the same clause."""
    clause_start = max(
        (text.value.rfind(mark, 0, item.start) for mark in (",", ".", "?", "!", ";", "，", "。", " but ")),
        default=-1,
    )
    return NEGATIONS.search(text.value, max(clause_start, 0), item.start) is not None


def _sentence_at(text: Text, place: int) -> int:
    for number, sentence in enumerate(text.sentences):
        if sentence.start <= place < sentence.end:
            return number
    return 0


def _term(word: str) -> str:
    concepts = concepts_of(word)
    return min(concepts) if concepts else stem(word)


def cjk_pairs(text: str) -> set[str]:
    """Pairs of neighbouring Chinese characters: words enough for matching."""
    return {
        run[offset : offset + 2]
        for run in re.findall(r"[\u2e80-\u9fff\uf900-\ufaff]+", text)
        for offset in range(len(run) - 1)
    }
