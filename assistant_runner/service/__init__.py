"""The embedded Assistants service: the v2 protocol on SQLite, driven by an engine."""
