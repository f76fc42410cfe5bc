"""A question cut into tokens, sentences and names, with places in characters."""

import re
from dataclasses import dataclass, field
from typing import Literal

from assistant_runner.service.engines.planning.lexicon import (
    CJK_LEAD,
    CJK_NOT_PLACE,
    CJK_TAIL,
    CJK_WORDS,
    CONNECTORS,
    GREETING,
    ITALIAN,
    JOINERS,
    LONG_REGIONS,
    NO_FRAGMENT,
    NOT_ITSELF,
    NOT_NAMES,
    POLISH,
    POLISH_ENDINGS,
    PREPOSITIONS,
    PRONOUNS,
    QUESTION_WORDS,
    REGIONS,
    REQUEST_WORDS,
    STATEMENT_VERBS,
    concepts_of,
)

Kind = Literal["word", "number", "url", "email", "quoted", "cjk", "mark"]

TOKEN = re.compile(
    r"""
    (?P<url>https?://[^\s<>"'，。；）)]+[^\s<>"'，。；）).,;:!?])
  | (?P<email>[\w.+-]+@[\w-]+(?:\.[\w-]+)+)
  | (?P<quoted>"[^"\n]{1,400}"|“[^”\n]{1,400}”|„[^“”\n]{1,400}[“”]|«[^»\n]{1,400}»
      |(?<!\w)'[^'\n]{1,400}'(?!\w))
  | (?P<cjk>[\u2e80-\u9fff\uf900-\ufaff]+)
  | (?P<number>(?<![\w.])[-+]?\d+(?:[.,]\d+)*(?![\w]))
  | (?P<word>(?:St|Mt|Ft)\.(?=\s)
      |[^\W_\u2e80-\u9fff\uf900-\ufaff]+(?:[-'’_.][^\W_\u2e80-\u9fff\uf900-\ufaff]+)*)
  | (?P<mark>[^\s\w])
    """,
    re.VERBOSE,
)
LONGEST_CJK = 40
"""Characters before a Chinese topic word in which its names are looked for."""
SENTENCE_ENDS = frozenset("?!.;。？！；")


@dataclass(frozen=True, slots=True)
class Token:
    text: str
    start: int
    end: int
    kind: Kind
    sentence: int

    @property
    def lower(self) -> str:
        return self.text.lower()


@dataclass(frozen=True, slots=True)
class Sentence:
    text: str
    start: int
    end: int
    is_request: bool
    is_greeting: bool


@dataclass(frozen=True, slots=True)
class Names:
    """Proper names that stand together (`Paris, Rome and Oslo`); `led_by` is the preposition before."""

    values: tuple[str, ...]
    start: int
    end: int
    sentence: int
    led_by: str | None
    possessive: bool = False


@dataclass(slots=True)
class Text:
    """A text with its tokens; `own_words` are the tools' words, which are no names."""

    value: str
    own_words: frozenset[str] = frozenset()
    tokens: list[Token] = field(default_factory=list)
    sentences: list[Sentence] = field(default_factory=list)

    def __post_init__(self) -> None:
        bounds = 0
        start = 0
        for match in TOKEN.finditer(self.value):
            kind: Kind = match.lastgroup or "mark"  # type: ignore[assignment]
            self.tokens.append(Token(match.group(), match.start(), match.end(), kind, bounds))
            if kind == "mark" and match.group() in SENTENCE_ENDS:
                self._close(start, match.end())
                start, bounds = match.end(), bounds + 1
        if self.value[start:].strip() or not self.sentences:
            self._close(start, len(self.value))

    def _close(self, start: int, end: int) -> None:
        text = self.value[start:end]
        greeting = GREETING.search(text)
        rest = text[greeting.end() :] if greeting else text
        left = re.findall(r"\w+", rest.lower())
        topical = any(concepts_of(word) for word in left)
        only_greeting = greeting is not None and len(left) <= 3 and not topical
        self.sentences.append(Sentence(text.strip(), start, end, is_request(text), only_greeting))


