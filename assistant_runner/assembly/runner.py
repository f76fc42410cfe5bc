"""The runner: asks, starts, forks and resumes runs with what was put together for it."""

import asyncio
import contextlib
import dataclasses
import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from assistant_runner.assembly.question import (
    Question,
    about_runs,
    check_tool_choice,
    limits_of,
    named_functions,
    question_of,
    request_for,
)
from assistant_runner.assembly.shelf import (
    Shelf,
    own_assistant,
    tool_client,
    tool_gate,
    tool_warnings,
    tools_folder,
    with_reader,
)
from assistant_runner.backends.base import Backend
from assistant_runner.errors import ConfigurationError, NotFound, RunGone, RunTimedOut, UsageError
from assistant_runner.run.dispatch import DecideUnknown
from assistant_runner.run.driver import Driver, Policies
from assistant_runner.run.endings import ending_of
from assistant_runner.run.events import CallFinished, Listener, RunEnded, RunEvent, Warned
from assistant_runner.run.journal import Journal, JournalRun, Recording
from assistant_runner.run.loop import Workshop
from assistant_runner.run.memory import Results, RunMemory, call_finished, recall
from assistant_runner.run.records import dataclass_document, request_of, result_record
from assistant_runner.run.request import RunRequest, RunResult
from assistant_runner.run.summary import RunSummariser
from assistant_runner.settings import LoadedSettings
from assistant_runner.setup.finding import find_assistant, find_spec
from assistant_runner.tooling.contract import Tool, ToolContext
from assistant_runner.tooling.gate import Approve
from assistant_runner.tooling.registry import Toolbox, load_tools
from assistant_runner.tooling.spill import READER_NAME
from assistant_runner.wire.assistants import Assistant
from assistant_runner.wire.runs import Run
from assistant_runner.wire.threads import MessageCreate
from assistant_runner.wire.tools import AssistantTool, FunctionTool

if TYPE_CHECKING:
    import httpx

    from assistant_runner.service.engines.base import Engine
    from assistant_runner.setup.model import AssistantSpec
    from assistant_runner.telemetry import RunSpans, Telemetry


MOST_RUN_TOOLS = 20
"""Tools that a run may name for itself, by the protocol; an assistant may have 128."""


class Runner(Protocol):
    """Answers questions, concurrently if asked; one backend, one set of tools, one engine."""

    @property
    def backend(self) -> Backend: ...

    @property
    def engine_label(self) -> str:
        """For people: which engine and model; `planner (no language model)`."""
        ...

    @property
    def notices(self) -> Sequence[str]:
        """What a person must be told before the first answer: no model, recorded replies."""
        ...

    async def assistant(self, question: Question) -> Assistant:
        """The assistant that answers the question, looked up or made once; NotFound if it is not there."""
        ...

    async def ask(
        self,
        question: Question,
        *,
        listener: Listener | None = None,
        pause_after: int | None = None,
        whole_thread: bool = False,
    ) -> RunResult:
        """The completed run; a RunError, BackendError or ConfigurationError otherwise."""
        ...

    async def start(self, question: Question, *, listener: Listener | None = None) -> Run:
        """The run as it was created; nobody follows it."""
        ...


