import asyncio
from dataclasses import replace

import pytest

from assistant_runner.assembly import Question
from assistant_runner.batch.budget import Budget
from assistant_runner.batch.checks import Assertions
from assistant_runner.errors import (
    AuthenticationFailed,
    BackendUnreachable,
    ConfigurationError,
    HumanNeeded,
    OutcomeUnknown,
    RateLimited,
    RequestRejected,
    RunFailed,
)
from assistant_runner.run.dispatch import UNKNOWN_OUTCOME
from assistant_runner.run.request import Round
from tests.batch.conftest import FakeRunner, result


def fail_on(*prompts, error=lambda: RunFailed("the run failed", run_id="run_x")):
    def act(question, number):
        if question.prompt in prompts:
            raise error()

    return act


async def test_case_072_bad_rows_are_found_before_the_first_request(bench):
    bench.write({"prompt": 42}, {"prompt": ["a"]}, {"prompt": None}, {"text": 1}, {"prompt": "fine"})
    runner = FakeRunner()

    status = await bench.go(runner)

    assert status == 16
    assert runner.prompts == ["fine"]
    assert [row["status"] for row in bench.rows()] == ["invalid"] * 4 + ["ok"]
    assert bench.rows()[0]["error"]["message"].startswith("line 1: 'prompt' is a number")


@pytest.mark.parametrize("ordered", [True, False])
async def test_case_073_rows_keep_their_answers_in_any_order(bench, ordered):
    delays = {"a": 0.04, "b": 0.001, "c": 0.02, "d": 0.005}
    bench.write(*({"id": name, "prompt": name} for name in delays))
    runner = FakeRunner(
        lambda question, number: asyncio.sleep(delays[question.prompt], f"I am {question.prompt}")
    )

    await bench.go(runner, ordered=ordered)

    rows = bench.rows()
    assert [row["answer"] for row in rows] == [f"I am {row['id']}" for row in rows]
    assert [row["id"] for row in rows] == (list("abcd") if ordered else list("bdca"))
    assert {row["id"]: row["index"] for row in rows} == {"a": 0, "b": 1, "c": 2, "d": 3}


async def test_rows_have_the_same_names_however_they_ended(bench):
    bench.write({"id": "good", "prompt": "a"}, {"id": "fails", "prompt": "b"}, {"id": "invalid", "prompt": 7})

    await bench.go(FakeRunner(fail_on("b")))

    [good, *others] = bench.rows()
    assert [set(row) for row in others] == [set(good)] * 2


async def test_case_074_equal_prompts_all_end_with_a_result(bench):
    prompts = ["same", "x", "same", "y", "same", "z"]
    bench.write(*({"id": n, "prompt": prompt} for n, prompt in enumerate(prompts)))

    first = await bench.go(FakeRunner(), workers=1, budget=Budget(max_rows=1))
    second = await bench.go(runner := FakeRunner())

    assert (first, second) == (8, 0)
    assert len(runner.asked) == 5
    assert [row["id"] for row in bench.rows()] == list(range(6))
    assert bench.batch.tally.done == 6


async def test_case_075_resume_goes_by_what_a_row_is_not_where_it_stands(bench):
    rows = [{"prompt": f"p{n}"} for n in range(1, 11)]
    bench.write(*rows)
    done = {"p1", "p2", "p5", "p7"}
    hold = asyncio.Event()
    runner = FakeRunner(lambda question, n: None if question.prompt in done else hold.wait())
    task = asyncio.create_task(bench.go(runner, workers=10))
    while len(runner.asked) < 10 or runner.in_flight > 6:  # noqa: ASYNC110
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    bench.write({"prompt": "new"}, *rows)

    await bench.go(again := FakeRunner())

    assert sorted(again.prompts) == sorted(["new", "p3", "p4", "p6", "p8", "p9", "p10"])
    assert [row["answer"] for row in bench.rows()] == ["re: new"] + [f"re: p{n}" for n in range(1, 11)]


