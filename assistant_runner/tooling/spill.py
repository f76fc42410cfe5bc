"""Outputs that are too long to submit: the full text in a file, and a tool with which to page on."""

import contextlib
import hashlib
import os
import re
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

from assistant_runner.tooling.contract import Tool, ToolFailure

PAGE_CHARACTERS = 20_000
READER_NAME = "read_output"
KEPT_S = 30 * 86_400
KEPT_BYTES = 1_000_000_000
YOUNG_S = 86_400
TIDY_EVERY_S = 3600
STAMP = ".tidied"
FULL_OUTPUT = "full output: "
"""Begins the note that a cut output's result carries, before the path of the whole text."""

NOTED = re.compile(rf"{FULL_OUTPUT}[^\"]*?([A-Za-z0-9_-]+)\.txt")
OUTPUT_ID = re.compile(r"[A-Za-z0-9_-]{1,80}")


class Spill:
    """A folder of full outputs, one file a call, readable by its owner alone.

    A text is kept for 30 days after it was last written or read; beyond 1 GB the oldest go first.
    """

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
        path = self.path(output_id)
        try:
            text = path.read_text(encoding="utf-8")
        except FileNotFoundError:
            raise ToolFailure(f"there is no output {output_id!r}", hint="it may be of another run") from None
        with contextlib.suppress(OSError):
            os.utime(path)  # it is in use
        if start < 0 or start >= max(len(text), 1):
            raise ToolFailure(f"start is {start}; the output has {len(text)} characters")
        page = text[start : start + PAGE_CHARACTERS]
        end = start + len(page)
        rest = f"next: start={end}" if end < len(text) else "this was the end"
        return f"{page}\n[characters {start:,} to {end:,} of {len(text):,}; {rest}]"

    def tidy(self, in_use: Callable[[], Iterable[str]], *, now: float | None = None) -> None:
        """Drops what is too old or too much, now and then.

        `in_use`: texts with the notes of runs that can be resumed, whose outputs stay; asked for only if
        there is something to drop. What is younger than a day stays too: its run may be under way.
        """
        now = time.time() if now is None else now
        stamp = self.folder / STAMP
        with contextlib.suppress(OSError):
            if not self.folder.is_dir() or (stamp.exists() and now - stamp.stat().st_mtime < TIDY_EVERY_S):
                return
            stamp.touch()
            if too_much := self._too_much(now):
                kept = {found for text in in_use() for found in NOTED.findall(text)}
                for path in too_much:
                    if path.stem not in kept:
                        path.unlink(missing_ok=True)

    def _too_much(self, now: float) -> list[Path]:
        with os.scandir(self.folder) as entries:
            facts = [(entry.stat(), entry.path) for entry in entries if entry.name.endswith(".txt")]
        found, size = [], 0
        for stat, path in sorted(facts, key=lambda fact: fact[0].st_mtime, reverse=True):
            size += stat.st_size
            age_s = now - stat.st_mtime
            if age_s > KEPT_S or (size > KEPT_BYTES and age_s > YOUNG_S):
                found.append(Path(path))
        return found

    def serve(self, tool: Tool) -> Tool:
        """The shipped tool `read_output`, reading from this folder."""

        def read(*, output_id: str, start: int) -> str:
            return self.read(output_id, start)

        return replace(tool, handler=read)
