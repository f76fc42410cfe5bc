"""litellm's assistants calls, sync and async, for its providers openai and azure."""

import asyncio
import os
import warnings

warnings.simplefilter("ignore")
os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # else it asks the network for prices

import litellm  # noqa: E402

URL, KEY = os.environ["SERVER_URL"], os.environ["SERVER_KEY"]
litellm.telemetry = False
PROVIDERS = {
    "openai": {"api_base": f"{URL}/v1", "api_key": KEY},
    "azure": {"api_base": URL, "api_key": KEY, "api_version": "2024-05-01-preview"},
}
FUNCTION = {"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object"}}}


def drive(provider: str) -> None:
    common = {"custom_llm_provider": provider, **PROVIDERS[provider]}
    assistant = litellm.create_assistants(
        model="conf-plain", name="a", instructions="Be brief.", tools=[FUNCTION], **common
    )
    assert any(one.id == assistant.id for one in litellm.get_assistants(**common).data)
    thread = litellm.create_thread(messages=[{"role": "user", "content": "hi"}], **common)
    assert litellm.get_thread(thread_id=thread.id, **common).id == thread.id
    litellm.add_message(thread_id=thread.id, role="user", content="Once more", **common)
    run = litellm.run_thread(thread_id=thread.id, assistant_id=assistant.id, **common)
    assert run.status == "completed", run
    messages = litellm.get_messages(thread_id=thread.id, **common)
    assert messages.data[0].content[0].text.value == "Hello there, friend."
    if provider == "openai":
        with litellm.run_thread_stream(thread_id=thread.id, assistant_id=assistant.id, **common) as stream:
            assert "".join(stream.text_deltas) == "Hello there, friend."
    litellm.delete_assistant(assistant_id=assistant.id, **common)


async def drive_later(provider: str) -> None:
    common = {"custom_llm_provider": provider, **PROVIDERS[provider]}
    assistant = await litellm.acreate_assistants(model="conf-plain", **common)
    thread = await litellm.acreate_thread(messages=[{"role": "user", "content": "hi"}], **common)
    await litellm.a_add_message(thread_id=thread.id, role="user", content="Once more", **common)
    run = await litellm.arun_thread(thread_id=thread.id, assistant_id=assistant.id, **common)
    assert run.status == "completed"
    async with litellm.arun_thread_stream(thread_id=thread.id, assistant_id=assistant.id, **common) as stream:
        assert "".join([piece async for piece in stream.text_deltas]) == "Hello there, friend."
    assert (await litellm.aget_messages(thread_id=thread.id, **common)).data
    await litellm.adelete_assistant(assistant_id=assistant.id, **common)


if __name__ == "__main__":
    for name in PROVIDERS:
        drive(name)
        asyncio.run(drive_later(name))
        print(name, "done")