def is_request(sentence: str) -> bool:
    """False for a statement: something told, not asked."""
    if re.search(r"[?？吗呢]", sentence):
        return True
    if re.match(r"\s*我(?!想|要|需)", sentence):
        return False
    words = [word.lower() for word in re.findall(r"[^\W\d_]+", sentence)]
    if not words:
        return False
    if words[0] in QUESTION_WORDS or any(word in REQUEST_WORDS for word in words[:3]):
        return True
    if any(word in {"please", "need", "want", "know", "tell", "bitte", "proszę"} for word in words):
        return True
    told = any(word in STATEMENT_VERBS for word in words[1:]) or words[0] in PRONOUNS
    return not told


def find_names(text: Text) -> list[Names]:
    """Groups of proper names, in order. A list of names is one group."""
    found: list[Names] = []
    tokens = text.tokens
    index = 0
    while index < len(tokens):
        read = _read_group(text, index)
        if read is None:
            index += 1
            continue
        values, after = read
        before = tokens[index - 1] if index else None
        led_by = before.lower if before and _is_preposition(text, before) else None
        if led_by in {"of", "von", "di"} and index > 1 and tokens[index - 2].lower in NOT_ITSELF:
            index = after
            continue
        if led_by in {"w", "we", "dla", "z", "ze"} or any(token.lower in POLISH for token in tokens):
            values = [from_polish(value) for value in values]
        last = tokens[after - 1]
        possessive = last.text.endswith(("'s", "’s"))
        found.append(
            Names(tuple(values), tokens[index].start, last.end, tokens[index].sentence, led_by, possessive)
        )
        index = after
    return found


def find_lower_names(text: Text) -> list[Names]:
    """Names typed in lower case after a preposition (`weather in san francisco`)."""
    found = []
    tokens = text.tokens
    for index, token in enumerate(tokens):
        if token.lower not in {"in", "of", "for", "at", "near", "von", "für", "di", "w", "dla"}:
            continue
        if index and tokens[index - 1].lower in NOT_ITSELF:
            continue
        words: list[list[str]] = [[]]
        after = index + 1
        while after < len(tokens) and tokens[after].sentence == token.sentence:
            word = tokens[after]
            if word.lower in JOINERS or word.text == ",":
                words.append([])
            elif word.kind != "word" or _is_common(text, word.lower):
                break
            else:
                words[-1].append(word.text)
            after += 1
        values = tuple(" ".join(part) for part in words if 1 <= len(part) <= 3)
        if values:
            end = tokens[after - 1].end
            found.append(Names(values, tokens[index + 1].start, end, token.sentence, token.lower))
    return found or _find_fragment(text)


def _find_fragment(text: Text) -> list[Names]:
    """The name in `weather paris`: what is left of a few words when the topic is taken away."""
    words = [token for token in text.tokens if token.kind == "word"]
    left = [token for token in words if not _is_common(text, token.lower)]
    if len(words) > 5 or not 1 <= len(left) <= 3 or any(token.kind == "mark" for token in text.tokens):
        return []
    no_names = QUESTION_WORDS | REQUEST_WORDS | STATEMENT_VERBS | PRONOUNS | NO_FRAGMENT
    if any(token.lower in no_names for token in words):
        return []
    name = " ".join(token.text for token in left)
    return [Names((name,), left[0].start, left[-1].end, left[0].sentence, None)]


def find_cjk_name(text: Text, before: int, since: int) -> Names | None:
    """The name written before a Chinese topic word: `旧金山的天气`."""
    sentence = next((s for s in text.sentences if s.start <= before < s.end), None)
    start = max(since, sentence.start if sentence else 0)
    piece = text.value[max(start, before - LONGEST_CJK) : before]
    run = re.search(r"[A-Za-z0-9\u2e80-\u9fff\uf900-\ufaff、，,]+\s*$", piece)
    if run is None or re.search(r"[\u2e80-\u9fff\uf900-\ufaff]", run.group()) is None:
        return None
    words = CJK_TAIL.sub("", CJK_LEAD.sub("", run.group()))
    values = tuple(part.strip() for part in re.split(r"和|与|、|及|跟", words) if part.strip())
    topics = {word for word, _ in CJK_WORDS}
    if not values or any(
        len(value) > 10 or CJK_NOT_PLACE.search(value) or any(word in value for word in topics)
        for value in values
    ):
        return None
    number = text.sentences.index(sentence) if sentence else 0
    return Names(values, start, before, number, None)


