"""The work on one run: turn after turn of the engine, until the run is settled.

Each change of state is one transaction and then an event to those who listen. Whatever happens, the
run ends by name: completed, incomplete, failed with words, cancelled, expired, or given back to the
store when this process stops.
"""

import asyncio
import json
import logging
from collections.abc import AsyncGenerator
from typing import Literal

from pydantic import TypeAdapter

from assistant_runner.service import lifecycle
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
from assistant_runner.service.documents import with_secrets
from assistant_runner.service.endings import conclude, last_error
from assistant_runner.service.engines.base import (
    Abilities,
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
from assistant_runner.service.ledger import Halted, Ledger, Lost
from assistant_runner.service.recorder import Recorder
from assistant_runner.service.store.base import Document, Row
from assistant_runner.service.stores import is_expired
from assistant_runner.wire.tools import HOSTED_TOOLS, AssistantTool, ResponseFormat, ToolChoice

logger = logging.getLogger("assistant_runner.service")

StopReason = Literal["cancel", "expire", "stop"]

INTAKE_WAIT_S = 60.0
"""How long a run waits for files that are still being taken in (reference, section 8.3)."""

LONGEST_TURN = 10_000_000
"""Characters that an engine may write in one turn: some ten times what a model can."""

_tools: TypeAdapter[list[AssistantTool]] = TypeAdapter(list[AssistantTool])
_tool_choice: TypeAdapter[ToolChoice] = TypeAdapter(ToolChoice)
_response_format: TypeAdapter[ResponseFormat] = TypeAdapter(ResponseFormat)


class RunWork:
    """One run in the hands of this process. `go` returns when the run is settled or given back."""

    def __init__(self, core: Core, row: Row, *, world: str, deadline_at: float, owner: str) -> None:
        self.core = core
        self.world = world
        self.run_id = row.id
        self.stop_reason: StopReason | None = None
        self.is_started = False
        self._written = 0
        self._ledger = Ledger(core, row, deadline_at=deadline_at, owner=owner)
        self._recorder = Recorder(core, self._ledger, holds_calls=False)

    async def go(self) -> None:
        """Works until the run is settled; ends it by name whatever happens."""
        ledger = self._ledger
        self.is_started = True
        try:
            if self.stop_reason is not None:  # somebody was faster than our first step
                raise asyncio.CancelledError
            left_s = max(0.0, ledger.deadline_at - self.core.clock())
            try:
                async with asyncio.timeout(left_s) as limit:
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
            self.core.hub.finish(self.run_id)
        except EngineError as error:
            logger.info("run %s failed: %s", self.run_id, error.code)
            self._end("fail", error=last_error(error.code, error.message, error.kind))
        except Exception as error:
            logger.exception("run %s failed by a fault of the service", self.run_id)
            words = f"The service failed: {type(error).__name__}."
            self._end("fail", error=last_error("server_error", words))

    async def _turns(self) -> None:
        core, ledger = self.core, self._ledger
        run = ledger.row.doc
        model = core.settings.engine_model(run["model"])
        abilities = core.engine.abilities(model)
        if run["status"] == "queued":
            run = ledger.advance("start").doc
            core.hub.publish(self.run_id, "thread.run.in_progress", run)
        flaw = ability_flaw(core, run, abilities)
        if flaw is not None:
            raise EngineError("invalid_prompt", flaw)
        builtin_kinds = {tool["type"] for tool in run["tools"]} - {"function", *HOSTED_TOOLS}
        if "file_search" in builtin_kinds:
            await self._await_files()
        holds_calls = core.engine.uses_model and any(not getattr(abilities, kind) for kind in builtin_kinds)
        while True:
            reason = ledger.spent()
            if reason is not None:
                return self._end("truncate", incomplete_reason=reason)
            try:
                request = self._request(model, abilities, builtin_kinds)
            except BudgetTooSmall:
                return self._end("truncate", incomplete_reason="max_prompt_tokens")
            self._recorder = Recorder(core, ledger, holds_calls=holds_calls)
            await self._play(request)
            if await self._finish_turn(request):
                return None

    async def _await_files(self) -> None:
        core, run = self.core, self._ledger.row.doc
        store_ids = resource_ids(core, run, self.world, "file_search", "vector_store_ids")
        for store_id in store_ids:
            row = core.store.get("vector_store", self.world, store_id)
            if row is not None and is_expired(core, row.doc):
                raise EngineError("invalid_prompt", f"The vector store {store_id} has expired.")
        await core.intake.settle(self.world, store_ids, INTAKE_WAIT_S)

    def _request(self, model: str, abilities: Abilities, builtin_kinds: set[str]) -> TurnRequest:
        core, ledger = self.core, self._ledger
        run = ledger.row.doc
        items = items_of(core, ledger.row, self.world)
        if not abilities.vision and any(
            part["type"] == "image_url"
            for item in items
            if isinstance(item, TurnMessage)
            for part in item.content
        ):
            raise EngineError("invalid_prompt", f"The engine {core.engine.name} cannot look at images.")
        most = run["max_completion_tokens"]
        choice = run["tool_choice"]
        tools = with_secrets(run["tools"], ledger.row.extra.get("secrets"))
        tools = offered_tools(tools, abilities, uses_model=core.engine.uses_model)
        return TurnRequest(
            run_id=self.run_id,
            turn=ledger.turn,
            model=model,
            instructions=run["instructions"],
            items=items,
            tools=_tools.validate_python(tools),
            tool_choice=_tool_choice.validate_python(
                choice if ledger.turn == 0 or choice == "none" else "auto"
            ),
            parallel_tool_calls=run["parallel_tool_calls"],
            response_format=_response_format.validate_python(run["response_format"]),
            temperature=run["temperature"],
            top_p=run["top_p"],
            reasoning_effort=ledger.row.extra.get("effort"),
            max_completion_tokens=None if most is None else most - ledger.used["completion_tokens"],
            metadata=run["metadata"] or {},
            carry=ledger.row.extra.get("carry"),
            vector_store_ids=self._resources("file_search", "vector_store_ids", builtin_kinds),
            file_ids=self._resources("code_interpreter", "file_ids", builtin_kinds),
            deadline_s=ledger.deadline_at - core.clock(),
        )

    def _resources(self, tool: str, key: str, builtin_kinds: set[str]) -> list[str]:
        if tool not in builtin_kinds:
            return []
        return resource_ids(self.core, self._ledger.row.doc, self.world, tool, key)

    # ---- one turn

    async def _play(self, request: TurnRequest) -> None:
        count, self._written = 0, 0
        events = self.core.engine.turn(request)
        try:
            async for event in events:
                self._take(event)
                count += 1
                if count % 64 == 0:
                    await asyncio.sleep(0)  # an engine that never waits must not starve the others
        finally:
            if isinstance(events, AsyncGenerator):  # its connection is closed now, not when it is collected
                await events.aclose()
        if self._recorder.finish is None:
            raise EngineError("server_error", "The engine's answer broke off.")

    def _measure(self, text: str) -> None:
        """EngineError for a turn that is longer than any model's: it must not fill the memory."""
        self._written += len(text)
        if self._written > LONGEST_TURN:
            raise EngineError("server_error", "The engine's answer has no end.")

    def _take(self, event: TurnEvent) -> None:
        recorder = self._recorder
        if isinstance(event, TextDelta):
            if event.text:
                self._measure(event.text)
                recorder.text(event.text)
        elif isinstance(event, CallDelta):
            self._measure(event.arguments or "")
            recorder.call_piece(event)
        elif isinstance(event, Finish):
            recorder.finish = event
        elif isinstance(event, RefusalDelta):
            self._measure(event.text)
            recorder.refusal(event.text)
        elif isinstance(event, Annotate):
            recorder.annotate(dict(event.annotation))
        elif isinstance(event, BuiltinCall):
            recorder.builtins.append((event.type, dict(event.arguments)))
        elif isinstance(event, HostedActivity):
            recorder.hosted(dict(event.call))
        elif isinstance(event, Carry):
            recorder.carry = event.value
        elif isinstance(event, Notice):
            logger.warning("run %s: %s", self.run_id, event.text)
        elif isinstance(event, ApprovalRequest):
            recorder.approval(event)

    async def _finish_turn(self, request: TurnRequest) -> bool:
        """Books the turn; True if the run is settled."""
        recorder, ledger = self._recorder, self._ledger
        finish = recorder.finish
        assert finish is not None
        usage = usage_of(finish, request, recorder)
        if finish.reason in ("length", "content_filter"):
            ledger.book(usage, recorder.carry)
            cut = finish.reason == "length"
            self._end(
                "truncate",
                incomplete_reason="max_completion_tokens" if cut else None,
                message_reason="max_tokens" if cut else "content_filter",
                step_usage=usage,
            )
            return True
        functions = self._sort_calls()
        waits = bool(functions or recorder.approvals)
        if not waits and not recorder.builtins:
            self._check_answer()
            ledger.book(usage, recorder.carry)
            self._end("complete", step_usage=usage)
            return True
        recorder.close_message(usage)
        if recorder.builtins:
            await self._run_builtins(usage, ends_turn=not waits)
        return self._require_action(functions, usage) if waits else False

    def _sort_calls(self) -> list[Document]:
        """The function calls of the turn; calls of a tool that the service runs become built-in calls."""
        recorder = self._recorder
        if not recorder.holds_calls:
            return recorder.calls
        functions = []
        for call in recorder.calls:
            wanted = wanted_builtin(call, self._ledger.row.doc["tools"])
            if wanted is None:
                functions.append(call)
            else:
                recorder.builtins.append(wanted)
        return functions

    async def _run_builtins(self, usage: dict[str, int], *, ends_turn: bool) -> None:
        """Runs the turn's built-in calls, a step each; the first carries the turn's usage.

        `ends_turn`: no required action follows, so the turn is booked together with the last of them.
        """
        recorder, core, ledger = self._recorder, self.core, self._ledger
        last = len(recorder.builtins) - 1
        for number, (kind, arguments) in enumerate(recorder.builtins):
            step_row, call_id = recorder.open_builtin(kind, arguments)
            try:
                record, extra = await run_builtin(core, ledger.row.doc, self.world, kind, arguments)
            except BuiltinFailed as error:
                raise EngineError("server_error", str(error)) from error
            call = {"id": call_id, "type": kind, kind: record}
            with core.store.transaction():
                if ends_turn and number == last:
                    row = ledger.own()
                    ledger.book(usage, recorder.carry)
                    core.store.update(row)
                recorder.close_builtin(step_row, call, extra=extra, usage=None if number else usage)

    def _require_action(self, calls: list[Document], usage: dict[str, int]) -> bool:
        """Waits for approvals if the turn asks for any (its functions come after them), else for outputs."""
        store, recorder, ledger = self.core.store, self._recorder, self._ledger
        recorder.open_calls()
        if recorder.holds_calls:
            recorder.show_held_calls(calls)
        asked = recorder.show_approvals(len(calls))
        step_row = recorder.step_row
        assert step_row is not None
        with store.transaction():
            row = ledger.own()
            ledger.book(usage, recorder.carry)
            shown = [{**call, "function": {**call["function"], "output": None}} for call in calls]
            details = {"type": "tool_calls", "tool_calls": [*shown, *asked]}
            step_row.doc = {**step_row.doc, "step_details": details}
            step_row.extra = {**step_row.extra, "usage": usage}
            store.update(step_row)
            reason = ledger.spent(exceeded=True)
            if reason is None:
                word = "submit_tool_approval" if asked else "submit_tool_outputs"
                action = {"type": word, word: {"tool_calls": recorder.approvals or calls}}
                now = self.core.now()
                row.doc = lifecycle.advance(row.doc, "require_action", now, required_action=action)
                store.set_active(self.run_id, status="requires_action", owner=None, seen_at=0)
            store.update(row)
        if reason is not None:
            self._end("truncate", incomplete_reason=reason, step_usage=usage)
            return True
        self.core.hub.publish(self.run_id, "thread.run.requires_action", row.doc)
        self.core.hub.finish(self.run_id)
        return True

    def _check_answer(self) -> None:
        """Cites what the text points to, and holds the text against the response format."""
        recorder, run = self._recorder, self._ledger.row.doc
        if recorder.message_row is None:
            return
        text = recorder.written()
        for annotation in cite(self.core, self.run_id, recorder.content):
            recorder.annotate(annotation)
        wanted = run["response_format"]
        flaw = answer_flaw(wanted, text)
        if flaw is None:
            return
        strict = isinstance(wanted, dict) and (wanted.get("json_schema") or {}).get("strict")
        if strict and self.core.engine.uses_model:
            raise EngineError("server_error", f"The answer does not fit the response format: {flaw}")
        logger.warning("run %s: the answer does not fit the response format: %s", self.run_id, flaw)

    def _end(
        self,
        event: Literal["complete", "truncate", "fail", "cancel", "expire"],
        *,
        error: dict[str, str] | None = None,
        incomplete_reason: str | None = None,
        message_reason: str | None = None,
        step_usage: dict[str, int] | None = None,
    ) -> None:
        core, recorder, ledger = self.core, self._recorder, self._ledger
        recorder.seal()
        try:
            with core.store.transaction():
                row = ledger.own(whatever=True)
                cancelling = row.doc["status"] == "cancelling"
                if event == "cancel" and not cancelling:
                    row.doc = lifecycle.advance(row.doc, "request_cancel", core.now())
                if event in ("complete", "truncate") and cancelling:
                    event = "cancel"
                conclude(
                    core,
                    row,
                    event,
                    content=recorder.content or None,
                    last_error=error,
                    incomplete_reason=incomplete_reason,
                    message_reason=message_reason,
                    step_usage=step_usage,
                )
        except Lost:
            core.hub.finish(self.run_id)


def ability_flaw(core: Core, run: Document, abilities: Abilities) -> str | None:
    """What the run asks for and its engine cannot give, in words; None if nothing."""
    engine = core.engine
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
    for kind in sorted(kinds.intersection(HOSTED_TOOLS) - abilities.hosted):
        return (
            f"The tool {kind} is not offered: it runs at the model's provider, and only the engine responses "
            f"passes it on, to a model that can call tools; this is {run['model']!r} with {engine.name}."
        )
    return None


def usage_of(finish: Finish, request: TurnRequest, recorder: Recorder) -> dict[str, int]:
    """The engine's count, or an estimate where it does not count."""
    if finish.usage is not None:
        return {key: getattr(finish.usage, key) for key in lifecycle.NO_USAGE}
    prompt = estimate(request.instructions)
    for item in request.items:
        if isinstance(item, TurnMessage):
            prompt += estimate(item.text())
        else:
            prompt += estimate(getattr(item, "arguments", "") or getattr(item, "output", ""))
    completion = estimate(recorder.written())
    completion += sum(estimate(json.dumps(call["function"])) for call in recorder.calls)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
    }
