"""The weather of a place: WeatherAPI.com with a key in WEATHERAPI_KEY, else Open-Meteo without one.

Both give the same field names, WeatherAPI's; what Open-Meteo does not have is absent. The place is
shown as it was resolved, and where a name may mean several places they are listed instead of guessed
(cases 107 to 112).
"""

import logging
from typing import Annotated, Any

import httpx

from assistant_runner.tooling.contract import HttpReply, ToolContext, ToolFailure
from assistant_runner.tooling.places import Place, hint_fits, same_name, split_last_word, split_place
from assistant_runner.tooling.replies import get_json, reply_of, short
from assistant_runner.tooling.schema import tool

log = logging.getLogger(__name__)

WEATHERAPI = "https://api.weatherapi.com/v1"
GEOCODER = "https://geocoding-api.open-meteo.com/v1/search"
OPEN_METEO = "https://api.open-meteo.com/v1/forecast"
KEY_VARIABLE = "WEATHERAPI_KEY"
NAMES_OF_PLACES = ("admin1", "country", "country_code")
CLEARLY_LARGER = 3
"""A namesake is taken without asking if it has this many times the people of the next one."""

PLACE_AND_CURRENT = (
    "merge({place: join(', ', [entity.location.name, entity.location.region, entity.location.country][?@])},"
    " entity.current)"
)
KEY_ERRORS = {
    1002: f"no WeatherAPI key was sent: set {KEY_VARIABLE}",
    2006: f"WeatherAPI does not accept the key in {KEY_VARIABLE}: correct it, or unset it to use Open-Meteo",
    2007: "the WeatherAPI key has used up its quota of calls for this month",
    2008: "the WeatherAPI key is disabled",
    2009: "the plan of the WeatherAPI key does not include this request",
}
CONDITIONS = {
    0: ("Clear", 1000), 1: ("Mainly clear", 1003), 2: ("Partly cloudy", 1003), 3: ("Overcast", 1009),
    45: ("Fog", 1135), 48: ("Freezing fog", 1147),
    51: ("Light drizzle", 1153), 53: ("Drizzle", 1153), 55: ("Dense drizzle", 1153),
    56: ("Light freezing drizzle", 1168), 57: ("Freezing drizzle", 1171),
    61: ("Light rain", 1183), 63: ("Moderate rain", 1189), 65: ("Heavy rain", 1195),
    66: ("Light freezing rain", 1198), 67: ("Freezing rain", 1201),
    71: ("Light snow", 1213), 73: ("Moderate snow", 1219), 75: ("Heavy snow", 1225),
    77: ("Snow grains", 1210),
    80: ("Light rain shower", 1240), 81: ("Rain shower", 1243), 82: ("Violent rain shower", 1246),
    85: ("Light snow shower", 1255), 86: ("Heavy snow shower", 1258),
    95: ("Thunderstorm", 1087), 96: ("Thunderstorm with hail", 1276),
    99: ("Thunderstorm with heavy hail", 1276),
}  # fmt: skip
MEASURED = (
    "temperature_2m,apparent_temperature,relative_humidity_2m,dew_point_2m,is_day,precipitation,weather_code,"
    "cloud_cover,pressure_msl,wind_speed_10m,wind_direction_10m,wind_gusts_10m,visibility,uv_index"
)
WINDS = ("N", "NNE", "NE", "ENE", "E", "ESE", "SE", "SSE", "S", "SSW", "SW", "WSW", "W", "WNW", "NW", "NNW")


@tool(select=PLACE_AND_CURRENT, effects="read", retries=1)
async def get_weather(
    city: Annotated[str, "The city and state e.g. San Francisco, CA"], context: ToolContext
) -> HttpReply:
    """Determine weather in my location"""
    place = split_place(city)
    if not place.name:
        raise ToolFailure("city is empty", hint="name a city, e.g. San Francisco, CA")
    key = context.environ.get(KEY_VARIABLE, "").strip()
    if key or context.recorded:
        return await ask_weatherapi(place, key or "recorded", context)
    return await ask_open_meteo(city, place, context)


