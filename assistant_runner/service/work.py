"""The work on one run: turn after turn of the engine, until the run is settled.

A turn's events become messages and run steps as they arrive; each change of state is one transaction
and then an event to those who listen. A message's text is written when the message ends, not with
every delta: a process that is killed in between leaves an open message without text, and whoever
takes the run up begins that turn again.
"""

import asyncio
import json
import logging
from typing import Any, Literal, NoReturn

from pydantic import TypeAdapter

from assistant_runner.service import documents, lifecycle
from assistant_runner.service.builtins import (
    BuiltinFailed,
    offered_tools,
    resource_ids,
    run_builtin,
    wanted_builtin,
)
from assistant_runner.service.citations import cite
from assistant_runner.service.context import BudgetTooSmall, estimate, items_of
from assistant_runner.service.core import Core
from assistant_runner.service.endings import conclude, last_error
from assistant_runner.service.engines.base import (
    Annotate,
    ApprovalRequest,
    BuiltinCall,
    CallDelta,
    Carry,
    EngineError,
    Finish,
    HostedActivity,
    Notice,
    RefusalDelta,
    TextDelta,
    TurnEvent,
    TurnMessage,
    TurnRequest,
)
from assistant_runner.service.formats import answer_flaw
from assistant_runner.service.ids import new_id
from assistant_runner.service.sse import encode, text_frame_head
from assistant_runner.service.store.base import Document, Row
from assistant_runner.wire.tools import AssistantTool, ResponseFormat, ToolChoice

logger = logging.getLogger("assistant_runner.service")

StopReason = Literal["cancel", "expire", "stop"]

_tools: TypeAdapter[list[AssistantTool]] = TypeAdapter(list[AssistantTool])
_tool_choice: TypeAdapter[ToolChoice] = TypeAdapter(ToolChoice)
_response_format: TypeAdapter[ResponseFormat] = TypeAdapter(ResponseFormat)


class Lost(Exception):
    """Another process has taken the run over, or ended it."""


class Halted(Exception):
    """Somebody asked for the run to be cancelled."""


