"""Bodies of answers, as small as the protocol allows."""

from typing import Any


def run(status: str = "completed", **fields: Any) -> dict[str, Any]:
    return {
        "id": "run_1",
        "object": "thread.run",
        "created_at": 1,
        "assistant_id": "asst_1",
        "thread_id": "thread_1",
        "status": status,
        "model": "m",
        "tools": [],
        **fields,
    }


def thread(**fields: Any) -> dict[str, Any]:
    return {"id": "thread_1", "object": "thread", "created_at": 1, **fields}


def message(text: str = "hello", **fields: Any) -> dict[str, Any]:
    return {
        "id": "msg_1",
        "object": "thread.message",
        "created_at": 1,
        "thread_id": "thread_1",
        "role": "assistant",
        "content": [{"type": "text", "text": {"value": text, "annotations": []}}],
        **fields,
    }


def assistant(**fields: Any) -> dict[str, Any]:
    return {"id": "asst_1", "object": "assistant", "created_at": 1, "model": "m", "tools": [], **fields}


def page(*items: dict[str, Any], has_more: bool = False) -> dict[str, Any]:
    return {
        "object": "list",
        "data": list(items),
        "first_id": items[0]["id"] if items else None,
        "last_id": items[-1]["id"] if items else None,
        "has_more": has_more,
    }


def error(message: str, **fields: Any) -> dict[str, Any]:
    whole = {"message": message, "type": "invalid_request_error", "param": None, "code": None, **fields}
    return {"error": whole}
