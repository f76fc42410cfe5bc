"""The address of a place's Wikipedia article, by MediaWiki's opensearch.

The result is opensearch's array cut down to the one article: `[query, [title], [description], [url]]`
(row S1.21). A page that only lists namesakes is never given as the place: its entries are named
instead (cases 102 to 106). `de:München` or WIKI_LANG=de ask another language's Wikipedia.
"""

import re
from typing import Annotated, Any
from urllib.parse import quote

import httpx

from assistant_runner.tooling.contract import HttpReply, ToolContext, ToolFailure
from assistant_runner.tooling.places import (
    Place,
    fold,
    hint_fits,
    long_form,
    same_name,
    split_last_word,
    split_place,
)
from assistant_runner.tooling.replies import get_json, reply_of, short
from assistant_runner.tooling.schema import tool

LANGUAGE_VARIABLE = "WIKI_LANG"
LANGUAGE_PREFIX = re.compile(r"([a-z]{2,3}):(?!//)\s*(.+)", re.DOTALL)
SAFE_IN_PATH = "/:@!$'()*,;~"
Hit = tuple[str, str, str]
"""Title, description, url."""


@tool(select="entity", effects="read", retries=1)
async def get_wiki_url(
    city: Annotated[str, "The city and state e.g. San Francisco, CA"], context: ToolContext
) -> HttpReply:
    """Get the wiki url of a given location"""
    language = context.environ.get(LANGUAGE_VARIABLE, "").strip().lower() or "en"
    if not re.fullmatch(r"[a-z]{2,3}(-[a-z]+)*", language):
        raise ToolFailure(f"{LANGUAGE_VARIABLE} is {language!r}, which is no language code", permanent=True)
    words = " ".join(city.split())
    if prefixed := LANGUAGE_PREFIX.fullmatch(words):
        language, words = prefixed[1], prefixed[2]
    place = split_place(words)
    if not place.name:
        raise ToolFailure("city is empty", hint="name a city, e.g. San Francisco, CA")
    wiki = f"https://{language}.wikipedia.org"
    asked = place if place.hints else split_last_word(words) or place
    with_region = Place(asked.name, asked.hints[:1]).full()  # `Paris, Texas, USA` is titled `Paris, Texas`
    for search in dict.fromkeys([words, asked.full(), with_region, asked.name]):
        response, hits = await opensearch(wiki, search, context)
        chosen = choose(asked, search, hits, whole=words)
        if chosen is not None:
            await check(wiki, chosen, asked, search, context)
            title, description, url = chosen
            return reply_of(response, [words, [title], [description], [url]])
    return await full_text(wiki, words, asked, context)


async def opensearch(wiki: str, search: str, context: ToolContext) -> tuple[httpx.Response, list[Hit]]:
    """The hits for a name's beginning, in the service's order."""
    params: dict[str, str | int | float] = {
        "action": "opensearch", "search": search, "limit": 10, "namespace": 0, "format": "json",
    }  # fmt: skip
    response, body = await get_json(context, f"{wiki}/w/api.php", params, service="Wikipedia")
    lists = body[1:4] if isinstance(body, list) else []
    if len(lists) != 3 or not all(isinstance(entry, list) for entry in lists):
        raise ToolFailure(f"Wikipedia's answer is not [query, titles, descriptions, urls]: {short(body)}")
    titles, descriptions, urls = lists
    descriptions = [*descriptions, *[""] * (len(titles) - len(descriptions))]
    urls = [*urls, *[""] * (len(titles) - len(urls))]
    hits = zip(titles, descriptions, urls, strict=False)
    return response, [(title, text or "", url or url_of(wiki, title)) for title, text, url in hits]


def choose(place: Place, search: str, hits: list[Hit], *, whole: str) -> Hit | None:
    """The hit that is meant: the exact title first, then `Name, Region` and `Name (Region)`.

    Where a region was asked for, a namesake in another one is never taken.
    """
    by_title = {fold(hit[0]): hit for hit in reversed(hits)}
    for wanted in (whole, place.full()):
        if fold(wanted) in by_title:
            return by_title[fold(wanted)]
    for hit in hits:
        if place.hints and (found := qualifier(hit[0], place.name)) and hint_fits(place.hints[0], *found):
            return hit
    if fold(search) in by_title:
        return by_title[fold(search)]
    if place.hints or not hits or not fold(hits[0][0]).startswith(fold(search)):
        return None
    return hits[0]


