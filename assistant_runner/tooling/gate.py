"""The one gate: policy, schema, approval, timeout, retries, output cap with spill, masking.

Every call of every kind of tool passes here, and whatever happens is an outcome: a tool that raises,
hangs, is refused or returns something odd never ends a run (cases 037 to 043). Functions that are not
async run in daemon threads, so that a stuck one can neither block the loop nor the end of the process.
"""

import asyncio
import hashlib
import inspect
import itertools
import json
import logging
import time
from collections.abc import AsyncIterable, Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

from assistant_runner.aside import aside
from assistant_runner.schemas import flaw_in
from assistant_runner.tooling.arguments import Rejection, fit_arguments, repair_call
from assistant_runner.tooling.contract import HttpReply, Summary, Tool, ToolContext, ToolFailure, ToolOutcome
from assistant_runner.tooling.encoding import DEFAULT_CAP, MAX_ITEMS, cut_text, to_text
from assistant_runner.tooling.fence import FetchedThreads, fence
from assistant_runner.tooling.masking import Masker, secrets_of
from assistant_runner.tooling.policy import Policy
from assistant_runner.tooling.selecting import select
from assistant_runner.tooling.speech import tool_speaks
from assistant_runner.tooling.spill import FULL_OUTPUT, READER_NAME, Spill
from assistant_runner.wire.runs import Usage

log = logging.getLogger(__name__)

ERROR_CHARACTERS = 600
ITEMS_AT_ONCE = 100
FENCE_ROOM = 120
REASON_CHARACTERS = 400
RETRY_PAUSE_S = 0.25


@dataclass(frozen=True, slots=True)
class ApprovalQuestion:
    """What a person is asked. `digest` ties the answer to this tool and these arguments (case-120)."""

    tool: str
    arguments: Mapping[str, Any]
    tool_call_id: str
    reason: str
    digest: str

    def document(self) -> dict[str, Any]:
        """What waits for an answer, as JSON."""
        return {
            "kind": "approval",
            "tool": self.tool,
            "arguments": dict(self.arguments),
            "tool_call_id": self.tool_call_id,
            "reason": self.reason,
            "digest": self.digest,
        }


@dataclass(frozen=True, slots=True)
class Decision:
    """`later`: nobody can answer now; the run is to be paused until somebody does."""

    answer: Literal["yes", "no", "later"]
    reason: str = ""


def _unhandled() -> None:
    """A hosted tool runs at the backend, never here."""


Approve = Callable[[ApprovalQuestion], Awaitable[Decision]]


def digest_of(tool: str, arguments: Mapping[str, Any]) -> str:
    """A digest of a call: the same tool and arguments give the same one, whatever the key order."""
    text = json.dumps([tool, arguments], sort_keys=True, ensure_ascii=False, default=str)
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()


