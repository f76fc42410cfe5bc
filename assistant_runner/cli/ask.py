"""`ask`: one question (or several documents on stdin), the answer alone on stdout."""

import dataclasses
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from assistant_runner.cli.edge import run_async
from assistant_runner.cli.options import RunnerOptions, runner_options
from assistant_runner.errors import AssistantRunnerError, UsageError

if TYPE_CHECKING:
    from assistant_runner.run.request import RunResult

OUTPUTS = ("text", "run", "messages", "router")


def register(app: typer.Typer) -> None:
    app.command("ask")(ask)


@runner_options
def ask(
    prompt: Annotated[
        list[str] | None,
        typer.Argument(help="The question; - or nothing reads it from a pipe.", metavar="[PROMPT]"),
    ] = None,
    prompt_file: Annotated[
        str | None,
        typer.Option(
            "--prompt", help="A prompt file by name or path, instead of a question.", metavar="NAME"
        ),
    ] = None,
    inputs: Annotated[
        list[str] | None,
        typer.Option("-p", help="An input of the prompt file. Repeatable.", metavar="KEY=VALUE"),
    ] = None,
    json_: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
    jsonl: Annotated[bool, typer.Option("--jsonl", help="Print every event as a line of JSON.")] = False,
    output: Annotated[
        str, typer.Option("--output", help=f"What to print: {', '.join(OUTPUTS)}.", metavar="KIND")
    ] = "text",
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress on stderr.")] = False,
    detach: Annotated[
        bool, typer.Option("--detach", help="Start the run, print its id, leave: see run wait.")
    ] = False,
    max_rounds: Annotated[
        int | None,
        typer.Option(
            "--max-rounds", min=1, help="Leave the run waiting after so many rounds: see run resume."
        ),
    ] = None,
    debug_iterations: Annotated[
        bool, typer.Option("--debug-iterations", help="Add every round's documents (--json, --output run).")
    ] = False,
    *,
    options: RunnerOptions,
) -> None:
    """Ask one question; tools run here, the answer goes to stdout, progress to stderr."""
    if output not in OUTPUTS:
        raise UsageError(f"--output {output!r}: unknown", remedy=f"one of: {', '.join(OUTPUTS)}")
    if json_ and jsonl:
        raise UsageError("--json and --jsonl exclude each other", remedy="choose one")
    if prompt_file:
        documents, options = from_prompt_file(prompt_file, prompt or [], inputs or [], options)
    elif inputs:
        raise UsageError("-p needs a prompt file", remedy="name it with --prompt")
    else:
        documents = read_prompts(prompt or [], sys.stdin)
    rendering = Rendering(output, json_, jsonl, quiet, debug_iterations)
    work = (
        _start_all(documents, options, rendering)
        if detach
        else _ask_all(documents, options, rendering, max_rounds)
    )
    status = run_async(work)
    raise typer.Exit(status)


class Rendering:
    """How results leave: the kind of document, and whether as JSON or events."""

    def __init__(
        self, output: str, as_json: bool, as_events: bool, quiet: bool, iterations: bool = False
    ) -> None:
        self.output = output
        self.as_json = as_json
        self.as_events = as_events
        self.quiet = quiet
        self.iterations = iterations

    def document(self, result: "RunResult") -> Any:
        document = {
            "text": result.document,
            "run": result.run_document,
            "messages": lambda: [message.document() for message in result.messages],
            "router": result.router_document,
        }[self.output]()
        if self.iterations and isinstance(document, dict):
            document["_iteration_documents"] = result.iteration_documents()
        return document

    def show(self, result: "RunResult") -> None:
        if self.as_events:
            print_json({"event": "result", **result.document()}, compact=True)
        elif self.as_json or self.output != "text":
            print_json(self.document(result), compact=False)
        else:
            typer.echo(result.text)


def print_json(document: Any, *, compact: bool) -> None:
    """One JSON document on stdout; on one line if compact."""
    typer.echo(json.dumps(document, ensure_ascii=False, indent=None if compact else 2, default=str))


async def _start_all(documents: "list[dict[str, Any]]", options: RunnerOptions, rendering: Rendering) -> int:
    """Start a run for each prompt and print its id; nobody follows it here."""
    from assistant_runner.assembly import open_runner

    async with open_runner(options.load(os.environ, Path.cwd())) as runner:
        for document in documents:
            run = await runner.start(options.question(document))
            if rendering.as_json or rendering.as_events:
                ids = {"run_id": run.id, "thread_id": run.thread_id, "status": run.status}
                print_json(ids, compact=rendering.as_events)
            else:
                typer.echo(run.id)
    return 0


