"""The error body: `{"error": {message, type, param, code}}` (reference, section 14)."""

from assistant_runner.wire.base import WireObject


class ErrorObject(WireObject):
    """Azure gateways leave out `type` and `param` and send numbers as text in `code`."""

    message: str
    type: str | None = None
    param: str | None = None
    code: str | int | None = None


class ErrorBody(WireObject):
    error: ErrorObject
