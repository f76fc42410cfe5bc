"""The planner: an engine of rules that works with no key, no model and no network.

It matches the question to the tools it is handed, fills their arguments from the text, chains
dependent calls, and composes the answer out of the outputs. It says what it did not understand.
Rules do not generalise: it is for first steps, demonstrations and tests.
"""

import json
import re
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import Any

from assistant_runner.service.engines.base import (
    Abilities,
    BuiltinCall,
    CallDelta,
    Finish,
    TextDelta,
    TurnCall,
    TurnEvent,
    TurnMessage,
    TurnOutput,
    TurnRequest,
)
from assistant_runner.service.engines.planning.arguments import Output
from assistant_runner.service.engines.planning.arithmetic import find_arithmetic
from assistant_runner.service.engines.planning.compose import compose, decode, found_in_files
from assistant_runner.service.engines.planning.lexicon import OTHER_TIME
from assistant_runner.service.engines.planning.matching import Candidate
from assistant_runner.service.engines.planning.plan import Plan, PlannedCall, forced_call, make_plan
from assistant_runner.service.engines.planning.summary import split_prompt, summarise
from assistant_runner.service.engines.planning.text import Text
from assistant_runner.wire.runs import Usage
from assistant_runner.wire.tools import FileSearchTool, FunctionTool, NamedToolChoice

TASK_KEY = "assistant_runner.task"
CHARACTERS_PER_TOKEN = 4
WORDS_PER_DELTA = 6
NAMES_SHOWN = 6
EARLIER_KEPT = 3
LONGEST_QUESTION = 4000
"""Characters of a question that are looked at: of a longer one its beginning and its end."""
ABOUT_ME = re.compile(
    r"\b(?:what can you do|who are you|what are you|help me|was kannst du|wer bist du|cosa sai fare|chi sei"
    r"|co potrafisz|kim jesteś)\b|你是谁|你能做什么|^\W*help\W*$",
    re.IGNORECASE,
)
FILE_WORDS = re.compile(
    r"\b(?:files?|documents?|pdfs?|uploaded|attached|attachments?|datei(?:en)?|dokumente?|documenti?|pliku?)\b|文件",
    re.IGNORECASE,
)


class PlannerEngine:
    """Rules, no language model; the same question and tools give the same calls each time."""

    name = "planner"
    label = "planner (no language model)"
    uses_model = False

    def abilities(self, model: str) -> Abilities:
        return Abilities(tools=True, strict=True, parallel=True)

    async def models(self) -> Sequence[Mapping[str, Any]]:
        return [
            {
                "id": "planner",
                "object": "model",
                "created": 0,
                "owned_by": "assistant-runner",
                "supports": {"tools": True},
            }
        ]

    async def aclose(self) -> None:
        return None

    async def turn(self, request: TurnRequest) -> AsyncIterator[TurnEvent]:
        """Calls, or the answer; never both."""
        question, earlier = _question(request)
        if request.metadata.get(TASK_KEY) == "summarise":
            body, asked = split_prompt(question)
            for event in _say(request, summarise(body, asked)):
                yield event
            return
        question = _shortened(question)
        outputs = _outputs(request)
        calls, plan = _plan(request, question, earlier, outputs)
        if _wants_files(request, question, outputs, plan):
            yield BuiltinCall("file_search", {"query": question})
            yield Finish("tool_calls", _usage(request, len(question)))
            return
        if calls:
            written = 0
            for index, call in enumerate(calls):
                arguments = json.dumps(call.arguments, ensure_ascii=False)
                written += len(arguments) + len(call.name)
                yield CallDelta(index, name=call.name, arguments=arguments)
            yield Finish("tool_calls", _usage(request, written))
            return
        for event in _say(request, _answer(question, outputs, plan, request)):
            yield event


def _question(request: TurnRequest) -> tuple[str, list[str]]:
    """The user's last words (all messages since the assistant's last), and the user texts before."""
    texts: list[str] = []
    latest: list[str] = []
    for item in request.items:
        if not isinstance(item, TurnMessage):
            continue
        if item.role == "user":
            latest.append(item.text())
        elif latest:
            texts.extend(latest)
            latest = []
    if not latest and texts:
        latest = [texts.pop()]
    return _unquoted("\n".join(latest).strip()), [_shortened(text) for text in texts[-EARLIER_KEPT:]]


