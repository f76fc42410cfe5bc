"""Answers out of tool outputs: short, readable, from any JSON; well-known shapes are worded."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from assistant_runner.service.engines.planning.arguments import Output
from assistant_runner.service.engines.planning.lexicon import split_name
from assistant_runner.service.engines.planning.summary import summarise

LONGEST_VALUE = 300
MOST_FIELDS = 8
MOST_ITEMS = 5


def compose(outputs: Sequence[Output], question: str) -> list[str]:
    """One paragraph per output, in call order."""
    return [describe(output, question) for output in outputs]


def describe(output: Output, question: str = "") -> str:
    """One output in words."""
    about = _about(output.arguments)
    label = " ".join(word for word in split_name(output.name) if word not in {"get", "fetch"})
    if output.error is not None:
        return f"{output.name}{f' for {about}' if about else ''} failed: {output.error.rstrip('.')}."
    value = output.value
    if output.name == "file_search" and isinstance(value, Mapping) and "results" in value:
        return _files(output, question)
    if isinstance(value, Mapping):
        weather = _weather(value, about)
        if weather:
            return weather
        page = _page(value, question)
        if page:
            return page
    if _is_opensearch(value):
        return _opensearch(value, label, about)
    shown = show(value)
    head = f"{label} ({about})" if about else label
    return f"{head[:1].upper()}{head[1:]}: {shown}"


def found_in_files(output: Output) -> list[Mapping[str, Any]]:
    """The results of a file search, best first."""
    results = output.value.get("results") if isinstance(output.value, Mapping) else None
    return [result for result in results or () if isinstance(result, Mapping)]


def _files(output: Output, question: str) -> str:
    """What the files say to the question, by extraction, with the marker of the best result."""
    results = found_in_files(output)
    if not results:
        return "The files say nothing about it."
    texts = [
        str(part.get("text") or "")
        for result in results[:3]
        for part in result.get("content") or ()
        if isinstance(part, Mapping)
    ]
    best = results[0]
    said = summarise("\n\n".join(texts), question, sentences=2)
    return f"{best.get('file_name') or 'A file'}: {said} {best.get('marker') or ''}".strip()


def show(value: Any) -> str:
    """Any JSON as one readable line."""
    if isinstance(value, Mapping):
        pairs = [f"{key}: {item}" for key, item in flatten(value)]
        more = f"; and {len(pairs) - MOST_FIELDS} more" if len(pairs) > MOST_FIELDS else ""
        return "; ".join(pairs[:MOST_FIELDS]) + more if pairs else "nothing"
    if isinstance(value, list):
        if not value:
            return "nothing found"
        if all(isinstance(item, Mapping) for item in value):
            shown = [f"({show(item)})" for item in value[:MOST_ITEMS]]
        else:
            shown = [show(item) for item in value[:MOST_ITEMS]]
        return ", ".join(shown) + (f" and {len(value) - MOST_ITEMS} more" if len(value) > MOST_ITEMS else "")
    return _scalar(value)


def flatten(value: Mapping[str, Any], path: str = "") -> list[tuple[str, str]]:
    """Scalars of nested objects with dotted keys; empty ones left out."""
    found: list[tuple[str, str]] = []
    for key, item in value.items():
        name = f"{path}.{key}" if path else str(key)
        if isinstance(item, Mapping):
            found.extend(flatten(item, name))
        elif item not in (None, "", []):
            found.append((name, show(item)))
    return found


def _scalar(value: Any) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "yes" if value else "no"
    text = " ".join(str(value).split())
    return text if len(text) <= LONGEST_VALUE else text[: LONGEST_VALUE - 1].rstrip() + "…"


def _about(arguments: Mapping[str, Any]) -> str:
    scalars = [str(value) for value in arguments.values() if isinstance(value, str | int | float)]
    return ", ".join(scalars)[:80]


def _weather(value: Mapping[str, Any], about: str) -> str | None:
    """`Oslo: Sunny, 17.3 °C (63.1 °F), wind W 7.9 km/h, humidity 88 %.` (WeatherAPI's field names)."""
    inner = value.get("current")
    current = inner if isinstance(inner, Mapping) else value
    if "temp_c" not in current and "temp_f" not in current:
        return None
    location = value.get("location")
    place = location.get("name") if isinstance(location, Mapping) else None
    place = place or value.get("place") or current.get("place") or about or "here"
    if isinstance(place, Mapping):
        place = place.get("name") or about
    condition = current.get("condition")
    sky = condition.get("text") if isinstance(condition, Mapping) else condition
    parts = [str(sky).strip()] if sky else []
    celsius, fahrenheit = current.get("temp_c"), current.get("temp_f")
    if celsius is not None and fahrenheit is not None:
        parts.append(f"{celsius} °C ({fahrenheit} °F)")
    else:
        parts.append(f"{celsius} °C" if celsius is not None else f"{fahrenheit} °F")
    if current.get("wind_kph") is not None:
        direction = f"{current['wind_dir']} " if current.get("wind_dir") else ""
        parts.append(f"wind {direction}{current['wind_kph']} km/h")
    if current.get("humidity") is not None:
        parts.append(f"humidity {current['humidity']} %")
    return f"{place}: {', '.join(parts)}."


def _page(value: Mapping[str, Any], question: str) -> str | None:
    body = value.get("summary") or value.get("text")
    if not isinstance(body, str) or not body.strip() or not (value.get("title") or value.get("url")):
        return None
    words = body if value.get("summary") else summarise(body, question)
    title = str(value.get("title") or value.get("url")).strip()
    return f"{title}: {' '.join(words.split())}"


def _is_opensearch(value: Any) -> bool:
    """`[query, [titles], [descriptions], [urls]]` (row S1.21)."""
    return (
        isinstance(value, list)
        and len(value) == 4
        and isinstance(value[0], str)
        and all(isinstance(part, list) for part in value[1:])
    )


def _opensearch(value: Sequence[Any], label: str, about: str) -> str:
    name = value[0] or about
    if not value[3]:
        return f"{label[:1].upper()}{label[1:]}: nothing found for {name}."
    return f"{label[:1].upper()}{label[1:]} of {name}: {value[3][0]}"


def decode(output: str) -> Any:
    """A submitted output as data: JSON if it is, else the text."""
    try:
        return json.loads(output)
    except (ValueError, RecursionError):
        return output