def from_polish(name: str) -> str:
    """`Krakowie` to `Kraków`; unknown endings stay."""
    for ending, base in POLISH_ENDINGS:
        if name.endswith(ending) and len(name) > len(ending):
            return name[: -len(ending)] + base
    return name


def _is_preposition(text: Text, token: Token) -> bool:
    if token.lower == "a":
        return any(other.lower in ITALIAN for other in text.tokens)
    return token.lower in PREPOSITIONS


def _is_common(text: Text, word: str) -> bool:
    return (
        word in NOT_NAMES
        or word in QUESTION_WORDS
        or word in PREPOSITIONS
        or word in text.own_words
        or bool(concepts_of(word))
        or any(concepts_of(part) for part in re.split(r"[-'’]", word))
    )


def _read_group(text: Text, index: int) -> tuple[list[str], int] | None:
    first = _read_name(text, index)
    if first is None:
        return None
    values, after = [first[0]], first[1]
    tokens = text.tokens
    while after < len(tokens):
        step = after
        if tokens[step].text == ",":
            region = _read_name(text, step + 1)
            if region and _is_region(region[0], alone=len(values) == 1, text=text, after=region[1]):
                values[-1] = f"{values[-1]}, {region[0]}"
                after = region[1]
                continue
            step += 1
        if step < len(tokens) and tokens[step].lower in JOINERS | {"&"}:
            step += 1
        if step == after:
            break
        further = _read_name(text, step)
        if further is None:
            break
        values.append(further[0])
        after = further[1]
    return values, after


def _is_region(name: str, *, alone: bool, text: Text, after: int) -> bool:
    if re.fullmatch(r"[A-Z]{2,3}|(?:[A-Z]\.)+[A-Z]?", name):
        return True
    lower = name.lower()
    if lower not in REGIONS and lower not in LONG_REGIONS:
        return False
    next_token = text.tokens[after] if after < len(text.tokens) else None
    listed = next_token is not None and next_token.text == "," and not alone
    return not listed


def _read_name(text: Text, index: int) -> tuple[str, int] | None:
    """A capitalised name that starts at this token, and the index after it."""
    tokens = text.tokens
    if index >= len(tokens) or not _starts_name(text, index):
        return None
    after = index + 1
    while after < len(tokens) and tokens[after - 1].sentence == tokens[after].sentence:
        if tokens[after - 1].text.endswith(("'s", "’s")):
            break
        if text.value[tokens[after - 1].end : tokens[after].start] != " ":
            break
        if _starts_name(text, after):
            after += 1
        elif (
            tokens[after].lower in CONNECTORS
            and tokens[after].text == tokens[after].lower
            and after + 1 < len(tokens)
            and _starts_name(text, after + 1)
            and (tokens[after].lower not in PREPOSITIONS or tokens[index].lower in {"isle", "city", "bay"})
        ):
            after += 2
        else:
            break
    raw = text.value[tokens[index].start : tokens[after - 1].end]
    if re.fullmatch(r"(?:[A-Z]\.)+[A-Z]", raw) and text.value[tokens[after - 1].end :].startswith("."):
        raw += "."  # D.C.
    return re.sub(r"^[\"'“„«]|[\"'”“»]$|['’]s$", "", raw), after


def _starts_name(text: Text, index: int) -> bool:
    token = text.tokens[index]
    before = text.tokens[index - 1] if index else None
    if token.kind == "quoted":
        led = before is not None and _is_preposition(text, before)
        return led and re.fullmatch(r".[^\W\d_][^.?!]{1,38}.", token.text) is not None
    if token.kind != "word" or not token.text[0].isupper():
        return False
    word = re.sub(r"['’]s$", "", token.lower)
    if _is_common(text, word):
        return False
    opens = before is None or before.sentence != token.sentence or before.text in {":", "…"}
    return not (opens and word in REQUEST_WORDS)