async def test_case_076_changed_settings_are_refused_unless_accepted(bench):
    bench.write({"prompt": "a"})
    await bench.go(FakeRunner(), fingerprint="v1")
    bench.write({"prompt": "a"}, {"prompt": "b"})

    with pytest.raises(ConfigurationError, match="1 finished rows were answered with other settings"):
        await bench.go(FakeRunner(), fingerprint="v2")
    await bench.go(runner := FakeRunner(), fingerprint="v2", accept_changes=True)

    assert runner.prompts == ["b"]
    assert [row["fingerprint"] for row in bench.rows()] == ["v1", "v2"]


@pytest.mark.parametrize(
    ("failing", "policy", "status"),
    [
        pytest.param([], {}, 0, id="all-ok"),
        pytest.param(["p3"], {}, 16, id="one-failed"),
        pytest.param([f"p{n}" for n in range(10)], {}, 11, id="all-failed"),
        pytest.param(["p3"], {"on_error": "stop"}, 16, id="stop"),
    ],
)
async def test_case_078_the_status_says_whether_rows_failed(bench, failing, policy, status):
    bench.write(*({"prompt": f"p{n}"} for n in range(10)))
    runner = FakeRunner(fail_on(*failing))

    assert await bench.go(runner, workers=1, **policy) == status
    assert len(runner.asked) == (4 if policy else 10)


async def test_case_079_rows_on_one_thread_run_one_after_the_other(bench):
    bench.write(*({"prompt": f"p{n}"} for n in range(6)))

    await bench.go(runner := FakeRunner(), workers=3, question=Question("", thread_id="thread_x"))

    assert runner.most_in_flight == 1
    assert runner.prompts == [f"p{n}" for n in range(6)]


async def test_case_079_rows_without_a_thread_run_side_by_side_on_their_own(bench):
    bench.write(*({"prompt": f"p{n}"} for n in range(6)))

    await bench.go(runner := FakeRunner(), workers=3)

    assert runner.most_in_flight == 3
    assert {question.thread_id for question in runner.asked} == {None}
    assert len({row["thread_id"] for row in bench.rows()}) == 6


async def test_running_again_asks_nothing_and_changes_nothing(bench):
    bench.write({"prompt": "a"}, {"prompt": 1}, {"prompt": "b"})
    await bench.go(FakeRunner(fail_on("b")))
    before = bench.output.read_bytes()

    assert await bench.go(runner := FakeRunner()) == 16
    assert runner.asked == []
    assert bench.output.read_bytes() == before


async def test_failed_rows_are_asked_again_when_wanted_and_keep_their_place(bench):
    bench.write(*({"prompt": name} for name in "abc"))
    await bench.go(FakeRunner(fail_on("b")))

    assert await bench.go(runner := FakeRunner(), retry_failed=True) == 0
    assert runner.prompts == ["b"]
    assert [row["answer"] for row in bench.rows()] == ["re: a", "re: b", "re: c"]


async def test_a_changed_row_is_noticed_and_asked_again(bench):
    bench.write({"id": "a", "prompt": "old"}, {"id": "b", "prompt": "b"})
    await bench.go(FakeRunner())
    bench.write({"id": "a", "prompt": "new"}, {"id": "b", "prompt": "b"})

    await bench.go(runner := FakeRunner())

    assert runner.prompts == ["new"]
    assert bench.batch.tally.changed == ["row 'a' (line 1)"]
    assert [row["answer"] for row in bench.rows()] == ["re: new", "re: b"]
    assert "re: old" in (bench.output.parent / "out.jsonl.batch" / "superseded.jsonl").read_text()


@pytest.mark.parametrize(
    ("budget", "asked"),
    [
        pytest.param(Budget(max_rows=3), 3, id="rows"),
        pytest.param(Budget(max_tokens=30), 3, id="tokens"),
        pytest.param(Budget(max_cost=0.0000301), 3, id="cost"),
        pytest.param(Budget(max_time_s=0), 0, id="time"),
    ],
)
async def test_a_budget_leaves_the_rest_resumable(bench, budget, asked):
    bench.write(*({"prompt": f"p{n}"} for n in range(6)))
    prices = {"gpt-test": {"input": 1.0, "output": 1.0}}

    status = await bench.go(runner := FakeRunner(), workers=1, budget=budget, prices=prices)
    finished = await bench.go(rest := FakeRunner())

    assert (status, finished) == (8, 0)
    assert (len(runner.asked), len(rest.asked)) == (asked, 6 - asked)
    assert [row["index"] for row in bench.rows()] == list(range(6))


