"""Identifiers: a prefix and 24 letters or digits (reference, section 3)."""

import secrets
import string
import time

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
    "batch.file": "file-",
    "tool_call": "call_",
}

_TABLE = [_ALPHABET[i % 62] for i in range(256)]
_ORDERED = string.digits + string.ascii_uppercase + string.ascii_lowercase


def new_id(kind: str) -> str:
    """A fresh id of a kind (`assistant`, `thread.run`...).

    Seven characters of time, then seventeen random ones (about 100 bits): ids made one after the
    other stand together in the store's indexes, which is what keeps inserts cheap.
    """
    milliseconds = time.time_ns() // 1_000_000
    clock = []
    for _ in range(7):
        milliseconds, digit = divmod(milliseconds, 62)
        clock.append(_ORDERED[digit])
    return PREFIXES[kind] + "".join(reversed(clock)) + "".join([_TABLE[b] for b in secrets.token_bytes(17)])
