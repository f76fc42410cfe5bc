"""A fake runner at the seam, and a bench of files to run batches on."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from assistant_runner.assembly import Question
from assistant_runner.batch.budget import Budget, Spending
from assistant_runner.batch.checks import NO_ASSERTIONS, Assertions
from assistant_runner.batch.codec import codec_for
from assistant_runner.batch.execution import Batch, Policy
from assistant_runner.batch.limiter import Limiter, LimiterPlan
from assistant_runner.batch.output import ResultStore
from assistant_runner.batch.rows import RowShape
from assistant_runner.batch.source import WHOLE, Shard, Source
from assistant_runner.run.events import RunStarted
from assistant_runner.run.request import RunResult
from assistant_runner.wire.runs import Run, Usage


class FakeRunner:
    """Answers `re: PROMPT`; keeps what it was asked. `act` may wait, raise, or change the answer."""

    engine_label = "fake"
    notices = ()

    def __init__(self, act: Callable[[Question, int], Any] | None = None) -> None:
        self.asked: list[Question] = []
        self.in_flight = 0
        self.most_in_flight = 0
        self._act = act

    @property
    def prompts(self) -> list[str]:
        return [question.prompt for question in self.asked]

    async def ask(self, question: Question, *, listener=None) -> RunResult:
        number = len(self.asked)
        self.asked.append(question)
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            run_id, thread_id = f"run_{number}", question.thread_id or f"thread_{number}"
            if listener is not None:
                await listener(RunStarted(run_id, thread_id, "asst_1", "gpt-test"))
            text = self._act(question, number) if self._act else None
            if asyncio.iscoroutine(text):
                text = await text
            await asyncio.sleep(0)
            return result(text or f"re: {question.prompt}", run_id=run_id, thread_id=thread_id)
        finally:
            self.in_flight -= 1


def result(text: str, *, run_id: str = "run_1", thread_id: str = "thread_1", tokens: int = 10) -> RunResult:
    usage = Usage(prompt_tokens=tokens - 4, completion_tokens=4, total_tokens=tokens)
    run = Run(
        id=run_id,
        created_at=1,
        assistant_id="asst_1",
        thread_id=thread_id,
        status="completed",
        model="gpt-test",
        tools=[],
        usage=usage,
    )
    return RunResult(run, [], [], [], text, usage, 0.01)


class Bench:
    """One input file and one output in a folder; each `go` is one invocation on it."""

    def __init__(self, folder: Path) -> None:
        self.input = folder / "in.jsonl"
        self.output = folder / "out.jsonl"
        self.batch: Batch | None = None

    def write(self, *rows: Any) -> None:
        self.input.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")

    async def go(
        self,
        runner: FakeRunner,
        *,
        workers: int | None = 4,
        plan: LimiterPlan | None = None,
        ordered: bool = True,
        fingerprint: str = "f1",
        budget: Budget = Budget(),
        prices: dict[str, dict[str, float]] | None = None,
        assertions: Assertions = NO_ASSERTIONS,
        question: Question = Question(prompt=""),
        shard: Shard = WHOLE,
        errors: Path | None = None,
        cache: Any = None,
        **policy: Any,
    ) -> int:
        store = ResultStore(self.output, codec_for(None, self.output.name), ordered=ordered, errors=errors)
        try:
            store.load()
            self.batch = Batch(
                Source(self.input, self.input.name, shape=RowShape(), shard=shard),
                store,
                question=question,
                fingerprint=lambda assistant: fingerprint,
                limiter=Limiter(plan or LimiterPlan(fixed=workers)),
                spending=Spending(budget, prices or {}),
                policy=Policy(**policy),
                assertions=assertions,
                cache=cache,
            )
            self.batch.prepare()
            await self.batch.run(runner)
            return self.batch.status()
        finally:
            store.close()

    def rows(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.output.read_text(encoding="utf-8").splitlines()]


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)
