"""The wiki tool: cases 102 to 106, row S1.21."""

from typing import Any
from urllib.parse import unquote, urlsplit

import httpx
import pytest

from assistant_runner.tooling.registry import load_module, shipped_folder
from tests.tools.support import Stub, use

WIKI = "https://en.wikipedia.org/wiki/"
url_of = load_module(shipped_folder() / "get_wiki_url.py").url_of


def wiki(
    hits: dict[str, list[str]],
    *,
    pages: dict[str, dict[str, Any]] | None = None,
    found: list[str] | None = None,
    suggestion: str | None = None,
) -> Stub:
    """opensearch hits by search text; pages by title; full-text results."""

    def answer(request: httpx.Request) -> httpx.Response:
        params = request.url.params
        if params["action"] == "opensearch":
            titles = hits.get(params["search"], [])
            urls = [WIKI + title.replace(" ", "_") for title in titles]
            return httpx.Response(200, json=[params["search"], titles, [""] * len(titles), urls])
        if params.get("list") == "search":
            info = {"suggestion": suggestion} if suggestion else {}
            return httpx.Response(
                200,
                json={"query": {"searchinfo": info, "search": [{"title": title} for title in found or []]}},
            )
        page = (pages or {}).get(params["titles"], {"title": params["titles"]})
        return httpx.Response(200, json={"query": {"pages": [page]}})

    return Stub(answer)


async def test_row_s1_21_the_answer_is_opensearchs_array_of_the_one_article():
    stub = wiki({"San Francisco, CA": ["San Francisco, CA"]})

    outcome = await use("get_wiki_url", stub, city="San Francisco, CA")

    assert outcome.content == ["San Francisco, CA", ["San Francisco, CA"], [""], [WIKI + "San_Francisco,_CA"]]
    assert "assistant-runner/" in stub.requests[0].headers["user-agent"]


class TestErrorBodies:
    async def test_case_102_a_refusal_is_named_by_its_status(self):
        def refuse(request: httpx.Request) -> httpx.Response:
            return httpx.Response(403, html="<p>Please set a user agent</p>")

        outcome = await use("get_wiki_url", refuse, city="Norwell")

        assert outcome.is_error
        assert "403 Forbidden" in outcome.content
        assert "Please set a user agent" in outcome.content

    async def test_case_102_too_many_requests_are_waited_for(self):
        replies = iter([httpx.Response(429, headers={"retry-after": "0.01"}, text="slow down")])
        good = wiki({"Norwell": ["Norwell"]})

        outcome = await use(
            "get_wiki_url", lambda request: next(replies, None) or good(request), city="Norwell"
        )

        assert outcome.content[1] == ["Norwell"]

    async def test_case_102_html_at_200_is_an_error_that_names_the_type(self):
        def maintenance(request: httpx.Request) -> httpx.Response:
            return httpx.Response(200, html="<p>Back soon</p>")

        outcome = await use("get_wiki_url", maintenance, city="Norwell")

        assert outcome.is_error
        assert "200 with text/html instead of JSON" in outcome.content

    async def test_json_of_another_shape_is_an_error(self):
        outcome = await use(
            "get_wiki_url", lambda request: httpx.Response(200, json={"batch": 1}), city="Norwell"
        )

        assert outcome.is_error
        assert '{"batch": 1}' in outcome.content


class TestDisambiguation:
    links = [{"title": title} for title in ("Marlow (Oreland)", "Marlow (Vessia)", "Marlow (film)", "Other")]
    page = {"title": "Marlow", "pageprops": {"disambiguation": ""}, "links": links}

    async def test_case_103_a_list_of_namesakes_is_never_the_town(self):
        stub = wiki({"Marlow": ["Marlow"]}, pages={"Marlow": self.page})

        outcome = await use("get_wiki_url", stub, city="Marlow")

        assert outcome.is_error
        assert (
            "'Marlow' is ambiguous: Marlow (Oreland): https://en.wikipedia.org/wiki/Marlow_(Oreland);"
            in outcome.content
        )
        assert "Marlow (film)" in outcome.content

    @pytest.mark.parametrize("city", ["Marlow, Oreland", "Marlow, OL", "Marlow OL"])
    async def test_case_103_the_state_picks_the_match(self, city: str):
        stub = wiki({"Marlow": ["Marlow", "Marlow (Oreland)", "Marlow (film)"]}, pages={"Marlow": self.page})

        outcome = await use("get_wiki_url", stub, city=city)

        assert outcome.content[1] == ["Marlow (Oreland)"]