async def ask_weatherapi(place: Place, key: str, context: ToolContext) -> HttpReply:
    """The current weather; a place that is not the one asked for is looked up among its namesakes."""
    response, entity = await current_of(place.full(), key, context)
    location = entity["location"]
    if fits(place, location.get("region"), location.get("country")):
        return reply_of(response, entity)
    _, found = await get_json(
        context, f"{WEATHERAPI}/search.json", {"key": key, "q": place.name}, service="WeatherAPI", secret=True
    )
    places = [entry for entry in found if isinstance(entry, dict)] if isinstance(found, list) else []
    fitting = [entry for entry in places if fits(place, entry.get("region"), entry.get("country"))]
    if not fitting:
        others = describe(places, "region") or describe([location], "region")
        raise ToolFailure(
            f"no {place.full()} was found; there is {others}",
            hint="ask again with the right region or country",
        )
    chosen = fitting[0]
    response, entity = await current_of(f"{chosen['lat']},{chosen['lon']}", key, context)
    entity["location"].update(
        {name: chosen[name] for name in ("name", "region", "country") if name in chosen}
    )
    return reply_of(response, entity)


async def current_of(query: str, key: str, context: ToolContext) -> tuple[httpx.Response, dict[str, Any]]:
    """WeatherAPI's answer with all that we rely on; ToolFailure says what it lacks."""
    params = {"key": key, "q": query, "aqi": "no"}
    response, entity = await get_json(
        context,
        f"{WEATHERAPI}/current.json",
        params,
        service="WeatherAPI",
        error_statuses=(400, 401, 403),
        secret=True,
    )
    error = entity.get("error") if isinstance(entity, dict) else None
    if isinstance(error, dict) or response.status_code >= 400:
        raise provider_failure(query, response.status_code, error if isinstance(error, dict) else {})
    for path in ("location", "current", "current.temp_c", "current.condition"):
        value: Any = entity
        for part in path.split("."):
            value = value.get(part) if isinstance(value, dict) else None
        if value is None:
            raise ToolFailure(f"WeatherAPI's answer has no field {path}: {short(entity)}")
    return response, entity


def provider_failure(query: str, status: int, error: dict[str, Any]) -> ToolFailure:
    """WeatherAPI's error codes in words (cases 109, 110)."""
    code, message = error.get("code"), str(error.get("message", ""))
    if code == 1006:
        return ToolFailure(
            f"WeatherAPI knows no place {query!r}", hint="check the spelling; asking again is no use"
        )
    if code in KEY_ERRORS:
        return ToolFailure(KEY_ERRORS[code], hint="only the user can change that", permanent=True)
    if code in (1003, 1005):
        log.error("our request to WeatherAPI was wrong: %s %s", code, message)
        return ToolFailure(f"a bug in get_weather: WeatherAPI did not understand the request ({code})")
    again = "trying again later can help"
    return ToolFailure(
        f"WeatherAPI failed ({status}, code {code}): {message[:200]}", hint=again, transient=True
    )


async def ask_open_meteo(city: str, place: Place, context: ToolContext) -> HttpReply:
    """The current weather of the place that the geocoder's answers and the hints agree on."""
    found = await geocode(place.name, context)
    if not found and not place.hints and (split := split_last_word(city)) is not None:
        place = split
        found = await geocode(place.name, context)
    chosen = choose(place, found)
    params = {
        "latitude": chosen["latitude"],
        "longitude": chosen["longitude"],
        "current": MEASURED,
        "timezone": "auto",
    }
    response, body = await get_json(context, OPEN_METEO, params, service="Open-Meteo", error_statuses=(400,))
    if isinstance(body, dict) and body.get("error"):
        raise ToolFailure(f"Open-Meteo refused the request: {str(body.get('reason', short(body)))[:200]}")
    current = body.get("current") if isinstance(body, dict) else None
    if not isinstance(current, dict) or current.get("temperature_2m") is None:
        raise ToolFailure(f"Open-Meteo's answer has no field current.temperature_2m: {short(body)}")
    location = {
        "name": chosen["name"],
        "region": chosen.get("admin1") or "",
        "country": chosen.get("country") or "",
        "lat": chosen["latitude"],
        "lon": chosen["longitude"],
        "tz_id": body.get("timezone", ""),
        "localtime": str(current.get("time", "")).replace("T", " "),
    }
    return reply_of(response, {"location": location, "current": as_weatherapi(current)})