@pytest.mark.parametrize("threads", [None, 8], ids=["own threads", "shared threads"])
async def test_a_budget_holds_although_the_dear_rows_end_last_and_many_run_at_once(bench, threads):
    rows = [{"prompt": "dear" if n % 3 == 0 else "cheap"} for n in range(60)]
    bench.write(
        *(row | ({"thread": f"thread_{n % threads}"} if threads else {}) for n, row in enumerate(rows))
    )
    runner = FakeRunner()
    plain = runner.ask

    async def ask(question, *, listener=None):
        answered = await plain(question, listener=listener)
        dear = question.prompt == "dear"
        for _ in range(20 if dear else 1):
            await asyncio.sleep(0)
        return result(answered.text, run_id=answered.run.id, tokens=40 if dear else 10)

    runner.ask = ask
    status = await bench.go(runner, workers=20, budget=Budget(max_tokens=600))

    spent = sum(row["usage"]["total_tokens"] for row in bench.rows())
    assert (status, 560 < spent <= 600) == (8, True)
    assert runner.most_in_flight > 5


async def test_a_refused_row_is_tried_again_and_a_wrong_request_is_not(bench):
    bench.write({"prompt": "busy"}, {"prompt": "wrong"})
    errors = {
        "busy": [
            RateLimited("429", retry_after_s=0.001),
            RunFailed("x", last_error={"code": "rate_limit_exceeded"}),
        ],
        "wrong": [RequestRejected("400", status_code=400)],
    }

    def act(question, number):
        if errors[question.prompt]:
            raise errors[question.prompt].pop(0)

    status = await bench.go(runner := FakeRunner(act))

    assert status == 16
    assert [row["attempts"] for row in bench.rows()] == [3, 1]
    assert runner.prompts.count("wrong") == 1


@pytest.mark.parametrize(
    ("error", "status"),
    [
        pytest.param(AuthenticationFailed("401", status_code=401), 4, id="key"),
        pytest.param(RateLimited("quota", code="insufficient_quota"), 9, id="quota"),
        pytest.param(ConfigurationError("no such tool"), 3, id="configuration"),
        pytest.param(BackendUnreachable("refused"), 15, id="unreachable"),
    ],
)
async def test_what_every_row_would_meet_stops_the_batch_and_leaves_the_rows(bench, error, status):
    bench.write(*({"prompt": f"p{n}"} for n in range(50)))

    def act(question, number):
        raise error

    assert await bench.go(runner := FakeRunner(act), workers=2, retries=0) == status
    assert len(runner.asked) <= 4
    assert bench.rows() == []


@pytest.mark.parametrize(
    "error",
    [
        OutcomeUnknown("500", status_code=500),
        BackendUnreachable("502", status_code=502),
        OutcomeUnknown("reset"),
        BackendUnreachable("cut", stream_broke=True),
    ],
    ids=["500", "502", "reset", "cut"],
)
async def test_a_row_that_breaks_the_backend_again_and_again_fails_alone(bench, error):
    bench.write({"prompt": "poison"}, {"prompt": "fine"})

    status = await bench.go(FakeRunner(fail_on("poison", error=lambda: error)), retries=1)

    assert status == 16
    assert [(row["status"], row["attempts"]) for row in bench.rows()] == [("failed", 2), ("ok", 1)]


async def test_a_row_that_waits_for_a_person_is_asked_again_next_time(bench):
    bench.write({"prompt": "a"}, {"prompt": "b"})

    paused = await bench.go(FakeRunner(fail_on("a", error=lambda: HumanNeeded("who?", run_id="run_9"))))
    rows = bench.rows()
    finished = await bench.go(again := FakeRunner())

    assert (paused, finished) == (6, 0)
    assert (rows[0]["status"], rows[0]["run_id"]) == ("paused", "run_9")
    assert again.prompts == ["a"]
    assert [row["status"] for row in bench.rows()] == ["ok", "ok"]


