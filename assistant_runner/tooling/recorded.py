"""Recorded replies in place of the network: what an offline run's tools are answered from.

`fixtures/recorded/index.json` names the cities and their files; no socket is opened. The weather is
recorded in the shape of WeatherAPI.com, the wiki in MediaWiki's opensearch shape. A request for
something else fails with words that name the recorded cities.
"""

import json
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import httpx

from assistant_runner.tooling.contract import ToolFailure
from assistant_runner.tooling.places import fold

WEATHER_HOST = "api.weatherapi.com"
WIKI_SUFFIX = ".wikipedia.org"
RECORDED_HEADER = "x-recorded"


def recorded_folder() -> Path:
    """The recordings: in a checkout beside the package, in an installed wheel inside it."""
    package = Path(__file__).resolve().parent.parent
    inside = package / "_shipped" / "fixtures"
    return (inside if inside.is_dir() else package.parent / "fixtures") / "recorded"


def recorded_client(folder: Path | None = None) -> httpx.AsyncClient:
    """A client whose every request is answered from the recordings."""
    return httpx.AsyncClient(
        transport=RecordedTransport(folder), follow_redirects=True, trust_env=False, timeout=10
    )


class RecordedTransport(httpx.AsyncBaseTransport):
    """Answers GET requests for weather, wiki addresses and pages of the recorded cities."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder or recorded_folder()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """The recorded reply; ToolFailure says what is recorded."""
        url = request.url
        if url.host == WEATHER_HOST:
            return self._json(request, self._weather(url.params.get("q", "")))
        if url.host.endswith(WIKI_SUFFIX) and url.path == "/w/api.php":
            return self._json(request, self._wiki(url.params.get("search", "")))
        return self._page(request)

    @cached_property
    def _index(self) -> dict[str, Any]:
        index: dict[str, Any] = json.loads((self.folder / "index.json").read_text(encoding="utf-8"))
        return index

    @cached_property
    def _cities(self) -> Mapping[str, dict[str, Any]]:
        return {
            fold(name): city for city in self._index["cities"] for name in [city["name"], *city["aliases"]]
        }

    def cities(self) -> list[str]:
        """The recorded cities' names."""
        return [city["name"] for city in self._index["cities"]]

    def _city(self, text: str) -> dict[str, Any]:
        city = self._cities.get(fold(text))
        if city is None:
            raise ToolFailure(
                f"offline: nothing is recorded for {text!r}; recorded cities: {', '.join(self.cities())}",
                hint="without --offline every place can be asked for",
            )
        return city

    def _weather(self, text: str) -> Any:
        return self._read(self._city(text)["weather"])

    def _wiki(self, text: str) -> Any:
        replies: dict[str, Any] = self._read(self._city(text)["wiki"])
        for search, reply in replies.items():
            if fold(search) == fold(text):
                return reply
        return next(iter(replies.values()))

    def _page(self, request: httpx.Request) -> httpx.Response:
        wanted = str(request.url.copy_with(fragment=None)).rstrip("/")
        for city in self._index["cities"]:
            for page in city["pages"]:
                if wanted in (str(httpx.URL(address)) for address in page["urls"]):
                    body = (self.folder / page["file"]).read_bytes()
                    headers = {"content-type": "text/html; charset=utf-8", RECORDED_HEADER: "yes"}
                    return httpx.Response(200, headers=headers, content=body, request=request)
        raise ToolFailure(
            f"offline: the page {request.url} is not recorded; there are the wiki pages of "
            f"{', '.join(self.cities())}",
            hint="without --offline every public page can be read",
        )

    def _json(self, request: httpx.Request, body: Any) -> httpx.Response:
        headers = {"content-type": "application/json", RECORDED_HEADER: "yes"}
        text = json.dumps(body, ensure_ascii=False).encode()
        return httpx.Response(200, headers=headers, content=text, request=request)

    def _read(self, name: str) -> Any:
        document = json.loads((self.folder / name).read_text(encoding="utf-8"))
        if isinstance(document, dict):
            document.pop("_recorded", None)
        return document
