"""A plan in words and colours."""

import difflib
import json
from typing import TYPE_CHECKING, Any

import click

from assistant_runner.errors import printable

if TYPE_CHECKING:
    from assistant_runner.setup.planned import AssistantPlan, FieldChange, Plan

_SIGNS = {
    "create": ("+", "green"),
    "update": ("~", "yellow"),
    "upload": ("+", "green"),
    "extend": ("+", "green"),
}
_SHORT = 100


def show_plan(plan: "Plan", *, verbose: bool = False) -> None:
    """The plan on stdout; what is unchanged in one line each, and a summary at the end."""
    for one in plan.assistants:
        show_assistant(one, verbose=verbose)
    for identity, record in plan.orphans.items():
        if plan.prune:
            click.secho(f"- delete {identity.lstrip('/')} ({record.id}): no longer in the file", fg="red")
        else:
            click.echo(f"  {identity.lstrip('/')} ({record.id}) is no longer in the file; --prune deletes it")
    click.echo(summary(plan))


def summary(plan: "Plan") -> str:
    """How many of what, in one line."""
    if plan.is_empty:
        return f"No changes on {plan.backend}: {_count(len(plan.assistants), 'assistant')} as the files say."
    steps = [step for one in plan.assistants for step in one.steps()]
    counts: dict[str, int] = {}
    for step in steps:
        counts[f"{step['do']} {step['what']}"] = counts.get(f"{step['do']} {step['what']}", 0) + 1
    if plan.prune and plan.orphans:
        counts["delete assistant"] = counts.get("delete assistant", 0) + len(plan.orphans)
    return f"Plan for {plan.backend}: " + ", ".join(f"{n} × {what}" for what, n in counts.items()) + "."


def _count(number: int, word: str) -> str:
    return f"{number} {word}" + ("" if number == 1 else "s")


def show_assistant(plan: "AssistantPlan", *, verbose: bool = False) -> None:
    """One assistant: each step with its sign, each changed field with before and after."""
    ident = f" ({plan.assistant.id})" if plan.assistant else ""
    if plan.is_empty:
        click.echo(f"  {plan.spec.name}{ident}: unchanged")
    for step in plan.steps():
        sign, colour = _SIGNS.get(step["do"], ("-", "red"))
        click.secho(f"{sign} {_words(step)}", fg=colour)
        if step["what"] == "assistant" and step["do"] != "delete":
            for change in plan.changes:
                _show_change(change, new=plan.assistant is None, verbose=verbose)
    for note in plan.notes:
        click.secho(f"  note: {note}", fg="cyan")


def _words(step: dict[str, Any]) -> str:
    match (step["do"], step["what"]):
        case ("upload", _):
            return f"upload {step['name']} ({step['bytes']:,} bytes)"
        case ("create", "vector store"):
            return f"create a vector store of {_count(step['files'], 'file')}"
        case ("extend", _):
            names = step["files"]
            shown = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
            return f"add to vector store {step['id']}: {shown}"
        case (do, "assistant") if do != "delete":
            ident = f" ({step['id']})" if "id" in step else ""
            return f"{do} assistant {step['name']!r}{ident}"
        case (do, what):
            why = f": {step['why']}" if "why" in step else ""
            return f"{do} {what} {step['id']}{why}"


def _show_change(change: "FieldChange", *, new: bool, verbose: bool) -> None:
    hand = "  (changed by hand on the backend)" if change.by_hand else ""
    if new:
        click.secho(f"    {change.name}: {_short(change.after, verbose)}", fg="green")
        return
    before, after = change.before, change.after
    if isinstance(before, str) and isinstance(after, str) and "\n" in before + after:
        click.echo(f"    {change.name}:{hand}")
        for line in difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=1):
            if not line.startswith(("---", "+++", "@@")):
                colour = "green" if line.startswith("+") else "red" if line.startswith("-") else None
                click.secho(printable(f"      {line}"), fg=colour)
        return
    if change.name == "tools":
        _show_tools(change, hand)
        return
    click.echo(f"    {change.name}: ", nl=False)
    click.secho(_short(before, verbose), fg="red", nl=False)
    click.echo(" → ", nl=False)
    click.secho(_short(after, verbose), fg="green", nl=False)
    click.echo(hand)


def _show_tools(change: "FieldChange", hand: str) -> None:
    click.echo(f"    tools:{hand}")
    before = {_tool_name(tool): tool for tool in change.before or []}
    after = {_tool_name(tool): tool for tool in change.after or []}
    for name in before:
        if name not in after:
            click.secho(printable(f"      - {name}"), fg="red")
    for name, tool in after.items():
        if name not in before:
            click.secho(f"      + {name}", fg="green")
        elif before[name] != tool:
            click.secho(f"      ~ {name}", fg="yellow")


def _tool_name(tool: dict[str, Any]) -> str:
    return str(tool.get("function", {}).get("name") if tool.get("type") == "function" else tool.get("type"))


def _short(value: Any, verbose: bool) -> str:
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return printable(", ".join(_tool_name(tool) for tool in value))
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    text = text if verbose else " ".join(text.split())
    return printable(text if verbose or len(text) <= _SHORT else text[: _SHORT - 1] + "…")
