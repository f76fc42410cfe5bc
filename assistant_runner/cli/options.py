"""Options that every command with a runner shares: declared once, read once."""

import functools
import inspect
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from assistant_runner.errors import UsageError

if TYPE_CHECKING:
    from assistant_runner.assembly import Question
    from assistant_runner.settings import LoadedSettings


@dataclass(frozen=True)
class RunnerOptions:
    """What the flags said; None is "not given", so that files and environment keep their word."""

    assistant: Annotated[
        str | None, typer.Option("--assistant", "-a", help="Assistant: a file, a name or an id.")
    ] = None
    profile: Annotated[
        str | None, typer.Option("--profile", help="A profile of the assistant file.", metavar="NAME")
    ] = None
    tool: Annotated[
        list[str] | None,
        typer.Option("--tool", "-t", help="A tool by name, path.py:name or package.module:name. Repeatable."),
    ] = None
    no_tools: Annotated[bool | None, typer.Option("--no-tools", help="Offer no tools.")] = None
    backend: Annotated[
        str | None, typer.Option("--backend", help="embedded, or the base URL of an Assistants API.")
    ] = None
    engine: Annotated[
        str | None, typer.Option("--engine", help="auto, responses, chat, planner or script.")
    ] = None
    script: Annotated[
        str | None, typer.Option("--script", help="The model script of --engine script.", metavar="FILE")
    ] = None
    model: Annotated[str | None, typer.Option("--model", "-m", help="Model or deployment name.")] = None
    base_url: Annotated[
        str | None, typer.Option("--engine-base-url", help="Where the engine's API answers.")
    ] = None
    offline: Annotated[
        bool | None, typer.Option("--offline", help="Recorded replies only; no socket is opened.")
    ] = None
    thread: Annotated[str | None, typer.Option("--thread", help="Run on this thread.")] = None
    instructions: Annotated[
        str | None, typer.Option("--instructions", help="Replace the assistant's instructions.")
    ] = None
    tool_choice: Annotated[
        str | None,
        typer.Option("--tool-choice", help="auto, none, required, or the name of a function."),
    ] = None
    parallel_tool_calls: Annotated[
        bool | None,
        typer.Option("--parallel-tool-calls/--no-parallel-tool-calls", help="Several calls in one turn."),
    ] = None
    response_format: Annotated[
        str | None,
        typer.Option("--response-format", help="text, json_object, or a file with a JSON Schema."),
    ] = None
    temperature: Annotated[float | None, typer.Option("--temperature", min=0, max=2)] = None
    top_p: Annotated[float | None, typer.Option("--top-p", min=0, max=1)] = None
    max_prompt_tokens: Annotated[int | None, typer.Option("--max-prompt-tokens", min=256)] = None
    max_completion_tokens: Annotated[int | None, typer.Option("--max-completion-tokens", min=256)] = None
    metadata: Annotated[
        list[str] | None, typer.Option("--metadata", help="key=value on the run. Repeatable.")
    ] = None
    rounds: Annotated[int | None, typer.Option("--rounds", min=1, help="Most tool rounds [25].")] = None
    timeout: Annotated[float | None, typer.Option("--timeout", help="Seconds for a whole run [600].")] = None
    tool_timeout: Annotated[
        float | None, typer.Option("--tool-timeout", help="Seconds for one tool call [60].")
    ] = None
    parallelism: Annotated[
        int | None, typer.Option("--parallelism", min=1, help="Tool calls at once [8].")
    ] = None
    repeats: Annotated[
        int | None, typer.Option("--repeats", min=1, help="Times one identical call is made [3].")
    ] = None
    bad_rounds: Annotated[
        int | None, typer.Option("--bad-rounds", min=1, help="Rounds of nothing but bad calls [3].")
    ] = None
    allow_host: Annotated[
        list[str] | None,
        typer.Option("--allow-host", help="Let page and HTTP tools reach this private host. Repeatable."),
    ] = None
    approve: Annotated[
        list[str] | None,
        typer.Option(
            "--approve", help="Tools (names or globs) that may run unasked. Repeatable.", metavar="TOOL"
        ),
    ] = None
    no_input: Annotated[
        bool | None, typer.Option("--no-input", help="Never ask; what would ask is refused.")
    ] = None
    data: Annotated[str | None, typer.Option("--data", help="Folder of the embedded service.")] = None
    if_active: Annotated[
        str | None,
        typer.Option(
            "--if-active",
            help="The thread's run is active: fail, wait, cancel, or takeover (answer its calls).",
        ),
    ] = None
    restart_expired: Annotated[
        bool | None,
        typer.Option("--restart-expired", help="A run that expires is taken over by a fresh one."),
    ] = None
    on_interrupt: Annotated[
        str | None,
        typer.Option("--on-interrupt", help="Ctrl-C: cancel the run at the backend, or leave it running."),
    ] = None
    poll_interval: Annotated[
        float | None,
        typer.Option("--poll-interval", help="Seconds between reads of a run, hints ignored."),
    ] = None
    verbose: Annotated[
        int | None,
        typer.Option("--verbose", "-v", count=True, help="Log to stderr; -vv requests too, keys masked."),
    ] = None
    log_file: Annotated[
        str | None,
        typer.Option("--log-file", help="Log everything to this file, keys masked.", metavar="FILE"),
    ] = None
    journal: Annotated[
        bool | None, typer.Option("--journal/--no-journal", help="Keep what a resumption needs [yes].")
    ] = None

    def load(
        self, environ: Mapping[str, str], cwd: Path, *, saved: Mapping[str, Any] | None = None
    ) -> "LoadedSettings":
        """The settings with these flags on top; `saved`: flags of an earlier run, below these."""
        from assistant_runner.settings import load_settings

        if self.verbose or self.log_file:
            from assistant_runner.logs import configure_logs

            configure_logs(self.verbose or 0, self.log_file, environ=environ)
        if self.no_tools and self.tool:
            raise UsageError("--no-tools and --tool exclude each other", remedy="choose one")
        flags = {
            "assistant": self.assistant,
            "profile": self.profile,
            "tools": () if self.no_tools else tuple(self.tool) if self.tool else None,
            "backend": self.backend,
            "engine": self.engine,
            "script": self.script,
            "model": self.model,
            "engine_base_url": self.base_url,
            "offline": self.offline,
            "rounds": self.rounds,
            "timeout_s": self.timeout,
            "tool_timeout_s": self.tool_timeout,
            "parallelism": self.parallelism,
            "repeats": self.repeats,
            "bad_rounds": self.bad_rounds,
            "allow_hosts": tuple(self.allow_host) if self.allow_host else None,
            "approve": tuple(self.approve) if self.approve else None,
            "data_folder": self.data,
            "if_active": self.if_active,
            "restart_expired": self.restart_expired,
            "on_interrupt": self.on_interrupt,
            "poll_interval_s": self.poll_interval,
            "journal": self.journal,
        }
        given = {name: value for name, value in flags.items() if value is not None}
        return load_settings({**(saved or {}), **given}, environ=environ, cwd=cwd)

    def question(self, document: Mapping[str, Any]) -> "Question":
        """The question of one prompt document with these flags."""
        from assistant_runner.assembly import Question

        return Question(
            prompt=document["prompt"],
            thread_id=self.thread,
            model=self.model,
            instructions=self.instructions,
            tool_choice=parse_tool_choice(self.tool_choice),
            parallel_tool_calls=self.parallel_tool_calls,
            response_format=parse_response_format(self.response_format),
            temperature=self.temperature,
            top_p=self.top_p,
            max_prompt_tokens=self.max_prompt_tokens,
            max_completion_tokens=self.max_completion_tokens,
            metadata=parse_metadata(self.metadata),
        )