def _unquoted(question: str) -> str:
    """A question that stands in quotation marks as a whole, without them."""
    if len(question) > 2 and question[0] in "\"'“„«" and question[-1] in "\"'”“»":
        inner = question[1:-1]
        return inner if not set(inner) & {question[0], question[-1]} - {"'"} else question
    return question


def _shortened(question: str) -> str:
    """A question of a length that rules can be held against."""
    if len(question) <= LONGEST_QUESTION:
        return question
    half = LONGEST_QUESTION // 2
    return f"{question[:half]}\n{question[-half:]}"


def _outputs(request: TurnRequest) -> list[Output]:
    """The function calls made since the last user message, with what they gave."""
    calls: list[TurnCall] = []
    given: dict[str, str] = {}
    for item in request.items:
        if isinstance(item, TurnMessage) and item.role == "user":
            calls, given = [], {}
        elif isinstance(item, TurnCall):
            calls.append(item)
        elif isinstance(item, TurnOutput):
            given[item.tool_call_id] = item.output
    found = []
    for call in calls:
        if call.id in given:
            arguments = decode(call.arguments)
            found.append(
                Output(call.name, arguments if isinstance(arguments, dict) else {}, decode(given[call.id]))
            )
    return found


def _plan(
    request: TurnRequest, question: str, earlier: Sequence[str], outputs: Sequence[Output]
) -> tuple[list[PlannedCall], Plan]:
    functions = [Candidate(tool.function) for tool in request.tools if isinstance(tool, FunctionTool)]
    choice = request.tool_choice
    if choice == "none" or not functions:
        return [], Plan(not_understood=_requests(question))
    plan = make_plan(question, earlier, functions, outputs)
    if isinstance(choice, NamedToolChoice) and choice.function is not None:
        wanted = choice.function.name
        calls = [call for call in plan.calls if call.name == wanted]
        if not calls:
            forced = forced_call(wanted, question, earlier, functions)
            calls, plan.missing = forced.calls, forced.missing or plan.missing
    elif choice == "required" and not plan.calls:
        forced = forced_call(None, question, earlier, functions)
        calls, plan.missing = forced.calls, plan.missing or forced.missing
    else:
        calls = plan.calls
    return (calls if request.parallel_tool_calls else calls[:1]), plan


def _wants_files(request: TurnRequest, question: str, outputs: Sequence[Output], plan: Plan) -> bool:
    """True if the run's files were not searched yet and the question names files, or is not understood."""
    offered = any(isinstance(tool, FileSearchTool) for tool in request.tools)
    if not offered or request.tool_choice == "none" or any(o.name == "file_search" for o in outputs):
        return False
    if isinstance(request.tool_choice, NamedToolChoice):
        return request.tool_choice.type == "file_search"
    open_questions = [s for s in plan.not_understood if Text(s).sentences[0].is_request]
    return FILE_WORDS.search(question) is not None or any(not find_arithmetic(s) for s in open_questions)


def _requests(question: str) -> list[str]:
    return [s.text for s in Text(question).sentences if not s.is_greeting and re.search(r"\w", s.text)]


def _answer(question: str, outputs: Sequence[Output], plan: Plan, request: TurnRequest) -> str:
    lines = compose(outputs, question)
    sums = [] if _took_numbers(outputs) else _sums(question)
    lines += [f"{solved}." for _, solved in sums]
    solved_sentences = {sentence for sentence, _ in sums}
    unanswered = [sentence for sentence in plan.not_understood if sentence not in solved_sentences]
    if any(output.name == "file_search" and found_in_files(output) for output in outputs):
        unanswered = []
    lines += _left_out(question, outputs)
    lines += [f"There is no tool {name} here." for name in _unknown_tools(question, request)]
    for tool, parameter in plan.missing:
        lines.append(f"To use {tool} I need its {parameter.replace('_', ' ')}, and I did not find it.")
    if lines:
        unanswered = [sentence for sentence in unanswered if Text(sentence).sentences[0].is_request]
    elif ABOUT_ME.search(question):
        return f"I am the planner: rules, no language model. {_what_i_can(request)}"
    if unanswered and (lines or any(Text(s).sentences[0].is_request for s in unanswered)):
        quoted = " ".join(f"“{sentence.rstrip('.')}”" for sentence in unanswered)
        lines.append(f"I did not understand {quoted}. {_what_i_can(request)}")
    elif not lines:
        greets = any(sentence.is_greeting for sentence in Text(question).sentences)
        lines.append(f"{'Hello.' if greets else 'I see no question here.'} {_what_i_can(request)}")
    text = "\n".join(lines)
    wanted = request.response_format
    if not isinstance(wanted, str) and wanted.type == "json_object":
        return json.dumps({"answer": text}, ensure_ascii=False)
    return text


