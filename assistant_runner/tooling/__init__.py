"""The tool contract: what a tool is, where it is found, and the one gate to it."""
