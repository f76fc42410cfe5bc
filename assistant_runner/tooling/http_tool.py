"""A tool that is an HTTP request: templates of an assistant file filled with the call's arguments.

Arguments are encoded for the place where they stand, so that none can add a path, a parameter or a
header of its own; the host is fixed by the file. The request goes through the guarded fetcher.
"""

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlsplit

import httpx

from assistant_runner.errors import ConfigurationError
from assistant_runner.tooling.contract import HttpReply, Tool, ToolContext, ToolFailure
from assistant_runner.tooling.dynamic import read_parameters
from assistant_runner.tooling.entries import HttpEntry, entry_tool
from assistant_runner.tooling.masking import Masker
from assistant_runner.tooling.parameter_styles import Pairs, Style, word

PLACEHOLDER = re.compile(r"\{([A-Za-z_][A-Za-z0-9_-]*)\}")
WITH_BODY = ("POST", "PUT", "PATCH")


def http_tool(entry: HttpEntry, *, styles: Mapping[str, Style] | None = None) -> Tool:
    """The tool; ConfigurationError names a placeholder that no parameter fills, or a variable host.

    `styles`: by parameter, how lists and objects are written where a document says so.
    """
    parameters, _ = read_parameters(entry.parameters, entry.name)
    known = set(parameters.get("properties", {}))
    used = _names([entry.url, entry.query, entry.headers, entry.body])
    if unknown := sorted(used - known):
        names = ", ".join(sorted(known)) or "none"
        raise ConfigurationError(
            f"tool {entry.name}: {{{unknown[0]}}} is no parameter; there are: {names}",
            remedy="declare it under parameters, or correct the template",
            tool=entry.name,
        )
    parts = urlsplit(entry.url)
    if parts.scheme not in ("http", "https") or not parts.netloc or PLACEHOLDER.search(parts.netloc):
        raise ConfigurationError(
            f"tool {entry.name}: {entry.url!r} must begin with http:// or https:// and a fixed host",
            remedy="write the host out; arguments may fill path, query, headers and body",
            tool=entry.name,
        )
    rest = known - used
    sends_the_rest = entry.method in WITH_BODY and entry.body is None
    if not sends_the_rest and (unused := sorted(rest)):
        raise ConfigurationError(
            f"tool {entry.name}: the parameter {unused[0]} is used nowhere",
            remedy=f"put {{{unused[0]}}} into url, query, headers or body, or leave the parameter out",
            tool=entry.name,
        )

    async def call(context: ToolContext, /, **arguments: Any) -> HttpReply:
        return await send(entry, arguments, context, rest=rest, styles=styles or {})

    return entry_tool(
        entry,
        call,
        kind="http",
        effects="read" if entry.method in ("GET", "HEAD") else "write",
        source=f"{entry.method} {parts.scheme}://{parts.netloc}",
    )


async def send(
    entry: HttpEntry,
    arguments: Mapping[str, Any],
    context: ToolContext,
    *,
    rest: set[str],
    styles: Mapping[str, Style],
) -> HttpReply:
    """The whole reply of the request with the arguments filled in."""
    values = _without_nulls(arguments)
    values.update({name: style.written(values[name]) for name, style in styles.items() if name in values})
    url = _address(entry, values)
    query: dict[str, str | list[str]] = {}
    for name, value in entry.query.items():
        if _names(value) <= set(values):
            filled = _fill(value, values)
            query.update(filled if isinstance(filled, Pairs) else {name: _words(filled)})
    headers = {
        name: word(_fill(value, values))
        for name, value in entry.headers.items()
        if _names(value) <= set(values)
    }
    secrets = {name: ref.read(context.environ, tool=entry.name) for name, ref in entry.secret_headers.items()}
    headers.update({name: entry.secret_headers[name].prefix + value for name, value in secrets.items()})
    for name, value in headers.items():
        if not (value.isascii() and value.isprintable()):  # a value may be a secret: it is not shown
            raise ToolFailure(f"{entry.name}: the header {name} can only hold printable ASCII characters")
    body = _body(entry, values, rest)
    try:
        response = await context.http.request(
            entry.method,
            httpx.URL(url).copy_merge_params(query),
            headers=headers,
            json=body if body is not None and entry.body_format == "json" else None,
            data=_form(entry, body) if body is not None and entry.body_format == "form" else None,
        )
    except httpx.TimeoutException:
        raise ToolFailure(f"{entry.name}: no answer in time", transient=True) from None
    except (httpx.InvalidURL, httpx.LocalProtocolError) as error:
        raise ToolFailure(f"{entry.name}: the request cannot be made: {error}") from None
    masker = Masker(secrets.values())
    return HttpReply(
        http_version=response.http_version,
        status_code=response.status_code,
        status_text=response.reason_phrase,
        headers=masker.mask_value(dict(response.headers)),
        entity=masker.mask_value(_entity(response)),
    )