class AssembledRunner:
    """The Runner of `open_runner`."""

    def __init__(
        self,
        loaded: LoadedSettings,
        *,
        backend: Backend,
        shelf: Shelf,
        tools_named: bool,
        stack: AsyncExitStack,
        engine_label: str,
        engine: "Engine | None",
        model: str | None,
        notices: tuple[str, ...],
        journal: Journal | None = None,
        approve: Approve | None = None,
        telemetry: "Telemetry | None" = None,
    ) -> None:
        self._telemetry = telemetry
        self._approve = approve
        self._journal = journal
        self._loaded = loaded
        self._about = about_runs(loaded)
        self._shelf = shelf
        self._tools_named = tools_named
        self._shelves: dict[str, Shelf] = {}
        self._stack = stack
        self._client: httpx.AsyncClient | None = None
        self._assistants: dict[str, Assistant] = {}
        self._choosing = asyncio.Lock()
        self._model = model
        self._engine = engine
        self.backend = backend
        self.engine_label = engine_label
        self.notices = notices

    async def assistant(self, question: Question) -> Assistant:
        return await self._assistant(question, await self._shelf_of(question))

    async def ask(
        self,
        question: Question,
        *,
        listener: Listener | None = None,
        pause_after: int | None = None,
        whole_thread: bool = False,
    ) -> RunResult:
        driver, request = await self._in_time(question, listener)
        recording, spans = self._begin(question), self._spans()
        with recorded(recording, listener, spans) as listen:
            result = await driver.run(
                request, listener=listen, pause_after=pause_after, whole_thread=whole_thread
            )
            _finish(recording, spans, result)
        return result

    async def start(self, question: Question, *, listener: Listener | None = None) -> Run:
        """The run as it was created; nobody follows it. UsageError on the embedded backend, whose runs
        live in this process."""
        if self._loaded.settings.backend == "embedded":
            raise UsageError(
                "a run of the embedded backend lives in this process and cannot be left alone",
                remedy="serve the backend (assistant-runner serve) and name it with --backend",
            )
        driver, request = await self._in_time(question, listener)
        with recorded(self._begin(question), listener) as listen:
            return await driver.start(request, listener=listen)

    async def fork(
        self,
        run: JournalRun,
        *,
        round_number: int | None,
        model: str | None = None,
        prompt: str | None = None,
        listener: Listener | None = None,
        whole_thread: bool = False,
    ) -> RunResult:
        """The completed run of the same request on a new thread; the results of its rounds up to
        `round_number` are given again, what comes after is done anew."""
        memory = self._remember(run)
        question = dataclasses.replace(question_of(run), thread_id=None)
        if prompt is not None:
            question = dataclasses.replace(question, prompt=prompt)
        driver, request = await self._in_time(question, listener)
        if memory.request is not None:
            request = request_of(memory.request)
        earlier = await self._messages_before(memory, request.thread_id)
        from assistant_runner.run.history import fork_request

        request, carried = fork_request(
            memory, request, round_number=round_number, model=model, prompt=prompt
        )
        request = dataclasses.replace(request, messages=(*earlier, *request.messages))
        recording, spans = self._begin(question, carried), self._spans()
        with recorded(recording, listener, spans) as listen:
            result = await driver.run(request, listener=listen, whole_thread=whole_thread, carried=carried)
            _finish(recording, spans, result)
        return result

    async def _messages_before(self, memory: RunMemory, thread_id: str | None) -> list[MessageCreate]:
        """What stood on the run's thread before its prompt, as text; nothing if it had a new thread."""
        if thread_id is None or memory.run_id is None:
            return []
        page = await self.backend.list_messages(thread_id, order="asc")
        before = list(itertools.takewhile(lambda message: message.run_id != memory.run_id, page.data))
        asked = 1 if memory.request and memory.request.get("prompt") is not None else 0
        kept = [message for message in before[: len(before) - asked] if message.text()]
        return [
            MessageCreate(role="assistant" if message.role == "assistant" else "user", content=message.text())
            for message in kept
        ]

    async def _in_time(self, question: Question, listener: Listener | None) -> tuple[Driver, RunRequest]:
        """As `_prepare`; RunTimedOut if the backend does not answer in the time that a run may take."""
        limit_s = (question.limits or limits_of(self._loaded)).timeout_s
        try:
            async with asyncio.timeout(limit_s):
                return await self._prepare(question, listener)
        except TimeoutError:
            raise RunTimedOut(
                f"no run began within {limit_s:g} s: {self.backend.label} does not answer",
                remedy="raise --timeout, or look at the backend: assistant-runner doctor",
            ) from None

    async def _prepare(self, question: Question, listener: Listener | None) -> tuple[Driver, RunRequest]:
        """A driver with the question's tools, and the request; UsageError before any run."""
        if not question.prompt.strip():
            raise UsageError("the prompt is empty", remedy="give a question")
        shelf = await self._shelf_of(question)
        check_tool_choice(question.tool_choice, shelf.toolbox)
        assistant = await self._assistant(question, shelf)
        if listener is not None:
            for message in tool_warnings(assistant, shelf.toolbox):
                await listener(Warned(message))
        asked_tools = self._asked_tools(question, shelf, assistant)
        if self._engine is not None and question.tool_choice != "none":
            tools = assistant.tools if asked_tools is None else asked_tools
            from assistant_runner.service.engines.choose import require_abilities

            require_abilities(self._engine, question.model or assistant.model, tools)
        request = request_for(question, assistant.id, shelf.spec, tools=asked_tools)
        return self._driver(question, shelf, assistant.id), request

    def _begin(self, question: Question, carried: Results | None = None) -> Recording | None:
        """A recording; `carried` results of another run are kept with it, for its resumption."""
        if self._journal is None:
            return None
        given = {key: [dataclass_document(call) for call in calls] for key, calls in (carried or {}).items()}
        return self._journal.begin(
            backend=self.backend.label,
            prompt=question.prompt,
            thread_id=question.thread_id,
            about={
                **self._about,
                "question": dataclass_document(question),
                **({"carried": given} if given else {}),
            },
        )

    def _spans(self) -> "RunSpans | None":
        return self._telemetry.run() if self._telemetry is not None else None

    def _remember(self, run: JournalRun) -> RunMemory:
        if self._journal is None:
            raise UsageError("there is no journal", remedy="leave out --no-journal")
        given = run.about.get("carried") or {}
        carried = {key: [call_finished(call) for call in calls] for key, calls in given.items()}
        return recall(self._journal.records(run.key), carried=carried)

    async def resume(
        self,
        run: JournalRun,
        *,
        listener: Listener | None = None,
        pause_after: int | None = None,
        whole_thread: bool = False,
        again: DecideUnknown | None = None,
        answers: Mapping[str, str] | None = None,
    ) -> RunResult:
        """The completed run of the journal: nothing that is finished is done again.

        `again`: whether a call that writes and whose outcome is unknown is to be made again. `answers`:
        what a person said to the questions of human tools, by tool call id.
        UsageError if another process works on the run.
        """
        self._remember(run)
        assert self._journal is not None
        owner = self._journal.find(run.key).owner
        recording = self._journal.take_up(run)
        memory = self._remember(run)
        memory.left_alone = owner is None
        spans = self._spans()
        with recorded(recording, listener, spans) as listen:
            question = question_of(run)
            shelf = await self._shelf_of(question)
            if memory.request is None:
                assistant = await self._assistant(question, shelf)
                tools = self._asked_tools(question, shelf, assistant)
                request = request_for(question, assistant.id, shelf.spec, tools=tools)
            else:
                request = request_of(memory.request)
            driver = self._driver(question, shelf, request.assistant_id, again=again)
            names = {call.tool for known in memory.every_round for call in known.started.values()}
            if memory.thread_id and any(shelf.toolbox[name].fetches for name in names & set(shelf.toolbox)):
                shelf.gate.remember_fetched(memory.thread_id)
            given = answers_of(memory, answers or {})
            for answer in given.values():
                await recording.listen(answer)
            thread_id = memory.thread_id or request.thread_id
            result = await driver.resume(
                memory,
                request,
                listener=listen,
                pause_after=pause_after,
                whole_thread=whole_thread,
                answers=given,
                taken=self._journal.run_ids_on(thread_id) if thread_id else (),
            )
            _finish(recording, spans, result)
        return result

    async def note_end(self, run: Run) -> None:
        """Write to the journal how a run ended that nobody follows; one that somebody follows, they write."""
        ending = ending_of(run)
        if self._journal is None or ending is None:
            return
        try:
            recording = self._journal.take_up(self._journal.find(run.id))
        except (NotFound, UsageError):
            return
        error: Any = ending.document()["error"]
        await recording.listen(RunEnded(run.id, run.thread_id, run.status, error))
        recording.release()

    async def take_up(self, run_id: str, *, listener: Listener | None = None) -> RunResult | None:
        """As `resume`, by the run's id; None if the journal does not know it.

        None too if the backend does not know it any more and none of its tools may have written: it can
        be asked anew. RunGone if one may have.
        """
        if self._journal is None:
            return None
        try:
            run = self._journal.find(run_id)
        except NotFound:
            return None
        try:
            return await self.resume(run, listener=listener)
        except RunGone as error:
            rounds = self._remember(run).every_round
            calls = [call for known in rounds for call in known.started.values() if not call.harmless]
            if not calls:
                return None
            names = ", ".join(sorted({call.tool for call in calls}))
            raise RunGone(
                f"{error.message}; its tools may have written ({names}), so it is not begun anew",
                run_id=error.run_id,
                thread_id=error.thread_id,
                remedy="look at what they wrote; asking again (--retry-failed in a batch) calls them again",
            ) from error

    def _driver(
        self,
        question: Question,
        shelf: Shelf,
        assistant_id: str,
        *,
        again: DecideUnknown | None = None,
    ) -> Driver:
        settings = self._loaded.settings
        policies = Policies(
            if_active=settings.if_active,
            restart_expired=settings.restart_expired,
            on_interrupt=settings.on_interrupt,
            resumable=self._journal is not None,
            poll_interval_s=settings.poll_interval_s,
            again=again,
        )
        limits = question.limits or limits_of(self._loaded)
        if shelf.spec is not None and shelf is not self._shelf:
            limits = shelf.spec.limits.over(limits)
        elif shelf.spec is not None and limits.total_tokens is None:  # no setting says it
            limits = dataclasses.replace(limits, total_tokens=shelf.spec.limits.total_tokens)
        return Driver(
            self.backend,
            self._workshop(question, shelf, assistant_id),
            limits=limits,
            policies=policies,
        )

    def _workshop(self, question: Question, shelf: Shelf, assistant_id: str) -> Workshop:
        summarise = RunSummariser(self.backend, assistant_id=assistant_id, model=question.model, by=None)

        def context(call_id: str, tool: Tool, deadline_s: float, thread_id: str) -> ToolContext:
            return ToolContext(
                tool_call_id=call_id,
                http=self._tool_client(),
                environ=self._loaded.environ,
                deadline_s=deadline_s,
                question=question.prompt,
                summarise=summarise,
                recorded=self._loaded.settings.offline,
                thread_id=thread_id,
                reads_on=READER_NAME in shelf.toolbox,
            )

        return Workshop(shelf.toolbox, shelf.gate, context, approve_hosted=shelf.gate.approve_hosted)

    def _tool_client(self) -> "httpx.AsyncClient":
        """The client of all tools, made when the first of them asks for it."""
        if self._client is None:
            self._client = tool_client(self._loaded)
            self._stack.push_async_callback(self._client.aclose)
        return self._client

    async def _shelf_of(self, question: Question) -> Shelf:
        """The question's tools and gate: its own tools, else its assistant file's, else the runner's."""
        shelf, asked = self._shelf, question.assistant
        if asked is not None and asked != self._loaded.settings.assistant:
            async with self._choosing:
                if asked not in self._shelves:
                    self._shelves[asked] = await self._open_shelf(asked)
            shelf = self._shelves[asked]
        if question.tools is None:
            return shelf
        here, folder = shelf.toolbox, tools_folder(self._loaded)
        tools: list[Tool] = []
        for name in dict.fromkeys(question.tools):
            found = here.get(name)
            tools += [found] if found else load_tools([name], folder=folder, cwd=Path.cwd()).values()
        return Shelf(with_reader(Toolbox(tools)), shelf.gate, shelf.spec)

    def _asked_tools(
        self, question: Question, shelf: Shelf, assistant: Assistant
    ) -> tuple[AssistantTool, ...] | None:
        """Tools that were named for the run, where the assistant may offer others (row S2.6); of very
        many, those that fit the prompt (row S4.13); `read_output` where the assistant does not offer it.
        None: as the assistant has them."""
        settings = self._loaded.settings
        named = question.tools is not None or self._tools_named
        if named and (shelf.spec or question.assistant or settings.assistant):
            return tuple(shelf.toolbox.definitions())
        tools, reader = list(assistant.tools or []), shelf.toolbox.get(READER_NAME)
        offered = {tool.function.name for tool in tools if isinstance(tool, FunctionTool)}
        reads_on = reader is not None and READER_NAME not in offered and not offered.isdisjoint(shelf.toolbox)
        if reader is not None and reads_on:
            tools.append(reader.definition())
        if len(tools) <= settings.tools_searched_above:
            return tuple(tools) if reads_on and len(tools) <= MOST_RUN_TOOLS else None
        from assistant_runner.tooling.searching import choose_tools

        hosted = sum(tool.type != "function" for tool in tools)
        keep = [*named_functions(question.tool_choice), READER_NAME]
        return tuple(choose_tools(tools, question.prompt, limit=MOST_RUN_TOOLS - hosted, keep=keep))

    async def _open_shelf(self, reference: str) -> Shelf:
        profile = self._loaded.settings.profile
        spec, _ = find_spec(reference, cwd=Path.cwd(), environ=self._loaded.environ, profile=profile)
        if spec is None:
            return Shelf(self._shelf.toolbox, self._shelf.gate)
        from assistant_runner.setup.tools import open_spec_tools

        opening = open_spec_tools(spec, environ=self._loaded.environ, folder=tools_folder(self._loaded))
        toolbox = with_reader(await self._stack.enter_async_context(opening))
        return Shelf(toolbox, tool_gate(self._loaded, toolbox, spec, self._approve), spec)

    async def _assistant(self, question: Question, shelf: Shelf) -> Assistant:
        """The question's assistant; made or updated first if it comes from a file."""
        reference = question.assistant or self._loaded.settings.assistant
        key = json.dumps([reference, shelf.toolbox.names(), shelf.toolbox.changes])
        async with self._choosing:  # many questions at once share one assistant
            if key not in self._assistants:
                if shelf.spec is not None:
                    self._assistants[key] = await self._ensure(shelf.spec)
                elif reference is None:
                    toolbox = shelf.toolbox
                    self._assistants[key] = await own_assistant(
                        self.backend, toolbox, model=self._default_model()
                    )
                else:
                    self._assistants[key] = await find_assistant(self.backend, reference)
            return self._assistants[key]

    def _default_model(self) -> str:
        """The model of an assistant that names none."""
        if self._model is not None:
            return self._model
        from assistant_runner.service.engines.catalog import DEFAULT_MODEL

        return DEFAULT_MODEL

    async def _ensure(self, spec: "AssistantSpec") -> Assistant:
        """The assistant of a file; its own tools are what it offers, whatever a question brings."""
        from assistant_runner.setup.planned import PlanOptions
        from assistant_runner.setup.resolve import ensure_assistant
        from assistant_runner.setup.tools import definitions_from

        folder = tools_folder(self._loaded)
        boxes = {one.spec.identity: one.toolbox for one in (self._shelf, *self._shelves.values()) if one.spec}
        options = PlanOptions(
            define=definitions_from(folder, boxes=boxes),
            default_model=self._default_model(),
            aliases=self._loaded.settings.model_aliases,
            new=True,  # a question takes over nobody else's assistant by its name; apply may
            recreate=True,
        )
        return await ensure_assistant(self.backend, spec, state=self._loaded.folders.state, options=options)


