"""`ask`: one question (or several documents on stdin), the answer alone on stdout."""

import dataclasses
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from assistant_runner.cli.edge import run_async
from assistant_runner.cli.groups import Command, Integer, argument
from assistant_runner.cli.options import RunnerOptions, runner_options, shared
from assistant_runner.cli.rendering import Rendering, print_event, print_json
from assistant_runner.errors import AssistantRunnerError, UsageError


@click.command("ask", cls=Command)
@argument("prompt", nargs=-1, metavar="[PROMPT]", help="The question; - or nothing reads it from a pipe.")
@click.option(
    "--prompt", "prompt_file", metavar="NAME", help="A prompt file by name or path, instead of a question."
)
@click.option(
    "-p", "inputs", multiple=True, metavar="KEY=VALUE", help="An input of the prompt file. Repeatable."
)
@shared(Rendering, "rendering")
@click.option("--detach", is_flag=True, help="Start the run, print its id, leave: see run wait.")
@click.option(
    "--max-rounds",
    type=Integer(min=1),
    help="Leave the run waiting after so many rounds: see run resume.",
)
@runner_options
def ask(
    prompt: tuple[str, ...],
    prompt_file: str | None,
    inputs: tuple[str, ...],
    rendering: Rendering,
    detach: bool,
    max_rounds: int | None,
    options: RunnerOptions,
) -> int:
    """Ask one question; tools run here, the answer goes to stdout, progress to stderr."""
    if prompt_file:
        documents, options = from_prompt_file(prompt_file, prompt, inputs, options)
    elif inputs:
        raise UsageError("-p needs a prompt file", remedy="name it with --prompt")
    else:
        documents = read_prompts(prompt, sys.stdin)
    return run_async(
        _start_all(documents, options, rendering)
        if detach
        else _ask_all(documents, options, rendering, max_rounds)
    )


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
                click.echo(run.id)
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
            status = status or rendering.show(result)
    return status


def from_prompt_file(
    name: str, words: Sequence[str], inputs: Sequence[str], options: RunnerOptions
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
    tools = options.tool or (() if options.no_tools else prompt.tool_addresses)
    options = dataclasses.replace(
        options,
        tool=tuple(tools or ()),
        instructions=options.instructions or prompt.system,
        model=options.model or prompt.model,
    )
    return [{"prompt": prompt.text}], options


def read_prompts(words: Sequence[str], stdin: Any) -> list[dict[str, Any]]:
    """The prompt documents: from the words, else from the pipe (text, JSON object, array, JSONL).

    UsageError if there is none or it is empty.
    """
    text = " ".join(words)
    if words and text != "-":
        if not text.strip():
            raise UsageError("the prompt is empty", remedy='give a question: assistant-runner "…"')
        return [{"prompt": _whole(text)}]
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
        _whole(prompt)
    if not documents:
        raise UsageError("the piped prompt is empty", remedy="pipe a question")
    return documents


def _whole(text: str) -> str:
    """The text; UsageError if it holds bytes that are none, or half a character."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise UsageError(
            f"the prompt is not UTF-8 (character {error.start})", remedy="convert it, for example with iconv"
        ) from None
    return text


def _documents(piped: str) -> list[dict[str, Any]]:
    """A JSON object or array with prompts, JSON lines of such objects, else the whole text as a prompt.

    UsageError for what is half documents and half not: it was hardly meant as one prompt.
    """
    text = piped.strip()
    if not text:
        return []
    if text[0] not in "{[":
        return [{"prompt": text}]
    try:
        value = json.loads(text)
    except json.JSONDecodeError:
        items = _json_lines(text)
    else:
        items = value if isinstance(value, list) else [value]
    if not any(_is_document(item) for item in items):
        return [{"prompt": text}]
    for number, item in enumerate(items, start=1):
        if not _is_document(item):
            raise UsageError(
                f"document {number}: no prompt in {json.dumps(item, ensure_ascii=False)[:80]}",
                remedy='each document is like {"prompt": "…"}',
            )
    return items


def _is_document(value: object) -> bool:
    return isinstance(value, dict) and "prompt" in value


def _json_lines(text: str) -> list[Any]:
    """The values of the lines; none if the first is no document. UsageError if a later one is no JSON."""
    values: list[Any] = []
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            values.append(json.loads(line))
        except json.JSONDecodeError as error:
            if not values or not _is_document(values[0]):
                return []
            raise UsageError(
                f"line {number} is no JSON: {error}", remedy='each line is like {"prompt": "…"}'
            ) from None
    return values
