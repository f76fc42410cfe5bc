"""Runs and run steps (reference, sections 2, 4.5 to 4.7, 9 to 12)."""

import asyncio
from typing import Any

from assistant_runner.service import documents, lifecycle
from assistant_runner.service.core import Core
from assistant_runner.service.endings import open_step
from assistant_runner.service.failures import (
    bad_request,
    cancel_refused,
    not_found,
    outputs_mismatch,
    outputs_refused,
    runs_locked,
    wrong_submission,
)
from assistant_runner.service.formats import check_format
from assistant_runner.service.messages import add_message
from assistant_runner.service.resources import resolved, without_deleted
from assistant_runner.service.routes.threads import active_run, make_thread
from assistant_runner.service.store.base import ActiveRun, Document, Row
from assistant_runner.service.web import Answer, Call, Result, Stream, check_prefix
from assistant_runner.wire.bodies import (
    check_metadata_modify,
    check_run_create,
    check_submit,
    check_thread_and_run_create,
)

KIND = "thread.run"
STEP = "thread.run.step"


async def create(call: Call) -> Result:
    thread_id = call.thread_id()
    call.include_content()
    body = call.document(check_run_create)
    core = call.core
    assistant = _assistant(call, body)
    active_run(core, thread_id)
    with core.store.transaction():
        active = active_run(core, thread_id)
        if active is not None:
            raise runs_locked(thread_id, active.run_id)
        for message in body.get("additional_messages") or []:
            add_message(core, call.world, thread_id, message)
        inserted = _insert_run(core, call.world, thread_id, body, assistant)
    return _begin(call, body, *inserted)


async def create_with_thread(call: Call) -> Result:
    body = call.document(check_thread_and_run_create)
    core = call.core
    assistant = _assistant(call, body)
    with core.store.transaction():
        thread = make_thread(core, call.world, body.get("thread") or {})
        inserted = _insert_run(core, call.world, thread["id"], body, assistant)
    return _begin(call, body, *inserted, thread)


def _assistant(call: Call, body: Document) -> Row:
    """The assistant of a run body; what the body asks for is checked against it."""
    check_prefix("assistant", "assistant_id", body["assistant_id"])
    check_format(body.get("response_format"), "response_format")
    row = call.row("assistant", call.world, body["assistant_id"])
    choice = body.get("tool_choice")
    if isinstance(choice, dict):
        tools = row.doc["tools"] if body.get("tools") is None else body["tools"]
        word = choice["type"]
        names = [tool["function"]["name"] for tool in tools if tool["type"] == "function"]
        known = (
            choice["function"]["name"] in names
            if word == "function"
            else any(tool["type"] == word for tool in tools)
        )
        if not known:
            wanted = choice["function"]["name"] if word == "function" else word
            raise bad_request(
                f"Invalid 'tool_choice': the tool '{wanted}' is not among the tools of this run.",
                code="invalid_value",
                param="tool_choice",
            )
    return row


def _insert_run(core: Core, world: str, thread_id: str, body: Document, assistant: Row) -> tuple[Row, float]:
    """A queued run that locks its thread and belongs to this process, and its deadline; inside a
    transaction."""
    created = core.clock()
    deadline = created + core.settings.run_expires_s
    own = body.get("tool_resources")
    known = without_deleted(core, world, assistant.doc).get("tool_resources") or {}
    given = body.get("instructions")
    instructions = (assistant.doc["instructions"] or "") if given is None else given
    if body.get("additional_instructions"):
        instructions = "\n".join(filter(None, (instructions, body["additional_instructions"])))
    run = documents.run(
        body,
        now=int(created),
        expires_at=int(created) + int(core.settings.run_expires_s),
        thread_id=thread_id,
        assistant=assistant.doc,
        instructions=instructions,
        tool_resources=known if own is None else resolved(core, world, own),
    )
    effort = body.get("reasoning_effort") or assistant.extra.get("effort")
    tools = body.get("tools")
    secrets = assistant.extra.get("secrets") if tools is None else documents.tool_secrets(tools)
    extra = {key: value for key, value in (("effort", effort), ("secrets", secrets)) if value}
    row = core.store.insert(KIND, thread_id, run["id"], run, extra=extra or None)
    holder = core.store.activate(
        ActiveRun(
            run_id=run["id"],
            thread_id=thread_id,
            world=world,
            status="queued",
            deadline_at=deadline,
            owner=core.workers.owner,
            seen_at=created,
        )
    )
    if holder is not None:
        raise runs_locked(thread_id, holder)
    return row, deadline


