"""One turn as it is written down: the engine's events become messages and run steps.

Text opens a message and its step, a function call opens a tool step; what is open is closed before
the next thing opens (streaming reference, section 4). A message's text is written when the message
ends, not with every delta: a process that is killed in between leaves an open message without text,
and whoever takes the run up begins that turn again.
"""

import re
from typing import Any, NoReturn

from assistant_runner.service import documents, lifecycle
from assistant_runner.service.citations import cite
from assistant_runner.service.core import Core
from assistant_runner.service.engines.base import ApprovalRequest, CallDelta, EngineError, Finish
from assistant_runner.service.ids import new_id
from assistant_runner.service.ledger import Ledger
from assistant_runner.service.sse import text_frame_ends
from assistant_runner.service.store.base import Document, Row
from assistant_runner.wire.jsons import answer_bytes

LONGEST_MARKER = 400
_MARKER = re.compile("(【[^】]*】)")

STEP = "thread.run.step"
MESSAGE = "thread.message"


class Recorder:
    """What one turn has brought so far.

    `holds_calls`: function calls are kept back until the turn is over, because some of them may mean
    a built-in tool of the service, which the client must not see as a call.
    """

    def __init__(self, core: Core, ledger: Ledger, *, holds_calls: bool) -> None:
        self.core = core
        self.ledger = ledger
        self.holds_calls = holds_calls
        self.step_row: Row | None = None
        self.message_row: Row | None = None
        self.content: list[Document] = []
        self.calls: list[Document] = []
        self.approvals: list[Document] = []
        self.builtins: list[tuple[str, Document]] = []
        self.finish: Finish | None = None
        self.carry: Any = None
        self._pieces: list[str] = []
        self._held = ""
        self._frame_ends = (b"", b"")

    # ---- messages

    def text(self, text: str) -> None:
        self._open_message()
        if self._held or "【" in text:
            self._text_with_markers(text)
        else:
            self._write(text)

    def _text_with_markers(self, text: str) -> None:
        """Keeps a citation's marker back until it is whole: it goes out in one delta with its annotation.

        Some clients look for annotations only where there is text.
        """
        whole, self._held = self._held + text, ""
        *pieces, rest = _MARKER.split(whole)  # every second piece is a marker
        for index, piece in enumerate(pieces):
            if index % 2:
                self._write_marker(piece)
            elif piece:
                self._write(piece)
        start = rest.find("【")
        is_open = start >= 0 and len(rest) - start <= LONGEST_MARKER
        ready, held = (rest[:start], rest[start:]) if is_open else (rest, "")
        if ready:
            self._write(ready)
        self._held = held

    def _write_marker(self, marker: str) -> None:
        is_first = not self.content or self.content[-1]["type"] != "text"
        if is_first:
            self.content.append(documents.text_part(""))
            self._frame_ends = text_frame_ends(self._message_id(), len(self.content) - 1)
        self._pieces.append(marker)
        self.seal()
        listed: list[Document] = self.content[-1]["text"]["annotations"]
        found = cite(self.core, self.ledger.run_id, self.content)
        shown = [{"index": len(listed) + index, **annotation} for index, annotation in enumerate(found)]
        listed.extend(found)
        said: Document = {"value": marker}
        if shown or is_first:
            said["annotations"] = shown
        self._message_delta({"index": len(self.content) - 1, "type": "text", "text": said})

    def _message_id(self) -> str:
        assert self.message_row is not None
        return self.message_row.id

    def _write(self, text: str) -> None:
        run_id, hub = self.ledger.run_id, self.core.hub
        if self.content and self.content[-1]["type"] == "text":
            self._pieces.append(text)
            if hub.heard(run_id):
                head, tail = self._frame_ends
                hub.publish_raw(run_id, b"".join((head, answer_bytes(text), tail)))
            return
        self.seal()
        self.content.append(documents.text_part(""))
        self._pieces = [text]
        index = len(self.content) - 1
        self._frame_ends = text_frame_ends(self._message_id(), index)
        part = {"index": index, "type": "text", "text": {"value": text, "annotations": []}}
        self._message_delta(part)

    def refusal(self, text: str) -> None:
        self._open_message()
        if not self.content or self.content[-1]["type"] != "refusal":
            self.seal()
            self.content.append({"type": "refusal", "refusal": ""})
        self.content[-1]["refusal"] += text
        self._message_delta({"index": len(self.content) - 1, "type": "refusal", "refusal": text})

    def annotate(self, annotation: Document) -> None:
        """Adds a finished annotation to the last text part; without a text there is nothing to mark.

        One that went out with its marker is not added again.
        """
        if self._held:
            self.seal()
        index = len(self.content) - 1
        while index >= 0 and self.content[index]["type"] != "text":
            index -= 1
        if index < 0:
            return
        listed: list[Document] = self.content[index]["text"]["annotations"]
        place = (annotation.get("type"), annotation.get("start_index"))
        if any((known["type"], known.get("start_index")) == place for known in listed):
            return
        shown = {"index": len(listed), **annotation}
        listed.append(annotation)
        self._message_delta({"index": index, "type": "text", "text": {"annotations": [shown]}})

    def seal(self) -> None:
        """Puts the pieces of the last text part together."""
        if self._held:
            held, self._held = self._held, ""
            self._write(held)
        if self._pieces:
            self.content[-1]["text"]["value"] += "".join(self._pieces)
            self._pieces = []

    def written(self) -> str:
        """The text of the open message so far."""
        self.seal()
        return "".join(part["text"]["value"] for part in self.content if part["type"] == "text")

    def _message_delta(self, part: Document) -> None:
        assert self.message_row is not None
        document = {
            "id": self.message_row.id,
            "object": "thread.message.delta",
            "delta": {"content": [part]},
        }
        self.core.hub.publish(self.ledger.run_id, "thread.message.delta", document)

    def _open_message(self) -> None:
        if self.message_row is not None:
            return
        if self.step_row is not None:
            self.fault("text after a function call in one turn")
        core, ledger = self.core, self.ledger
        now = core.now()
        with core.store.transaction():
            run = ledger.own().doc
            message = documents.message(
                now=now,
                thread_id=ledger.thread_id,
                role="assistant",
                content=[],
                status="in_progress",
                assistant_id=run["assistant_id"],
                run_id=ledger.run_id,
            )
            details = {"type": "message_creation", "message_creation": {"message_id": message["id"]}}
            step = documents.step(run, details, now=now)
            self.step_row = core.store.insert(
                STEP, ledger.run_id, step["id"], step, extra={"turn": ledger.turn}
            )
            self.message_row = core.store.insert(
                MESSAGE, ledger.thread_id, message["id"], message, tag=ledger.run_id
            )
        self._publish_opened(step)
        if core.hub.heard(ledger.run_id):
            names = ("thread.message.created", "thread.message.in_progress")
            core.hub.publish(ledger.run_id, names, message)

    def close_message(self, usage: dict[str, int] | None) -> None:
        """Completes the open message, if there is one, and its step."""
        if self.message_row is None or self.step_row is None:
            return
        core, ledger = self.core, self.ledger
        now = core.now()
        self.seal()
        with core.store.transaction():
            ledger.own()
            message_row = core.store.get(MESSAGE, ledger.thread_id, self.message_row.id) or self.message_row
            message_row.doc = lifecycle.end_message({**message_row.doc, "content": self.content}, now)
            core.store.update(message_row)
            self.step_row.doc = lifecycle.end_step(self.step_row.doc, "completed", now, usage=usage)
            core.store.update(self.step_row)
        core.hub.publish(ledger.run_id, "thread.message.completed", message_row.doc)
        core.hub.publish(ledger.run_id, "thread.run.step.completed", self.step_row.doc)
        self.message_row = self.step_row = None
        self.content = []

    # ---- function calls

    def call_piece(self, event: CallDelta) -> None:
        if event.index > len(self.calls):
            self.fault(f"a tool call with index {event.index} after {len(self.calls)} calls")
        if event.index == len(self.calls):
            call = self._new_call(event)
            self.calls.append(call)
            if not self.holds_calls:
                self.open_calls()
                self._call_head(event.index, call)
        if event.arguments:
            self.calls[event.index]["function"]["arguments"] += event.arguments
            if not self.holds_calls:
                self._call_arguments(event.index, event.arguments)

    def _new_call(self, event: CallDelta) -> Document:
        identifier = event.id
        taken = {call["id"] for call in self.calls}
        if not identifier or identifier in taken or not is_plain_id(identifier):
            identifier = new_id("tool_call")
        return {"id": identifier, "type": "function", "function": {"name": event.name or "", "arguments": ""}}

    def approval(self, event: ApprovalRequest) -> None:
        """Books a hosted MCP call that waits for approval; its id goes back to the engine as it is."""
        taken = {call["id"] for call in (*self.calls, *self.approvals)}
        if not event.id or event.id in taken:
            self.fault("an approval request without an id of its own")
        call = {"id": event.id, "type": "mcp", "name": event.name, "arguments": event.arguments}
        self.approvals.append({**call, "server_label": event.server_label})

    def show_approvals(self, first_index: int) -> list[Document]:
        """The approval requests as the open step has them, after its function calls; told as deltas."""
        shown = []
        for index, call in enumerate(self.approvals, first_index):
            asked = {"server_label": call["server_label"], "name": call["name"]}
            asked |= {"arguments": call["arguments"], "approve": None}
            shown.append({"id": call["id"], "type": "mcp", "mcp": asked})
            self._own_delta({"index": index, **shown[-1]})
        return shown

    def open_calls(self) -> None:
        """Opens the step of the turn's function calls, if it is not open."""
        self.close_message(None)
        if self.step_row is None:
            self.step_row = self._open_step()

    def show_held_calls(self, calls: list[Document]) -> None:
        """The deltas of calls that were held back until all of the turn was known."""
        for index, call in enumerate(calls):
            self._call_head(index, call)
            self._call_arguments(index, call["function"]["arguments"])

    def _call_head(self, index: int, call: Document) -> None:
        function = {"name": call["function"]["name"], "arguments": "", "output": None}
        self._own_delta({"index": index, "id": call["id"], "type": "function", "function": function})

    def _call_arguments(self, index: int, piece: str) -> None:
        self._own_delta({"index": index, "type": "function", "function": {"arguments": piece}})

    def _own_delta(self, call: Document) -> None:
        assert self.step_row is not None
        self._step_delta(self.step_row, call)

    def _open_step(self) -> Row:
        core, ledger = self.core, self.ledger
        with core.store.transaction():
            run = ledger.own().doc
            step = documents.step(run, {"type": "tool_calls", "tool_calls": []}, now=core.now())
            row = core.store.insert(STEP, ledger.run_id, step["id"], step, extra={"turn": ledger.turn})
        self._publish_opened(step)
        return row

    def _publish_opened(self, step: Document) -> None:
        hub, run_id = self.core.hub, self.ledger.run_id
        if hub.heard(run_id):
            hub.publish(run_id, ("thread.run.step.created", "thread.run.step.in_progress"), step)

    def _step_delta(self, step_row: Row, call: Document) -> None:
        hub, run_id = self.core.hub, self.ledger.run_id
        if hub.heard(run_id):
            details = {"type": "tool_calls", "tool_calls": [call]}
            document = {
                "id": step_row.id,
                "object": "thread.run.step.delta",
                "delta": {"step_details": details},
            }
            hub.publish(run_id, "thread.run.step.delta", document)

    # ---- built-in tools

    def open_builtin(self, kind: str, arguments: Document) -> tuple[Row, str]:
        """Opens the step of a built-in call that the service is about to run: its row and call id."""
        step_row = self._open_step()
        call_id = new_id("tool_call")
        head: Document = {"index": 0, "id": call_id, "type": kind}
        if kind == "code_interpreter":
            self._step_delta(step_row, {**head, kind: {"input": "", "outputs": []}})
            piece = {"input": arguments.get("input", "")}
            self._step_delta(step_row, {"index": 0, "type": kind, kind: piece})
        else:
            self._step_delta(step_row, {**head, kind: {}})
        return step_row, call_id

    def close_builtin(
        self, step_row: Row, call: Document, *, extra: Document, usage: dict[str, int] | None
    ) -> None:
        """Completes the step of a built-in call; `extra` is what the service keeps beside it."""
        kind = call["type"]
        if kind == "code_interpreter" and call[kind]["outputs"]:
            outputs = [{"index": index, **output} for index, output in enumerate(call[kind]["outputs"])]
            self._step_delta(step_row, {"index": 0, "type": kind, kind: {"outputs": outputs}})
        core, ledger = self.core, self.ledger
        with core.store.transaction():
            ledger.own()
            document = {**step_row.doc, "step_details": {"type": "tool_calls", "tool_calls": [call]}}
            step_row.doc = lifecycle.end_step(document, "completed", core.now(), usage=usage)
            step_row.extra = {**step_row.extra, **extra}
            core.store.update(step_row)
        core.hub.publish(ledger.run_id, "thread.run.step.completed", step_row.doc)

    def hosted(self, call: Document) -> None:
        """Books a built-in tool that the engine ran itself; the call is finished."""
        self.close_message(None)
        step_row = self._open_step()
        kind = str(call.get("type", ""))
        if not is_plain_id(str(call.get("id", ""))):
            call = {**call, "id": new_id("tool_call")}
        head: Document = {"index": 0, "id": call["id"], "type": kind}
        if kind == "code_interpreter":
            call = {**call, kind: {"input": "", "outputs": [], **(call.get(kind) or {})}}
            self._step_delta(step_row, {**head, kind: {"input": call[kind]["input"], "outputs": []}})
        else:
            self._step_delta(step_row, {**head, kind: {}})
        self.close_builtin(step_row, call, extra={}, usage=None)

    def fault(self, words: str) -> NoReturn:
        raise EngineError("server_error", f"The engine gave {words}.", kind="bad_answer")


def is_plain_id(identifier: str) -> bool:
    """Whether an engine's id for a call can stand in the protocol."""
    bare = identifier.replace("_", "").replace("-", "")
    return 0 < len(identifier) <= 64 and bare.isascii() and bare.isalnum()
