"""Blocking work beside the event loop, in a thread that holds nobody up.

The interpreter waits at its end for the threads of a pool, and dies if one of them reads standard input then:
these are daemons. What nobody waits for any more ends unseen.
"""

import asyncio
import contextlib
import contextvars
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


async def aside(work: Callable[[], T], *, name: str) -> T:
    """What `work` returns or raises, in a thread of this name with the caller's context variables."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Callable[[], T]] = loop.create_future()
    variables = contextvars.copy_context()

    def settle(outcome: Callable[[], T]) -> None:
        if not future.done():
            future.set_result(outcome)

    def run() -> None:
        outcome = _outcome_of(lambda: variables.run(work))
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(settle, outcome)

    threading.Thread(target=run, name=name, daemon=True).start()
    return (await future)()


def _outcome_of(work: Callable[[], T]) -> Callable[[], T]:
    """A function that returns what the work returned, or raises what it raised, whatever that is."""
    try:
        result = work()
    except BaseException as error:
        failure = error  # the name of an except clause ends with it

        def fail() -> T:
            raise failure

        return fail
    return lambda: result
