"""Tool calls out of a stream's fragments, and out of text that is a tool call.

Servers differ: no index, the same index for every call, no id, an empty id, one id twice, the name in
each fragment, arguments as an object, the whole call at once, or the call written as JSON in the text.
What is safe to understand is understood; the rest is left as it came and named.
"""

import json
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Any

from assistant_runner.service.engines.base import CallDelta

LONGEST_ID = 64


@dataclass(slots=True)
class _Call:
    index: int
    name: str = ""
    id: str | None = None
    written: str = ""


@dataclass(slots=True)
class CallMerger:
    """Merges fragments by index; gives CallDelta pieces whose first one carries name and id."""

    calls: list[_Call] = field(default_factory=list)
    _slots: dict[Any, _Call] = field(default_factory=dict)

    def take(self, *, index: Any, id: Any, name: Any, arguments: Any) -> Iterator[CallDelta]:
        """The pieces that one fragment adds."""
        call_id = id if isinstance(id, str) and 0 < len(id) <= LONGEST_ID else None
        name = name if isinstance(name, str) else ""
        text = _as_text(arguments)
        call = self._find(index, call_id, name, text)
        if call is None:
            taken = {other.id for other in self.calls}
            call = _Call(len(self.calls), name, None if call_id in taken else call_id)
            self.calls.append(call)
            self._slots[index if index is not None else f"id:{call_id}"] = call
            call.written = text
            if name:
                yield CallDelta(call.index, name=name, id=call.id, arguments=text)
            return
        if not call.name and name:
            call.name = name
            call.written += text
            yield CallDelta(call.index, name=name, id=call.id or call_id, arguments=call.written)
        elif text:
            call.written += text
            if call.name:
                yield CallDelta(call.index, arguments=text)

    def _find(self, index: Any, call_id: str | None, name: str, text: str) -> _Call | None:
        """The call that a fragment belongs to; None if it begins a new one."""
        if index is not None:
            known = self._slots.get(index)
            if known is None:
                return None
            other = call_id is not None and known.id is not None and call_id != known.id
            begun_again = bool(name and known.name) and text.startswith("{") and is_object(known.written)
            return (
                None if (other and name) or (begun_again and call_id is None and known.id is None) else known
            )
        if call_id is not None:
            by_id = next((call for call in self.calls if call.id == call_id), None)
            return None if by_id is not None and name and is_object(by_id.written) else by_id
        last = self.calls[-1] if self.calls else None
        return None if last is None or (name and last.name) else last

    @property
    def nameless(self) -> bool:
        """True if a call came without a name: nobody can be called."""
        return any(not call.name for call in self.calls)

    @property
    def complete(self) -> bool:
        """True if the arguments of every call are a whole JSON object, or empty."""
        return all(not call.written.strip() or is_object(call.written) for call in self.calls)

    def close(self) -> Iterator[CallDelta]:
        """Calls without any arguments get an empty object."""
        for call in self.calls:
            if call.name and not call.written.strip():
                yield CallDelta(call.index, arguments="{}")


def _as_text(arguments: Any) -> str:
    if arguments is None:
        return ""
    return arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)


def is_object(text: str) -> bool:
    """True if the text is one whole JSON object."""
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False


CALL_OPENERS = ("<tool_call>", "<|python_tag|>", "[TOOL_CALLS]", "<function", "```", "{", "[", "<|tool_call")
_WRAPPINGS = re.compile(
    r"^(?:<tool_call>|<\|python_tag\|>|\[TOOL_CALLS\]|<\|tool_call(?:_start)?\|>|```(?:json|tool_call)?)\s*"
    r"|\s*(?:</tool_call>|<\|tool_call_end\|>|```|<\|eom_id\|>)$"
)
_CALL_TAGS = re.compile(r"^<tool_call>\s*|\s*</tool_call>$")
_PARAMETER_TAG = re.compile(r"<parameter=([\w.-]+)>\n?(.*?)\n?</parameter>", re.DOTALL)
_DECODER = json.JSONDecoder()
_FUNCTION_TAG = re.compile(r"^<function[= ](?:name=)?\"?([\w.-]+)\"?>(.*?)</function>$", re.DOTALL)


def may_open_call(text: str) -> bool:
    """True while the text so far could be the beginning of a tool call."""
    start = text.lstrip()
    return not start or any(start.startswith(o) or o.startswith(start) for o in CALL_OPENERS)


def calls_in_text(text: str, offered: Collection[str]) -> list[tuple[str, str]] | None:
    """Names and arguments of the calls that a text *is*; None if it is text.

    Only a text that is nothing but calls, of offered tools, with an object of arguments, is taken.
    """
    documents: list[Any] = []
    pieces = re.split(r"(?<=</tool_call>)\s*(?=<tool_call>)", text.strip())
    for piece in pieces:
        tagged = _FUNCTION_TAG.match(_CALL_TAGS.sub("", piece.strip()))
        if tagged:
            documents.append({"name": tagged.group(1), "arguments": _arguments(tagged.group(2).strip())})
            continue
        try:
            documents += _in_a_row(_WRAPPINGS.sub("", _WRAPPINGS.sub("", piece.strip())))
        except (ValueError, RecursionError):
            return None
    calls = [_one_call(document) for document in documents]
    if not calls or any(call is None or call[0] not in offered for call in calls):
        return None
    return [call for call in calls if call is not None]


def _arguments(text: str) -> Any:
    """What stands in a function's tag: one JSON object, or a tag for each parameter."""
    parameters = _PARAMETER_TAG.findall(text)
    if parameters and not _PARAMETER_TAG.sub("", text).strip():
        return dict(parameters)
    return text or "{}"


def _in_a_row(text: str) -> list[Any]:
    """Documents one after another, or between semicolons, or in a list; ValueError for anything else."""
    found: list[Any] = []
    while text:
        document, end = _DECODER.raw_decode(text)
        found += document if isinstance(document, list) else [document]
        text = text[end:].lstrip(" \t\r\n;")
    return found


def _one_call(document: Any) -> tuple[str, str] | None:
    if not isinstance(document, dict):
        return None
    inner = document.get("function")
    if isinstance(inner, dict):
        document = inner
    name = document.get("name") or (inner if isinstance(inner, str) else None)
    arguments = next((document[key] for key in ("arguments", "parameters", "args") if key in document), None)
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except ValueError:
            return None
    if not isinstance(name, str) or not isinstance(arguments, dict):
        return None
    return name, json.dumps(arguments, ensure_ascii=False)
