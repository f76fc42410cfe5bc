"""A tool's arguments out of a text and earlier outputs, by the kind of each parameter.

The kind comes from the JSON Schema (enum, type, format) and from the words of the parameter's name
and description. What cannot be found is `Missing`; what another call will bring is `Awaited`.
"""

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from assistant_runner.errors import near_words
from assistant_runner.service.engines.planning.lexicon import (
    LANGUAGES,
    NUMBER_WORDS,
    concepts_of,
    split_name,
    words,
)
from assistant_runner.service.engines.planning.matching import Candidate, Evidence, Match
from assistant_runner.service.engines.planning.text import Names, Text, Token, find_cjk_name, find_lower_names

PLACE_WORDS = words("city town location place country address where region state ort stadt")
ID_WORDS = words("id number code key ticket reference sku symbol tag version")
FREE_WORDS = words("query text question message prompt input search q topic content body sentence")
PERSON_WORDS = words("person user customer author employee contact")
DATE_WORDS = words("date day when")
TIME_WORDS = words("time start end begin")
FROM_WORDS = words("from origin source start base departure")
TO_WORDS = words("to destination target end arrival quote")
URL_WORDS = words("url uri link href")


@dataclass(frozen=True, slots=True)
class Missing:
    """A required argument that is nowhere to be found."""

    parameter: str
    kind: str


@dataclass(frozen=True, slots=True)
class Output:
    """An earlier call of this run and what it gave; `value` is the decoded JSON, or the text."""

    name: str
    arguments: Mapping[str, Any]
    value: Any

    @property
    def error(self) -> str | None:
        """The words of a failed call."""
        if isinstance(self.value, dict) and self.value.get("error"):
            error = self.value["error"]
            return str(error.get("message") or error) if isinstance(error, dict) else str(error)
        return None


@dataclass(slots=True)
class Source:
    """Where arguments come from: the text, its names, earlier texts' names, earlier outputs."""

    text: Text
    names: Sequence[Names]
    earlier: Sequence[Names] = ()
    outputs: Sequence[Output] = ()
    topics: Sequence[Evidence] = field(default_factory=list)


def fill(match: Match, source: Source) -> list[dict[str, Any]] | Missing:
    """The argument objects of every call that the text asks of this tool (several names, several calls)."""
    candidate = match.candidate
    arguments: dict[str, Any] = {}
    spread: tuple[str, list[Any]] | None = None
    used: set[int] = set()
    kinds = {name: kind_of(name, schema) for name, schema in candidate.properties.items()}
    if "mail" in candidate.topic:
        kinds |= {name: "email" for name in kinds if name in {"to", "from", "cc"}}
    for name, schema in candidate.properties.items():
        needed = name in candidate.required
        values = _values(name, schema, kinds, match, source, used)
        if not values:
            if "default" in schema and needed:
                values = [schema["default"]]
            elif needed and "null" in _types(schema):
                values = [None]
            elif needed:
                return Missing(name, kinds[name])
            else:
                continue
        if len(values) > 1 and spread is None and needed:
            spread = (name, values)
        arguments[name] = values[0]
    if spread is None:
        return [arguments]
    name, values = spread
    return [{**arguments, name: value} for value in values]


def kind_of(name: str, schema: Mapping[str, Any]) -> str:
    """The kind of a parameter: enum, boolean, number, integer, url, email, place, language, ..."""
    types = _types(schema)
    words = set(split_name(name))
    said = set(re.findall(r"[a-z]+", str(schema.get("description") or "").lower()))
    if schema.get("enum") or "const" in schema:
        return "enum"
    if words & ID_WORDS and types & {"integer", "string"} and len(words) > 1:
        return "id"
    for plain in ("boolean", "integer", "number", "object"):
        if plain in types and "string" not in types:
            return plain
    if "array" in types and "string" not in types:
        return "array"
    if schema.get("format") in {"uri", "url"} or words & URL_WORDS or ("url" in said and len(said) < 12):
        return "url"
    if schema.get("format") == "email" or words & {"email", "mail", "recipient"}:
        return "email"
    if "language" in words:
        return "language"
    if "currency" in words | said:
        return "symbol"
    if words & PLACE_WORDS or (said & {"city", "town", "location"} and not words & ID_WORDS):
        return "place"
    if schema.get("format") in {"date", "date-time"} or words & DATE_WORDS:
        return "date"
    if schema.get("format") == "time" or words & TIME_WORDS or "hh" in said:
        return "time"
    if words & ID_WORDS:
        return "symbol" if words & {"symbol", "ticker"} else "id"
    if words & FREE_WORDS:
        return "free"
    if words & FROM_WORDS or words & TO_WORDS:
        return "place"
    if words & PERSON_WORDS or words & {"name"}:
        return "name"
    return "string"


