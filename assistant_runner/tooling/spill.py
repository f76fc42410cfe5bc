"""Outputs that are too long to submit: the full text in a file, and a tool with which to page on."""

import hashlib
import os
import re
from dataclasses import replace
from pathlib import Path

from assistant_runner.tooling.contract import Tool, ToolFailure

PAGE_CHARACTERS = 20_000
READER_NAME = "read_output"
OUTPUT_ID = re.compile(r"[A-Za-z0-9_-]{1,80}")


class Spill:
    """A folder of full outputs, one file a call, readable by its owner alone."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def keep(self, tool_call_id: str, text: str) -> str:
        """The id under which the text can be read; the same call and text give the same id."""
        digest = hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:12]
        stem = re.sub(r"[^A-Za-z0-9_-]", "_", tool_call_id)[:60] or "output"
        output_id = f"{stem}-{digest}"
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        path = self.path(output_id)
        with os.fdopen(
            os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8"
        ) as file:
            file.write(text)
        return output_id

    def path(self, output_id: str) -> Path:
        """Where the text lies; ToolFailure for what is no id (ids never leave the folder)."""
        if not OUTPUT_ID.fullmatch(output_id):
            raise ToolFailure(f"{output_id!r} is no output id", hint="use the id that the cut output names")
        return self.folder / f"{output_id}.txt"

    def read(self, output_id: str, start: int) -> str:
        """A page of the text from a character on, and a mark that says where the next one starts."""
        try:
            text = self.path(output_id).read_text(encoding="utf-8")
        except FileNotFoundError:
            raise ToolFailure(f"there is no output {output_id!r}", hint="it may be of another run") from None
        if start < 0 or start >= max(len(text), 1):
            raise ToolFailure(f"start is {start}; the output has {len(text)} characters")
        page = text[start : start + PAGE_CHARACTERS]
        end = start + len(page)
        rest = f"next: start={end}" if end < len(text) else "this was the end"
        return f"{page}\n[characters {start:,} to {end:,} of {len(text):,}; {rest}]"

    def serve(self, tool: Tool) -> Tool:
        """The shipped tool `read_output`, reading from this folder."""

        def read(*, output_id: str, start: int) -> str:
            return self.read(output_id, start)

        return replace(tool, handler=read)
