"""How a run's result leaves: the kind of document, as text, as JSON or as events."""

import json
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from assistant_runner.cli.options import option, shared
from assistant_runner.errors import UsageError, printable

if TYPE_CHECKING:
    from assistant_runner.run.request import RunResult

OUTPUTS = ("text", "run", "messages", "router")


@dataclass(frozen=True)
class Rendering:
    """What the flags said."""

    as_json: bool = option("--json", is_flag=True, help="Print one JSON document.")
    as_events: bool = option("--jsonl", is_flag=True, help="Print every event as a line of JSON.")
    output: str = option(
        "--output", default="text", metavar="KIND", help=f"What to print: {', '.join(OUTPUTS)}."
    )
    quiet: bool = option("--quiet", "-q", is_flag=True, help="No progress on stderr.")
    iterations: bool = option(
        "--debug-iterations", is_flag=True, help="Add every round's documents (--json, --output run)."
    )

    def __post_init__(self) -> None:
        if self.output not in OUTPUTS:
            raise UsageError(f"--output {self.output!r}: unknown", remedy=f"one of: {', '.join(OUTPUTS)}")
        if self.as_json and self.as_events:
            raise UsageError("--json and --jsonl exclude each other", remedy="choose one")
        if self.as_events and self.output != "text":
            raise UsageError("--jsonl and --output exclude each other", remedy="choose one")
        document = self.as_events or self.output == "run" or (self.as_json and self.output == "text")
        if self.iterations and not document:
            raise UsageError(
                "--debug-iterations adds to a document, and none is printed",
                remedy="give --json, --jsonl or --output run",
            )

    def document(self, result: "RunResult") -> Any:
        """The document of the kind asked for."""
        document = {
            "text": result.document,
            "run": result.run_document,
            "messages": lambda: [message.document() for message in result.messages],
            "router": result.router_document,
        }[self.output]()
        if self.iterations and isinstance(document, dict):
            document["_iteration_documents"] = result.iteration_documents()
        return document

    def show(self, result: "RunResult") -> int:
        """The result on stdout; the exit status: 13 if a text was wanted and there is none."""
        if self.as_events:
            print_json({"event": "result", **self.document(result)}, compact=True)
        elif self.as_json or self.output != "text":
            print_json(self.document(result), compact=False)
        else:
            click.echo(printable(result.text) if sys.stdout.isatty() else result.text)
        return 13 if not result.text and self.output == "text" else 0


rendering_options = shared(Rendering, "rendering", without=("iterations",))


def print_json(document: Any, *, compact: bool) -> None:
    """One JSON document on stdout; on one line if compact."""
    click.echo(json.dumps(document, ensure_ascii=False, indent=None if compact else 2, default=str))


def print_event(document: dict[str, Any]) -> None:
    """One event as a line of JSON."""
    print_json(document, compact=True)
