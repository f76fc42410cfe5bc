"""Where the bytes of files lie: a file each, named by its id; the objects are in the store."""

import tempfile
from functools import cached_property
from pathlib import Path


class Shelf:
    """A folder below the data folder, or one for the life of the service when there is none.

    Either is made when the first place in it is asked for: most services in a process never keep a file.
    """

    def __init__(self, data_folder: Path | None) -> None:
        self._data_folder = data_folder
        self._own: tempfile.TemporaryDirectory[str] | None = None

    def place(self, identifier: str) -> Path:
        """Where the bytes of this file lie, or are to lie."""
        return self._folder / identifier

    @cached_property
    def _folder(self) -> Path:
        if self._data_folder is None:
            self._own = tempfile.TemporaryDirectory(
                prefix="assistant-runner-files-", ignore_cleanup_errors=True
            )
            return Path(self._own.name)
        folder = self._data_folder / "files"
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        return folder

    def close(self) -> None:
        """Removes the folder that was made for this service alone."""
        if self._own is not None:
            self._own.cleanup()