async def test_row_s0_30_route_writes_failures_to_a_second_file(bench, tmp_path):
    bench.write(*({"prompt": name} for name in "abc"))
    errors = tmp_path / "errors.jsonl"

    await bench.go(FakeRunner(fail_on("b")), errors=errors, on_error="route")
    await bench.go(again := FakeRunner(), errors=errors, on_error="route")

    assert [row["answer"] for row in bench.rows()] == ["re: a", "re: c"]
    assert '"b"' not in errors.read_text()
    assert errors.read_text().count('"status":"failed"') == 1
    assert again.asked == []


async def test_equal_rows_are_asked_once_when_wanted(bench):
    bench.write(*({"id": n, "prompt": "same"} for n in range(5)))

    await bench.go(runner := FakeRunner(), dedup=True)

    assert len(runner.asked) == 1
    assert [row["answer"] for row in bench.rows()] == ["re: same"] * 5
    assert [row.get("copied_from") for row in bench.rows()] == [None] + ["id:0"] * 4


async def test_expectations_fail_the_batch_without_failing_the_row(bench):
    bench.write({"id": "a", "prompt": "Oslo", "expect": "Oslo"}, {"id": "b", "prompt": "Rome"})

    status = await bench.go(FakeRunner(), assertions=Assertions({"contains": "re:"}, {"b": {"equals": "x"}}))

    rows = bench.rows()
    assert status == 16
    assert [row["passed"] for row in rows] == [True, False]
    assert rows[1]["checks"][1]["why"] == "the answer is not 'x'"


@pytest.mark.parametrize("ordered", [True, False], ids=["ordered", "unordered"])
async def test_finished_rows_are_checked_anew_when_what_is_expected_changes(bench, ordered):
    bench.write(*({"id": name, "prompt": name} for name in "abc"))
    strict = Assertions({"contains": "re:"}, {"b": {"equals": "x"}})
    await bench.go(FakeRunner(), assertions=strict, ordered=ordered)

    same = await bench.go(again := FakeRunner(), assertions=strict, ordered=ordered)
    unpassed = bench.batch.tally.unpassed
    mended = await bench.go(again, assertions=Assertions({"contains": "re:"}, {}), ordered=ordered)
    rows = bench.rows()
    unchecked = await bench.go(again, ordered=ordered)

    assert (same, unpassed, mended, unchecked, again.asked) == (16, 1, 0, 0, [])
    assert [(row["id"], row["passed"], len(row["checks"])) for row in rows] == [(n, True, 1) for n in "abc"]
    assert [row["passed"] for row in bench.rows()] == [None] * 3
    assert not (bench.output.parent / "out.jsonl.batch" / "superseded.jsonl").read_text()


async def test_a_bound_on_rows_is_kept_to_the_row(bench):
    bench.write(*({"prompt": f"p{n}", "thread": "t" if n % 2 else ""} for n in range(12)))

    status = await bench.go(runner := FakeRunner(), workers=8, budget=Budget(max_rows=3))

    assert (status, len(runner.asked), len(bench.rows())) == (8, 3, 3)


async def test_a_budget_stops_where_no_price_is_known(bench):
    bench.write(*({"prompt": f"p{n}"} for n in range(6)))
    other = {"gpt-other": {"input": 1.0, "output": 1.0}}

    status = await bench.go(runner := FakeRunner(), workers=1, budget=Budget(max_cost=1), prices=other)

    assert (status, len(runner.asked)) == (8, 1)
    assert "no price is known for gpt-test" in bench.batch.stop.why
    with pytest.raises(ConfigurationError, match="the config has no prices"):
        await bench.go(runner, budget=Budget(max_cost=1))


async def test_rows_that_left_the_input_are_counted_and_their_answers_kept(bench):
    bench.write(*({"prompt": f"p{n}"} for n in range(4)))
    await bench.go(FakeRunner())
    bench.write({"prompt": "p2"})

    await bench.go(FakeRunner())

    assert bench.batch.tally.gone == 3
    assert [row["answer"] for row in bench.rows()] == ["re: p2"]
    assert (bench.output.parent / "out.jsonl.batch" / "superseded.jsonl").read_text().count("\n") == 3


async def test_an_expectation_that_cannot_be_checked_is_a_problem_of_its_row(bench):
    bench.write({"prompt": "a", "expect": {"containz": "x"}}, {"prompt": "b", "expect": {"contains": None}})

    await bench.go(runner := FakeRunner())

    assert runner.asked == []
    assert "unknown expectation 'containz'" in bench.rows()[0]["error"]["message"]
    assert "contains says nothing" in bench.rows()[1]["error"]["message"]


