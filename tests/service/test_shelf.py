"""Where the bytes of files lie: nothing is left behind, and nothing made before it is needed."""

import tempfile
from pathlib import Path

import pytest

from tests.service.conftest import running

UPLOAD = {"file": ("a.txt", b"words")}
PURPOSE = {"purpose": "assistants"}


def below(folder: Path) -> list[Path]:
    """Every folder and file below this one."""
    return list(folder.rglob("*"))


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The temporary folder of this test, empty."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


async def test_a_service_without_a_data_folder_makes_one_with_its_first_file_and_takes_it_away(
    temporary: Path,
):
    async with running() as server:
        await server.settled(await server.ask("plain"))
        before = below(temporary)
        await server.http.post("/files", files=UPLOAD, data=PURPOSE)
        [_, file] = below(temporary)
        assert file.read_bytes() == b"words"

    assert before == []
    assert below(temporary) == []


async def test_a_data_folder_keeps_the_bytes(temporary: Path, data_folder: Path):
    async with running(data_folder=data_folder) as server:
        answer = await server.http.post("/files", files=UPLOAD, data=PURPOSE)

    assert (data_folder / "files" / answer.json()["id"]).read_bytes() == b"words"
    assert below(temporary) == []
