"""The plan of a turn: the calls to make now, what waits, what is missing, what was not understood.

Made anew each turn from the text and the outputs so far; a call that was made is not made again.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from assistant_runner.service.engines.planning.arguments import Missing, Output, Source, could_bring, fill
from assistant_runner.service.engines.planning.matching import Candidate, Match, match_tools, own_words
from assistant_runner.service.engines.planning.text import Text, find_names

FOLLOW_UP = re.compile(r"^\W*(?:and|what about|how about|same for|und|e|a|那|那么)\b|^那", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class PlannedCall:
    name: str
    arguments: dict[str, Any]


@dataclass(slots=True)
class Plan:
    """`missing`: tool and parameter. `not_understood`: sentences that no tool answers."""

    calls: list[PlannedCall] = field(default_factory=list)
    missing: list[tuple[str, str]] = field(default_factory=list)
    not_understood: list[str] = field(default_factory=list)


def make_plan(
    question: str, earlier: Sequence[str], candidates: Sequence[Candidate], outputs: Sequence[Output]
) -> Plan:
    """The plan for the last user message; `earlier` are the user messages before it, oldest first."""
    words = own_words(candidates)
    text = Text(question, words)
    matches = match_tools(text, candidates)
    earlier_texts = [Text(value, words) for value in earlier]
    if not matches and earlier_texts and FOLLOW_UP.search(question):
        previous = match_tools(earlier_texts[-1], candidates)
        matches = [Match(match.candidate, named=True) for match in previous]
    source = Source(
        text,
        find_names(text),
        [group for other in earlier_texts for group in find_names(other)],
        outputs,
        [item for match in matches for item in match.evidence],
    )
    plan = Plan()
    _follow(matches, source, candidates, plan)
    understood = {item.sentence for match in matches for item in match.evidence}
    if any(not match.evidence for match in matches):
        understood.update(range(len(text.sentences)))
    plan.not_understood = [
        sentence.text
        for number, sentence in enumerate(text.sentences)
        if number not in understood and not sentence.is_greeting and re.search(r"\w", sentence.text)
    ]
    return plan


def forced_call(
    name: str | None, question: str, earlier: Sequence[str], candidates: Sequence[Candidate]
) -> Plan:
    """The plan when a call is demanded: of the named tool, or of any (`required`)."""
    words = own_words(candidates)
    text = Text(question, words)
    source = Source(
        text, find_names(text), [group for value in earlier for group in find_names(Text(value, words))]
    )
    plan = Plan()
    for candidate in candidates:
        if name is not None and candidate.name != name:
            continue
        spoken = [match for match in match_tools(text, [candidate]) if match.evidence]
        filled = fill(spoken[0] if spoken else Match(candidate), source)
        if isinstance(filled, Missing):
            plan.missing.append((candidate.name, filled.parameter))
            continue
        if candidate.verb is not None and name is None and not spoken:
            continue
        plan.calls = [PlannedCall(candidate.name, arguments) for arguments in filled]
        plan.missing = []
        break
    return plan


def _follow(matches: Sequence[Match], source: Source, candidates: Sequence[Candidate], plan: Plan) -> None:
    made = {_key(output.name, output.arguments) for output in source.outputs}
    called = {output.name for output in source.outputs}

    def add(name: str, filled: list[dict[str, Any]]) -> None:
        for arguments in filled:
            key = _key(name, arguments)
            if key not in made:
                made.add(key)
                plan.calls.append(PlannedCall(name, arguments))

    awaited: list[tuple[Match, Missing]] = []
    answered: set[int] = set()
    for match in matches:
        filled = fill(match, source)
        if isinstance(filled, Missing):
            awaited.append((match, filled))
        else:
            add(match.candidate.name, filled)
            answered.update(item.start for item in match.evidence)
    for match, missing in awaited:
        consumer = match.candidate
        producers = [c for c in candidates if could_bring(missing.parameter, missing.kind, c, consumer)]
        if any(call.name == producer.name for call in plan.calls for producer in producers):
            continue
        if any(producer.name in called for producer in producers):
            continue  # it was asked and brought nothing: the answer says so
        for producer in producers:
            filled = fill(Match(producer, match.evidence), source)
            if not isinstance(filled, Missing) and producer.required:
                add(producer.name, filled)
                break
        else:
            if not match.evidence or any(item.start not in answered for item in match.evidence):
                plan.missing.append((consumer.name, missing.parameter))


def _key(name: str, arguments: Any) -> str:
    return f"{name} {json.dumps(arguments, sort_keys=True, default=str)}"
