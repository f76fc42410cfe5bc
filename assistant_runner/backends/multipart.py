"""An upload's body: multipart/form-data (RFC 7578), its names escaped as the HTML standard has it."""

import os
from collections.abc import Mapping

_ESCAPES = {'"': "%22", "\\": "\\\\", **{chr(code): f"%{code:02X}" for code in range(32) if code != 27}}
_QUOTED = str.maketrans(_ESCAPES)


def form_data(
    fields: Mapping[str, str], *, filename: str, content: bytes, content_type: str
) -> tuple[str, bytes]:
    """Content type and body of a form with these fields and one `file`."""
    boundary = os.urandom(16).hex()
    parts = [
        f'--{boundary}\r\nContent-Disposition: form-data; name="{name.translate(_QUOTED)}"\r\n\r\n{value}\r\n'
        for name, value in fields.items()
    ]
    name = filename.translate(_QUOTED)
    parts.append(
        f'--{boundary}\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n'
        f"Content-Type: {content_type}\r\n\r\n"
    )
    body = b"".join(("".join(parts).encode(), content, f"\r\n--{boundary}--\r\n".encode()))
    return f"multipart/form-data; boundary={boundary}", body