async def _ask_all(
    documents: "list[dict[str, Any]]",
    options: RunnerOptions,
    rendering: Rendering,
    max_rounds: int | None = None,
) -> int:
    """Ask one after the other; the exit status is the first one that is not 0."""
    from assistant_runner.assembly import open_runner
    from assistant_runner.cli.approval import terminal_approver
    from assistant_runner.cli.progress import Progress

    loaded = options.load(os.environ, Path.cwd())
    status = 0
    progress = Progress(quiet=rendering.quiet, events=print_event if rendering.as_events else None)
    approve = terminal_approver(options.no_input, progress)
    async with open_runner(loaded, approve=approve) as runner:
        progress.begin(runner)
        for document in documents:
            question = options.question(document)
            try:
                with progress:
                    result = await runner.ask(
                        question,
                        listener=progress.listen,
                        pause_after=max_rounds,
                        whole_thread=rendering.output == "run",
                    )
            except AssistantRunnerError as error:
                if len(documents) == 1:
                    raise
                from assistant_runner.cli.edge import tell_error

                status = status or tell_error(error, as_json=rendering.as_json or rendering.as_events)
                continue
            for warning in result.warnings:
                progress.note(warning)
            rendering.show(result)
            if not result.text and rendering.output == "text":
                status = status or 13
    return status


def print_event(document: dict[str, Any]) -> None:
    print_json(document, compact=True)


def from_prompt_file(
    name: str, words: list[str], inputs: list[str], options: RunnerOptions
) -> tuple[list[dict[str, Any]], RunnerOptions]:
    """The prompt of a prompt file (rows S2.7, S2.8), and the options with what it says beside it."""
    from assistant_runner.setup.prompts import load_prompt

    if words:
        raise UsageError("--prompt and a question exclude each other", remedy="give one of the two")
    values: dict[str, str] = {}
    for pair in inputs:
        key, separator, value = pair.partition("=")
        if not separator or not key:
            raise UsageError(f"-p {pair!r}: not key=value", remedy="write -p key=value")
        values[key] = value
    prompt = load_prompt(name, values, cwd=Path.cwd())
    tools = options.tool or (None if options.no_tools else prompt.tool_addresses)
    options = dataclasses.replace(
        options,
        tool=tools or None,
        instructions=options.instructions or prompt.system,
        model=options.model or prompt.model,
    )
    return [{"prompt": prompt.text}], options


def read_prompts(words: list[str], stdin: Any) -> list[dict[str, Any]]:
    """The prompt documents: from the words, else from the pipe (text, JSON object, array, JSONL).

    UsageError if there is none or it is empty.
    """
    text = " ".join(words)
    if words and text != "-":
        if not text.strip():
            raise UsageError("the prompt is empty", remedy='give a question: assistant-runner "…"')
        return [{"prompt": text}]
    if stdin.isatty():
        raise UsageError(
            "no prompt given", remedy='give a question, or pipe one: echo "…" | assistant-runner'
        )
    raw = stdin.buffer.read() if hasattr(stdin, "buffer") else stdin.read().encode()
    try:
        piped = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(
            f"the piped prompt is not UTF-8 (byte {error.start})", remedy="convert it, for example with iconv"
        ) from None
    documents = _documents(piped)
    for number, document in enumerate(documents, start=1):
        prompt = document.get("prompt")
        if not isinstance(prompt, str) or not prompt.strip():
            raise UsageError(
                f"document {number}: prompt must be a text that is not empty, found {prompt!r}",
                remedy='each document is like {"prompt": "…"}',
            )
    if not documents:
        raise UsageError("the piped prompt is empty", remedy="pipe a question")
    return documents


def _documents(piped: str) -> list[dict[str, Any]]:
    """A JSON object or array with prompts, JSON lines of such objects, else the whole text as a prompt."""
    text = piped.strip()
    if not text:
        return []
    if text[0] in "{[":
        for parse in (_whole_json, _json_lines):
            documents = parse(text)
            if documents is not None:
                return documents
    return [{"prompt": text}]


def _whole_json(text: str) -> list[dict[str, Any]] | None:
    try:
        value = json.loads(text)
    except json.JSONDecodeError:
        return None
    items = value if isinstance(value, list) else [value]
    return items if items and all(isinstance(item, dict) and "prompt" in item for item in items) else None


def _json_lines(text: str) -> list[dict[str, Any]] | None:
    try:
        items = [json.loads(line) for line in text.split("\n") if line.strip()]
    except json.JSONDecodeError:
        return None
    return items if all(isinstance(item, dict) and "prompt" in item for item in items) else None