class ToolGate:
    """A Gate. `approve` None: nobody is there, what would ask is refused.

    `output_cap`: bytes of the encoded output unless the tool has its own. `secrets`: values to mask
    beside those of the environment that a context carries. `spill`: where full outputs are kept;
    `fetched`: the threads that hold text by
    strangers.
    """

    def __init__(
        self,
        *,
        policy: Policy | None = None,
        approve: Approve | None = None,
        output_cap: int = DEFAULT_CAP,
        secrets: Iterable[str] = (),
        spill: Spill | None = None,
        fetched: FetchedThreads | None = None,
    ) -> None:
        self.policy = policy or Policy()
        self.approve = approve
        self.output_cap = output_cap
        self.secrets = tuple(secrets)
        self.spill = spill
        self._fetched = fetched or FetchedThreads()
        self._unavailable: dict[str, str] = {}

    async def call(self, tool: Tool, arguments: Any, context: ToolContext) -> ToolOutcome:
        """The outcome of one call; raises nothing but cancellation."""
        started = time.monotonic()
        masker = Masker([*self.secrets, *secrets_of(context.environ)])
        try:
            outcome = await self._call(tool, arguments, context)
            outcome = self._finish(tool, outcome, context, masker)
        except Exception as error:  # a bug of ours must not end a run either
            log.debug("the gate failed on %s", tool.name, exc_info=True)
            outcome = ToolOutcome(masker.mask(f"{tool.name} failed: {_say(error)}"), is_error=True)
        return replace(outcome, duration_s=time.monotonic() - started)

    async def approve_hosted(self, call: Mapping[str, Any]) -> bool | None:
        """Whether the backend may call a tool of its own MCP server: by the rules for `LABEL.NAME`, else
        by the person; None if nobody can say now. `call`: id, name, arguments, server_label."""
        name = f"{call.get('server_label') or 'mcp'}.{call.get('name')}"
        try:
            arguments = json.loads(call.get("arguments") or "{}")
        except ValueError:
            arguments = {}
        arguments = arguments if isinstance(arguments, dict) else {}
        tool = Tool(name, "", {}, _unhandled, effects="write", kind="mcp")
        verdict = self.policy.decide(tool, arguments)
        if verdict.action != "ask":
            return verdict.action == "allow"
        if self.approve is None:
            return None
        question = ApprovalQuestion(
            name, arguments, str(call.get("id")), verdict.reason, digest_of(name, arguments)
        )
        decision = await self.approve(question)
        return None if decision.answer == "later" else decision.answer == "yes"

    def remember_fetched(self, thread_id: str) -> None:
        """Text that strangers wrote is in this thread's context, from an earlier life of the program."""
        self._fetched.add(thread_id)

    async def _call(self, tool: Tool, arguments: Any, context: ToolContext) -> ToolOutcome:
        if tool.name in self._unavailable:
            return ToolOutcome(self._unavailable[tool.name], is_error=True, notes=("answered from memory",))
        given = repair_call(arguments, tool)
        if isinstance(given, Rejection):
            return ToolOutcome(f"{tool.name}: {given.reason}", is_error=True, rejected=True)
        fetched = context.thread_id in self._fetched
        verdict = self.policy.decide(tool, given, fetched_text=fetched)
        if verdict.action == "deny":
            return _refused(tool, verdict.reason)
        fitted = fit_arguments(given, tool)
        if isinstance(fitted, Rejection):
            return ToolOutcome(fitted.reason, is_error=True, rejected=True)
        verdict = self.policy.decide(tool, fitted, fetched_text=fetched)  # repaired values are what runs
        if verdict.action == "deny":
            return _refused(tool, verdict.reason)
        if tool.kind == "human":
            return _question(tool, fitted, context)
        if verdict.action == "ask" and (refusal := await self._ask(tool, fitted, context, verdict.reason)):
            return refusal
        return await self._run(tool, fitted, context)

    async def _ask(
        self, tool: Tool, arguments: dict[str, Any], context: ToolContext, reason: str
    ) -> ToolOutcome | None:
        """None if the call may run."""
        if self.approve is None:
            words = f"{reason}; it needs an approval and nobody is here to give it"
            hint = (
                f"--approve {tool.name}, or a rule that allows it in the assistant file's policy, permits it"
            )
            return replace(_refused(tool, words, hint), unasked=True)
        question = ApprovalQuestion(
            tool.name, arguments, context.tool_call_id, reason, digest_of(tool.name, arguments)
        )
        decision = await self.approve(question)
        if decision.answer == "yes":
            return None
        if decision.answer == "later":
            return ToolOutcome(None, waits_for=question.document())
        return _refused(tool, f"denied by the user{': ' + decision.reason if decision.reason else ''}")

    async def _run(self, tool: Tool, arguments: dict[str, Any], context: ToolContext) -> ToolOutcome:
        """The handler's result through selector and output schema, tried again where that is safe."""
        if tool.name == READER_NAME and self.spill is not None:
            tool = self.spill.serve(tool)
        limit_s = min(tool.timeout_s or context.deadline_s, context.deadline_s)
        deadline = time.monotonic() + limit_s
        spent: list[Usage] = []
        attempts = 1 + (tool.retries if tool.effects == "read" else 0)
        for attempt in itertools.count(1):
            try:
                outcome = await _handle(tool, arguments, _counting(context, spent), deadline)
                return replace(outcome, usage=_total(spent))
            except _OutOfTime:
                outcome = ToolOutcome(f"{tool.name} timed out after {limit_s:g} s", is_error=True)
                return replace(outcome, usage=_total(spent))
            except Exception as error:
                log.debug("tool %s raised", tool.name, exc_info=True)
                pause_s = RETRY_PAUSE_S * 2 ** (attempt - 1)
                if attempt < attempts and _is_transient(error) and time.monotonic() + pause_s < deadline:
                    await asyncio.sleep(pause_s)
                    continue
                return replace(self._failure(tool, error), usage=_total(spent))
        raise AssertionError("unreachable")

    def _failure(self, tool: Tool, error: Exception) -> ToolOutcome:
        if not isinstance(error, ToolFailure):
            return ToolOutcome(f"{tool.name} failed: {_say(error)}", is_error=True)
        words = error.message if not error.hint else f"{error.message} ({error.hint})"
        if error.permanent:
            self._unavailable[tool.name] = words
        return ToolOutcome(words, is_error=True, fetched=error.fetched)

    def _finish(self, tool: Tool, outcome: ToolOutcome, context: ToolContext, masker: Masker) -> ToolOutcome:
        """Masked, within the cap, and the thread marked if strangers' text is now in its context."""
        if outcome.waits_for is not None:
            return outcome
        strange = outcome.fetched or (tool.fetches and not outcome.is_error)
        if strange:
            self._fetched.add(context.thread_id)
        content = masker.mask_value(outcome.content)
        fenced = strange and isinstance(content, str)
        text = to_text(content)
        cap = tool.output_cap if tool.output_cap is not None else self.output_cap
        cap -= FENCE_ROOM if fenced else 0
        cut, left_out = cut_text(text, cap)
        if not left_out:
            return replace(outcome, content=fence(text, source=tool.name) if fenced else content)
        notes = [*outcome.notes, f"output cut: {left_out:,} of {len(text):,} characters left out"]
        if self.spill is not None:
            output_id = self.spill.keep(context.tool_call_id, text)
            notes.append(f"{FULL_OUTPUT}{self.spill.path(output_id)}")
            if context.reads_on:
                advice = f"{READER_NAME} with output_id {output_id} reads on"
                cut, left_out = cut_text(text, cap, advice=advice)
        log.info("output of %s cut: %s characters left out", tool.name, left_out)
        content = fence(cut, source=tool.name) if fenced else cut
        return replace(outcome, content=content, notes=tuple(notes))