def _types(schema: Mapping[str, Any]) -> set[str]:
    kind = schema.get("type")
    types = set(kind) if isinstance(kind, list) else {kind} if isinstance(kind, str) else set()
    for option in schema.get("anyOf") or ():
        if isinstance(option, Mapping):
            types |= _types(option)
    return types


def _values(
    name: str,
    schema: Mapping[str, Any],
    kinds: Mapping[str, str],
    match: Match,
    source: Source,
    used: set[int],
) -> list[Any]:
    """Candidates for one parameter, best first; several only where several calls are meant."""
    kind = kinds[name]
    needed = name in match.candidate.required
    text = source.text
    said = _said(name, text)
    if said is not None and kind in {"string", "name", "id", "time", "date", "free"}:
        return [said]
    if kind == "enum":
        return _enum(schema, text)
    if kind == "boolean":
        return _boolean(name, text)
    if kind in {"integer", "number"}:
        return _number(name, kind, text, used, needed=needed)
    if kind == "array":
        return _array(schema, text, source)
    if kind == "url":
        return [t.text for t in text.tokens if t.kind == "url"] or _from_outputs(name, kind, match, source)
    if kind == "email":
        return [t.text for t in text.tokens if t.kind == "email"][:1] or _from_outputs(
            name, kind, match, source
        )
    if not needed:
        return []
    if kind == "place":
        several = [other for other, k in kinds.items() if k == "place" and other in match.candidate.required]
        return _places(name, several, match, source)
    if kind == "language":
        return [t.text for t in text.tokens if t.lower in LANGUAGES][:1]
    if kind == "symbol":
        return _symbol(name, kinds, text)
    if kind == "date":
        return _first(r"\b\d{4}-\d{2}-\d{2}\b|\b(?:today|tomorrow|yesterday)\b", text.value)
    if kind == "time":
        times = re.findall(r"\b\d{1,2}:\d{2}\b", text.value)
        position = [other for other, k in kinds.items() if k == "time"].index(name)
        return times[position : position + 1]
    if kind == "id":
        brought = _from_outputs(name, kind, match, source)
        return brought or _identifier(name, _types(schema), match, text)
    if kind == "free":
        return _free(match, text)
    found = _quoted(text) or _names(match, source)
    return found or _from_outputs(name, kind, match, source)


def _said(name: str, text: Text) -> str | None:
    """`tag v1.2.3`, `city: Oslo`, `room = "Blue"`: the parameter's own name, then its value."""
    spoken = " ".join(split_name(name))
    if not spoken:
        return None
    found = re.search(
        rf"(?<!\w){re.escape(spoken)}\s*(?:[:=]|is\b)\s*(\"[^\"]+\"|[\w./#-]+)", text.value, re.I
    )
    if found is None and " " not in spoken:
        found = re.search(
            rf"(?<!\w){re.escape(spoken)}\s+(\"[^\"]+\"|[\w./#-]*\d[\w./#-]*)", text.value, re.I
        )
    return found.group(1).strip('"').rstrip(".") if found else None


def _enum(schema: Mapping[str, Any], text: Text) -> list[Any]:
    if "const" in schema:
        return [schema["const"]]
    words = [token.lower for token in text.tokens if token.kind == "word"]
    lower = text.value.lower()
    for value in schema.get("enum") or ():
        if isinstance(value, str) and value and value.lower().replace("_", " ") in lower:
            return [value]
    for value in schema.get("enum") or ():
        if isinstance(value, str) and near_words(value.lower(), words, cutoff=0.86):
            return [value]
    return []


def _boolean(name: str, text: Text) -> list[bool]:
    spoken = " ".join(word for word in split_name(name) if word not in {"is", "include", "with"})
    found = re.search(rf"(\bno|\bnot|\bwithout)?\s*\b{re.escape(spoken)}\b", text.value, re.I)
    return [found.group(1) is None] if found and spoken else []


