"""Endpoints in every form that a portal, a manual or a colleague hands out."""

import pytest

from assistant_runner.endpoints import is_local_host, normalise_endpoint, refuse_dead_endpoint
from assistant_runner.errors import ApiGone, ConfigurationError

V1 = "https://unit.openai.azure.com/openai/v1"


@pytest.mark.parametrize(
    ("url", "base"),
    [
        pytest.param("https://unit.openai.azure.com", V1, id="resource"),
        pytest.param("https://unit.openai.azure.com/", V1, id="case-057-trailing-slash"),
        pytest.param("unit.openai.azure.com", V1, id="no-scheme"),
        pytest.param("https://unit.openai.azure.com//openai//", V1, id="double-slashes"),
        pytest.param("https://unit.openai.azure.com/openai", V1, id="with-openai"),
        pytest.param("https://unit.openai.azure.com/openai/v1/", V1, id="with-v1"),
        pytest.param("https://unit.openai.azure.com/openai/v1/responses", V1, id="with-v1-and-path"),
        pytest.param("https://unit.openai.azure.com/openai/v1?api-version=preview", V1, id="preview-is-v1"),
        pytest.param("https://unit.openai.azure.com/chat/completions", V1, id="operation-only"),
        pytest.param(
            "https://unit.services.ai.azure.com/models",
            "https://unit.services.ai.azure.com/openai/v1",
            id="foundry-models",
        ),
        pytest.param(
            "https://unit.services.ai.azure.com/api/projects/proj-a",
            "https://unit.services.ai.azure.com/openai/v1",
            id="foundry-project",
        ),
        pytest.param(
            "https://unit.cognitiveservices.azure.com/",
            "https://unit.cognitiveservices.azure.com/openai/v1",
            id="cognitive-services",
        ),
        pytest.param(
            "https://unit.openai.azure.com/openai/deployments/dep-a/chat/completions", V1, id="deployment-url"
        ),
    ],
)
def test_azure_forms_end_at_the_v1_path(url, base):
    endpoint = normalise_endpoint(url)

    assert (endpoint.base_url, endpoint.kind, endpoint.api_version) == (base, "azure", None)


def test_case_058_a_full_request_url_is_reduced_and_its_version_and_deployment_kept():
    url = "https://unit.example.com/openai/deployments/dep-a/chat/completions?api-version=2099-01-01"

    endpoint = normalise_endpoint(url)

    assert endpoint.base_url == "https://unit.example.com/openai"
    assert (endpoint.kind, endpoint.api_version, endpoint.deployment) == ("azure", "2099-01-01", "dep-a")
    assert any("2099-01-01" in note for note in endpoint.notes)


@pytest.mark.parametrize(
    ("url", "base"),
    [
        ("https://gw.example.com/team-x", "https://gw.example.com/team-x/openai/v1"),
        ("https://gw.example.com/team-x/openai", "https://gw.example.com/team-x/openai/v1"),
        ("https://gw.example.com/team-x/openai/v1", "https://gw.example.com/team-x/openai/v1"),
        ("https://gw.example.com", "https://gw.example.com/openai/v1"),
    ],
)
def test_case_059_the_segment_is_added_once_and_a_gateways_prefix_kept(url, base):
    assert normalise_endpoint(url, azure=True).base_url == base


def test_case_059_a_switch_turns_the_adding_off():
    endpoint = normalise_endpoint("https://gw.example.com/team-x/", azure=True, add_path=False)

    assert endpoint.base_url == "https://gw.example.com/team-x"


def test_a_dated_api_version_is_used_when_asked():
    endpoint = normalise_endpoint("https://unit.openai.azure.com", api_version="2025-03-01-preview")

    assert (endpoint.base_url, endpoint.api_version) == (
        "https://unit.openai.azure.com/openai",
        "2025-03-01-preview",
    )


@pytest.mark.parametrize(
    ("url", "base", "kind"),
    [
        ("https://api.openai.com", "https://api.openai.com/v1", "openai"),
        ("https://api.openai.com/v1/chat/completions", "https://api.openai.com/v1", "openai"),
        ("http://localhost:11434", "http://localhost:11434/v1", "compatible"),
        ("http://localhost:11434/api", "http://localhost:11434/v1", "compatible"),
        ("localhost:11434/api/chat", "http://localhost:11434/v1", "compatible"),
        ("http://localhost:3000/api/chat/completions", "http://localhost:3000/api", "compatible"),
        ("localhost:8080", "http://localhost:8080/v1", "compatible"),
        ("http://[::1]:8000/v1/", "http://[::1]:8000/v1", "compatible"),
        ("https://gw.example.com/llm/v1", "https://gw.example.com/llm/v1", "compatible"),
    ],
)
def test_other_servers_begin_at_v1_unless_they_say_otherwise(url, base, kind):
    endpoint = normalise_endpoint(url)

    assert (endpoint.base_url, endpoint.kind) == (base, kind)


@pytest.mark.parametrize(
    "url", ["", "   ", "ftp://x.example.com", "https://", "https://<name>.openai.azure.com"]
)
def test_what_is_no_url_is_a_configuration_error(url):
    with pytest.raises(ConfigurationError, match="not a URL"):
        normalise_endpoint(url)


@pytest.mark.parametrize(
    "url", ["https://api.openai.com", "https://api.openai.com/v1", "https://API.openai.com/v1"]
)
def test_openais_own_assistants_api_is_refused_with_the_date(url):
    with pytest.raises(ApiGone, match="2026-08-26") as caught:
        refuse_dead_endpoint(url)

    assert "embedded" in (caught.value.remedy or "")


def test_other_hosts_are_not_refused():
    refuse_dead_endpoint("https://unit.openai.azure.com/openai")
    refuse_dead_endpoint("http://127.0.0.1:8080/v1")


@pytest.mark.parametrize(
    ("host", "local"),
    [("127.0.0.1", True), ("10.0.0.7", True), ("localhost", True), ("gpu-box", True), ("example.com", False)],
)
def test_knows_machines_near_by(host, local):
    assert is_local_host(host) is local