async def geocode(name: str, context: ToolContext) -> list[dict[str, Any]]:
    """Places of that name; none if the answer has no results."""
    params: dict[str, str | int | float] = {"name": name, "count": 20, "language": "en", "format": "json"}
    try:
        _, body = await get_json(context, GEOCODER, params, service="Open-Meteo's geocoder")
    except ToolFailure as failure:
        hint = failure.hint or f"with a key in {KEY_VARIABLE} WeatherAPI.com is asked instead"
        raise ToolFailure(failure.message, hint=hint, transient=failure.transient) from None
    results = body.get("results") if isinstance(body, dict) else None
    needed = ("name", "latitude", "longitude")
    return [
        entry for entry in results or [] if isinstance(entry, dict) and all(key in entry for key in needed)
    ]


def choose(place: Place, found: list[dict[str, Any]]) -> dict[str, Any]:
    """The place that is meant; ToolFailure lists the candidates where that is not clear."""
    if not found:
        raise ToolFailure(f"no place called {place.name!r} was found", hint="check the spelling")
    fitting = [entry for entry in found if fits(place, entry.get("admin1"), entry.get("country"))]
    if not fitting:  # two letters are a state's before they are a country's (case-108)
        fitting = [entry for entry in found if fits(place, *(entry.get(key) for key in NAMES_OF_PLACES))]
    if not fitting:
        raise ToolFailure(
            f"no {place.full()} was found; there is {describe(found, 'admin1')}",
            hint="ask again with the right region or country",
        )
    exact = [entry for entry in fitting if same_name(entry["name"], place.name)] or fitting
    ranked = sorted(exact, key=lambda entry: entry.get("population") or 0, reverse=True)
    people = [entry.get("population") or 0 for entry in ranked[:2]]
    if place.hints or len(ranked) == 1 or people[0] > CLEARLY_LARGER * people[1]:
        return ranked[0]
    raise ToolFailure(
        f"{place.name!r} may mean {describe(ranked, 'admin1')}", hint="ask again with the region or country"
    )


def fits(place: Place, *names: str | None) -> bool:
    """Whether every hint speaks of the region or the country."""
    return all(hint_fits(hint, *names) for hint in place.hints)


def describe(places: list[dict[str, Any]], region: str) -> str:
    """The first few places in words."""
    words = [
        ", ".join(str(entry[key]) for key in ("name", region, "country") if entry.get(key))
        for entry in places
    ]
    return "; ".join(dict.fromkeys(words[:8]))


def as_weatherapi(current: dict[str, Any]) -> dict[str, Any]:
    """Open-Meteo's measurements under WeatherAPI's names, in both systems of units."""
    text, code = CONDITIONS.get(int(current.get("weather_code") or 0), ("Unknown", 0))
    if code == 1000 and current.get("is_day"):
        text = "Sunny"
    result: dict[str, Any] = {"last_updated": str(current.get("time", "")).replace("T", " ")}
    put(result, "temp_c", "temp_f", current.get("temperature_2m"), fahrenheit)
    result["is_day"] = current.get("is_day")
    result["condition"] = {"text": text, "code": code}
    put(result, "wind_kph", "wind_mph", current.get("wind_speed_10m"), miles)
    degrees = current.get("wind_direction_10m")
    if degrees is not None:
        result["wind_degree"] = degrees
        result["wind_dir"] = WINDS[round(float(degrees) / 22.5) % 16]
    put(result, "pressure_mb", "pressure_in", current.get("pressure_msl"), lambda value: value * 0.02953)
    put(result, "precip_mm", "precip_in", current.get("precipitation"), lambda value: value / 25.4)
    result["humidity"] = current.get("relative_humidity_2m")
    result["cloud"] = current.get("cloud_cover")
    put(result, "feelslike_c", "feelslike_f", current.get("apparent_temperature"), fahrenheit)
    put(result, "dewpoint_c", "dewpoint_f", current.get("dew_point_2m"), fahrenheit)
    visible = current.get("visibility")
    put(result, "vis_km", "vis_miles", None if visible is None else visible / 1000, miles)
    result["uv"] = current.get("uv_index")
    put(result, "gust_kph", "gust_mph", current.get("wind_gusts_10m"), miles)
    return {name: value for name, value in result.items() if value is not None}


def put(result: dict[str, Any], metric: str, imperial: str, value: float | None, convert: Any) -> None:
    """The value under both names, rounded; nothing if it was not measured."""
    if value is not None:
        result[metric] = round(value, 1)
        result[imperial] = round(convert(value), 2 if imperial.endswith("_in") else 1)


def fahrenheit(celsius: float) -> float:
    """Degrees Fahrenheit."""
    return celsius * 9 / 5 + 32


def miles(kilometres: float) -> float:
    """Miles, or miles per hour."""
    return kilometres / 1.609344