async def test_rows_that_were_finished_before_count_from_the_first_question_on(bench):
    rows = [{"id": n, "prompt": str(n)} for n in range(30)]
    bench.write(*rows[1:])
    await bench.go(FakeRunner())
    bench.write(*rows)
    seen = []

    await bench.go(FakeRunner(lambda question, n: seen.append(bench.batch.tally.done)))

    assert seen == [29]
    assert bench.batch.tally.done == 30


@pytest.mark.parametrize("ordered", [True, False], ids=["ordered", "unordered"])
async def test_kept_rows_say_where_in_the_input_they_are_now(bench, ordered):
    bench.write(*({"prompt": text} for text in "abcd"))
    await bench.go(FakeRunner(), ordered=ordered)
    bench.write(*({"prompt": text} for text in "axcd"))
    await bench.go(FakeRunner(), ordered=ordered)
    bench.write(*({"prompt": text} for text in "zacd"))

    await bench.go(runner := FakeRunner(), ordered=ordered)

    assert runner.prompts == ["z"]
    found = {row["answer"]: (row["index"], row["line"]) for row in bench.rows()}
    assert found == {"re: z": (0, 1), "re: a": (1, 2), "re: c": (2, 3), "re: d": (3, 4)}
    assert len(bench.rows()) == 4


class JournalledRunner(FakeRunner):
    """Knows how to take up runs."""

    def __init__(self, act=None) -> None:
        super().__init__(act)
        self.taken_up: list[str] = []

    async def take_up(self, run_id, *, listener=None):
        self.taken_up.append(run_id)
        return result(f"taken up {run_id}", run_id=run_id)


async def test_a_run_that_a_killed_batch_left_open_is_taken_up_not_started_anew(bench):
    bench.write({"id": "a", "prompt": "a"}, {"id": "b", "prompt": "b"})
    hold = asyncio.Event()
    runner = JournalledRunner(lambda question, n: hold.wait() if question.prompt == "b" else None)
    task = asyncio.create_task(bench.go(runner))
    while runner.in_flight != 1 or len(runner.asked) < 2:  # noqa: ASYNC110
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])

    await bench.go(again := JournalledRunner())

    assert (again.asked, again.taken_up) == ([], ["run_1"])
    assert [row["answer"] for row in bench.rows()] == ["re: a", "taken up run_1"]


async def test_a_call_whose_outcome_nobody_knows_is_said_in_its_row(bench):
    bench.write({"prompt": "a"})
    call = {"id": "c1", "function": {"name": "book", "json_arguments": {}}}
    output = {"is_error": True, "content": {"error": UNKNOWN_OUTCOME}}
    runner = FakeRunner()
    ask = runner.ask

    async def ask_with_round(question, *, listener=None):
        return replace(await ask(question, listener=listener), rounds=[Round(1, {}, [call], [output])])

    runner.ask = ask_with_round
    await bench.go(runner)

    assert bench.rows()[0]["warnings"] == [
        "book: the outcome of this call is unknown, its process was killed"
    ]
    assert bench.batch.tally.unknown_calls == 1


async def test_a_paused_row_goes_on_with_its_run_and_a_failed_one_begins_anew(bench):
    bench.write({"prompt": "p"}, {"prompt": "f"})

    def act(question, number):
        if question.prompt == "p":
            raise HumanNeeded("who?", run_id="run_0")
        raise RunFailed("no", run_id="run_1")

    await bench.go(JournalledRunner(act), workers=1)

    await bench.go(again := JournalledRunner(), retry_failed=True)

    assert (again.taken_up, again.prompts) == (["run_0"], ["f"])


async def test_trouble_in_the_middle_of_a_run_goes_on_with_that_run(bench):
    bench.write({"prompt": "a"})
    broken = [BackendUnreachable("reset")]

    def act(question, number):
        if broken:
            raise broken.pop()

    status = await bench.go(runner := JournalledRunner(act))

    assert (status, len(runner.asked), runner.taken_up) == (0, 1, ["run_0"])
