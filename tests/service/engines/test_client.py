"""Keys, retries and errors of the SDK's client, for both engines and every provider."""

import ssl
from datetime import UTC, date, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path

import httpx2
import pytest

from assistant_runner.endpoints import normalise_endpoint
from assistant_runner.errors import ConfigurationError
from assistant_runner.service.engines.base import EngineError, Notice
from assistant_runner.service.engines.chat import ChatEngine
from assistant_runner.service.engines.naming import ModelNames
from assistant_runner.service.engines.providers import Provider
from assistant_runner.service.engines.responses import ResponsesEngine
from tests.service.engines.fake_openai import (
    Reply,
    chat_text,
    chunk,
    error_reply,
    fake_openai,
    html_reply,
    message_item,
    response_stream,
    sse,
)
from tests.service.engines.helpers import STRING, play, request, tool

TLS = Path(__file__).parents[2] / "backends" / "tls"


class FakeSleep:
    """Waits for nothing and remembers how long it should have."""

    def __init__(self) -> None:
        self.waits: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.waits.append(seconds)


async def ask(*replies: Reply, azure: bool | None = None, key: str | None = None, deadline_s: float = 60.0):
    sleep = FakeSleep()
    async with fake_openai(*replies) as fake:
        provider = Provider(normalise_endpoint(fake.url, azure=azure), key)
        engine = ChatEngine(provider, sleep=sleep)
        try:
            return await play(engine, request("Hello", deadline_s=deadline_s)), sleep.waits, fake
        except EngineError as error:
            return error, sleep.waits, fake
        finally:
            await engine.aclose()


async def test_case_061_retry_after_is_obeyed_each_time_and_told():
    limited = error_reply(429, "Slow down.", "rate_limit_exceeded", retry_after="4")

    turn, waits, _ = await ask(limited, limited, chat_text("Ok"))

    assert turn.text == "Ok"
    assert len(waits) == 2
    assert all(4 <= wait <= 4.5 for wait in waits)
    notices = [event.text for event in turn.events if isinstance(event, Notice)]
    assert len(notices) == 2
    assert "waiting 4" in notices[0]
    assert "Slow down." in notices[0]


async def test_case_061_a_wait_longer_than_the_deadline_fails_at_once_and_says_the_wait():
    limited = error_reply(429, "Slow down.", "rate_limit_exceeded", retry_after="40")

    error, waits, fake = await ask(limited, deadline_s=5)

    assert waits == []
    assert len(fake.asked) == 1
    assert (error.code, error.kind, error.retry_after_s) == ("rate_limit_exceeded", "rate_limit", 40)
    assert "40" in error.message


def date_in(**delta: int) -> str:
    return format_datetime(datetime.now(UTC) + timedelta(**delta), usegmt=True)


@pytest.mark.parametrize(
    ("headers", "low", "high"),
    [
        pytest.param({"retry_after": {"seconds": 30}}, 25, 32, id="date"),
        pytest.param({"retry_after": {"days": -1}}, 0.1, 0.6, id="past"),
        pytest.param({"retry_after": "0.493"}, 0.49, 0.55, id="decimal"),
        pytest.param({"retry_after": "-5"}, 0.1, 0.6, id="negative"),
        pytest.param({"retry_after": "120junk"}, 0.1, 0.6, id="junk"),
        pytest.param({"retry_after": ""}, 0.1, 0.6, id="empty"),
        pytest.param({"retry_after_ms": "250"}, 0.25, 0.27, id="milliseconds"),
        pytest.param(
            {"x_ratelimit_remaining_tokens": "0", "x_ratelimit_reset_tokens": "7s"},
            7,
            7.5,
            id="ratelimit-header",
        ),
    ],
)
async def test_case_062_retry_after_in_every_form(headers, low, high):
    sent = {name: value if isinstance(value, str) else date_in(**value) for name, value in headers.items()}

    turn, waits, _ = await ask(error_reply(429, "No.", **sent), chat_text("Ok"))

    assert turn.text == "Ok"
    assert low <= waits[0] <= high


async def test_case_063_a_wait_in_the_words_is_obeyed():
    turn, waits, _ = await ask(
        error_reply(429, "Rate limit hit. Please retry after 6 seconds."), chat_text("Ok")
    )

    assert turn.text == "Ok"
    assert 6 <= waits[0] <= 6.5