def parse_tool_choice(text: str | None) -> Any:
    """`auto`, `none`, `required`, or a named function (row S1.15)."""
    if text is None or text in ("auto", "none", "required"):
        return text
    return {"type": "function", "function": {"name": text}}


def parse_response_format(text: str | None) -> Any:
    """A response format from a word or from a file with a JSON Schema."""
    if text is None or text == "auto":
        return text
    if text in ("text", "json_object"):
        return {"type": text}
    path = Path(text)
    try:
        schema = json.loads(path.read_text(encoding="utf-8-sig"))
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise UsageError(
            f"--response-format {text!r}: {error}", remedy="text, json_object, or a file with a JSON Schema"
        ) from None
    name = "".join(letter if letter.isalnum() or letter in "_-" else "_" for letter in path.stem)[:64]
    return {"type": "json_schema", "json_schema": {"name": name, "schema": schema, "strict": True}}


def parse_metadata(pairs: list[str] | None) -> dict[str, str] | None:
    if not pairs:
        return None
    metadata: dict[str, str] = {}
    for pair in pairs:
        key, separator, value = pair.partition("=")
        if not separator or not key:
            raise UsageError(f"--metadata {pair!r}: not key=value", remedy="write --metadata key=value")
        metadata[key] = value
    return metadata


def runner_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give the command the shared options: typer sees them all, the command gets one `options`."""
    own = inspect.signature(command, eval_str=True)
    shared = [
        inspect.Parameter(
            field.name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=_annotation(field.name)
        )
        for field in fields(RunnerOptions)
    ]

    @functools.wraps(command)
    def with_options(*args: Any, **kwargs: Any) -> None:
        taken = {field.name: kwargs.pop(field.name, None) for field in fields(RunnerOptions)}
        command(*args, options=RunnerOptions(**taken), **kwargs)

    kept = [parameter for parameter in own.parameters.values() if parameter.name != "options"]
    with_options.__signature__ = own.replace(parameters=[*kept, *shared])  # type: ignore[attr-defined]
    with_options.__annotations__ = {p.name: p.annotation for p in [*kept, *shared]}
    return with_options


def _annotation(name: str) -> Any:
    return RunnerOptions.__annotations__[name]
