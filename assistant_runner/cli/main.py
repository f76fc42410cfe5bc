"""The command line's root: `assistant-runner "question"` is `ask`, everything else has a name.

Start-up is a feature: only click and the standard library are imported here. The commands' names and
first lines stand here as data; a command's module is imported when it is asked for, and imports its
rooms when it runs.
"""

import os
import sys
from collections.abc import Callable, Sequence

import click

from assistant_runner import __version__
from assistant_runner.cli.edge import run_edge
from assistant_runner.cli.groups import F, LazyGroup
from assistant_runner.errors import UsageError, near_words

VARIABLE = "_ASSISTANT_RUNNER_COMPLETE"
LINES = {
    "ask": "Ask one question; tools run here, the answer goes to stdout, progress to stderr.",
    "doctor": "Check configuration, keys, backend, proxy, clock, folders, tools and local servers.",
    "serve": "Serve the Assistants API v2 to any program: change its base URL, and it works again.",
    "assistant": "Assistants as code: files that become working assistants.",
    "thread": "Threads: import and export.",
    "config": "Settings, and the schema of assistant files.",
    "models": "Models that can be reached, and what they can do.",
    "run": "Runs of this machine: resume, show, replay, fork.",
    "batch": "Many prompts in, one result row each out.",
    "tools": "Look at tools, call one alone, write a new one.",
}
MODULES = {
    "ask": "assistant_runner.cli.ask:ask",
    "doctor": "assistant_runner.cli.doctor:doctor",
    "serve": "assistant_runner.cli.serve:serve",
    "assistant": "assistant_runner.cli.assistants:app",
    "thread": "assistant_runner.cli.threads:app",
    "config": "assistant_runner.cli.config:app",
    "models": "assistant_runner.cli.models:app",
    "run": "assistant_runner.cli.runs:app",
    "batch": "assistant_runner.cli.batch:app",
    "tools": "assistant_runner.cli.tools:app",
}


class QuestionGroup(LazyGroup):
    """A first word that is no command's name begins a question."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not ctx.resilient_parsing and self._is_question(ctx, args):
            _refuse_mistyped(args, list(self.commands))
            args = ["ask", *args]
        return super().parse_args(ctx, args)

    def _is_question(self, ctx: click.Context, args: Sequence[str]) -> bool:
        """Whether these arguments belong to `ask`: also none at all when something is piped in."""
        if not args:
            return not sys.stdin.isatty()
        own = {name for param in self.get_params(ctx) for name in param.opts}
        return args[0] not in self.commands and args[0].partition("=")[0] not in own


def _refuse_mistyped(args: Sequence[str], commands: list[str]) -> None:
    """UsageError for a lone word that is nearly a command's name: it was hardly meant as a question."""
    if args and args[0].isalpha() and all(arg.startswith("-") for arg in args[1:]):
        near = near_words(args[0], commands, cutoff=0.75)
        if near:
            raise UsageError(
                f"there is no command {args[0]!r}; did you mean {near[0]}?",
                remedy=f"to ask it as a question: assistant-runner ask {args[0]}",
            )


def _completion(ctx: click.Context, param: click.Parameter, shell: str | None) -> None:
    """The eager options about completion: do it and leave."""
    if shell is None or ctx.resilient_parsing:
        return
    from assistant_runner.cli.completion import install, script, shell_of

    shell = shell_of(shell)
    click.echo(script(ctx.command, shell) if param.name == "show_completion" else install(ctx.command, shell))
    ctx.exit()


def _completion_option(name: str, words: str) -> Callable[[F], F]:
    return click.option(
        name,
        is_flag=False,
        flag_value="",
        is_eager=True,
        expose_value=False,
        callback=_completion,
        metavar="[SHELL]",
        help=words,
    )


@click.group(
    cls=QuestionGroup,
    lines=LINES,
    modules=MODULES,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100, "show_default": True},
    help='Ask an assistant that calls your tools: assistant-runner "your question".',
)
@click.version_option(__version__, message="assistant-runner %(version)s", help="Show the version.")
@_completion_option(
    "--install-completion", "Install completion for bash, zsh or fish; your own shell if none is named."
)
@_completion_option("--show-completion", "Print what --install-completion would write.")
def app() -> None:
    """The root has no work of its own."""


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line and leave with its exit status; or answer the shell that completes a line."""
    if instruction := os.environ.get(VARIABLE):
        from assistant_runner.cli.completion import answer

        sys.exit(answer(app, instruction))
    sys.exit(run_edge(app, list(sys.argv[1:] if argv is None else argv)))