def _begin(
    call: Call, body: Document, row: Row, deadline_at: float, thread: Document | None = None
) -> Result:
    """Starts the work, and answers with the run or its events."""
    core, run = call.core, row.doc
    result: Result
    if body.get("stream"):
        listener = core.hub.listen(run["id"])
        if thread is not None:
            core.hub.publish(run["id"], "thread.created", thread)
        core.hub.publish(run["id"], ("thread.run.created", "thread.run.queued"), run)
        result = Stream(run["thread_id"], run["id"], listener)
    else:
        result = Answer(run)
    core.workers.start(row, world=call.world, deadline_at=deadline_at)
    return result


async def list_all(call: Call) -> Answer:
    thread_id = call.thread_id()
    active_run(call.core, thread_id)
    return call.list_answer(KIND, thread_id)


async def retrieve(call: Call) -> Answer:
    row = call.run_row(call.thread_id())
    return Answer(row.doc, headers={"openai-poll-after-ms": str(poll_after_ms(call.core, row.doc))})


def poll_after_ms(core: Core, run: Document) -> int:
    """How long to wait before the next look: short while the run is young."""
    age_s = core.clock() - run["created_at"]
    return 50 if age_s < 5 else 200 if age_s < 30 else 500


async def modify(call: Call) -> Answer:
    thread_id = call.thread_id()
    body = call.document(check_metadata_modify)
    call.run_row(thread_id)
    with call.core.store.transaction():
        row = call.run_row(thread_id)
        if "metadata" in body:
            row.doc = {**row.doc, "metadata": body["metadata"] or {}}
            call.core.store.update(row)
    return Answer(row.doc)


async def cancel(call: Call) -> Answer:
    """`cancelling` at once; `cancelled` as soon as the work has stopped."""
    thread_id = call.thread_id()
    core = call.core
    call.run_row(thread_id)
    with core.store.transaction():
        row = call.run_row(thread_id)
        status = row.doc["status"]
        active = core.store.active_run(thread_id)
        if active is None or not lifecycle.allows(status, "request_cancel"):
            raise cancel_refused(status)
        row.doc = lifecycle.advance(row.doc, "request_cancel", core.now())
        core.store.update(row)
        core.store.set_active(row.id, status="cancelling", owner=active.owner, seen_at=active.seen_at)
    core.hub.publish(row.id, "thread.run.cancelling", row.doc)
    if not core.workers.halt(row.id, "cancel") and active.owner in (None, core.workers.owner):
        asyncio.get_running_loop().call_soon(core.workers.end_cancelled, active)
    return Answer(row.doc)


