"""A toy that shows that several tools can be called in one run (row S0.21)."""

from assistant_runner.tooling.schema import tool


@tool(effects="read")
def foo_tool() -> str:
    """Return the word foo"""
    return "foo"