def _number(name: str, kind: str, text: Text, used: set[int], *, needed: bool) -> list[Any]:
    """The number beside the parameter's name; else, for a required one, the next unused number."""
    numbers = [
        token
        for token in text.tokens
        if token.start not in used and (token.kind == "number" or token.lower in NUMBER_WORDS)
    ]
    words_of_name = split_name(name)
    last = re.escape(words_of_name[-1].rstrip("s")) if words_of_name else ""
    beside = re.compile(rf"(?<!\w){last}", re.IGNORECASE) if last else None
    for token in numbers:
        around = text.value[max(0, token.start - len(name) - 3) : token.start] + " "
        around += text.value[token.end : token.end + len(name) + 3]
        if beside and len(name) > 1 and beside.search(around):
            used.add(token.start)
            return _as_number(token, kind)
    if not needed or not numbers:
        return []
    for token in numbers:
        value = _as_number(token, kind)
        if value:
            used.add(token.start)
            return value
    return []


def _as_number(token: Token, kind: str) -> list[Any]:
    if token.lower in NUMBER_WORDS:
        return [NUMBER_WORDS[token.lower]]
    plain = re.sub(r",(?=\d{3}\b)", "", token.text).replace(",", ".")
    try:
        return [int(plain)] if kind == "integer" or "." not in plain else [float(plain)]
    except ValueError:
        return []


def _array(schema: Mapping[str, Any], text: Text, source: Source) -> list[Any]:
    items = schema.get("items")
    kind = items.get("type") if isinstance(items, Mapping) else None
    if kind in {"integer", "number"}:
        numbers = [_as_number(token, kind) for token in text.tokens if token.kind == "number"]
        listed = [value for values in numbers for value in values]
        return [listed] if listed else []
    if kind == "string":
        listed = [t.text[1:-1] for t in text.tokens if t.kind == "quoted"]
        listed = listed or [value for group in source.names for value in group.values]
        return [listed] if listed else []
    return []


def _places(name: str, several: Sequence[str], match: Match, source: Source) -> list[str]:
    groups = groups_for(match, source)
    values = list(dict.fromkeys(value for group in groups for value in group.values))
    if len(several) < 2:
        return values
    words = set(split_name(name))
    wanted = {"from", "von", "da", "z", "ze"} if words & FROM_WORDS else {"to", "nach", "a", "do"}
    if words & FROM_WORDS or words & TO_WORDS:
        led = [group.values[0] for group in source.names if group.led_by in wanted]
        if led:
            return led[:1]
    everything = [value for group in source.names for value in group.values]
    position = several.index(name)
    return everything[position : position + 1]


def groups_for(match: Match, source: Source) -> list[Names]:
    """The names that belong to a tool's evidence: beside it, after it, before it, then anywhere."""
    found: list[Names] = []
    for item in match.evidence:
        for group in _groups_of_evidence(item, source):
            if group not in found:
                found.append(group)
    if found:
        return found
    before = [g for g in source.names if match.evidence and g.end <= match.evidence[0].start]
    others = before[-1:] or list(source.names[:1])
    if others:
        return others
    chinese = [name for topic in source.topics if (name := _cjk_before(topic, source)) is not None]
    if chinese:
        return chinese[-1:]
    lower = find_lower_names(source.text)
    if lower:
        return lower
    return list(source.earlier[-1:])


def _groups_of_evidence(item: Evidence, source: Source) -> list[Names]:
    here = [group for group in source.names if group.sentence == item.sentence]
    chinese = _cjk_before(item, source)
    if chinese is not None:
        return [chinese]
    beside = [
        group
        for group in here
        if group.end <= item.start and (group.possessive or group.led_by is None)
        if not source.text.value[group.end : item.start].strip(" 的")
    ]
    if beside:
        return beside
    starts = sorted({t.start for t in source.topics if t.sentence == item.sentence and t.start > item.start})
    bounds = [item.end, *starts, len(source.text.value)]
    for low, high in itertools.pairwise(bounds):
        inside = [group for group in here if low <= group.start < high]
        if inside:
            return inside
    chinese_before = [
        name
        for topic in source.topics
        if topic.sentence == item.sentence and topic.start < item.start
        if (name := _cjk_before(topic, source)) is not None
    ]
    return [group for group in here if group.end <= item.start][-1:] or chinese_before[-1:]


def _cjk_before(item: Evidence, source: Source) -> Names | None:
    since = max((topic.end for topic in source.topics if topic.end <= item.start), default=0)
    return find_cjk_name(source.text, item.start, since)


def _names(match: Match, source: Source) -> list[Any]:
    groups = groups_for(match, source)
    if groups:
        return list(dict.fromkeys(value for group in groups for value in group.values))
    return []


def _quoted(text: Text) -> list[Any]:
    return [token.text[1:-1] for token in text.tokens if token.kind == "quoted"][:1]


