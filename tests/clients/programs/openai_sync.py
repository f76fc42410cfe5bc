"""The official Python SDK (1.x, 2.x, 3.x), sync: helpers, handlers, files, pages, errors, Azure's form."""

import os
import time
import warnings
from typing import Any

import openai
from openai import AssistantEventHandler, AzureOpenAI, OpenAI

warnings.simplefilter("ignore", DeprecationWarning)
URL, KEY = os.environ["SERVER_URL"], os.environ["SERVER_KEY"]
FUNCTION = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Weather of a city.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
CONTENT = "step_details.tool_calls[*].file_search.results[*].content"


class Handler(AssistantEventHandler):
    def __init__(self) -> None:
        super().__init__()
        self.text, self.created, self.done, self.arguments, self.ends = "", [], [], "", 0
        self.messages: list[Any] = []
        self.steps: list[Any] = []

    def on_text_delta(self, delta: Any, snapshot: Any) -> None:
        self.text += delta.value or ""
        assert snapshot.value.startswith(self.text[:1])

    def on_tool_call_created(self, tool_call: Any) -> None:
        self.created.append(tool_call.id)

    def on_tool_call_delta(self, delta: Any, snapshot: Any) -> None:
        if delta.type == "function" and delta.function and delta.function.arguments:
            self.arguments += delta.function.arguments

    def on_tool_call_done(self, tool_call: Any) -> None:
        self.done.append(tool_call)

    def on_message_done(self, message: Any) -> None:
        self.messages.append(message)

    def on_run_step_done(self, run_step: Any) -> None:
        self.steps.append(run_step)

    def on_end(self) -> None:
        self.ends += 1


def outputs(run: Any) -> list[Any]:
    calls = run.required_action.submit_tool_outputs.tool_calls
    return [{"tool_call_id": call.id, "output": "12 degrees"} for call in calls]


def refused(call: Any, kind: type[openai.APIStatusError] = openai.BadRequestError) -> str:
    """The words of a refusal of this kind."""
    try:
        call()
    except kind as error:
        return str(error)
    raise AssertionError("not refused")


def with_question(client: OpenAI, question: str = "What is the weather?") -> Any:
    return client.beta.threads.create(messages=[{"role": "user", "content": question}])


def drive_rounds_by_polling(client: OpenAI) -> None:
    assistant = client.beta.assistants.create(
        model="conf-weather", name="A", instructions="Be brief.", tools=[FUNCTION], metadata={"a": "b"}
    )
    thread = with_question(client)
    started = time.monotonic()
    run = client.beta.threads.runs.create_and_poll(thread_id=thread.id, assistant_id=assistant.id)
    rounds = []
    while run.status == "requires_action":
        rounds.append(len(run.required_action.submit_tool_outputs.tool_calls))
        run = client.beta.threads.runs.submit_tool_outputs_and_poll(
            run_id=run.id, thread_id=thread.id, tool_outputs=outputs(run)
        )
    took_s = time.monotonic() - started
    assert (run.status, rounds) == ("completed", [2, 1]), (run.status, rounds)
    assert took_s < 1, f"the poll helpers waited: {took_s:.2f} s"
    [first] = client.beta.threads.messages.list(thread.id, limit=1).data
    assert first.content[0].text.value == "Oslo, Bergen and Tromsø are fine."
    steps = client.beta.threads.runs.steps.list(run.id, thread_id=thread.id, order="asc").data
    assert [step.type for step in steps] == ["tool_calls", "tool_calls", "message_creation"]
    assert (
        client.beta.threads.runs.steps.retrieve(steps[0].id, thread_id=thread.id, run_id=run.id)
        .step_details.tool_calls[0]
        .function.output
        == "12 degrees"
    )
    updated = client.beta.assistants.update(assistant.id, name="B")
    assert (updated.name, updated.instructions) == ("B", "Be brief.")
    assert client.beta.assistants.delete(assistant.id).deleted


