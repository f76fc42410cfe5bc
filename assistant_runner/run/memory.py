"""What the journal's records tell of a run: enough to go on without doing anything twice."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from assistant_runner.run.events import (
    CallFinished,
    CallStarted,
    OutputsSubmitted,
    RoundCompleted,
    RoundStarted,
    RunEnded,
    RunEvent,
    RunRequested,
    RunResumed,
    RunStarted,
)
from assistant_runner.run.journal import Record

Call = TypeVar("Call")

Results = dict[str, list[CallFinished]]
"""What finished calls gave, by `call_key`; of identical calls in the order in which they were made."""

Doubts = dict[str, list[CallStarted]]
"""Calls that were begun and whose outcome is not known, by `call_key`."""


@dataclass
class RoundMemory:
    """One round as far as it is known. `finished`, `started` and `waiting` are by tool call id.

    `waiting`: calls that were not made yet, because a person has to say something first.
    """

    run_id: str
    number: int
    calls: list[dict[str, Any]]
    run: dict[str, Any] = field(default_factory=dict)
    started: dict[str, CallStarted] = field(default_factory=dict)
    finished: dict[str, CallFinished] = field(default_factory=dict)
    waiting: set[str] = field(default_factory=set)
    completed: bool = False
    submitted: bool = False

    def open_calls(self) -> dict[str, str]:
        """Calls without a result: tool names by tool call id."""
        return {
            call["id"]: call["function"]["name"] for call in self.calls if call["id"] not in self.finished
        }

    def results(self) -> Iterator[tuple[str, CallFinished]]:
        """What a later run need not ask a tool for, with its `call_key`: what calls gave, what a call
        that may have written failed with, and that a call's outcome is unknown."""
        for call_id, call in self.finished.items():
            begun = self.started.get(call_id)
            if call.origin == "unknown" and call.key:
                yield call.key, call
            elif call.origin == "made" and begun and not (call.is_error and begun.harmless):
                yield call_key(begun.tool, begun.arguments), call

    def given(self) -> Iterator[tuple[str, CallFinished]]:
        """What was carried into this round, with its `call_key`."""
        for call in self.finished.values():
            if call.origin == "carried" and call.key:
                yield call.key, call

    def doubts_met(self) -> Iterator[str]:
        """The `call_key` of calls whose doubt an earlier run left, and that were decided on here."""
        for begun in self.started.values():
            if begun.doubtful:
                yield call_key(begun.tool, begun.arguments)
        for call_id, call in self.finished.items():
            if call.origin == "unknown" and call.key and call_id not in self.started:
                yield call.key

    def unknown(self) -> list[CallStarted]:
        """Calls that were begun and whose outcome is not known."""
        settled = self.finished.keys() | self.waiting
        return [call for call_id, call in self.started.items() if call_id not in settled]