def _refused(tool: Tool, reason: str, hint: str = "") -> ToolOutcome:
    words = f"{tool.name} was not run: {reason}"
    return ToolOutcome(f"{words} ({hint})" if hint else words, is_error=True, notes=("refused",))


def _question(tool: Tool, arguments: dict[str, Any], context: ToolContext) -> ToolOutcome:
    """A question to a human waits; one that nobody could answer goes back to the model (row S3.2)."""
    options = arguments.get("options") or {}
    if options.get("format") == "multiple_choice" and not options.get("choices"):
        return ToolOutcome(
            f"{tool.name}: the format multiple_choice needs choices", is_error=True, rejected=True
        )
    waits_for = {"kind": "human_input", "tool": tool.name, "tool_call_id": context.tool_call_id, **arguments}
    return ToolOutcome(None, waits_for=waits_for)


def _judge(tool: Tool, result: Any) -> ToolOutcome:
    """The part of the result that is submitted; an HTTP reply with an error status is an error."""
    if isinstance(result, HttpReply) and result.status_code >= 400:
        reason = to_text(select(result, "entity")[0])[:REASON_CHARACTERS] if result.entity else ""
        words = f"HTTP {result.status_code} {result.status_text}".strip()
        words = f"{words}: {reason}" if reason else words
        return ToolOutcome(words, is_error=True, raw=result, fetched=tool.fetches and bool(reason))
    try:
        content, notes = select(result, tool.select)
    except ToolFailure as failure:
        return ToolOutcome(failure.message, is_error=True, raw=result, fetched=tool.fetches)
    if tool.output_schema is not None:
        error = flaw_in(content, tool.output_schema)
        if error is not None:
            reason = error.message[:REASON_CHARACTERS]
            words = f"{tool.name} returned what its output schema does not allow: {reason}"
            return ToolOutcome(words, is_error=True, raw=result, fetched=tool.fetches)
    return ToolOutcome(content, raw=result, notes=notes)


class _OutOfTime(Exception):
    """The call's deadline came; a TimeoutError is the tool's own."""


