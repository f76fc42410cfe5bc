"""Identifiers: a prefix and 24 letters or digits (reference, section 3)."""

import secrets
import string

_ALPHABET = string.ascii_letters + string.digits

PREFIXES = {
    "assistant": "asst_",
    "thread": "thread_",
    "thread.message": "msg_",
    "thread.run": "run_",
    "thread.run.step": "step_",
    "file": "file-",
    "vector_store": "vs_",
    "vector_store.file": "file-",
    "vector_store.files_batch": "vsfb_",
    "tool_call": "call_",
}

_BITS = 6 * 32
_TABLE = [_ALPHABET[i % 62] for i in range(256)]


def new_id(kind: str) -> str:
    """A fresh id of a kind (`assistant`, `thread.run`...): about 140 random bits."""
    return PREFIXES[kind] + "".join([_TABLE[byte] for byte in secrets.token_bytes(24)])