def _left_out(question: str, outputs: Sequence[Output]) -> list[str]:
    """Says of `tomorrow` that no call had a place for it: what tools say without a day is of now."""
    asked = OTHER_TIME.search(question)
    calls = {output.name: output for output in outputs if output.name != "file_search"}
    values = [str(value).lower() for output in outputs for value in output.arguments.values()]
    if asked is None or not calls or any(asked.group().lower() in value for value in values):
        return []
    return [f"I left out “{asked.group()}”: no call of {' or '.join(calls)} took it."]


def _unknown_tools(question: str, request: TurnRequest) -> list[str]:
    """Names in a request that look like a function's and are none that is offered."""
    functions = [tool.function for tool in request.tools if isinstance(tool, FunctionTool)]
    known = {function.name for function in functions}
    for function in functions:
        known.update((function.parameters or {}).get("properties") or {})
    called = re.findall(r"\b(?i:call|use|run|with)\s+([a-z]+(?:_[a-z0-9]+)+)\b", question)
    return [name for name in dict.fromkeys(called) if name not in known]


def _sums(question: str) -> list[tuple[str, str]]:
    """Sentences with arithmetic in them, and its result."""
    found = [(sentence.text, find_arithmetic(sentence.text)) for sentence in Text(question).sentences]
    return [(sentence, solved) for sentence, solved in found if solved is not None]


def _took_numbers(outputs: Sequence[Output]) -> bool:
    """True if a tool was given the question's numbers: then the sum is the tool's."""
    return any(isinstance(value, int | float) for output in outputs for value in output.arguments.values())


def _what_i_can(request: TurnRequest) -> str:
    names = [tool.function.name for tool in request.tools if isinstance(tool, FunctionTool)]
    if not names or request.tool_choice == "none":
        return "Without tools and a language model I can do simple arithmetic only."
    more = f" and {len(names) - NAMES_SHOWN} other tools" if len(names) > NAMES_SHOWN else ""
    shown = ", ".join(names[:NAMES_SHOWN])
    return f"Without a language model I can use {shown}{more}, and do simple arithmetic."


def _say(request: TurnRequest, text: str) -> Iterator[TurnEvent]:
    """The text in pieces of a few words; a limit on completion tokens cuts it."""
    limit = request.max_completion_tokens
    cut = limit is not None and len(text) > limit * CHARACTERS_PER_TOKEN
    if cut and limit is not None:
        text = text[: limit * CHARACTERS_PER_TOKEN]
    pieces = re.findall(r"\S+\s*|\s+", text)
    for start in range(0, len(pieces), WORDS_PER_DELTA):
        yield TextDelta("".join(pieces[start : start + WORDS_PER_DELTA]))
    yield Finish("length" if cut else "stop", _usage(request, len(text)))


def _usage(request: TurnRequest, written: int) -> Usage:
    """Estimated: four characters make a token."""
    read = len(request.instructions)
    for item in request.items:
        if isinstance(item, TurnMessage):
            read += len(item.text())
        elif isinstance(item, TurnCall):
            read += len(item.arguments)
        else:
            read += len(item.output)
    prompt, completion = read // CHARACTERS_PER_TOKEN + 1, written // CHARACTERS_PER_TOKEN + 1
    return Usage(prompt_tokens=prompt, completion_tokens=completion, total_tokens=prompt + completion)
