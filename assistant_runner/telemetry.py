"""Traces of runs for OpenTelemetry, by its conventions for generative AI; the extra `otel`.

One span a run (`invoke_agent`), one a tool call (`execute_tool`) under it. What is said, asked and
answered is left out unless `OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT` is true. Where spans
go is told by OpenTelemetry's own variables (`OTEL_EXPORTER_OTLP_ENDPOINT` and its fellows).
"""

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from assistant_runner import __version__
from assistant_runner.errors import ConfigurationError
from assistant_runner.run.events import (
    CallFinished,
    CallStarted,
    RoundStarted,
    RunEnded,
    RunEvent,
    RunRequested,
    RunStarted,
    Warned,
)

if TYPE_CHECKING:
    from assistant_runner.run.request import RunResult

CONTENT_VARIABLE = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
SHOWN = 8000
"""Characters of a content that a span carries."""


class Telemetry:
    """A tracer, and whether contents go with the spans; `close` sends what is left."""

    def __init__(self, tracer: Any, *, content: bool, provider: Any = None) -> None:
        self.tracer = tracer
        self.content = content
        self._provider = provider

    def run(self) -> "RunSpans":
        """The spans of one run: a Listener is `RunSpans.listen`."""
        return RunSpans(self)

    def close(self) -> None:
        if self._provider is not None:
            self._provider.shutdown()


def open_telemetry(environ: Mapping[str, str], *, exporter: Any = None) -> Telemetry:
    """Telemetry that exports by OTLP over HTTP, or by the exporter given; ConfigurationError without
    the extra."""
    try:
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor

        if exporter is None:
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

            processor: Any = BatchSpanProcessor(OTLPSpanExporter())
        else:
            processor = SimpleSpanProcessor(exporter)
    except ImportError:
        raise ConfigurationError(
            "traces need the extra: otel",
            remedy="pip install 'assistant-runner[otel]', or turn telemetry off",
        ) from None
    resource = Resource.create({"service.name": "assistant-runner", "service.version": __version__})
    provider = TracerProvider(resource=resource)
    provider.add_span_processor(processor)
    content = environ.get(CONTENT_VARIABLE, "").strip().lower() in (
        "true",
        "1",
        "span_only",
        "span_and_event",
    )
    return Telemetry(provider.get_tracer("assistant_runner", __version__), content=content, provider=provider)


class RunSpans:
    """Turns one run's events into spans."""

    def __init__(self, telemetry: Telemetry) -> None:
        self._tracer = telemetry.tracer
        self._content = telemetry.content
        self._run: Any = None
        self._calls: dict[str, Any] = {}

    async def listen(self, event: RunEvent) -> None:
        if isinstance(event, RunRequested):
            self._begin(event)
        elif self._run is None:
            return
        elif isinstance(event, RunStarted):
            self._run.update_name(f"invoke_agent {event.assistant_id}")
            self._run.set_attributes(
                {
                    "gen_ai.agent.id": event.assistant_id,
                    "gen_ai.conversation.id": event.thread_id,
                    "gen_ai.response.id": event.run_id,
                    "gen_ai.request.model": event.model,
                }
            )
        elif isinstance(event, RoundStarted):
            self._run.add_event("round", {"number": event.number, "calls": len(event.calls)})
        elif isinstance(event, CallStarted):
            self._begin_call(event)
        elif isinstance(event, CallFinished):
            self._end_call(event)
        elif isinstance(event, Warned):
            self._run.add_event("warning", {"message": event.message if self._content else ""})
        elif isinstance(event, RunEnded):
            self._end(event)

    def finish(self, result: "RunResult") -> None:
        """Usage and answer of the completed run, before its span ends."""
        if self._run is None:
            return
        if result.usage is not None:
            self._run.set_attributes(
                {
                    "gen_ai.usage.input_tokens": result.usage.prompt_tokens,
                    "gen_ai.usage.output_tokens": result.usage.completion_tokens,
                }
            )
        if self._content:
            self._run.set_attribute("gen_ai.output.messages", _message("assistant", result.text))

    def close(self) -> None:
        """Ends what is open: the run's span, and those of calls that never ended."""
        for span in self._calls.values():
            span.end()
        self._calls.clear()
        if self._run is not None:
            self._run.end()
            self._run = None

    def _begin(self, event: RunRequested) -> None:
        from opentelemetry.trace import SpanKind

        attributes: dict[str, Any] = {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.provider.name": "openai",
            "server.address": event.backend,
        }
        if self._content and event.request.get("prompt"):
            attributes["gen_ai.input.messages"] = _message("user", str(event.request["prompt"]))
        self._run = self._tracer.start_span("invoke_agent", kind=SpanKind.CLIENT, attributes=attributes)

    def _begin_call(self, event: CallStarted) -> None:
        from opentelemetry.trace import set_span_in_context

        attributes: dict[str, Any] = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": event.tool,
            "gen_ai.tool.type": event.kind,
            "gen_ai.tool.call.id": event.tool_call_id,
        }
        if self._content:
            attributes["gen_ai.tool.call.arguments"] = json.dumps(event.arguments, default=str)[:SHOWN]
        self._calls[event.tool_call_id] = self._tracer.start_span(
            f"execute_tool {event.tool}", context=set_span_in_context(self._run), attributes=attributes
        )

    def _end_call(self, event: CallFinished) -> None:
        span = self._calls.pop(event.tool_call_id, None)
        if span is None:
            return
        if event.is_error:
            _fail(span, "tool_error", event.output if self._content else "")
        if self._content:
            span.set_attribute("gen_ai.tool.call.result", event.output[:SHOWN])
        span.end()

    def _end(self, event: RunEnded) -> None:
        self._run.set_attribute("gen_ai.response.finish_reasons", [event.status])
        if event.error is not None:
            words = str(event.error.get("message", "")) if self._content else ""
            _fail(self._run, str(event.error.get("kind", "error")), words)


def _fail(span: Any, kind: str, words: str) -> None:
    from opentelemetry.trace import Status, StatusCode

    span.set_attribute("error.type", kind)
    span.set_status(Status(StatusCode.ERROR, words[:SHOWN] or None))


def _message(role: str, text: str) -> str:
    return json.dumps([{"role": role, "parts": [{"type": "text", "content": text[:SHOWN]}]}])
