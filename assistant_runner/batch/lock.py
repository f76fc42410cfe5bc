"""One process on one output: a lock that dies with its holder, also when that is killed."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from assistant_runner.errors import ConfigurationError


@contextmanager
def output_lock(path: Path, *, output: str) -> Iterator[None]:
    """Held while the block runs; ConfigurationError names the process that already works on `output`."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        if not _try_lock(handle):
            holder = os.read(handle, 32).decode("ascii", "replace").strip() or "unknown"
            raise ConfigurationError(
                f"another process (pid {holder}) is writing {output}",
                remedy="wait for it (batch watch), stop it, or name another output",
                pid=holder,
            )
        os.ftruncate(handle, 0)
        os.lseek(handle, 0, os.SEEK_SET)
        os.write(handle, f"{os.getpid()}\n".encode())
        yield
    finally:
        os.close(handle)


def is_locked(path: Path) -> bool:
    """Whether a process holds the lock right now."""
    try:
        handle = os.open(path, os.O_RDWR)
    except OSError:
        return False
    try:
        return not _try_lock(handle)
    finally:
        os.close(handle)


def _try_lock(handle: int) -> bool:
    try:
        import fcntl
    except ImportError:  # Windows
        return _try_lock_windows(handle)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _try_lock_windows(handle: int) -> bool:
    import importlib

    msvcrt = importlib.import_module("msvcrt")
    os.lseek(handle, 1 << 20, os.SEEK_SET)
    try:
        msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
    except OSError:
        return False
    return True
