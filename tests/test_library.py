"""What docs/library.md shows is what works; what the package offers by name is there."""

import re
import subprocess
import sys

import pytest

import assistant_runner
from tests.conftest import REPOSITORY

PAGE = (REPOSITORY / "docs" / "library.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize(("code", "shown"), EXAMPLES, ids=["ask", "watch", "change", "service"])
def test_an_example_prints_what_the_page_shows(tmp_path, code, shown):
    (tmp_path / "example.py").write_text(code, encoding="utf-8")

    done = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "example.py"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(REPOSITORY), "ASSISTANT_RUNNER_HOME": str(tmp_path / "home")},
        capture_output=True,
        encoding="utf-8",
        timeout=60,
    )

    assert (done.stdout, done.stderr) == (shown, "")


@pytest.mark.parametrize("name", assistant_runner.__all__)
def test_the_package_offers_the_name(name):
    assert getattr(assistant_runner, name) is not None


def test_an_unknown_name_is_no_attribute():
    with pytest.raises(AttributeError, match="no attribute 'Agent'"):
        assistant_runner.Agent  # noqa: B018


def test_importing_the_package_imports_nothing_heavy():
    code = "import sys, assistant_runner; print({'pydantic', 'asyncio', 'click'} & {*sys.modules})"

    shown = subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, capture_output=True, text=True)

    assert shown.stdout == "set()\n"