def drive_rounds_by_streams(client: OpenAI) -> None:
    assistant = client.beta.assistants.create(model="conf-weather", tools=[FUNCTION])
    thread = with_question(client)
    handler = Handler()
    with client.beta.threads.runs.stream(
        thread_id=thread.id, assistant_id=assistant.id, event_handler=handler
    ) as stream:
        stream.until_done()
    run = handler.current_run
    handlers = [handler]
    while run.status == "requires_action":
        handlers.append(Handler())
        with client.beta.threads.runs.submit_tool_outputs_stream(
            run_id=run.id, thread_id=thread.id, tool_outputs=outputs(run), event_handler=handlers[-1]
        ) as stream:
            stream.until_done()
        run = handlers[-1].current_run
    assert run.status == "completed"
    assert [len(one.created) for one in handlers] == [2, 1, 0], [one.created for one in handlers]
    assert [len(one.done) for one in handlers] == [2, 1, 0]
    assert [one.ends for one in handlers] == [1, 1, 1]
    assert [call.function.name for call in handlers[0].done] == ["get_weather", "get_weather"]
    assert handlers[1].done[0].function.arguments == '{"city": "Tromsø"}', handlers[1].done
    assert handlers[2].text == handlers[2].messages[0].content[0].text.value
    with client.beta.threads.create_and_run_stream(
        assistant_id=assistant.id, thread={"messages": [{"role": "user", "content": "hi"}]}, model="plain"
    ) as stream:
        assert "".join(stream.text_deltas) == "Hello there, friend."
        assert stream.get_final_run().status == "completed"
        assert len(stream.get_final_run_steps()) == 1
    raw = client.beta.threads.runs.create(
        thread_id=thread.id, assistant_id=assistant.id, model="plain", stream=True
    )
    events = [event.event for event in raw]
    assert events[0] == "thread.run.created", events
    assert events[-1] in ("thread.run.completed", "done"), events


def drive_builtin_tools(client: OpenAI) -> None:
    stores = client.vector_stores if hasattr(client, "vector_stores") else client.beta.vector_stores
    store = stores.create(name="facts", expires_after={"anchor": "last_active_at", "days": 1})
    file = stores.files.upload_and_poll(
        vector_store_id=store.id, file=("fires.md", b"Wildfires in 2020: 58950. In 2021: 58985.")
    )
    assert file.status == "completed"
    batch = stores.file_batches.upload_and_poll(
        vector_store_id=store.id,
        files=[("a.txt", b"One fire"), ("b.txt", b"Two fires")],
    )
    assert (batch.status, batch.file_counts.completed) == ("completed", 2)
    assert len(list(stores.file_batches.list_files(batch.id, vector_store_id=store.id))) == 2
    assert len(list(stores.files.list(store.id, limit=1))) == 3
    if hasattr(stores, "search"):
        assert stores.search(store.id, query="wildfires").data[0].filename == "fires.md"
        assert "".join(part.text for part in stores.files.content(file.id, vector_store_id=store.id))
        stores.files.update(file.id, vector_store_id=store.id, attributes={"year": 2020})
    assistant = client.beta.assistants.create(
        model="conf-search",
        tools=[{"type": "file_search"}, {"type": "code_interpreter"}],
        tool_resources={"file_search": {"vector_store_ids": [store.id]}},
    )
    run = client.beta.threads.create_and_run_poll(assistant_id=assistant.id)
    assert run.status == "completed", run.last_error
    asked: dict[str, Any] = {"order": "asc", "extra_query": {"include": [CONTENT]}}  # 1.30 has no include=
    [step, _] = client.beta.threads.runs.steps.list(run.id, thread_id=run.thread_id, **asked).data
    if hasattr(step.step_details.tool_calls[0].file_search, "results"):
        assert "58950" in step.step_details.tool_calls[0].file_search.results[0].content[0].text
    [message] = client.beta.threads.messages.list(run.thread_id).data
    text = message.content[0].text
    assert (
        text.value[text.annotations[0].start_index : text.annotations[0].end_index]
        == text.annotations[0].text
    )
    assert text.annotations[0].file_citation.file_id == file.id

    handler = Handler()
    with client.beta.threads.create_and_run_stream(
        assistant_id=assistant.id, model="code", event_handler=handler
    ) as stream:
        stream.until_done()
    assert handler.done[0].code_interpreter.outputs[0].logs == "42\n", handler.done

    loose = client.files.create(
        file=("note.txt", b"Wildfires of 2020 by the note: 58950"), purpose="assistants"
    )
    thread = client.beta.threads.create(
        messages=[
            {
                "role": "user",
                "content": "Read it",
                "attachments": [{"file_id": loose.id, "tools": [{"type": "file_search"}]}],
            }
        ]
    )
    assert thread.tool_resources.file_search.vector_store_ids
    alone = client.beta.assistants.create(model="conf-search", tools=[{"type": "file_search"}])
    run = client.beta.threads.runs.create_and_poll(thread_id=thread.id, assistant_id=alone.id)
    assert run.status == "completed"
    [message, _] = client.beta.threads.messages.list(thread.id).data
    assert message.content[0].text.annotations[0].file_citation.file_id == loose.id
    assert stores.files.delete(file.id, vector_store_id=store.id).deleted
    assert stores.delete(store.id).deleted


