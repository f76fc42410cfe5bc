"""Frames of an event stream, and who listens to which run (streaming reference, section 2).

A frame is encoded once, however many listen, and not at all when nobody does. JSON is ASCII only:
no line separator inside a frame can be taken for its end, and no character can be cut in two.
"""

import asyncio
from collections import deque
from typing import Any

from assistant_runner.wire.jsons import answer_bytes

DONE = b"event: done\ndata: [DONE]\n\n"
PING = b": ping\n\n"

BACKLOG = 50_000
"""Frames that a listener may leave unread before it is cut off."""


def frame(event: str, document: Any) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (event.encode("ascii"), answer_bytes(document))


def error_frame(message: str, code: str | None = None) -> bytes:
    """The wrapped form: the bare one is lost in the SDK's stream helpers."""
    body = {"message": message, "type": "server_error", "param": None, "code": code}
    return frame("error", {"error": body})


def text_frame_ends(message_id: str, index: int) -> tuple[bytes, bytes]:
    """What stands before and after the JSON string of a text delta."""
    return (
        f'event: thread.message.delta\ndata: {{"id":"{message_id}","object":"thread.message.delta",'
        f'"delta":{{"content":[{{"index":{index},"type":"text","text":{{"value":'.encode("ascii"),
        b"}}]}}\n\n",
    )


class Listener:
    """The frames of one run for one client, from the moment it began to listen."""

    def __init__(self) -> None:
        self._frames: deque[bytes] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self.closed = False

    def push(self, data: bytes) -> None:
        if self.closed:
            return
        if len(self._frames) >= BACKLOG:
            self._frames.clear()
            self._frames.append(error_frame("the events were not read in time; read the run again"))
            self._frames.append(DONE)
            self.closed = True
        else:
            self._frames.append(data)
        self._wake()

    def close(self) -> None:
        """No more frames will come; those that are there will still be read."""
        self.closed = True
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    @property
    def is_drained(self) -> bool:
        """Whether all frames were read and no more will come."""
        return self.closed and not self._frames

    async def read(self, timeout_s: float) -> bytes:
        """All frames that are there, once there are some; a ping after the timeout; b"" at the end."""
        if not self._frames and not self.closed:
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await asyncio.wait_for(self._waiter, timeout_s)
            except TimeoutError:
                return PING
            finally:
                self._waiter = None
        data = b"".join(self._frames)
        self._frames.clear()
        return data


class Hub:
    """Who listens to which run, in this process."""

    def __init__(self) -> None:
        self._listeners: dict[str, list[Listener]] = {}

    def listen(self, run_id: str) -> Listener:
        listener = Listener()
        self._listeners.setdefault(run_id, []).append(listener)
        return listener

    def leave(self, run_id: str, listener: Listener) -> None:
        listeners = self._listeners.get(run_id)
        if listeners and listener in listeners:
            listeners.remove(listener)
            if not listeners:
                del self._listeners[run_id]

    def heard(self, run_id: str) -> bool:
        return run_id in self._listeners

    def publish(self, run_id: str, events: str | tuple[str, ...], document: Any) -> None:
        """Tells the listeners of a run one event, or several that carry the same document."""
        listeners = self._listeners.get(run_id)
        if not listeners:
            return
        body = answer_bytes(document)
        names = (events,) if isinstance(events, str) else events
        data = b"".join([b"event: %b\ndata: %b\n\n" % (name.encode("ascii"), body) for name in names])
        for listener in listeners:
            listener.push(data)

    def publish_raw(self, run_id: str, data: bytes) -> None:
        for listener in self._listeners.get(run_id, ()):
            listener.push(data)

    def finish(self, run_id: str, last: bytes = DONE) -> None:
        """Ends the streams of a run that is settled."""
        for listener in self._listeners.pop(run_id, ()):
            listener.push(last)
            listener.close()
