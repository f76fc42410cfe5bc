"""What a turn is given to read: the thread's messages that fit, then what this run did so far.

A long thread is read backwards and only as far as the context window asks. Dropped messages come
from the middle: the first message of the thread stays if it is small. Tokens are estimated at four
characters each, for choosing only; what a run used is the engine's own count where it gives one.
"""

import base64
import json
from collections.abc import Mapping
from typing import Any

from assistant_runner.service.core import Core
from assistant_runner.service.engines.base import TurnCall, TurnItem, TurnMessage, TurnOutput
from assistant_runner.service.store.base import Document, Row

_PAGE = 64


class BudgetTooSmall(Exception):
    """Not even what must be read fits into the prompt budget."""


def estimate(text: str) -> int:
    return (len(text) + 3) // 4


def items_of(core: Core, row: Row, world: str) -> list[TurnItem]:
    """The items of the next turn, oldest first; BudgetTooSmall if the run's prompt budget is used up."""
    run = row.doc
    own = _own_items(core, run, world) if row.extra.get("turn") else []
    budget = core.settings.context_tokens
    maximum = run["max_prompt_tokens"]
    if maximum is not None:
        left = maximum - (row.extra.get("used") or {}).get("prompt_tokens", 0)
        if left <= 0:
            raise BudgetTooSmall
        budget = min(budget, left)
    budget -= estimate(run["instructions"]) + sum(map(_size, own))
    if maximum is not None and budget < 0:
        raise BudgetTooSmall
    strategy = run["truncation_strategy"]
    most = strategy["last_messages"] if strategy["type"] == "last_messages" else None
    return [*_thread_items(core, run, world, budget, most, strict=maximum is not None), *own]


def _thread_items(
    core: Core, run: Document, world: str, budget: int, most: int | None, *, strict: bool
) -> list[TurnItem]:
    kept: list[TurnMessage] = []
    below: int | None = None
    while True:
        rows = core.store.scan("thread.message", run["thread_id"], below=below, limit=_PAGE)
        for row in rows:
            below = row.seq
            if row.doc["run_id"] == run["id"]:
                continue
            if most is not None and len(kept) >= most:
                return list(reversed(kept))
            message = _turn_message(core, row.doc, world)
            cost = _size(message)
            if cost > budget and (kept or strict):
                if not kept:
                    raise BudgetTooSmall
                if most is None:
                    _keep_first(core, run, world, kept, budget)
                return list(reversed(kept))
            kept.append(message)
            budget -= cost
        if len(rows) < _PAGE:
            return list(reversed(kept))


def _keep_first(core: Core, run: Document, world: str, kept: list[TurnMessage], budget: int) -> None:
    """Puts the thread's first message before those kept, if it costs no more than a few of them."""
    rows, _ = core.store.page("thread.message", run["thread_id"], limit=1, order="asc")
    first = _turn_message(core, rows[0].doc, world)
    cost = _size(first)
    if cost > (budget + sum(map(_size, kept))) // 4:
        return
    while budget < cost and len(kept) > 1:
        budget += _size(kept.pop())
    if budget >= cost:
        kept.append(first)


def _own_items(core: Core, run: Document, world: str) -> list[TurnItem]:
    """What earlier turns of this run said, called and were answered."""
    items: list[TurnItem] = []
    after: str | None = None
    more = True
    while more:
        rows, more = core.store.page("thread.run.step", run["id"], limit=100, order="asc", after=after)
        for row in rows:
            after = row.id
            details = row.doc["step_details"]
            if details["type"] == "message_creation":
                found = core.store.get(
                    "thread.message", run["thread_id"], details["message_creation"]["message_id"]
                )
                if found is not None and found.doc["content"]:
                    items.append(_turn_message(core, found.doc, world))
            else:
                items.extend(_call_items(row))
    return items


def _call_items(row: Row) -> list[TurnItem]:
    calls: list[TurnItem] = []
    outputs: list[TurnItem] = []
    for call in row.doc["step_details"]["tool_calls"]:
        word = call["type"]
        if word == "function":
            function = call["function"]
            calls.append(TurnCall(call["id"], function["name"], function["arguments"]))
            outputs.append(TurnOutput(call["id"], function["output"] or ""))
        elif word == "code_interpreter":
            record = call["code_interpreter"]
            calls.append(TurnCall(call["id"], word, json.dumps({"input": record["input"]}), type=word))
            logs = "".join(output.get("logs", "") for output in record["outputs"])
            outputs.append(TurnOutput(call["id"], logs))
        elif word == "file_search":
            query = row.extra.get("query", "")
            calls.append(TurnCall(call["id"], word, json.dumps({"query": query}), type=word))
            results = row.extra.get("results", call["file_search"].get("results") or [])
            outputs.append(TurnOutput(call["id"], json.dumps({"results": results}, ensure_ascii=False)))
        elif word == "mcp" and "approve" in call["mcp"]:
            asked = call["mcp"]
            calls.append(TurnCall(call["id"], asked["name"], asked["arguments"], word, asked["server_label"]))
            outputs.append(TurnOutput(call["id"], json.dumps({"approve": bool(asked["approve"])})))
    return [*calls, *outputs]


def _turn_message(core: Core, message: Document, world: str) -> TurnMessage:
    content: list[Mapping[str, Any]] = []
    for part in message["content"]:
        content.append(_image(core, part, world) if part["type"] == "image_file" else part)
    return TurnMessage(message["role"], content)


def _image(core: Core, part: Document, world: str) -> Document:
    """An image file as a data URL; a note in words when the file is gone."""
    image = part["image_file"]
    row = core.store.get("file", world, image["file_id"])
    path = core.shelf.place(image["file_id"])
    if row is None or not path.is_file():
        return {"type": "text", "text": {"value": f"[image {image['file_id']}: deleted]", "annotations": []}}
    suffix = row.doc["filename"].rpartition(".")[2].lower()
    kind = {"jpg": "jpeg"}.get(suffix, suffix if suffix in ("png", "jpeg", "gif", "webp") else "png")
    data = base64.b64encode(path.read_bytes()).decode("ascii")
    url = f"data:image/{kind};base64,{data}"
    return {"type": "image_url", "image_url": {"url": url, "detail": image.get("detail") or "auto"}}


def _size(item: TurnItem) -> int:
    if isinstance(item, TurnMessage):
        return 4 + estimate(item.text())
    if isinstance(item, TurnCall):
        return 8 + estimate(item.arguments)
    return 4 + estimate(item.output)