def drive_files(client: OpenAI) -> None:
    file = client.files.create(file=("a b.txt", b"bytes"), purpose="assistants")
    assert client.files.wait_for_processing(file.id, poll_interval=0.01).status == "processed"
    assert client.files.content(file.id).read() == b"bytes"
    assert client.files.retrieve(file.id).filename == "a b.txt"
    assert file.id in [one.id for one in client.files.list(purpose="assistants")]
    assert client.files.delete(file.id).deleted


def drive_pages(client: OpenAI) -> None:
    thread = client.beta.threads.create()
    for number in range(12):
        client.beta.threads.messages.create(thread.id, role="user", content=str(number))
    seen = [
        m.content[0].text.value for m in client.beta.threads.messages.list(thread.id, limit=5, order="asc")
    ]
    assert seen == [str(number) for number in range(12)], seen
    page = client.beta.threads.messages.list(thread.id, limit=5)
    assert (len(page.data), page.has_more, page.first_id) == (5, True, page.data[0].id)
    back = client.beta.threads.messages.list(thread.id, limit=2, order="asc", before=page.data[0].id)
    assert len(back.data) == 2
    for number in range(7):
        client.beta.assistants.create(model="plain", metadata={"n": str(number)})
    assert len(list(client.beta.assistants.list(limit=3))) >= 7


def drive_cancel_and_lock(client: OpenAI) -> None:
    assistant = client.beta.assistants.create(model="conf-slow")
    thread = with_question(client)
    run = client.beta.threads.runs.create(thread_id=thread.id, assistant_id=assistant.id)
    threads = client.beta.threads
    words = refused(lambda: threads.messages.create(thread.id, role="user", content="x"))
    assert f"Can't add messages to {thread.id} while a run {run.id} is active." in words
    words = refused(lambda: threads.runs.create(thread_id=thread.id, assistant_id=assistant.id))
    assert f"Thread {thread.id} already has an active run {run.id}" in words
    client.beta.threads.runs.cancel(run.id, thread_id=thread.id)
    run = client.beta.threads.runs.poll(run.id, thread_id=thread.id)
    assert run.status == "cancelled"
    words = refused(lambda: threads.runs.cancel(run.id, thread_id=thread.id))
    assert "Cannot cancel run with status 'cancelled'" in words


def drive_endings(client: OpenAI) -> None:
    assistant = client.beta.assistants.create(model="conf-long")
    run = client.beta.threads.create_and_run_poll(assistant_id=assistant.id, max_completion_tokens=256)
    assert (run.status, run.incomplete_details.reason) == ("incomplete", "max_completion_tokens")
    [message] = client.beta.threads.messages.list(run.thread_id).data
    assert (message.status, len(message.content[0].text.value.split())) == ("incomplete", 256)
    run = client.beta.threads.create_and_run_poll(assistant_id=assistant.id, model="fails")
    assert (run.status, run.last_error.code) == ("failed", "rate_limit_exceeded")
    started = time.monotonic()
    run = client.beta.threads.create_and_run_poll(assistant_id=assistant.id, model="short-wait")
    assert run.status == "completed"
    assert time.monotonic() - started < 0.9, "the poll helper waited a second"


def drive_leaving(client: OpenAI) -> None:
    assistant = client.beta.assistants.create(model="conf-short-wait")
    thread = with_question(client)
    with client.beta.threads.runs.stream(thread_id=thread.id, assistant_id=assistant.id) as stream:
        for event in stream:
            if event.event == "thread.run.created":
                break
    run = client.beta.threads.runs.poll(event.data.id, thread_id=thread.id)
    assert run.status == "completed"


def drive_raw(client: OpenAI) -> None:
    raw = client.beta.threads.with_raw_response.create()
    assert raw.headers["x-request-id"].startswith("req_")
    assert raw.parse().object == "thread"
    with client.beta.threads.with_streaming_response.retrieve(raw.parse().id) as answer:
        assert answer.status_code == 200
    assert client.beta.threads.update(raw.parse().id, metadata={"k": "v"}).metadata == {"k": "v"}
    assert client.beta.threads.delete(raw.parse().id).deleted
    assert list(client.models.list())


def drive_wrong_key(client: OpenAI) -> None:
    stranger = client.with_options(api_key="wrong-key")
    assert "wrong-key" not in refused(stranger.beta.assistants.list, openai.AuthenticationError)


DRIVES = [value for name, value in list(globals().items()) if name.startswith("drive_")]

if __name__ == "__main__":
    ours = OpenAI(base_url=f"{URL}/v1", api_key=KEY, max_retries=0, timeout=20)
    azure = AzureOpenAI(
        azure_endpoint=URL, api_key=KEY, api_version="2024-05-01-preview", max_retries=0, timeout=20
    )
    for drive in DRIVES:
        for client in (ours, azure):
            drive(client)
            print(type(client).__name__, drive.__name__)