async def test_case_104_the_exact_title_beats_longer_ones_and_suggestions():
    outcome = await use(
        "get_wiki_url", wiki({"dorn": ["Dorn Abbey", "Dorn"]}, suggestion="do n"), city="dorn"
    )

    assert outcome.content[1] == ["Dorn"]


async def test_case_104_without_a_hit_the_suggestion_is_named():
    outcome = await use("get_wiki_url", wiki({}, found=["Dorn Abbey"], suggestion="dorn abbey"), city="Dorrn")

    assert outcome.is_error
    assert "no article called 'Dorrn'" in outcome.content
    assert "Dorn Abbey: https://en.wikipedia.org/wiki/Dorn_Abbey" in outcome.content
    assert "dorn abbey" in outcome.content


class TestStates:
    hits = {"Norwell": ["Norwell, Vessia", "Norwell, Oreland"]}

    @pytest.mark.parametrize("city", ["Norwell, OL", "Norwell, Oreland", "Norwell OL"])
    async def test_case_105_short_and_long_state_give_the_same_town(self, city: str):
        outcome = await use("get_wiki_url", wiki(self.hits), city=city)

        assert outcome.content[1] == ["Norwell, Oreland"]

    async def test_case_105_a_town_with_state_and_country_is_searched_under_its_title(self):
        hits = {"Norwell": ["Norwell"], "Norwell, Oreland": ["Norwell, Oreland"]}

        outcome = await use("get_wiki_url", wiki(hits), city="Norwell, Oreland, USA")

        assert outcome.content[1] == ["Norwell, Oreland"]

    async def test_case_105_a_state_that_fits_none_gives_none(self):
        outcome = await use("get_wiki_url", wiki(self.hits, found=["Norwell, Vessia"]), city="Norwell, QX")

        assert outcome.is_error
        assert "no article called 'Norwell, QX'" in outcome.content

    async def test_a_bare_title_that_is_described_as_elsewhere_is_not_taken(self):
        pages = {"Norwell": {"title": "Norwell", "description": "City in Vessia"}}

        outcome = await use(
            "get_wiki_url", wiki({"Norwell": ["Norwell"]}, pages=pages), city="Norwell, Oreland"
        )

        assert outcome.is_error
        assert "Norwell is: City in Vessia" in outcome.content


@pytest.mark.parametrize(
    "title", ["Who Goes?", "St. Ann's Bay", "Fish & Co", "100% Town", "Łódź", "Foo (bar)", "A/B", "C#"]
)
def test_case_106_the_link_decodes_to_the_title(title: str):
    url = url_of("https://en.wikipedia.org", title)

    parts = urlsplit(url)
    assert unquote(parts.path.removeprefix("/wiki/")).replace("_", " ") == title
    assert (parts.query, parts.fragment) == ("", "")


async def test_case_106_a_link_that_the_service_gives_is_used_unchanged():
    given = "https://en.wikipedia.org/wiki/%C5%81%C3%B3d%C5%BA?x=1"

    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.params["action"] == "opensearch":
            return httpx.Response(200, json=["Łódź", ["Łódź"], [""], [given]])
        return httpx.Response(200, json={"query": {"pages": [{}]}})

    outcome = await use("get_wiki_url", answer, city="Łódź")

    assert outcome.content[3] == [given]


@pytest.mark.parametrize(("city", "environ"), [("de:München", {}), ("München", {"WIKI_LANG": "de"})])
async def test_another_languages_wiki_can_be_asked(city: str, environ: dict[str, str]):
    stub = wiki({"München": ["München"]})

    await use("get_wiki_url", stub, environ=environ, city=city)

    assert {request.url.host for request in stub.requests} == {"de.wikipedia.org"}
