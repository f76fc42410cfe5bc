import pytest

from assistant_runner.run.request import RunRequest
from assistant_runner.telemetry import CONTENT_VARIABLE, open_telemetry
from tests.fakes import ScriptedBackend, answers, asks, call, driver

pytest.importorskip("opentelemetry.sdk")


def get_weather(city: str) -> str:
    """Weather of a city."""
    if city == "Nowhere":
        raise RuntimeError("boom")
    return f"SECRET rain in {city}"


async def spans_of(environ):
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    exporter = InMemorySpanExporter()
    telemetry = open_telemetry(environ, exporter=exporter)
    calls = [
        call("get_weather", '{"city": "Oslo"}', id="c1"),
        call("get_weather", '{"city": "Nowhere"}', id="c2"),
    ]
    backend, spans = ScriptedBackend(asks(*calls), answers("SECRET answer")), telemetry.run()
    result = await driver(backend, get_weather).run(
        RunRequest("asst_1", prompt="SECRET question"), listener=spans.listen
    )
    spans.finish(result)
    spans.close()
    telemetry.close()
    return {
        span.name + str(span.attributes.get("gen_ai.tool.call.id", "")): span
        for span in exporter.get_finished_spans()
    }


async def test_a_run_is_a_span_with_its_tool_calls_under_it():
    spans = await spans_of({})

    run = spans["invoke_agent asst_1"]
    good, bad = spans["execute_tool get_weatherc1"], spans["execute_tool get_weatherc2"]
    assert run.attributes["gen_ai.conversation.id"] == "thread_1"
    assert run.attributes["gen_ai.operation.name"] == "invoke_agent"
    assert [span.parent.span_id for span in (good, bad)] == [run.context.span_id] * 2
    assert (bad.attributes["error.type"], good.attributes.get("error.type")) == ("tool_error", None)


@pytest.mark.parametrize(("environ", "content"), [({}, False), ({CONTENT_VARIABLE: "true"}, True)])
async def test_contents_are_left_out_unless_asked_for(environ, content):
    spans = await spans_of(environ)

    assert ("SECRET" in str([dict(span.attributes) for span in spans.values()])) is content
