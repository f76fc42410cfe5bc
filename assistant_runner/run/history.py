"""Looking back: a run of the journal as text, two runs side by side, and starting anew from a round."""

import difflib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from assistant_runner.errors import UsageError
from assistant_runner.run.journal import JournalRun
from assistant_runner.run.memory import Results, RunMemory
from assistant_runner.run.request import RunRequest

CARRIED_CHARACTERS = 8000
"""How much of one result a fresh run's instructions repeat; the whole is there if it calls again."""


@dataclass(frozen=True, slots=True)
class Story:
    """A run as far as the journal knows it. `answer` is None if it did not complete."""

    run: JournalRun
    memory: RunMemory
    answer: str | None

    def document(self) -> dict[str, Any]:
        """What `run show --json` prints."""
        return {
            **self.run.document(),
            "answer": self.answer,
            "rounds": [_round(r) for r in self.memory.rounds],
        }

    def lines(self) -> list[str]:
        """The run as text, one fact a line; the same run gives the same lines, whatever its ids."""
        lines = [f"prompt: {self.run.prompt or ''}", f"model: {self.run.model or ''}"]
        for known in self.memory.rounds:
            lines.append(f"round {known.number}")
            for call in known.calls:
                function = call["function"]
                finished = known.finished.get(call["id"])
                outcome = "no result" if finished is None else "error" if finished.is_error else "ok"
                lines.append(f"  {function['name']}({function['arguments']}): {outcome}")
                if finished is not None:
                    lines.extend(f"    {line}" for line in finished.output.splitlines() or [""])
        lines.append(f"status: {self.run.status}")
        if self.run.error:
            lines.append(f"error: {self.run.error.get('message')}")
        lines.extend(f"answer: {line}" for line in (self.answer or "").splitlines())
        return lines


def _round(known: Any) -> dict[str, Any]:
    calls = []
    for call in known.calls:
        finished = known.finished.get(call["id"])
        calls.append(
            {
                "id": call["id"],
                "name": call["function"]["name"],
                "arguments": call["function"]["json_arguments"],
                "output": finished.output if finished else None,
                "is_error": finished.is_error if finished else None,
                "duration_s": finished.duration_s if finished else None,
            }
        )
    return {"number": known.number, "submitted": known.submitted, "calls": calls}


def compare(before: Story, after: Story) -> list[str]:
    """A unified diff of the two runs; empty if they tell the same."""
    return list(
        difflib.unified_diff(
            before.lines(),
            after.lines(),
            fromfile=before.run.run_id or before.run.key,
            tofile=after.run.run_id or after.run.key,
            lineterm="",
            n=1000,
        )
    )


def fork_request(
    memory: RunMemory,
    request: RunRequest,
    *,
    round_number: int | None,
    model: str | None = None,
    prompt: str | None = None,
) -> tuple[RunRequest, Results]:
    """The request of a run on a new thread, and the results of the rounds up to `round_number` by call
    key, which are given again when the model asks for them. UsageError if there is no such round.
    """
    known = len(memory.rounds)
    if round_number is not None and not 0 <= round_number <= known:
        raise UsageError(f"round {round_number}: the run has {known}", remedy=f"give --round 0 to {known}")
    if round_number is None:
        carried = memory.results()
    else:
        carried = {}
        for kept in memory.rounds[:round_number]:
            for key, call in (*kept.given(), *kept.results()):
                carried.setdefault(key, []).append(call)
    words = [text for text in (request.additional_instructions, carried_words(carried)) if text]
    changes: dict[str, Any] = {"thread_id": None, "additional_instructions": "\n\n".join(words) or None}
    if model is not None:
        changes["model"] = model
    if prompt is not None:
        changes["prompt"] = prompt
    return replace(request, **changes), carried


def carried_words(results: Results) -> str | None:
    """What a fresh run is told of the calls that were made for it already."""
    if not results:
        return None
    lines = [
        f"- {key}: {finished.output[:CARRIED_CHARACTERS]}"
        for key, calls in results.items()
        for finished in calls
    ]
    return (
        "These tool calls were already made for the last message, with these results; making one of them "
        "again gives the same result:\n" + "\n".join(lines)
    )


def render_steps(steps: Sequence[Any]) -> list[str]:
    """Run steps as text, one a line."""
    lines = []
    for step in steps:
        document = step.document()
        details = document["step_details"]
        words = [step.type]
        for call in details.get("tool_calls") or []:
            inner = call.get(call.get("type", ""), {})
            words.append(str(inner.get("name") or call.get("type")))
        if "message_creation" in details:
            words.append(details["message_creation"]["message_id"])
        usage = f" {json.dumps(document['usage'])}" if document.get("usage") else ""
        lines.append(f"{step.id} {step.status}: {' '.join(words)}{usage}")
    return lines