class RunWork:
    """One run in the hands of this process. `go` returns when the run is settled or given back."""

    def __init__(self, core: Core, *, world: str, thread_id: str, run_id: str, owner: str) -> None:
        self.core = core
        self.world = world
        self.thread_id = thread_id
        self.run_id = run_id
        self.owner = owner
        self.stop_reason: StopReason | None = None
        self._turn = _Turn()

    async def go(self) -> None:
        """Works until the run is settled; ends it by name whatever happens."""
        core = self.core
        try:
            active = core.store.active_run(self.thread_id)
            if active is None or active.run_id != self.run_id:
                return
            try:
                async with asyncio.timeout(max(0.0, active.deadline_at - core.clock())) as limit:
                    await self._turns()
            except TimeoutError:
                if not limit.expired():
                    raise
                self._end("expire")
        except asyncio.CancelledError:
            if self.stop_reason == "cancel":
                self._end("cancel")
            elif self.stop_reason == "expire":
                self._end("expire")
            else:
                raise
        except Halted:
            self._end("cancel")
        except Lost:
            core.hub.finish(self.run_id)
        except EngineError as error:
            logger.info("run %s failed: %s", self.run_id, error.code)
            self._end("fail", error=last_error(error.code, error.message, error.kind))
        except Exception as error:
            logger.exception("run %s failed by a fault of the service", self.run_id)
            self._end(
                "fail", error=last_error("server_error", f"The service failed: {type(error).__name__}.")
            )

    # ---- the turns

    async def _turns(self) -> None:
        row = self._read()
        if row.doc["status"] == "queued":
            row = self._advance("start")
            self.core.hub.publish(self.run_id, "thread.run.in_progress", row.doc)
        flaw = ability_flaw(self.core, row.doc)
        if flaw is not None:
            raise EngineError("invalid_prompt", flaw)
        while True:
            row = self._read()
            reason = _spent(row)
            if reason is not None:
                return self._end("truncate", incomplete_reason=reason)
            try:
                request = self._request(row)
            except BudgetTooSmall:
                return self._end("truncate", incomplete_reason="max_prompt_tokens")
            self._turn = turn = _Turn()
            count = 0
            async for event in self.core.engine.turn(request):
                self._take(event)
                count += 1
                if count % 64 == 0:
                    await asyncio.sleep(0)  # an engine that never waits must not starve the others
            if turn.finish is None:
                raise EngineError("server_error", "The engine's answer broke off.")
            if await self._finish_turn(request):
                return None

    def _request(self, row: Row) -> TurnRequest:
        core, run, extra = self.core, row.doc, row.extra
        items = items_of(core, row, self.world)
        model = core.settings.engine_model(run["model"])
        abilities = core.engine.abilities(model)
        if not abilities.vision and any(
            part["type"] == "image_url"
            for item in items
            if isinstance(item, TurnMessage)
            for part in item.content
        ):
            raise EngineError("invalid_prompt", f"The engine {core.engine.name} cannot look at images.")
        turn = extra.get("turn", 0)
        used = extra.get("used") or lifecycle.NO_USAGE
        most = run["max_completion_tokens"]
        choice = run["tool_choice"]
        active = core.store.active_run(self.thread_id)
        return TurnRequest(
            run_id=self.run_id,
            turn=turn,
            model=model,
            instructions=run["instructions"],
            items=items,
            tools=_tools.validate_python(
                offered_tools(run["tools"], abilities, uses_model=core.engine.uses_model)
            ),
            tool_choice=_tool_choice.validate_python(choice if turn == 0 or choice == "none" else "auto"),
            parallel_tool_calls=run["parallel_tool_calls"],
            response_format=_response_format.validate_python(run["response_format"]),
            temperature=run["temperature"],
            top_p=run["top_p"],
            reasoning_effort=extra.get("effort"),
            max_completion_tokens=None if most is None else most - used["completion_tokens"],
            metadata=run["metadata"] or {},
            carry=extra.get("carry"),
            vector_store_ids=resource_ids(core, run, self.world, "file_search", "vector_store_ids"),
            file_ids=resource_ids(core, run, self.world, "code_interpreter", "file_ids"),
            deadline_s=None if active is None else active.deadline_at - core.clock(),
        )

    def _take(self, event: TurnEvent) -> None:
        turn = self._turn
        if isinstance(event, TextDelta):
            if event.text:
                self._text(event.text)
        elif isinstance(event, CallDelta):
            self._call_piece(event)
        elif isinstance(event, Finish):
            turn.finish = event
        elif isinstance(event, RefusalDelta):
            self._refusal(event.text)
        elif isinstance(event, Annotate):
            self._annotate(dict(event.annotation))
        elif isinstance(event, BuiltinCall):
            turn.builtins.append((event.type, dict(event.arguments)))
        elif isinstance(event, HostedActivity):
            self._hosted(dict(event.call))
        elif isinstance(event, Carry):
            turn.carry = event.value
            turn.has_carry = True
        elif isinstance(event, Notice):
            logger.warning("run %s: %s", self.run_id, event.text)
        elif isinstance(event, ApprovalRequest):
            raise EngineError(
                "server_error",
                f"The tool {event.name!r} of the server {event.server_label!r} waits for an approval; "
                "this service does not offer approvals.",
            )

    async def _finish_turn(self, request: TurnRequest) -> bool:
        """Books the turn; True if the run is settled."""
        turn, finish = self._turn, self._turn.finish
        assert finish is not None
        usage = _usage_of(finish, request, turn)
        if finish.reason in ("length", "content_filter"):
            self._book(usage)
            self._end(
                "truncate",
                incomplete_reason="max_completion_tokens" if finish.reason == "length" else None,
                message_reason="max_tokens" if finish.reason == "length" else "content_filter",
                step_usage=usage,
            )
            return True
        functions = self._sort_calls()
        if not functions and not turn.builtins:
            self._check_answer(request)
            self._book(usage)
            self._end("complete", step_usage=usage)
            return True
        if turn.message_row is not None:
            self._close_message(usage)
        if turn.builtins:
            self._book(usage)
            for number, (kind, arguments) in enumerate(turn.builtins):
                await self._builtin(kind, arguments, usage if number == 0 else None)
        if not functions:
            return False
        return self._require_action(functions, usage, booked=bool(turn.builtins))

    def _sort_calls(self) -> list[Document]:
        """The function calls of the turn; calls of a tool that the service runs become built-in calls."""
        turn = self._turn
        if not turn.held:
            return turn.calls
        functions = []
        tools = self._read().doc["tools"]
        for call in turn.calls:
            wanted = wanted_builtin(call, tools)
            if wanted is None:
                functions.append(call)
            else:
                turn.builtins.append(wanted)
        return functions

    def _require_action(self, calls: list[Document], usage: dict[str, int], *, booked: bool) -> bool:
        store, turn = self.core.store, self._turn
        self._open_calls()
        step_row = turn.step_row
        assert step_row is not None
        if turn.held:
            self._publish_calls(calls)
        with store.transaction():
            row = self._own()
            if not booked:
                _book_usage(row, usage)
            _book_turn(row, turn)
            shown = [{**call, "function": {**call["function"], "output": None}} for call in calls]
            step_row.doc = {**step_row.doc, "step_details": {"type": "tool_calls", "tool_calls": shown}}
            step_row.extra = {**step_row.extra, "usage": usage}
            store.update(step_row)
            reason = _exceeded(row)
            if reason is None:
                action = {
                    "type": "submit_tool_outputs",
                    "submit_tool_outputs": {"tool_calls": calls},
                }
                row.doc = lifecycle.advance(
                    row.doc, "require_action", self.core.now(), required_action=action
                )
                store.set_active(self.run_id, status="requires_action", owner=None, seen_at=0)
            store.update(row)
        if reason is not None:
            self._end("truncate", incomplete_reason=reason, step_usage=usage)
            return True
        self.core.hub.publish(self.run_id, "thread.run.requires_action", row.doc)
        self.core.hub.finish(self.run_id)
        return True

    # ---- messages

    def _text(self, text: str) -> None:
        turn, hub = self._turn, self.core.hub
        self._open_message()
        if turn.content and turn.content[-1]["type"] == "text":
            turn.pieces.append(text)
            if hub.heard(self.run_id):
                head, tail = turn.frame_ends
                hub.publish_raw(self.run_id, f"{head}{encode(text)}{tail}".encode("ascii"))
            return
        self._seal()
        turn.content.append(documents.text_part(""))
        turn.pieces = [text]
        assert turn.message_row is not None
        index = len(turn.content) - 1
        turn.frame_ends = text_frame_head(turn.message_row.id, index)
        part = {"index": index, "type": "text", "text": {"value": text, "annotations": []}}
        self._message_delta(part)

    def _refusal(self, text: str) -> None:
        turn = self._turn
        self._open_message()
        if not turn.content or turn.content[-1]["type"] != "refusal":
            self._seal()
            turn.content.append({"type": "refusal", "refusal": ""})
        turn.content[-1]["refusal"] += text
        self._message_delta({"index": len(turn.content) - 1, "type": "refusal", "refusal": text})

    def _annotate(self, annotation: Document) -> None:
        turn = self._turn
        part = next((entry for entry in reversed(turn.content) if entry["type"] == "text"), None)
        if part is None:
            return
        listed: list[Document] = part["text"]["annotations"]
        shown = {"index": len(listed), **annotation}
        listed.append(annotation)
        index = turn.content.index(part)
        self._message_delta({"index": index, "type": "text", "text": {"annotations": [shown]}})

    def _message_delta(self, part: Document) -> None:
        message_row = self._turn.message_row
        assert message_row is not None
        self.core.hub.publish(
            self.run_id,
            "thread.message.delta",
            {"id": message_row.id, "object": "thread.message.delta", "delta": {"content": [part]}},
        )

    def _seal(self) -> None:
        """Puts the pieces of the last text part together."""
        turn = self._turn
        if turn.pieces:
            turn.content[-1]["text"]["value"] += "".join(turn.pieces)
            turn.pieces = []

    def _open_message(self) -> None:
        turn, core = self._turn, self.core
        if turn.message_row is not None:
            return
        if turn.step_row is not None:
            self._fault("text after a function call in one turn")
        now = core.now()
        with core.store.transaction():
            run = self._own().doc
            message = documents.message(
                now=now,
                thread_id=self.thread_id,
                role="assistant",
                content=[],
                status="in_progress",
                assistant_id=run["assistant_id"],
                run_id=self.run_id,
            )
            details = {"type": "message_creation", "message_creation": {"message_id": message["id"]}}
            step = documents.step(run, details, now=now)
            turn.step_row = core.store.insert("thread.run.step", self.run_id, step["id"], step)
            turn.message_row = core.store.insert(
                "thread.message", self.thread_id, message["id"], message, tag=self.run_id
            )
        self._publish_opened(step)
        if core.hub.heard(self.run_id):
            core.hub.publish(self.run_id, "thread.message.created", message)
            core.hub.publish(self.run_id, "thread.message.in_progress", message)

    def _close_message(self, usage: dict[str, int] | None) -> None:
        turn, core = self._turn, self.core
        assert turn.message_row is not None
        assert turn.step_row is not None
        now = core.now()
        self._seal()
        with core.store.transaction():
            self._own()
            message_row, step_row = turn.message_row, turn.step_row
            message_row = core.store.get("thread.message", self.thread_id, message_row.id) or message_row
            message_row.doc = lifecycle.end_message({**message_row.doc, "content": turn.content}, now)
            step_row.doc = lifecycle.end_step(step_row.doc, "completed", now, usage=usage)
            core.store.update(message_row)
            core.store.update(step_row)
        core.hub.publish(self.run_id, "thread.message.completed", message_row.doc)
        core.hub.publish(self.run_id, "thread.run.step.completed", step_row.doc)
        turn.message_row = turn.step_row = None
        turn.content = []

    def _check_answer(self, request: TurnRequest) -> None:
        """Cites what the text points to, and holds the text against the response format."""
        turn = self._turn
        if turn.message_row is None:
            return
        self._seal()
        for annotation in cite(self.core, self.run_id, turn.content):
            self._annotate(annotation)
        text = "".join(part["text"]["value"] for part in turn.content if part["type"] == "text")
        run = self._read().doc
        flaw = answer_flaw(run["response_format"], text)
        if flaw is None:
            return
        strict = isinstance(run["response_format"], dict) and (
            run["response_format"].get("json_schema") or {}
        ).get("strict")
        if strict and self.core.engine.uses_model:
            raise EngineError("server_error", f"The answer does not fit the response format: {flaw}")
        logger.warning("run %s: the answer does not fit the response format: %s", self.run_id, flaw)

    # ---- function calls

    def _call_piece(self, event: CallDelta) -> None:
        turn = self._turn
        if event.index > len(turn.calls):
            self._fault(f"a tool call with index {event.index} after {len(turn.calls)} calls")
        if event.index == len(turn.calls):
            turn.calls.append(self._new_call(event))
            if not turn.held:
                self._open_calls()
                self._call_delta(
                    {
                        "index": event.index,
                        "id": turn.calls[-1]["id"],
                        "type": "function",
                        "function": {"name": event.name or "", "arguments": "", "output": None},
                    }
                )
        if event.arguments:
            turn.calls[event.index]["function"]["arguments"] += event.arguments
            if not turn.held:
                piece = {"index": event.index, "type": "function", "function": {"arguments": event.arguments}}
                self._call_delta(piece)
        return

    def _new_call(self, event: CallDelta) -> Document:
        turn = self._turn
        if not turn.calls:
            tools = self._read().doc["tools"]
            turn.held = any(tool["type"] != "function" for tool in tools) and self.core.engine.uses_model
        identifier = event.id
        taken = {call["id"] for call in turn.calls}
        if not identifier or identifier in taken or not _good_id(identifier):
            identifier = new_id("tool_call")
        return {"id": identifier, "type": "function", "function": {"name": event.name or "", "arguments": ""}}

    def _publish_calls(self, calls: list[Document]) -> None:
        """The deltas of calls that were held back until all of the turn was known."""
        for index, call in enumerate(calls):
            function = call["function"]
            head = {"name": function["name"], "arguments": "", "output": None}
            self._call_delta({"index": index, "id": call["id"], "type": "function", "function": head})
            piece = {"arguments": function["arguments"]}
            self._call_delta({"index": index, "type": "function", "function": piece})

    def _open_calls(self) -> None:
        turn = self._turn
        if turn.message_row is not None:
            self._close_message(None)
        if turn.step_row is not None:
            return
        turn.step_row = self._open_step()

    def _open_step(self) -> Row:
        core = self.core
        with core.store.transaction():
            run = self._own().doc
            step = documents.step(run, {"type": "tool_calls", "tool_calls": []}, now=core.now())
            row = core.store.insert("thread.run.step", self.run_id, step["id"], step)
        self._publish_opened(step)
        return row

    def _publish_opened(self, step: Document) -> None:
        hub = self.core.hub
        if hub.heard(self.run_id):
            hub.publish(self.run_id, "thread.run.step.created", step)
            hub.publish(self.run_id, "thread.run.step.in_progress", step)

    def _call_delta(self, call: Document) -> None:
        step_row = self._turn.step_row
        assert step_row is not None
        self._step_delta(step_row, call)

    def _step_delta(self, step_row: Row, call: Document) -> None:
        hub = self.core.hub
        if hub.heard(self.run_id):
            details = {"type": "tool_calls", "tool_calls": [call]}
            document = {
                "id": step_row.id,
                "object": "thread.run.step.delta",
                "delta": {"step_details": details},
            }
            hub.publish(self.run_id, "thread.run.step.delta", document)

    # ---- built-in tools

    async def _builtin(self, kind: str, arguments: Document, usage: dict[str, int] | None) -> None:
        """Runs a built-in tool of the service as a step of its own."""
        step_row = self._open_step()
        run = self._read().doc
        call: Document = {"index": 0, "id": new_id("tool_call"), "type": kind}
        if kind == "code_interpreter":
            self._step_delta(step_row, {**call, kind: {"input": "", "outputs": []}})
            piece = {"index": 0, "type": kind, kind: {"input": arguments.get("input", "")}}
            self._step_delta(step_row, piece)
        else:
            self._step_delta(step_row, {**call, kind: {}})
        try:
            record, extra = await run_builtin(self.core, run, self.world, kind, arguments)
        except BuiltinFailed as error:
            raise EngineError("server_error", str(error)) from error
        if kind == "code_interpreter" and record["outputs"]:
            outputs = [{"index": index, **output} for index, output in enumerate(record["outputs"])]
            self._step_delta(step_row, {"index": 0, "type": kind, kind: {"outputs": outputs}})
        shown = {"id": call["id"], "type": kind, kind: record}
        self._complete_step(step_row, shown, extra, usage)

    def _hosted(self, call: Document) -> None:
        """Books a built-in tool that the engine ran itself."""
        if self._turn.message_row is not None:
            self._close_message(None)
        step_row = self._open_step()
        kind = call.get("type", "")
        if not call.get("id") or not _good_id(call["id"]):
            call = {**call, "id": new_id("tool_call")}
        record = call.get(kind)
        if kind == "file_search":
            self._step_delta(step_row, {"index": 0, "id": call["id"], "type": kind, kind: {}})
        elif kind == "code_interpreter" and isinstance(record, dict):
            outputs = [{"index": index, **entry} for index, entry in enumerate(record.get("outputs", []))]
            shown = {"input": record.get("input", ""), "outputs": outputs}
            self._step_delta(step_row, {"index": 0, "id": call["id"], "type": kind, kind: shown})
        self._complete_step(step_row, call, {}, None)

    def _complete_step(
        self, step_row: Row, call: Document, extra: Document, usage: dict[str, int] | None
    ) -> None:
        store = self.core.store
        with store.transaction():
            self._own()
            details = {"type": "tool_calls", "tool_calls": [call]}
            doc = {**step_row.doc, "step_details": details}
            step_row.doc = lifecycle.end_step(doc, "completed", self.core.now(), usage=usage)
            step_row.extra = {**step_row.extra, **extra}
            store.update(step_row)
        self.core.hub.publish(self.run_id, "thread.run.step.completed", step_row.doc)

    # ---- the run itself

    def _read(self) -> Row:
        row = self.core.store.get("thread.run", self.thread_id, self.run_id)
        if row is None:
            raise Lost
        return row

    def _own(self) -> Row:
        """The run as it is now, if it is still ours and nobody asked to stop; inside a transaction."""
        active = self.core.store.active_run(self.thread_id)
        if active is None or active.run_id != self.run_id or active.owner != self.owner:
            raise Lost
        if active.status == "cancelling":
            raise Halted
        return self._read()

    def _advance(self, event: Literal["start"]) -> Row:
        core = self.core
        with core.store.transaction():
            row = self._own()
            row.doc = lifecycle.advance(row.doc, event, core.now())
            core.store.update(row)
            core.store.set_active(
                self.run_id, status=row.doc["status"], owner=self.owner, seen_at=core.clock()
            )
        return row

    def _book(self, usage: dict[str, int]) -> None:
        """Adds a turn and what it used to the run's own account."""
        with self.core.store.transaction():
            row = self._own()
            _book_usage(row, usage)
            _book_turn(row, self._turn)
            self.core.store.update(row)

    def _end(
        self,
        event: Literal["complete", "truncate", "fail", "cancel", "expire"],
        *,
        error: dict[str, str] | None = None,
        incomplete_reason: str | None = None,
        message_reason: str | None = None,
        step_usage: dict[str, int] | None = None,
    ) -> None:
        core = self.core
        self._seal()
        with core.store.transaction():
            active = core.store.active_run(self.thread_id)
            row = core.store.get("thread.run", self.thread_id, self.run_id)
            if row is None or active is None or active.run_id != self.run_id or active.owner != self.owner:
                core.hub.finish(self.run_id)
                return
            if event == "cancel" and row.doc["status"] != "cancelling":
                row.doc = lifecycle.advance(row.doc, "request_cancel", core.now())
            if event in ("complete", "truncate") and row.doc["status"] == "cancelling":
                event = "cancel"
            conclude(
                core,
                row,
                event,
                content=self._turn.content or None,
                last_error=error,
                incomplete_reason=incomplete_reason,
                message_reason=message_reason,
                step_usage=step_usage,
            )

    def _fault(self, words: str) -> NoReturn:
        raise EngineError("server_error", f"The engine gave {words}.", kind="bad_answer")


