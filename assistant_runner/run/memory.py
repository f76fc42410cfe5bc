"""What the journal's records tell of a run: enough to go on without doing anything twice."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from assistant_runner.run.events import (
    CallFinished,
    CallStarted,
    OutputsSubmitted,
    RoundCompleted,
    RoundStarted,
    RunEnded,
    RunRequested,
    RunStarted,
)
from assistant_runner.run.journal import Record

Results = dict[str, list[CallFinished]]
"""What finished calls gave, by `call_key`; of identical calls in the order in which they were made."""


@dataclass
class RoundMemory:
    """One round as far as it is known. `finished` and `started` are by tool call id."""

    run_id: str
    number: int
    calls: list[dict[str, Any]]
    run: dict[str, Any] = field(default_factory=dict)
    started: dict[str, CallStarted] = field(default_factory=dict)
    finished: dict[str, CallFinished] = field(default_factory=dict)
    completed: bool = False
    submitted: bool = False

    def open_calls(self) -> dict[str, str]:
        """Calls without a result: tool names by tool call id."""
        return {
            call["id"]: call["function"]["name"] for call in self.calls if call["id"] not in self.finished
        }

    def results(self) -> list[tuple[str, CallFinished]]:
        """The calls that were made and gave something, with their `call_key`."""
        return [
            (call_key(begun.tool, begun.arguments), call)
            for call_id, call in self.finished.items()
            if (begun := self.started.get(call_id)) and not call.is_error and call.tool == begun.tool
        ]

    def given_again(self) -> list[str]:
        """The `call_key` of calls that were answered without being made."""
        return [
            call_key(call["function"]["name"], call["function"].get("json_arguments"))
            for call in self.calls
            if call["id"] in self.finished
            and call["id"] not in self.started
            and not self.finished[call["id"]].is_error
        ]

    def unknown(self) -> list[CallStarted]:
        """Calls that were begun and whose outcome is not known."""
        return [call for call_id, call in self.started.items() if call_id not in self.finished]


@dataclass
class RunMemory:
    """What the journal knows of a run: enough to go on without doing anything twice.

    `requested_at` in Unix seconds. `carried`: results of runs that this one took the place of.
    `every_round` has also those of a run that blocked the thread and was taken over first.
    """

    request: dict[str, Any] | None = None
    requested_at: float = 0.0
    run_id: str | None = None
    thread_id: str | None = None
    every_round: list[RoundMemory] = field(default_factory=list)
    carried: Results = field(default_factory=dict)
    ended: RunEnded | None = None

    @property
    def rounds(self) -> list[RoundMemory]:
        """The rounds of this run."""
        return [known for known in self.every_round if known.run_id == self.run_id]

    def results(self) -> Results:
        """What finished calls gave: for a fresh run that asks for the same again."""
        return merged(self.carried, self.rounds)

    def carried_left(self) -> Results:
        """What is carried and was not given to this run yet."""
        left = merged(self.carried, [])
        for key in (key for known in self.rounds for key in known.given_again()):
            if left.get(key):
                left[key].pop(0)
        return left

    def open_calls(self) -> dict[str, str]:
        """The last round's calls without a result: tool names by tool call id."""
        return self.rounds[-1].open_calls() if self.rounds else {}

    def finished(self) -> dict[str, CallFinished]:
        """All finished calls by tool call id."""
        return {call_id: call for known in self.every_round for call_id, call in known.finished.items()}

    def unknown(self) -> dict[str, CallStarted]:
        """All calls that were begun and whose outcome is not known, by tool call id."""
        return {call.tool_call_id: call for known in self.every_round for call in known.unknown()}


def merged(carried: Results, rounds: Sequence[RoundMemory]) -> Results:
    """New lists of what is carried and of what the rounds gave."""
    results = {key: list(calls) for key, calls in carried.items()}
    for known in rounds:
        for key, call in known.results():
            results.setdefault(key, []).append(call)
    return results


def call_key(tool: str, arguments: Any) -> str:
    """The same for identical calls: tool and arguments, whatever the order of the keys."""
    return json.dumps([tool, arguments], sort_keys=True, default=str)


def call_finished(document: Mapping[str, Any]) -> CallFinished:
    """A finished call of its fields as JSON has them."""
    return CallFinished(**{**document, "notes": tuple(document.get("notes") or ())})


def recall(records: Sequence[Record], *, carried: Results | None = None) -> RunMemory:
    """The memory of these records; a round that was begun again (after a kill) is one round.

    `carried`: results that the run was given from another one when it was asked for.
    """
    memory = RunMemory(carried=carried or {})
    current: RoundMemory | None = None
    for record in records:
        event = record.event
        if isinstance(event, RunRequested):
            memory.request, memory.requested_at = event.request, record.at
        elif isinstance(event, RunStarted):
            if memory.run_id not in (None, event.run_id):  # a fresh run took the place of one that expired
                memory.carried = memory.results()
            memory.run_id, memory.thread_id = event.run_id, event.thread_id
        elif isinstance(event, RoundStarted):
            if current is None or (current.run_id, current.number) != (event.run_id, event.number):
                current = RoundMemory(event.run_id, event.number, event.calls, event.run)
                memory.every_round.append(current)
        elif isinstance(event, CallStarted) and current:
            current.started[event.tool_call_id] = event
            current.finished.pop(event.tool_call_id, None)
        elif isinstance(event, CallFinished) and current:
            current.finished[event.tool_call_id] = event
        elif isinstance(event, RoundCompleted) and current:
            current.completed = True
        elif isinstance(event, OutputsSubmitted) and current:
            current.submitted = True
        elif isinstance(event, RunEnded):
            memory.ended = event
    return memory
