"""The fields of an assistant: what the file wants beside what the backend shows."""

from collections.abc import Mapping
from typing import Any

from assistant_runner.setup.desired import (
    RESETS,
    WIRE_FIELDS,
    same,
    shown_fields,
)
from assistant_runner.setup.document import FileInvalid, Problem
from assistant_runner.setup.lock import AssistantRecord, digest
from assistant_runner.setup.planned import CODE_INTERPRETER, FILE_SEARCH, AssistantPlan, FieldChange
from assistant_runner.wire.assistants import Assistant

MAX_INTERPRETER_FILES = 20


def plan_fields(plan: AssistantPlan, record: AssistantRecord | None) -> None:
    """Put the changed fields into the plan, by the rule that `desired` states."""
    known = record.fields if record else {}
    plan.wanted |= {
        name: RESETS.get(name) for name in known if name in WIRE_FIELDS and name not in plan.wanted
    }
    if plan.assistant is not None and "metadata" not in plan.spec.given:
        ours = plan.wanted["metadata"]
        if known.get("metadata", ("",))[0] in ("", digest(ours)):  # never said: other pairs are left alone
            plan.wanted["metadata"] = {**(plan.assistant.metadata or {}), **ours}
    resources = wanted_resources(plan)
    for name in (CODE_INTERPRETER, FILE_SEARCH):
        if name in known and name not in resources:
            resources[name] = []
    files = resources.get(CODE_INTERPRETER, [])
    if len(files) > MAX_INTERPRETER_FILES:
        words = f"expected at most {MAX_INTERPRETER_FILES} files of the code interpreter; found {len(files)}"
        raise FileInvalid([Problem(plan.spec.place("tools"), "tools", words)])
    shown = shown_fields(plan.assistant) if plan.assistant else {}
    here = shown_resources(plan.assistant)
    for name, after in plan.wanted.items():
        if plan.assistant is None:
            if after not in (None, []):
                plan.changes.append(FieldChange(name, None, after))
        elif not _unchanged(name, after, shown, known):
            plan.changes.append(_change(name, shown.get(name), after, known))
    for name, ids in resources.items():
        before = here.get(name, [])
        unknown = any(one is None for one in ids)
        if unknown or set(before) != set(ids):
            after = [one or "(known after apply)" for one in ids]
            plan.changes.append(_change(name, before, after, known))
    if plan.assistant is not None and plan.changes:
        plan.action = "update"


def _unchanged(name: str, after: Any, shown: Mapping[str, Any], known: Mapping[str, tuple[str, str]]) -> bool:
    if name in known and known[name] == (digest(after), digest(shown.get(name))):
        return True
    if name not in shown:
        return after in (None, [])
    return same(name, after, shown[name])


def _change(name: str, before: Any, after: Any, known: Mapping[str, tuple[str, str]]) -> FieldChange:
    by_hand = name in known and known[name][1] != digest(before)
    return FieldChange(name, before, after, by_hand)


def shown_resources(assistant: Assistant | None) -> dict[str, list[str]]:
    """The ids that hang on an assistant: files of the code interpreter, the store of file search."""
    resources = assistant.tool_resources if assistant else None
    found: dict[str, list[str]] = {}
    if resources and resources.code_interpreter:
        found[CODE_INTERPRETER] = list(resources.code_interpreter.file_ids or [])
    if resources and resources.file_search:
        found[FILE_SEARCH] = list(resources.file_search.vector_store_ids or [])
    return found


def wanted_resources(plan: AssistantPlan) -> dict[str, list[str | None]]:
    """The ids that the file wants on the assistant; None where the id is not known yet."""
    spec = plan.spec
    wanted: dict[str, list[str | None]] = {}
    interpreter, search = spec.tool(CODE_INTERPRETER), spec.tool(FILE_SEARCH)
    given = spec.tool_resources
    ids: list[str | None] = []
    if given and given.code_interpreter:
        ids += given.code_interpreter.file_ids or []
        wanted[CODE_INTERPRETER] = ids
    if interpreter and (interpreter.file_ids or plan.interpreter):
        ids += [*interpreter.file_ids, *(plan.files.get(one.key) for one in plan.interpreter)]
        wanted[CODE_INTERPRETER] = ids
    if plan.store:
        wanted[FILE_SEARCH] = [plan.store.id]
    elif search and search.vector_store_ids:
        wanted[FILE_SEARCH] = list(search.vector_store_ids)
    elif given and given.file_search:
        wanted[FILE_SEARCH] = list(given.file_search.vector_store_ids or [])
    return wanted
