"""No secret leaves: what looks like a key is cut out of texts that people, logs and errors will show."""

import re
from collections.abc import Iterable

MASK = "***"
_KEYS = re.compile(
    r"\b(?:sk|pk|rk)-[A-Za-z0-9_*\-]{8,}"  # provider keys, also those echoed half masked
    r"|\beyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]*"  # JSON web tokens
    r"|(?<=[Bb]earer )[A-Za-z0-9._~+/=-]{8,}"
)
_NAMED = re.compile(
    r"""((?:api[-_]?key|[?&]key|token|secret|password|authorization)["']?\s*[=:]\s*["']?(?:Bearer\s+)?)"""
    r"""([^\s"'&,;]{6,})""",
    re.IGNORECASE,
)
SECRET_HEADERS = frozenset(
    {
        "authorization",
        "api-key",
        "x-api-key",
        "proxy-authorization",
        "cookie",
        "set-cookie",
        "ocp-apim-subscription-key",
    }
)

PLAIN_HEADERS = frozenset(
    {
        "accept",
        "accept-encoding",
        "connection",
        "content-length",
        "content-type",
        "host",
        "idempotency-key",
        "openai-beta",
        "user-agent",
    }
)


def mask(text: str, secrets: Iterable[str] = ()) -> str:
    """The text with the given secrets, and everything that looks like one, replaced by `***`."""
    for secret in secrets:
        if len(secret) >= 4:
            text = text.replace(secret, MASK)
    return _NAMED.sub(rf"\1{MASK}", _KEYS.sub(MASK, text))


def mask_header(name: str, value: str) -> str:
    """The value as a log may show it: a gateway's own header may be a password, whatever its name."""
    return mask(value) if name.lower() in PLAIN_HEADERS else MASK
