"""Options that several commands share: declared once as the fields of a dataclass, read once.

A field made by `option` or `positional` is a parameter of the command line; `shared` gives a command
all parameters of such a dataclass and hands it one value.
"""

import functools
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from assistant_runner.cli.groups import Integer, Number, Option, argument
from assistant_runner.errors import UsageError

if TYPE_CHECKING:
    from assistant_runner.assembly import Question
    from assistant_runner.settings import LoadedSettings


PATH = click.Path(path_type=Path, readable=False)  # whoever reads it says what is wrong


def option(*names: str, **attrs: Any) -> Any:
    """A field that is a click option; where no default is given: None, False for a flag, () if multiple."""
    default = () if attrs.get("multiple") else attrs.get("default", False if attrs.get("is_flag") else None)

    def declare(name: str, heading: str) -> Any:
        return click.option(*names, name, cls=Option, heading=heading, **attrs)

    return field(default=default, metadata={"declare": declare})


def positional(**attrs: Any) -> Any:
    """A field that is a positional argument."""

    def declare(name: str, heading: str) -> Any:
        return argument(name, **attrs)

    return field(default=attrs.get("default"), metadata={"declare": declare})


def shared(
    kind: Callable[..., Any], name: str, *, without: tuple[str, ...] = (), heading: str = "Options"
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A decorator: the command has the parameters of the dataclass `kind` and gets them as one `name`."""
    declared = [one for one in fields(kind) if one.metadata and one.name not in without]  # type: ignore[arg-type]

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(command)
        def gathered(*args: Any, **values: Any) -> Any:
            taken = {one.name: values.pop(one.name) for one in declared}
            return command(*args, **{name: kind(**taken)}, **values)

        for one in reversed(declared):  # decorators stack from below
            gathered = one.metadata["declare"](one.name, heading)(gathered)
        return gathered

    return decorate


@dataclass(frozen=True, eq=False, repr=False)  # written by exec, method by method: start-up is a feature
class RunnerOptions:
    """What the flags said; None is "not given", so that files and environment keep their word."""

    assistant: str | None = option("--assistant", "-a", help="Assistant: a file, a name or an id.")
    profile: str | None = option("--profile", metavar="NAME", help="A profile of the assistant file.")
    tool: tuple[str, ...] = option(
        "--tool", "-t", multiple=True, help="A tool by name, path.py:name or package.module:name. Repeatable."
    )
    no_tools: bool | None = option("--no-tools", is_flag=True, default=None, help="Offer no tools.")
    backend: str | None = option("--backend", help="embedded, or the base URL of an Assistants API.")
    engine: str | None = option("--engine", help="auto, responses, chat, planner or script.")
    script: str | None = option("--script", metavar="FILE", help="The model script of --engine script.")
    model: str | None = option("--model", "-m", help="Model or deployment name.")
    base_url: str | None = option("--engine-base-url", help="Where the engine's API answers.")
    offline: bool | None = option(
        "--offline", is_flag=True, default=None, help="Recorded replies only; no socket is opened."
    )
    thread: str | None = option("--thread", help="Run on this thread.")
    instructions: str | None = option("--instructions", help="Replace the assistant's instructions.")
    tool_choice: str | None = option("--tool-choice", help="auto, none, required, or the name of a function.")
    parallel_tool_calls: bool | None = option(
        "--parallel-tool-calls/--no-parallel-tool-calls", default=None, help="Several calls in one turn."
    )
    response_format: str | None = option(
        "--response-format", help="text, json_object, or a file with a JSON Schema."
    )
    temperature: float | None = option("--temperature", type=Number(min=0, max=2))
    top_p: float | None = option("--top-p", type=Number(min=0, max=1))
    max_prompt_tokens: int | None = option("--max-prompt-tokens", type=Integer(min=256))
    max_completion_tokens: int | None = option("--max-completion-tokens", type=Integer(min=256))
    metadata: tuple[str, ...] = option("--metadata", multiple=True, help="key=value on the run. Repeatable.")
    rounds: int | None = option("--rounds", type=Integer(min=1), help="Most tool rounds [25].")
    timeout: float | None = option("--timeout", type=float, help="Seconds for a whole run [600].")
    tool_timeout: float | None = option("--tool-timeout", type=float, help="Seconds for one tool call [60].")
    parallelism: int | None = option("--parallelism", type=Integer(min=1), help="Tool calls at once [8].")
    repeats: int | None = option(
        "--repeats", type=Integer(min=1), help="Times one identical call is made [3]."
    )
    bad_rounds: int | None = option(
        "--bad-rounds", type=Integer(min=1), help="Rounds of nothing but bad calls [3]."
    )
    allow_host: tuple[str, ...] = option(
        "--allow-host", multiple=True, help="Let page and HTTP tools reach this private host. Repeatable."
    )
    approve: tuple[str, ...] = option(
        "--approve",
        multiple=True,
        metavar="TOOL",
        help="Tools (names or globs) that may run unasked. Repeatable.",
    )
    no_input: bool | None = option(
        "--no-input", is_flag=True, default=None, help="Never ask; what would ask is refused."
    )
    data: str | None = option("--data", help="Folder of the embedded service.")
    if_active: str | None = option(
        "--if-active", help="The thread's run is active: fail, wait, cancel, or takeover (answer its calls)."
    )
    restart_expired: bool | None = option(
        "--restart-expired",
        is_flag=True,
        default=None,
        help="A run that expires is taken over by a fresh one.",
    )
    on_interrupt: str | None = option(
        "--on-interrupt", help="Ctrl-C: cancel the run at the backend, or leave it running."
    )
    poll_interval: float | None = option(
        "--poll-interval", type=float, help="Seconds between reads of a run, hints ignored."
    )
    verbose: int = option(
        "--verbose",
        "-v",
        count=True,
        default=0,
        show_default=False,
        help="Log to stderr; -vv requests too, keys masked.",
    )
    log_file: str | None = option(
        "--log-file", metavar="FILE", help="Log everything to this file, keys masked."
    )
    journal: bool | None = option(
        "--journal/--no-journal", default=None, help="Keep what a resumption needs [yes]."
    )

    def load(
        self, environ: Mapping[str, str], cwd: Path, *, saved: Mapping[str, Any] | None = None
    ) -> "LoadedSettings":
        """The settings with these flags on top; `saved`: flags of an earlier run, below these."""
        from assistant_runner.settings import load_settings

        if self.verbose or self.log_file:
            from assistant_runner.logs import configure_logs

            configure_logs(self.verbose, self.log_file, environ=environ)
        if self.no_tools and self.tool:
            raise UsageError("--no-tools and --tool exclude each other", remedy="choose one")
        flags = {
            "assistant": self.assistant,
            "profile": self.profile,
            "tools": () if self.no_tools else self.tool or None,
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
            "allow_hosts": self.allow_host or None,
            "approve": self.approve or None,
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


def parse_metadata(pairs: Sequence[str]) -> dict[str, str] | None:
    if not pairs:
        return None
    metadata: dict[str, str] = {}
    for pair in pairs:
        key, separator, value = pair.partition("=")
        if not separator or not key:
            raise UsageError(f"--metadata {pair!r}: not key=value", remedy="write --metadata key=value")
        metadata[key] = value
    return metadata


backend_option = click.option("--backend", help="embedded, or the base URL of an Assistants API.")
data_option = click.option("--data", help="Folder of the embedded service.")
json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
HEADING = "Options of the run"
runner_options = shared(RunnerOptions, "options", heading=HEADING)

_REQUEST = (
    "instructions",
    "tool_choice",
    "parallel_tool_calls",
    "response_format",
    "temperature",
    "top_p",
    "max_prompt_tokens",
    "max_completion_tokens",
    "metadata",
)
"""What a run that exists was asked with: nothing of it can be said anew."""

taken_up_options = shared(
    RunnerOptions, "options", without=(*_REQUEST, "thread", "model"), heading="Options of the run"
)
forked_options = shared(RunnerOptions, "options", without=(*_REQUEST, "thread"), heading="Options of the run")
looked_at_options = shared(
    RunnerOptions, "options", without=(*_REQUEST, "model"), heading="Options of the run"
)
