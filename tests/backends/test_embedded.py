import json

from assistant_runner.backends.embedded import over_service
from assistant_runner.wire.runs import RunCreate


class StreamingService:
    """The least of a service: one streamed run, alive between enter and exit."""

    def __init__(self):
        self.life = []

    async def __aenter__(self):
        self.life.append("entered")
        return self

    async def __aexit__(self, *exc):
        self.life.append("left")

    async def app(self, scope, receive, send):
        self.life.append((scope["method"], scope["path"], dict(scope["headers"])[b"openai-beta"]))
        run = {
            "id": "run_1",
            "created_at": 1,
            "assistant_id": "asst_1",
            "thread_id": "thread_1",
            "model": "m",
            "tools": [],
        }
        headers = [(b"content-type", b"text/event-stream; charset=utf-8")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        for status in ("created", "completed"):
            frame = f"event: thread.run.{status}\ndata: {json.dumps({**run, 'status': status})}\n\n"
            await send({"type": "http.response.body", "body": frame.encode(), "more_body": True})
        await send({"type": "http.response.body", "body": b"event: done\ndata: [DONE]\n\n"})


async def test_a_run_streams_through_the_process_and_the_service_lives_around_it():
    service = StreamingService()

    body = RunCreate(assistant_id="asst_1")
    async with over_service(service) as backend, backend.stream_run("thread_1", body) as events:
        names = [event.event async for event in events]

    assert backend.label == "embedded"
    assert names == ["thread.run.created", "thread.run.completed"]
    assert service.life == ["entered", ("POST", "/v1/threads/thread_1/runs", b"assistants=v2"), "left"]
