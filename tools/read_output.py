"""Reading on in a tool output that was too long to be given whole.

Runs with tools that are not shipped offer it: a cut output says with which id to read on. The gate, which
keeps the whole texts, answers it.
"""

from typing import Annotated

from assistant_runner.tooling.contract import ToolFailure
from assistant_runner.tooling.schema import tool

PAGE_BYTES = 140_000


@tool(
    effects="read",
    fetches=True,
    output_cap=PAGE_BYTES,
    when_to_use="Use it when an output ends in a mark that says so.",
)
def read_output(
    output_id: Annotated[str, "The id that the cut output names"],
    start: Annotated[int, "The character to start from, counted from 0"],
) -> str:
    """Read on in a tool output that was cut because of its length"""
    raise ToolFailure(f"no outputs are kept here: {output_id} from {start} cannot be read")
