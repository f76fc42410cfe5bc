"""A toy that shows that several tools can be called in one run (row S0.21)."""


def foo_tool() -> str:
    """Return the word foo"""
    return "foo"
