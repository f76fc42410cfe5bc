"""Ids in paths: refused before anything is sent if they are clearly of another kind (case-048).

Prefixes: reference, section 3. An id without a known prefix passes: other servers make their own.
"""

from urllib.parse import quote

from assistant_runner.errors import UsageError

PREFIXES = {
    "assistant_id": ("asst_",),
    "thread_id": ("thread_",),
    "message_id": ("msg_",),
    "run_id": ("run_",),
    "step_id": ("step_",),
    "file_id": ("file-", "file_", "assistant-"),
    "vector_store_id": ("vs_",),
    "batch_id": ("vsfb_",),
}
_ILLEGAL = set("/?#%\\ \t\r\n")


def path_id(kind: str, value: str) -> str:
    """The id, ready to stand in a path; UsageError if it is empty, of another kind, or no id at all."""
    own = PREFIXES[kind]
    other = [name for name, prefixes in PREFIXES.items() if name != kind and value.startswith(prefixes)]
    if not value or _ILLEGAL & set(value) or value in (".", "..") or (other and not value.startswith(own)):
        hint = f"; this looks like a {other[0]}" if other else ""
        raise UsageError(
            f"{kind} {value!r} is not an id that begins with {own[0]!r}{hint}",
            remedy=f"give the id of a {kind.removesuffix('_id').replace('_', ' ')}",
            param=kind,
        )
    return quote(value, safe="")