async def submit(call: Call) -> Result:
    """All outputs of the required action at once, each once (reference, section 11).

    Approvals of hosted MCP calls come by the same rules (`tool_approvals`, as Foundry classic has
    them). If the same turn called functions, the run asks for their outputs next, without the engine.
    """
    thread_id = call.thread_id()
    call.identifier(KIND, "run_id")
    body = call.document(check_submit)
    core = call.core
    approvals = body.get("tool_approvals")
    entries = body["tool_outputs"] if approvals is None else approvals
    given = "output" if approvals is None else "approve"
    active_run(core, thread_id)  # outside the transaction: an expiry stands even if outputs are refused
    with core.store.transaction():
        row = call.run_row(thread_id)
        status = row.doc["status"]
        active = core.store.active_run(thread_id)
        if status != "requires_action" or active is None:
            raise outputs_refused(status)
        word = row.doc["required_action"]["type"]
        if (word == "submit_tool_approval") != (approvals is not None):
            raise wrong_submission(word)
        expected = [entry["id"] for entry in row.doc["required_action"][word]["tool_calls"]]
        got = [entry["tool_call_id"] for entry in entries]
        if sorted(expected) != sorted(got):
            raise outputs_mismatch(expected, got)
        step_row = open_step(core, row.id)
        waiting: list[Document] = []
        if step_row is not None:
            waiting = _fill_outputs(
                core, step_row, {entry["tool_call_id"]: entry[given] for entry in entries}
            )
        row.doc = queued = lifecycle.advance(row.doc, "submit", core.now())
        if waiting:
            row.doc = _ask_for_outputs(row.doc, waiting, core.now())
        else:
            core.store.set_active(row.id, status="queued", owner=core.workers.owner, seen_at=core.clock())
        core.store.update(row)
    result: Result
    if body.get("stream"):
        result = Stream(thread_id, row.id, core.hub.listen(row.id))
        if step_row is not None and not waiting:
            core.hub.publish(row.id, "thread.run.step.completed", step_row.doc)
        core.hub.publish(row.id, "thread.run.queued", queued)
    else:
        result = Answer(row.doc)
    if waiting:
        core.hub.publish(row.id, "thread.run.requires_action", row.doc)
        core.hub.finish(row.id)
    else:
        core.workers.start(row, world=call.world, deadline_at=active.deadline_at)
    return result


def _fill_outputs(core: Core, step_row: Row, answers: dict[str, Any]) -> list[Document]:
    """The function calls that still wait for an output; the step ends if there is none."""
    calls = [_answered(call, answers) for call in step_row.doc["step_details"]["tool_calls"]]
    waiting = [call for call in calls if call["type"] == "function" and call["function"]["output"] is None]
    document = {**step_row.doc, "step_details": {"type": "tool_calls", "tool_calls": calls}}
    if not waiting:
        usage = step_row.extra.get("usage")
        document = lifecycle.end_step(document, "completed", core.now(), usage=usage)
    step_row.doc = document
    core.store.update(step_row)
    return waiting


def _answered(call: Document, answers: dict[str, Any]) -> Document:
    if call["id"] not in answers:
        return call
    word, key = call["type"], "output" if call["type"] == "function" else "approve"
    return {**call, word: {**call[word], key: answers[call["id"]]}}


def _ask_for_outputs(run: Document, waiting: list[Document], now: int) -> Document:
    """The run, whose approvals have come, as it waits for the outputs of the same turn's functions."""
    calls = [
        {**call, "function": {key: value for key, value in call["function"].items() if key != "output"}}
        for call in waiting
    ]
    action = {"type": "submit_tool_outputs", "submit_tool_outputs": {"tool_calls": calls}}
    run = lifecycle.advance(run, "start", now)
    return lifecycle.advance(run, "require_action", now, required_action=action)


# ---- steps


async def list_steps(call: Call) -> Answer:
    row = call.run_row(call.thread_id())
    with_content = call.include_content()
    rows, has_more = call.page(STEP, row.id)
    return Answer(documents.listing([_shown_step(step_row, with_content) for step_row in rows], has_more))


async def retrieve_step(call: Call) -> Answer:
    row = call.run_row(call.thread_id())
    identifier = call.identifier(STEP, "step_id")
    step_row = call.core.store.get(STEP, row.id, identifier)
    if step_row is None:
        raise not_found(STEP, identifier)
    return Answer(_shown_step(step_row, call.include_content()))


def _shown_step(row: Row, with_content: bool) -> Document:
    """The step; results of a file search carry their content only when asked for."""
    results: list[Any] | None = row.extra.get("results")
    if not with_content or not results:
        return row.doc
    shown = [{key: entry[key] for key in ("file_id", "file_name", "score", "content")} for entry in results]
    calls = [
        {**call, "file_search": {**call["file_search"], "results": shown}}
        if call["type"] == "file_search"
        else call
        for call in row.doc["step_details"]["tool_calls"]
    ]
    return {**row.doc, "step_details": {"type": "tool_calls", "tool_calls": calls}}
