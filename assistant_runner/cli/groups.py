"""How our commands look and load: groups that know names before modules, help that is whole.

Click's own classes do nearly all of it. Ours add: a group whose commands' modules are imported when
they are asked for, first lines of help that are never cut, errors that know their command, plain words
for numbers, headings between many options, and help for positional arguments (click's own: from 8.5 on).
"""

import importlib
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar, cast

import click

F = TypeVar("F", bound=Callable[..., Any])


class Integer(click.IntRange):
    """A whole number within bounds; help and errors call it so."""

    name = "integer"


class Number(click.FloatRange):
    """A number within bounds."""

    name = "float"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = super().convert(value, param, ctx)
        return self.fail(f"{value!r} is not a number.", param, ctx) if number != number else number


class Command(click.Command):
    """A command whose line in a list of commands is its first paragraph, whole."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:  # not all of click's name their command
            error.ctx = error.ctx or ctx
            raise

    def format_arguments(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Nothing: they stand with the options, in one way whatever click's version is."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        sections: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []}
        for param in self.get_params(ctx):
            if record := param.get_help_record(ctx):
                sections.setdefault(getattr(param, "heading", "Options"), []).append(record)
        for heading, records in sections.items():
            if records:
                with formatter.section(heading):
                    formatter.write_dl(records)

    def get_short_help_str(self, limit: int = 0) -> str:
        return " ".join(inspect.cleandoc(self.short_help or self.help or "").split("\n\n")[0].split())


class Group(click.Group):
    """A group of such commands, in the order in which they were added."""

    command_class = Command

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)


class LazyGroup(Group):
    """A group that has names and first lines; a command's module is imported when it is asked for.

    `lines` says the first line of each command's help; `modules` where a command is (module:attribute).
    """

    def __init__(self, *args: Any, lines: Mapping[str, str], modules: Mapping[str, str], **attrs: Any):
        super().__init__(*args, **attrs)
        self._modules = modules
        for name, line in lines.items():
            self.add_command(Command(name, short_help=line))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name, command, rest = super().resolve_command(ctx, args)
        return name, self.load(name) if name and command else None, rest

    def load(self, name: str) -> click.Command:
        """The command itself."""
        module, _, attribute = self._modules[name].partition(":")
        return cast(click.Command, getattr(importlib.import_module(module), attribute))


class Option(click.Option):
    """An option that stands under a heading of its own in the help."""

    def __init__(self, param_decls: Sequence[str], heading: str = "Options", **attrs: Any) -> None:
        super().__init__(param_decls, **attrs)
        self.heading = heading


class Argument(click.Argument):
    """A positional argument that has a help text."""

    heading = "Arguments"

    def __init__(self, param_decls: Sequence[str], help: str = "", **attrs: Any) -> None:
        super().__init__(param_decls, **attrs)
        self.help = help

    def get_help_record(self, ctx: click.Context) -> tuple[str, str]:
        return self.human_readable_name, self.help or ""


def argument(name: str, **attrs: Any) -> Callable[[F], F]:
    """A decorator: the command has this positional argument."""
    return click.argument(name, cls=Argument, **attrs)