def _symbol(name: str, kinds: Mapping[str, str], text: Text) -> list[Any]:
    words = [token.text for token in text.tokens if re.fullmatch(r"[A-Z]{2,6}", token.text)]
    position = [other for other, kind in kinds.items() if kind == "symbol"].index(name)
    return words[position : position + 1]


def _identifier(name: str, types: set[str], match: Match, text: Text) -> list[Any]:
    """A word with a digit in it. A bare number counts only right after what it identifies."""
    about = {*split_name(name), *match.candidate.name_words}
    for found in re.finditer(r"(?<![\w/.])(#?)((?=[\w-]*\d)[A-Za-z0-9][\w-]*)(?![\w/]|\.\d|:\d)", text.value):
        before = re.findall(r"[^\W\d_]+", text.value[: found.start()].lower())[-2:]
        near = any(word in about or word.rstrip("s") in about for word in before)
        whole = found.group(2).isdigit()
        if whole and not (near or found.group(1)):
            continue
        if "string" in types:
            return [found.group(2)]
        if whole:
            return [int(found.group(2))]
    return []


def _first(pattern: str, value: str) -> list[Any]:
    found = re.search(pattern, value, re.I)
    return [found.group()] if found else []


def _free(match: Match, text: Text) -> list[Any]:
    """Quoted words, or what follows the topic word (`search for cheap flights`)."""
    quoted = _quoted(text)
    if quoted:
        return quoted
    chinese = [name for item in match.evidence if (name := find_cjk_name(text, item.start, 0)) is not None]
    if chinese:
        return list(chinese[0].values)
    for item in match.evidence:
        sentence = text.sentences[item.sentence]
        rest = text.value[item.end : sentence.end]
        rest = re.sub(r"^\W*(?:for|about|on|of|with|to say|that|nach|di)?\b\W*", "", rest, flags=re.I)
        rest = re.sub(r"^(?:the (?:web|internet) for)\s+", "", rest, flags=re.I)
        rest = rest.strip().rstrip("?!.。？！").strip()
        if rest:
            return [rest]
    return []


def _from_outputs(name: str, kind: str, match: Match, source: Source) -> list[Any]:
    """Values that earlier calls of this run brought: one per call."""
    found: list[Any] = []
    producers = [o for o in source.outputs if o.name != match.candidate.name and o.error is None]
    if kind == "url":
        nearer = [o for o in producers if "url" in {c for w in split_name(o.name) for c in concepts_of(w)}]
        for output in nearer or producers:
            found.extend(list(urls_in(output.value))[:1])
    else:
        for output in producers:
            found.extend(list(_keyed(name, output))[:1])
    return list(dict.fromkeys(found))


def urls_in(value: Any) -> Iterator[str]:
    """Web addresses in JSON data, those under url-like keys first."""
    if isinstance(value, dict):
        first = [key for key in value if set(split_name(str(key))) & URL_WORDS]
        for key in [*first, *(key for key in value if key not in first)]:
            yield from urls_in(value[key])
    elif isinstance(value, list):
        for item in value:
            yield from urls_in(item)
    elif isinstance(value, str):
        found = re.search(r"https?://[^\s<>\"]+[^\s<>\".,;:!?)]", value)
        if found and not re.search(r"\.(?:png|jpe?g|gif|svg|ico)$", found.group(), re.I):
            yield found.group()


def _keyed(name: str, output: Output) -> Iterator[Any]:
    """Scalars under a key that is the parameter's name (`user_id`, or `id` of a `user` tool)."""
    wanted = split_name(name)
    about = set(split_name(output.name))

    def walk(value: Any) -> Iterator[Any]:
        if isinstance(value, dict):
            for key, item in value.items():
                words = split_name(str(key))
                same = words == wanted or (
                    words == wanted[-1:] and {w.rstrip("s") for w in about} & set(wanted)
                )
                if same and isinstance(item, str | int | float) and not isinstance(item, bool):
                    yield item
            for item in value.values():
                yield from walk(item)
        elif isinstance(value, list):
            for item in value:
                yield from walk(item)

    return walk(output.value)


def could_bring(parameter: str, kind: str, producer: Candidate, consumer: Candidate) -> bool:
    """True if a reading tool's name says that it brings this parameter (`get_wiki_url` brings `url`)."""
    if producer.verb is not None or producer.name == consumer.name:
        return False
    if parameter in producer.required:
        return False
    words = {concept for word in producer.name_words for concept in ({word} | concepts_of(word))}
    if kind == "url":
        return "url" in words
    stems = {word for word in split_name(parameter) if word not in ID_WORDS}
    return bool(stems) and stems <= {word.rstrip("s") for word in words} | words