@pytest.mark.parametrize("status", [408, 409, 500, 502, 503])
async def test_passing_troubles_are_tried_again(status):
    turn, waits, _ = await ask(error_reply(status, "Later."), chat_text("Ok"))

    assert (turn.text, len(waits)) == ("Ok", 1)


async def test_trouble_that_does_not_pass_ends_after_a_few_tries():
    error, waits, fake = await ask(error_reply(500, "Broken."))

    assert (error.code, error.kind) == ("server_error", "provider")
    assert len(fake.asked) == len(waits) + 1 == 5


@pytest.mark.parametrize(
    ("reply", "code", "kind"),
    [
        pytest.param(
            error_reply(401, "Bad key.", "invalid_api_key"), "server_error", "authentication", id="401"
        ),
        pytest.param(error_reply(403, "Not you."), "server_error", "authentication", id="403"),
        pytest.param(
            error_reply(
                429, "You exceeded your current quota.", "insufficient_quota", type="insufficient_quota"
            ),
            *("rate_limit_exceeded", "quota"),
            id="quota",
        ),
        pytest.param(
            error_reply(404, "The model `x` does not exist", "model_not_found"),
            *("invalid_prompt", "model_not_found"),
            id="model",
        ),
        pytest.param(
            error_reply(400, "Too long.", "context_length_exceeded"),
            *("invalid_prompt", "context_length"),
            id="too-long",
        ),
        pytest.param(
            error_reply(400, "registry/x does not support tools"),
            "invalid_prompt",
            "unsupported",
            id="no-tools",
        ),
        pytest.param(
            error_reply(429, "No.", x_should_retry="false"), "rate_limit_exceeded", "rate_limit", id="told"
        ),
        pytest.param(html_reply(403), "server_error", "authentication", id="a-page"),
        pytest.param(html_reply(400), "server_error", "bad_answer", id="another-page"),
    ],
)
async def test_what_waiting_cannot_mend_is_never_tried_again(reply, code, kind):
    error, waits, fake = await ask(reply)

    assert (error.code, error.kind, waits, len(fake.asked)) == (code, kind, [], 1)


async def test_nothing_is_repeated_once_a_piece_of_the_answer_went_out():
    error, waits, fake = await ask(sse(chunk({"content": "Hel"}), cut=True), chat_text("Hello"))

    assert (error.kind, waits, len(fake.asked)) == ("unreachable", [], 1)


def test_words_name_a_server_with_its_port():
    engine = ChatEngine(Provider(normalise_endpoint("http://127.0.0.1:8123/v1")))

    assert "127.0.0.1:8123" in engine.label


async def test_an_unreachable_server_is_named():
    sleep = FakeSleep()
    engine = ChatEngine(Provider(normalise_endpoint("http://127.0.0.1:9/v1")), sleep=sleep)

    with pytest.raises(EngineError, match=r"127\.0\.0\.1:9") as caught:
        await play(engine, request("Hello"))
    await engine.aclose()

    assert (caught.value.code, caught.value.kind) == ("server_error", "unreachable")
    assert sleep.waits


async def test_a_failing_certificate_is_named_and_not_tried_again():
    def refuse(asked: httpx2.Request) -> httpx2.Response:
        raise httpx2.ConnectError("[SSL: CERTIFICATE_VERIFY_FAILED] self-signed certificate", request=asked)

    sleep = FakeSleep()
    provider = Provider(normalise_endpoint("https://gw.example.com/v1"), "k")
    engine = ChatEngine(provider, transport=httpx2.MockTransport(refuse), sleep=sleep)

    with pytest.raises(EngineError, match="ca_file") as caught:
        await play(engine, request("Hello"))
    await engine.aclose()

    assert (caught.value.kind, sleep.waits) == ("tls", [])


@pytest.mark.parametrize("engine_type", [ChatEngine, ResponsesEngine])
async def test_case_064_no_key_no_header(engine_type):
    async with fake_openai(error_reply(401, "Who are you?")) as fake:
        engine = engine_type(Provider(normalise_endpoint(fake.url)))
        with pytest.raises(EngineError):
            await play(engine, request("Hello"))
        await engine.aclose()

    assert "authorization" not in fake.asked[0].headers
    assert "api-key" not in fake.asked[0].headers


async def test_a_key_goes_as_a_bearer_and_never_into_an_error():
    error, _, fake = await ask(error_reply(401, "Bad key."), key="sk-secret-123")

    assert fake.asked[0].headers["authorization"] == "Bearer sk-secret-123"
    assert "secret" not in str(error)


