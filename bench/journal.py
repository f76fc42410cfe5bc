"""What the journal costs on a run of twenty rounds whose backend and tools take no time.

Prints ratios of processor time, the best of many turns, because other programs disturb that least.
Run it from the repository's root: `python bench/journal.py`. Two backends: one that answers from a list
(nothing but the driver is measured, the worst case), and the embedded service with a script.
"""

import asyncio
import sys
import tempfile
import time
from contextlib import AsyncExitStack
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from assistant_runner.assembly import recorded
from assistant_runner.run.journal import Journal
from assistant_runner.run.request import Limits, RunRequest
from tests.fakes import ScriptedBackend, answers, asks, call, driver
from tests.run.world import open_world

ROUNDS, TIMES = 20, 40
LIMITS = Limits(rounds=ROUNDS + 1, repeats=ROUNDS + 1)


def touch(n: int) -> str:
    """Do nothing."""
    return "done"


async def scripted(journal: Journal | None) -> float:
    streams = [asks(call("touch", f'{{"n": {n}}}')) for n in range(ROUNDS)]
    backend = ScriptedBackend(*streams, answers("done"))
    return await one(driver(backend, touch, rounds=ROUNDS + 1), RunRequest("asst_1", prompt="go"), journal)


async def one(runner, request: RunRequest, journal: Journal | None) -> float:
    recording = None
    started = time.process_time()
    if journal is not None:
        recording = journal.begin(backend="bench", prompt="go", thread_id=None, about={})
    with recorded(recording, None) as listen:
        await runner.run(request, listener=listen)
    return time.process_time() - started


async def main() -> None:
    turns = [{"tool_calls": [{"name": "touch", "arguments": {"n": n}}]} for n in range(ROUNDS)]
    async with AsyncExitStack() as stack:
        journal = stack.enter_context(Journal(Path(stack.enter_context(tempfile.TemporaryDirectory()))))
        world = await stack.enter_async_context(open_world([*turns, {"text": "done"}], touch))

        async def embedded(kept: Journal | None) -> float:
            return await one(world.driver(LIMITS), RunRequest(world.assistant_id, prompt="go"), kept)

        for name, run in (("answers from a list", scripted), ("embedded service", embedded)):
            times: dict[bool, list[float]] = {False: [], True: []}
            for _ in range(TIMES):
                for kept in (False, True):
                    times[kept].append(await run(journal if kept else None))
            without, with_ = (min(times[kept]) for kept in (False, True))
            print(
                f"{name}: {ROUNDS} rounds {without * 1000:.1f} ms, journalled {with_ * 1000:.1f} ms: "
                f"+{(with_ / without - 1) * 100:.0f} % ({(with_ - without) / ROUNDS * 1e6:.0f} µs a round)"
            )


asyncio.run(main())
