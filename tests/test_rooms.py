"""The order of rooms (docs/architecture.md): a room imports those above it, never below."""

import ast
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY

ORDER = [
    "errors",
    "aside",
    "masking",
    "schemas",
    "wire",
    "retries",
    "endpoints",
    "settings",
    "keys",
    "backends.base",  # the seam itself: what the run loop speaks to
    "tooling",
    "run",
    "telemetry",
    "service",
    "backends",
    "logs",
    "setup",
    "assembly",
    "doctor",
    "batch",
    "cli",
]
PACKAGE = REPOSITORY / "assistant_runner"


def room_of(module: str) -> str | None:
    """The room of a dotted module name without the package's own."""
    for room in sorted(ORDER, key=len, reverse=True):
        if module == room or module.startswith(f"{room}."):
            return room
    return None


def imports_of(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {
        node.module.removeprefix("assistant_runner.")
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("assistant_runner.")
    }


def modules() -> list[Path]:
    return [path for path in sorted(PACKAGE.rglob("*.py")) if path.name not in ("__init__.py", "__main__.py")]


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_no_module_imports_from_a_room_below_its_own(path):
    own = room_of(".".join(path.relative_to(PACKAGE).with_suffix("").parts))
    assert own is not None, f"{path} stands in no room"

    below = {
        name for name in imports_of(path) if (room := room_of(name)) and ORDER.index(room) > ORDER.index(own)
    }

    assert below == set()


def test_the_heart_and_the_service_do_not_know_each_other():
    heart = set().union(*(imports_of(path) for path in (PACKAGE / "run").rglob("*.py")))
    service = set().union(*(imports_of(path) for path in (PACKAGE / "service").rglob("*.py")))

    assert {name for name in heart if name.startswith("service")} == set()
    assert {name for name in service if name.startswith(("run", "tooling"))} == set()