def _address(entry: HttpEntry, values: Mapping[str, Any]) -> str:
    """The address with the arguments in it; ToolFailure where one would lead to another path."""
    for segment in entry.url.partition("?")[0].split("/"):
        filled = PLACEHOLDER.sub(lambda found: word(values.get(found[1], "")), segment)
        if (names := PLACEHOLDER.findall(segment)) and filled in ("", ".", ".."):
            raise ToolFailure(f"{entry.name}: {names[0]} is {filled!r}, which cannot stand in a path")
    return PLACEHOLDER.sub(lambda found: quote(word(values.get(found[1], "")), safe=""), entry.url)


def _body(entry: HttpEntry, values: Mapping[str, Any], rest: set[str]) -> Any:
    if entry.body is not None:
        return _fill(entry.body, values)
    if entry.method in WITH_BODY and rest:
        return {name: value for name, value in values.items() if name in rest}
    return None


def _form(entry: HttpEntry, body: Any) -> dict[str, str | list[str]]:
    if not isinstance(body, Mapping):
        raise ToolFailure(f"{entry.name}: a form needs an object with its fields, not {word(body)[:80]!r}")
    return {name: _words(value) for name, value in body.items()}


def _fill(template: Any, values: Mapping[str, Any]) -> Any:
    """The template with values; a text that is one placeholder becomes the value itself."""
    if isinstance(template, str):
        whole = PLACEHOLDER.fullmatch(template)
        if whole:
            return values.get(whole[1])
        return PLACEHOLDER.sub(lambda found: word(values.get(found[1], "")), template)
    if isinstance(template, Mapping):
        filled = {name: _fill(entry, values) for name, entry in template.items()}
        return {name: value for name, value in filled.items() if value is not None or template[name] is None}
    if isinstance(template, list):
        return [_fill(entry, values) for entry in template]
    return template


def _without_nulls(value: Any) -> Any:
    """The value without the properties that are null: absent and null mean the same in a call."""
    if isinstance(value, Mapping):
        return {name: _without_nulls(entry) for name, entry in value.items() if entry is not None}
    if isinstance(value, list):
        return [_without_nulls(entry) for entry in value]
    return value


def _names(template: Any) -> set[str]:
    """The names of all placeholders in a template."""
    if isinstance(template, str):
        return set(PLACEHOLDER.findall(template))
    if isinstance(template, Mapping):
        return {name for entry in template.values() for name in _names(entry)}
    if isinstance(template, list):
        return {name for entry in template for name in _names(entry)}
    return set()


def _words(value: Any) -> str | list[str]:
    """A list for the query as one value after another, anything else as one."""
    return [word(entry) for entry in value] if isinstance(value, list) else word(value)


def _entity(response: httpx.Response) -> Any:
    if "json" in response.headers.get("content-type", ""):
        try:
            return response.json()
        except ValueError:
            return response.text
    return response.content if not _is_text(response) else response.text


def _is_text(response: httpx.Response) -> bool:
    kind = response.headers.get("content-type", "text/plain")
    return kind.startswith("text/") or "xml" in kind or "javascript" in kind or not kind
