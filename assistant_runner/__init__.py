"""assistant-runner: Assistants v2 runs with local tools, and the service that speaks the protocol."""

__version__ = "0.1.0"
