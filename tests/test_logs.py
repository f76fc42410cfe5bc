import logging
import stat

import pytest

from assistant_runner.errors import ConfigurationError
from assistant_runner.logs import configure_logs
from tests.backends.faulty import Answer, FaultyServer
from tests.backends.test_faulty import app, backend_of

KEY = "sk-test-SECRET-0001"


@pytest.fixture(autouse=True)
def quiet_again():
    yield
    configure_logs(0, None, environ={})


async def ask_once(path, verbosity=0, plan=lambda seen: None):
    configure_logs(verbosity, str(path), environ={"OPENAI_API_KEY": KEY, "MY_TOKEN": "abcdef-0002"})
    headers = {"Authorization": f"Bearer {KEY}", "X-Other": "abcdef-0002", "X-Gate": "open-sesame"}
    async with FaultyServer(app, plan) as server, backend_of(server, headers=headers) as backend:
        await backend.retrieve_thread("thread_1")


async def test_case_116_requests_are_logged_without_secrets(tmp_path):
    await ask_once(tmp_path / "log")

    text = (tmp_path / "log").read_text()
    assert "> GET http://127.0.0.1" in text
    assert "< 200 /v1/threads/thread_1" in text
    assert "authorization=" in text
    assert "SECRET-0001" not in text
    assert "abcdef-0002" not in text
    assert "x-gate=***" in text
    assert "open-sesame" not in text
    assert stat.S_IMODE((tmp_path / "log").stat().st_mode) == 0o600


async def test_verbose_once_tells_of_retries_but_not_of_requests(tmp_path, capsys):
    faults = [Answer(503)]
    await ask_once(tmp_path / "log", 1, lambda seen: faults.pop() if faults else None)

    err = capsys.readouterr().err
    assert "trying again in" in err
    assert "> GET" not in err


def test_case_116_an_exception_in_the_log_is_masked_with_its_trace(tmp_path):
    configure_logs(0, str(tmp_path / "log"), environ={"OPENAI_API_KEY": KEY})
    try:
        raise RuntimeError(f"the header was Bearer {KEY}")
    except RuntimeError:
        logging.getLogger("assistant_runner.x").exception("broken")

    text = (tmp_path / "log").read_text()
    assert "RuntimeError" in text
    assert "SECRET-0001" not in text


def test_a_log_file_that_cannot_be_written_is_named(tmp_path):
    with pytest.raises(ConfigurationError, match="log file"):
        configure_logs(0, str(tmp_path / "no" / "log"), environ={})


def test_a_warning_is_said_without_its_traceback_and_without_secrets(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    configure_logs(0, str(tmp_path / "log"), environ={"OPENAI_API_KEY": KEY})

    try:
        raise RuntimeError("deep")
    except RuntimeError:
        logging.getLogger("assistant_runner.service").exception("it failed with %s", KEY)

    assert capsys.readouterr().err == "it failed with ***\n"
    assert "Traceback" in (tmp_path / "log").read_text()
