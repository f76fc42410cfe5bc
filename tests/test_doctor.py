from assistant_runner.backends.client import Client
from assistant_runner.doctor import diagnose
from assistant_runner.settings import load_settings
from tests.backends import bodies
from tests.backends.faulty import Answer, FaultyServer


async def findings(tmp_path, environ=None, *, offline=True, **flags):
    world = {"ASSISTANT_RUNNER_HOME": str(tmp_path / "home"), **(environ or {})}
    loaded = load_settings(flags, environ=world, cwd=tmp_path)
    diagnosis = await diagnose(loaded, cwd=tmp_path, offline=offline)
    return diagnosis, {finding.check: finding for finding in diagnosis.findings}


async def no_app(scope, receive, send):
    raise AssertionError("the plan answers everything")


async def test_a_fresh_machine_has_no_faults_and_opens_no_socket_offline(tmp_path, monkeypatch):
    monkeypatch.setattr(Client, "send", None)

    diagnosis, found = await findings(tmp_path)

    assert diagnosis.exit_status == 0
    assert {"version", "configuration", "state folder", "data folder", "proxy", "network"} <= set(found)
    assert found["OPENAI_API_KEY"].found == "not set"


async def test_keys_are_judged_by_their_shape_and_never_shown(tmp_path):
    diagnosis, found = await findings(
        tmp_path, {"OPENAI_API_KEY": "sk-SECRET\n", "WEATHERAPI_KEY": "wSECRET", "AZURE_OPENAI_API_KEY": ""}
    )

    assert [found[name].state for name in ("OPENAI_API_KEY", "WEATHERAPI_KEY", "AZURE_OPENAI_API_KEY")] == [
        "fault",
        "ok",
        "fault",
    ]
    assert "white space" in found["OPENAI_API_KEY"].found
    assert "SECRET" not in str(diagnosis.document())
    assert diagnosis.exit_status == 3


async def test_a_proxy_is_shown_without_its_password_and_refused_if_it_is_none(tmp_path):
    _, found = await findings(tmp_path, {"HTTPS_PROXY": "http://user:SECRET@proxy.example.com:3128"})
    assert found["proxy"].found == "HTTPS_PROXY: http://proxy.example.com:3128"

    diagnosis, found = await findings(tmp_path, {"HTTPS_PROXY": "u:SECRET@proxy:3128"})
    assert (found["proxy"].state, diagnosis.exit_status) == ("fault", 3)
    assert "SECRET" not in found["proxy"].found


async def test_a_backend_that_answers_is_ok_and_a_wrong_clock_is_seen(tmp_path):
    answer = Answer(200, bodies.page(), {"date": "Sun, 06 Nov 1994 08:49:37 GMT"})
    async with FaultyServer(no_app, lambda seen: answer) as server:
        _, found = await findings(tmp_path, offline=False, backend=server.url)

    assert found["backend"].state == "ok"
    assert found["clock"].state == "warning"
    assert "ahead" in found["clock"].found


async def test_a_backend_that_refuses_the_key_is_a_fault_with_status_4(tmp_path):
    answer = Answer(401, bodies.error("Incorrect API key provided: sk-SECRET-0001."))
    async with FaultyServer(no_app, lambda seen: answer) as server:
        diagnosis, found = await findings(tmp_path, offline=False, backend=server.url)

    assert (found["backend"].state, diagnosis.exit_status) == ("fault", 4)
    assert "SECRET" not in str(diagnosis.document())


async def test_the_providers_word_on_the_key_is_told(tmp_path):
    async with FaultyServer(no_app, lambda seen: Answer(401, bodies.error("no"))) as server:
        environ = {"OPENAI_API_KEY": "sk-0001", "OPENAI_BASE_URL": server.url}
        diagnosis, found = await findings(tmp_path, environ, offline=False)

    assert found["engine key"].state == "fault"
    assert diagnosis.exit_status == 4


async def test_a_state_folder_that_cannot_be_used_is_a_fault_with_its_remedy(tmp_path):
    (tmp_path / "blocked").write_text("a file stands here")

    diagnosis, found = await findings(tmp_path, state_folder=str(tmp_path / "blocked"))

    assert found["state folder"].state == "fault"
    assert "state_folder" in found["state folder"].remedy
    assert diagnosis.exit_status == 3


async def test_a_mistyped_variable_is_named_with_the_nearest_setting(tmp_path):
    _, found = await findings(tmp_path, {"ASSISTANT_RUNNER_RONDS": "3"})

    assert found["environment"].found == "ASSISTANT_RUNNER_RONDS is no setting and is ignored"
    assert found["environment"].remedy == "did you mean ASSISTANT_RUNNER_ROUNDS?"