def qualifier(title: str, name: str) -> tuple[str, ...]:
    """What stands after the name: `Norwell, Oreland` and `Marlow (film)` give it; () otherwise."""
    found = re.fullmatch(r"(.+?)(?:, (.+)| \((.+)\))", title)
    if found is None or not same_name(found[1], name):
        return ()
    return tuple(part.strip() for part in (found[2] or found[3]).split(","))


async def check(wiki: str, hit: Hit, place: Place, search: str, context: ToolContext) -> None:
    """ToolFailure if the article only lists namesakes, or is plainly of another region."""
    if context.recorded:
        return
    page = await page_of(wiki, hit[0], context)
    if "disambiguation" in page.get("pageprops", {}):
        links = [
            link["title"]
            for link in page.get("links", [])
            if fold(link["title"]).startswith(fold(place.name))
        ]
        for link in links:
            if place.hints and (found := qualifier(link, place.name)) and hint_fits(place.hints[0], *found):
                raise ToolFailure(
                    f"{hit[0]!r} lists several articles; the one meant may be {link}: {url_of(wiki, link)}"
                )
        listed = "; ".join(f"{link}: {url_of(wiki, link)}" for link in links[:8])
        raise ToolFailure(
            f"{place.name!r} is ambiguous: {listed or hit[2]}", hint="ask again with the state or country"
        )
    about = page.get("description", "")
    bare = same_name(hit[0], place.name) and place.hints
    if bare and about and not any(fold(long_form(hint)) in fold(about) for hint in place.hints):
        raise ToolFailure(
            f"no article about {place.full()} was found; {hit[0]} is: {about} ({hit[2]})",
            hint="ask again with another region if that is the one",
        )


async def page_of(wiki: str, title: str, context: ToolContext) -> dict[str, Any]:
    """What the wiki says of an article (list of namesakes or not, a short description); {} if unknown."""
    params: dict[str, str | int | float] = {
        "action": "query", "titles": title, "prop": "pageprops|description|links", "ppprop": "disambiguation",
        "pllimit": 50, "plnamespace": 0, "redirects": 1, "format": "json", "formatversion": 2,
    }  # fmt: skip
    try:
        _, body = await get_json(context, f"{wiki}/w/api.php", params, service="Wikipedia")
        page = body["query"]["pages"][0]
    except (ToolFailure, KeyError, IndexError, TypeError):
        return {}  # the address stands without it
    return page if isinstance(page, dict) else {}


async def full_text(wiki: str, words: str, place: Place, context: ToolContext) -> HttpReply:
    """The article that a search in the texts finds under that very name; else what there is instead."""
    params: dict[str, str | int | float] = {
        "action": "query", "list": "search", "srsearch": words, "srlimit": 5, "srinfo": "suggestion",
        "srprop": "", "format": "json", "formatversion": 2,
    }  # fmt: skip
    response, body = await get_json(context, f"{wiki}/w/api.php", params, service="Wikipedia")
    query = body.get("query", {}) if isinstance(body, dict) else {}
    titles = [
        entry["title"] for entry in query.get("search", []) if isinstance(entry, dict) and "title" in entry
    ]
    for title in titles:
        found = qualifier(title, place.name)
        if same_name(title, words) or (place.hints and found and hint_fits(place.hints[0], *found)):
            return reply_of(response, [words, [title], [""], [url_of(wiki, title)]])
    suggestion = query.get("searchinfo", {}).get("suggestion")
    near = "; ".join(f"{title}: {url_of(wiki, title)}" for title in titles[:3])
    words = f"Wikipedia has no article called {words!r}"
    words += f"; near it: {near}" if near else ""
    raise ToolFailure(words, hint=f"it suggests {suggestion!r}" if suggestion else "check the spelling")


def url_of(wiki: str, title: str) -> str:
    """The article's address: blanks as underscores, encoded once (case-106)."""
    return f"{wiki}/wiki/{quote(title.replace(' ', '_'), safe=SAFE_IN_PATH)}"
