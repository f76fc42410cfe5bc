"""The command line's root: `assistant-runner "question"` is `ask`, everything else has a name.

Start-up is a feature: only typer and the standard library are imported here; a command imports its
rooms when it runs.
"""

import difflib
import sys
from collections.abc import Sequence
from typing import Annotated

import typer
from typer.core import TyperGroup

from assistant_runner import __version__
from assistant_runner.cli import ask, assistants, batch, config, doctor, models, runs, serve, threads, tools
from assistant_runner.cli.edge import run_edge
from assistant_runner.errors import UsageError


class QuestionGroup(TyperGroup):
    """A first word that is no command's name begins a question."""

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]
        if _is_question(args, set(self.commands)):
            _refuse_mistyped(args, list(self.commands))
            args = ["ask", *args]
        return super().parse_args(ctx, args)


def _refuse_mistyped(args: Sequence[str], commands: list[str]) -> None:
    """UsageError for a lone word that is nearly a command's name: it was hardly meant as a question."""
    if args and args[0].isalpha() and all(arg.startswith("-") for arg in args[1:]):
        near = difflib.get_close_matches(args[0], commands, n=1, cutoff=0.75)
        if near:
            raise UsageError(
                f"there is no command {args[0]!r}; did you mean {near[0]}?",
                remedy=f"to ask it as a question: assistant-runner ask {args[0]}",
            )


_ROOT_OPTIONS = {"--help", "-h", "--version", "--install-completion", "--show-completion"}


def _is_question(args: Sequence[str], commands: set[str]) -> bool:
    """Whether these arguments belong to `ask`: also none at all when something is piped in."""
    if not args:
        return not sys.stdin.isatty()
    return args[0] not in commands and args[0] not in _ROOT_OPTIONS


app = typer.Typer(
    cls=QuestionGroup,
    name="assistant-runner",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help='Ask an assistant that calls your tools: assistant-runner "your question".',
)


def _show_version(value: bool) -> None:
    if value:
        typer.echo(f"assistant-runner {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version.", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    """Run Assistants v2 runs with local tools; serve the protocol to other programs."""


ask.register(app)
app.add_typer(assistants.app, name="assistant")
app.add_typer(threads.app, name="thread")
app.add_typer(config.app, name="config")
doctor.register(app)
app.add_typer(models.app, name="models")
runs.register(app)
batch.register(app)
serve.register(app)
app.add_typer(tools.app, name="tools")


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line and leave with its exit status."""
    sys.exit(run_edge(app, list(sys.argv[1:] if argv is None else argv)))