@pytest.mark.parametrize(
    ("engine_type", "reply", "path"),
    [
        (ChatEngine, chat_text("Ok"), "/openai/v1/chat/completions"),
        (ResponsesEngine, response_stream(message_item("Ok")), "/openai/v1/responses"),
    ],
)
async def test_azures_v1_form_takes_the_key_in_its_own_header(engine_type, reply, path):
    async with fake_openai(reply) as fake:
        endpoint = normalise_endpoint(f"http://127.0.0.1:{fake.port}/", azure=True)
        engine = engine_type(Provider(endpoint, "k-1"))
        await play(engine, request("Hello", model="dep-a"))
        await engine.aclose()

    [asked] = fake.asked
    assert (asked.path, asked.query, asked.body["model"]) == (path, {}, "dep-a")
    assert asked.headers["api-key"] == "k-1"
    assert "authorization" not in asked.headers


@pytest.mark.parametrize(
    ("engine_type", "reply", "path"),
    [
        (ChatEngine, chat_text("Ok"), "/team-x/openai/deployments/dep-a/chat/completions"),
        (ResponsesEngine, response_stream(message_item("Ok")), "/team-x/openai/responses"),
    ],
)
async def test_azures_dated_form_when_asked(engine_type, reply, path):
    async with fake_openai(reply) as fake:
        url = f"http://127.0.0.1:{fake.port}/team-x"
        endpoint = normalise_endpoint(url, azure=True, api_version="2025-03-01-preview")
        engine = engine_type(Provider(endpoint, "k-1"))
        await play(engine, request("Hello", model="dep-a"))
        await engine.aclose()

    [asked] = fake.asked
    assert (asked.path, asked.query) == (path, {"api-version": ["2025-03-01-preview"]})
    assert asked.headers["api-key"] == "k-1"


async def test_entra_tokens_are_asked_for_again_with_each_request():
    tokens = iter(["token-1", "token-2"])

    async def source() -> str:
        return next(tokens)

    async with fake_openai(chat_text("Ok")) as fake:
        endpoint = normalise_endpoint(f"http://127.0.0.1:{fake.port}/", azure=True)
        engine = ChatEngine(Provider(endpoint, entra_scope="scope"), token_source=source)
        await play(engine, request("Hello"))
        await play(engine, request("Hello"))
        await engine.aclose()

    assert [asked.headers["authorization"] for asked in fake.asked] == ["Bearer token-1", "Bearer token-2"]


async def test_case_060_a_missing_deployment_is_explained():
    reply = error_reply(404, "The API deployment for this resource does not exist.", "DeploymentNotFound")

    error, waits, _ = await ask(reply, azure=True, key="k")

    assert "name of your deployment" in error.message
    assert "'gpt-5-mini'" in error.message
    assert (error.kind, waits) == ("model_not_found", [])


async def test_case_059_a_bare_404_shows_the_final_url_without_the_key():
    error, _, fake = await ask(error_reply(404, "Resource not found"), azure=True, key="k-secret")

    assert f"http://127.0.0.1:{fake.port}/v1/openai/v1/chat/completions" in error.message
    assert error.kind == "no_route"
    assert "k-secret" not in error.message


async def test_azures_content_filter_keeps_category_and_severity():
    inner = {
        "innererror": {
            "code": "ResponsibleAIPolicyViolation",
            "content_filter_result": {
                "hate": {"filtered": True, "severity": "medium"},
                "self_harm": {"filtered": False, "severity": "safe"},
            },
        }
    }

    error, waits, _ = await ask(
        error_reply(400, "Filtered.", "content_filter", "prompt", extra=inner), azure=True
    )

    assert (error.code, error.kind, waits) == ("invalid_prompt", "content_filter", [])
    assert "hate (medium)" in error.message
    assert "self_harm" not in error.message


async def test_a_retired_model_of_openai_fails_before_any_request_and_a_leaving_one_is_told():
    asked: list[httpx2.Request] = []

    def answer(wanted: httpx2.Request) -> httpx2.Response:
        asked.append(wanted)
        reply = chat_text("Ok")
        return httpx2.Response(200, headers={"content-type": reply.kind}, content=reply.body)

    endpoint = normalise_endpoint("https://api.openai.com")
    engine = ChatEngine(
        Provider(endpoint, "k"),
        names=ModelNames(endpoint, today=date(2026, 11, 29)),
        transport=httpx2.MockTransport(answer),
    )
    with pytest.raises(EngineError, match=r"2026-10-23; use gpt-6\.1-sol") as caught:
        await play(engine, request("Hello", model="gpt-4-turbo"))
    turn = await play(engine, request("Hello", model="ft:gpt-4o-2024-08-06:me::1"))
    await engine.aclose()

    assert caught.value.kind == "model_retired"
    assert any(isinstance(event, Notice) and "2027-01-14" in event.text for event in turn.events)
    assert len(asked) == 1