@dataclass
class RunMemory:
    """What is known of a run: enough to go on without doing anything twice.

    `requested_at` in Unix seconds. `carried` and `doubtful`: what runs that this one took the place of had
    found, and what they left unknown; `run_ids` those runs and this one. `left_alone`: nobody followed the
    run, so it is not we who cancelled it. `every_round` has also those of a run that blocked the thread and
    was taken over first.
    """

    request: dict[str, Any] | None = None
    requested_at: float = 0.0
    run_id: str | None = None
    thread_id: str | None = None
    run_ids: list[str] = field(default_factory=list)
    every_round: list[RoundMemory] = field(default_factory=list)
    carried: Results = field(default_factory=dict)
    doubtful: Doubts = field(default_factory=dict)
    ended: RunEnded | None = None
    left_alone: bool = False
    _current: RoundMemory | None = None

    @property
    def rounds(self) -> list[RoundMemory]:
        """The rounds of this run."""
        return [known for known in self.every_round if known.run_id == self.run_id]

    def results(self) -> Results:
        """What finished calls gave: for a fresh run that asks for the same again."""
        return _added(self.carried, (pair for known in self.rounds for pair in known.results()))

    def carried_left(self) -> Results:
        """What is carried and was not given to this run yet."""
        return _without(self.carried, (key for known in self.rounds for key, _ in known.given()))

    def doubts(self) -> Doubts:
        """The calls of unknown outcome: for a fresh run that asks for the same again."""
        unknown = (call for known in self.rounds for call in known.unknown())
        return _added(self.doubts_left(), ((call_key(call.tool, call.arguments), call) for call in unknown))

    def doubts_left(self) -> Doubts:
        """What earlier runs left unknown and this one has not met yet."""
        return _without(self.doubtful, (key for known in self.rounds for key in known.doubts_met()))

    def open_calls(self) -> dict[str, str]:
        """The last round's calls without a result: tool names by tool call id."""
        return self.rounds[-1].open_calls() if self.rounds else {}

    def finished(self) -> dict[str, CallFinished]:
        """All finished calls by tool call id."""
        return {call_id: call for known in self.every_round for call_id, call in known.finished.items()}

    def unknown(self) -> dict[str, CallStarted]:
        """All calls that were begun and whose outcome is not known, by tool call id."""
        return {call.tool_call_id: call for known in self.every_round for call in known.unknown()}

    def note(self, event: RunEvent, at: float) -> None:
        """Learn from an event; a round that is begun again (after a kill) is one round."""
        current = self._current
        if isinstance(event, RunRequested):
            self.request, self.requested_at = event.request, at
        elif isinstance(event, RunStarted):
            if self.run_id not in (None, event.run_id):  # a fresh run takes the place of another
                self.carried, self.doubtful = self.results(), self.doubts()
            self.run_id, self.thread_id, self.ended = event.run_id, event.thread_id, None
            self.run_ids.append(event.run_id)
        elif isinstance(event, RunResumed):
            self.ended = None
        elif isinstance(event, RoundStarted):
            self._begin_round(event)
        elif isinstance(event, CallStarted) and current:
            current.started[event.tool_call_id] = event
            current.finished.pop(event.tool_call_id, None)
            current.waiting.discard(event.tool_call_id)
        elif isinstance(event, CallFinished) and current:
            if event.origin == "unasked":
                current.waiting.add(event.tool_call_id)
            else:
                current.finished[event.tool_call_id] = event
        elif isinstance(event, RoundCompleted) and current:
            current.completed = True
        elif isinstance(event, OutputsSubmitted) and current:
            current.submitted = True
        elif isinstance(event, RunEnded):
            self.ended = event
            if current:
                current.waiting.update((event.error or {}).get("questions") or ())

    def _begin_round(self, event: RoundStarted) -> None:
        asked = {call["id"] for call in event.calls}
        for known in self.every_round:
            if known.run_id == event.run_id and {call["id"] for call in known.calls} == asked:
                self._current = known
                return
        self._current = RoundMemory(event.run_id, event.number, event.calls, event.run)
        self.every_round.append(self._current)


def _added(before: Mapping[str, list[Call]], more: Iterator[tuple[str, Call]]) -> dict[str, list[Call]]:
    """New lists of both."""
    added = {key: list(calls) for key, calls in before.items()}
    for key, call in more:
        added.setdefault(key, []).append(call)
    return added


def _without(before: Mapping[str, list[Call]], used: Iterator[str]) -> dict[str, list[Call]]:
    """New lists without the first ones of these keys."""
    left = {key: list(calls) for key, calls in before.items()}
    for key in used:
        if left.get(key):
            left[key].pop(0)
    return left


def call_key(tool: str, arguments: Any) -> str:
    """The same for identical calls: tool and arguments, whatever the order of the keys."""
    return json.dumps([tool, arguments], sort_keys=True, default=str)


def call_finished(document: Mapping[str, Any]) -> CallFinished:
    """A finished call of its fields as JSON has them."""
    return CallFinished(**{**document, "notes": tuple(document.get("notes") or ())})


def recall(records: Sequence[Record], *, carried: Results | None = None) -> RunMemory:
    """The memory of these records.

    `carried`: results that the run was given from another one when it was asked for.
    """
    memory = RunMemory(carried=carried or {})
    for record in records:
        memory.note(record.event, record.at)
    return memory