def answers_of(memory: RunMemory, answers: Mapping[str, str]) -> dict[str, CallFinished]:
    """People's answers as finished calls; UsageError for one that answers no open question."""
    open_ = memory.open_calls()
    for call_id in answers:
        if call_id not in open_:
            raise UsageError(f"no question {call_id!r} is open", remedy=f"open: {', '.join(open_) or 'none'}")
    return {
        call_id: CallFinished(call_id, open_[call_id], False, text, 0.0, content=text)
        for call_id, text in answers.items()
    }


@contextlib.contextmanager
def recorded(
    recording: Recording | None, listener: Listener | None, spans: "RunSpans | None" = None
) -> Iterator[Listener | None]:
    """A listener that writes each event to the journal, then tells the others; frees the run at the end."""
    others = [one for one in (spans.listen if spans else None, listener) if one is not None]
    if recording is None and not spans:
        yield listener
        return

    async def listen(event: RunEvent) -> None:
        if recording is not None:
            await recording.listen(event)
        for other in others:
            await other(event)

    try:
        yield listen
    finally:
        if spans is not None:
            spans.close()
        if recording is not None:
            with contextlib.suppress(ConfigurationError):  # what went wrong is told by what raised first
                recording.release()


def _finish(recording: Recording | None, spans: "RunSpans | None", result: RunResult) -> None:
    if recording is not None:
        recording.finish(result_record(result))
    if spans is not None:
        spans.finish(result)