class _Turn:
    """What one turn has brought so far."""

    def __init__(self) -> None:
        self.step_row: Row | None = None
        self.message_row: Row | None = None
        self.content: list[Document] = []
        self.pieces: list[str] = []
        self.frame_ends = ("", "")
        self.calls: list[Document] = []
        self.held = False
        self.builtins: list[tuple[str, Document]] = []
        self.finish: Finish | None = None
        self.booked = False
        self.carry: Any = None
        self.has_carry = False


def ability_flaw(core: Core, run: Document) -> str | None:
    """What the run asks for and its engine cannot give, in words; None if nothing."""
    engine = core.engine
    abilities = engine.abilities(core.settings.engine_model(run["model"]))
    kinds = {tool["type"] for tool in run["tools"]}
    if "function" in kinds and not abilities.tools:
        return f"The engine {engine.name} cannot call tools with the model {run['model']!r}."
    if "code_interpreter" in kinds and not abilities.code_interpreter:
        mode = core.settings.code_interpreter
        if mode == "off" or (mode == "script" and engine.uses_model):
            return (
                f"The tool code_interpreter is not offered: the engine {engine.name} has none of its own, "
                "and this service runs code that a model wrote only when it was started with "
                "--code-interpreter subprocess."
            )
    return None


def _book_usage(row: Row, usage: dict[str, int]) -> None:
    used = row.extra.get("used") or lifecycle.NO_USAGE
    row.extra["used"] = {key: used[key] + usage[key] for key in lifecycle.NO_USAGE}