@pytest.mark.parametrize("engine_type", [ChatEngine, ResponsesEngine])
async def test_s0_5_strict_is_left_out_for_a_server_that_lacks_it_and_told(engine_type):
    answer = chat_text("Ok") if engine_type is ChatEngine else response_stream(message_item("Ok"))
    refusal = error_reply(400, "Unknown name 'strict' at tools[0]: cannot find field.")
    strict = tool("get_weather", city=STRING)
    strict.function.strict = True
    async with fake_openai(refusal, answer) as fake:
        engine = engine_type(Provider(normalise_endpoint(fake.url)))
        turn = await play(engine, request("Hello", tools=[strict]))
        await engine.aclose()

    sent = ["strict" in str(body["tools"]) for body in fake.bodies]
    assert (turn.text, sent) == ("Ok", [True, False])
    assert any(isinstance(event, Notice) and "strict" in event.text for event in turn.events)


async def test_a_key_does_not_follow_a_redirect():
    elsewhere = Reply(b"", 307, "text/plain", {"location": "http://127.0.0.1:9/v1/chat/completions"})

    error, waits, fake = await ask(elsewhere, key="k-secret")

    assert "redirects to http://127.0.0.1:9" in error.message
    assert (error.kind, waits, len(fake.asked)) == ("bad_answer", [], 1)


@pytest.mark.parametrize(
    "key", ["sk-test-SECRET-0001", "0f1e2d3c4b5a69788796a5b4c3d2e1f0"], ids=["openai", "azure"]
)
async def test_case_116_a_key_that_a_gateway_repeats_is_cut_out_of_its_words(key):
    refusal = error_reply(401, f"Invalid token. Received API Key = {key}, unable to find it")

    error, _, _ = await ask(refusal, key=key)

    assert isinstance(error, EngineError)
    assert key not in error.message
    assert "unable to find it" in error.message


async def test_where_a_redirect_leads_is_told_without_its_query():
    error, _, _ = await ask(Reply(b"", 302, headers={"location": "https://login.example/in?token=abc"}))

    assert "redirects to https://login.example/in:" in error.message


async def test_a_proxy_that_wants_a_password_is_named():
    error, waits, _ = await ask(Reply(b"no!", 407, "text/html"))

    assert (error.kind, waits) == ("unreachable", [])
    assert "proxy" in error.message


def test_a_proxys_url_that_is_none_is_a_configuration_error_without_its_password():
    provider = Provider(normalise_endpoint("https://gw.example.com/v1"), "k", proxy="http://u:SECRET/x@h")

    with pytest.raises(ConfigurationError, match="proxy") as caught:
        ChatEngine(provider)

    assert "SECRET" not in str(caught.value.document())


@pytest.mark.parametrize("how", ["variable", "setting"])
async def test_an_own_authority_is_believed_near_by_too(monkeypatch, how):
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(TLS / "server.pem", TLS / "server.key")
    own = str(TLS / "ca.pem")
    if how == "variable":
        monkeypatch.setenv("SSL_CERT_FILE", own)
    async with fake_openai(chat_text("Ok"), tls=context) as fake:
        url = fake.url.replace("http:", "https:")
        engine = ChatEngine(
            Provider(normalise_endpoint(url), ca_file=own if how == "setting" else None), sleep=FakeSleep()
        )
        turn = await play(engine, request("Hello"))
        await engine.aclose()

    assert turn.text == "Ok"


@pytest.mark.parametrize(
    "reply",
    [
        pytest.param(error_reply(400, "too long", "context_length_exceeded"), id="openai"),
        pytest.param(error_reply(400, "request exceeds", type="exceed_context_size_error"), id="llama.cpp"),
        pytest.param(error_reply(400, "This model's maximum context length is 4096 tokens."), id="vllm"),
        pytest.param(sse({"error": {"code": "context_length_exceeded", "message": "no"}}), id="in-a-stream"),
    ],
)
async def test_a_prompt_that_is_too_long_is_known_in_every_servers_words(reply):
    error, waits, _ = await ask(reply)

    assert (error.code, error.kind, waits) == ("invalid_prompt", "context_length", [])