async def _handle(
    tool: Tool, arguments: dict[str, Any], context: ToolContext, deadline: float
) -> ToolOutcome:
    """What the handler returns, judged, or _OutOfTime at the deadline: nobody waits for a stuck one."""
    handler = partial(tool.handler, *([context] if tool.takes_context else []), **arguments)
    work = asyncio.ensure_future(_invoke(tool, handler))
    try:
        done, _ = await asyncio.wait({work}, timeout=max(deadline - time.monotonic(), 0))
    except asyncio.CancelledError:
        work.cancel()
        raise
    if not done:
        work.cancel()
        work.add_done_callback(_forget)
        raise _OutOfTime
    if work.cancelled():
        raise ToolFailure("the tool cancelled itself")
    return work.result()


async def _invoke(tool: Tool, handler: Callable[[], Any]) -> ToolOutcome:
    """The outcome of the handler; what a function gives is read and judged in its thread, too."""
    with tool_speaks():
        return await _outcome_of(tool, handler)


async def _outcome_of(tool: Tool, handler: Callable[[], Any]) -> ToolOutcome:
    if inspect.iscoroutinefunction(tool.handler):
        result = await _unless_it_leaves(tool, handler())
    else:
        result = await aside(lambda: _run(tool, handler), name=f"tool-{tool.name}")
        if isinstance(result, ToolOutcome):
            return result
        if inspect.isawaitable(result):
            result = await _unless_it_leaves(tool, result)
    if isinstance(result, AsyncIterable):
        items: list[Any] = []
        async for item in result:
            items.append(item)
            if len(items) > MAX_ITEMS:
                break
            if len(items) % ITEMS_AT_ONCE == 0:
                await asyncio.sleep(0)  # one that never waits must not keep the deadline waiting
        return _judge(tool, iter(items))
    return _judge(tool, result)


async def _unless_it_leaves(tool: Tool, work: Awaitable[Any]) -> Any:
    try:
        return await work
    except (SystemExit, KeyboardInterrupt) as error:
        raise _left(tool, error) from None


def _run(tool: Tool, handler: Callable[[], Any]) -> Any:
    """The outcome of a function, or what has to be awaited for it."""
    try:
        result = handler()
        if inspect.isawaitable(result) or isinstance(result, AsyncIterable):
            return result
        if isinstance(result, Iterator):
            result = iter(list(itertools.islice(result, MAX_ITEMS + 1)))  # a fault in it is the tool's
        return _judge(tool, result)
    except (SystemExit, KeyboardInterrupt) as error:
        raise _left(tool, error) from None


def _left(tool: Tool, error: BaseException) -> ToolFailure:
    status = f" (status {error.code})" if isinstance(error, SystemExit) else ""
    return ToolFailure(f"{tool.name} tried to end the program{status}")


def _forget(work: asyncio.Future[Any]) -> None:
    """Take the late result of a call that was given up, so that nobody warns about it."""
    if not work.cancelled():
        work.exception()


def _counting(context: ToolContext, spent: list[Usage]) -> ToolContext:
    """The context with a summariser that notes what it cost."""
    summarise = context.summarise
    if summarise is None:
        return context

    async def counted(text: str, *, question: str, source: str) -> Summary:
        with tool_speaks(False):
            summary = await summarise(text, question=question, source=source)
        if summary.usage is not None:
            spent.append(summary.usage)
        return summary

    return replace(context, summarise=counted)


def _total(spent: list[Usage]) -> Usage | None:
    if not spent:
        return None
    return Usage(
        prompt_tokens=sum(usage.prompt_tokens for usage in spent),
        completion_tokens=sum(usage.completion_tokens for usage in spent),
        total_tokens=sum(usage.total_tokens for usage in spent),
    )


def _leaves(error: BaseException) -> list[BaseException]:
    """What a group of errors is made of; of any other error, itself."""
    if not isinstance(error, BaseExceptionGroup):
        return [error]
    return [leaf for one in error.exceptions for leaf in _leaves(one)]


def _is_transient(error: BaseException) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return all(map(_is_transient, _leaves(error)))
    if isinstance(error, ToolFailure):
        return error.transient
    if isinstance(error, TimeoutError | ConnectionError):
        return True
    import httpx  # costs a tenth of a second: only when something went wrong

    return isinstance(error, httpx.TransportError)


def _say(error: BaseException) -> str:
    """Type and message on one line, no stack; of a group, of each error in it."""
    said = [
        f"{type(leaf).__name__}: {words}" if (words := " ".join(str(leaf).split())) else type(leaf).__name__
        for leaf in _leaves(error)
    ]
    return "; ".join(dict.fromkeys(said))[:ERROR_CHARACTERS]