def _book_turn(row: Row, turn: _Turn) -> None:
    if not turn.booked:
        row.extra["turn"] = row.extra.get("turn", 0) + 1
        turn.booked = True
    if turn.has_carry:
        row.extra["carry"] = turn.carry


def _spent(row: Row) -> str | None:
    """The budget that is used up before another turn."""
    used = row.extra.get("used") or lifecycle.NO_USAGE
    for kind in ("completion", "prompt"):
        most = row.doc[f"max_{kind}_tokens"]
        if most is not None and used[f"{kind}_tokens"] >= most:
            return f"max_{kind}_tokens"
    return None


def _exceeded(row: Row) -> str | None:
    """The budget that a turn has overrun."""
    used = row.extra.get("used") or lifecycle.NO_USAGE
    for kind in ("completion", "prompt"):
        most = row.doc[f"max_{kind}_tokens"]
        if most is not None and used[f"{kind}_tokens"] > most:
            return f"max_{kind}_tokens"
    return None


def _usage_of(finish: Finish, request: TurnRequest, turn: _Turn) -> dict[str, int]:
    """The engine's count, or an estimate where it does not count."""
    if finish.usage is not None:
        return {key: getattr(finish.usage, key) for key in lifecycle.NO_USAGE}
    prompt = estimate(request.instructions)
    for item in request.items:
        if isinstance(item, TurnMessage):
            prompt += estimate(item.text())
        else:
            prompt += estimate(getattr(item, "arguments", "") or getattr(item, "output", ""))
    completion = sum(
        estimate(part["text"]["value"]) for part in turn.content if part["type"] == "text"
    ) + estimate("".join(turn.pieces))
    completion += sum(estimate(json.dumps(call["function"])) for call in turn.calls)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
    }


def _good_id(identifier: str) -> bool:
    return (
        0 < len(identifier) <= 64
        and identifier.isascii()
        and identifier.replace("_", "").replace("-", "").isalnum()
    )
