"""The operations of an OpenAPI document (3.x) as tools: each becomes an HTTP request of its own.

Parameters of path, query and header and a JSON or form body become the tool's parameters, with the
references inlined; names that a schema for a model cannot have are spelled with underscores. An
operation's `operationId` is its name, its summary and description are what the model reads. Operations
that want what cannot be sent (another kind of body, a cookie) are left out, and that is said.
"""

import json
import logging
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from assistant_runner.errors import ConfigurationError
from assistant_runner.tooling.contract import Tool
from assistant_runner.tooling.entries import HttpEntry, OpenApiEntry
from assistant_runner.tooling.http_tool import http_tool
from assistant_runner.tooling.parameter_styles import BY_PLACE, Style, style_of
from assistant_runner.tooling.strict import nullable, tighten

log = logging.getLogger(__name__)

METHODS = ("get", "head", "post", "put", "patch", "delete")
BODY = "body"
FORM = "application/x-www-form-urlencoded"
NO_SCHEMA_WORDS = (
    "example",
    "examples",
    "xml",
    "externalDocs",
    "deprecated",
    "nullable",
    "readOnly",
    "writeOnly",
)
NUMBER_FORMATS = ("int32", "int64", "float", "double")


def openapi_tools(entry: OpenApiEntry, *, folder: Path) -> list[Tool]:
    """The chosen operations as tools; ConfigurationError for a document or a choice that cannot work."""
    document = _read(folder / Path(entry.document).expanduser())
    try:
        return _chosen(entry, document)
    except (AttributeError, IndexError, KeyError, RecursionError, TypeError, ValueError) as error:
        words = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
        raise ConfigurationError(
            f"{entry.document} is not as OpenAPI 3 wants it ({words})",
            remedy="check the document with a validator, or choose other operations",
        ) from None


def _chosen(entry: OpenApiEntry, document: Mapping[str, Any]) -> list[Tool]:
    found = dict(_operations(document))
    if missing := [name for name in entry.operations or () if name not in found]:
        raise ConfigurationError(
            f"{entry.document} has no operation {missing[0]!r}; there are: {', '.join(found) or 'none'}",
            remedy="correct the list operations",
        )
    server = (entry.server or _server(document, entry.document)).rstrip("/")
    listed = (document.get("components") or {}).get("schemas") or {}
    schemas = {name: _modern(schema) for name, schema in listed.items()}
    made: list[Tool] = []
    left_out: list[str] = []
    for name in found if entry.operations is None else entry.operations:
        if (lack := _lack(found[name], document)) is None:
            made.append(_tool(entry, name, found[name], document, server, schemas))
        elif entry.operations is not None:
            raise ConfigurationError(
                f"{entry.document}: the operation {name} wants {lack}, which tools cannot send",
                remedy="leave it out of the list operations",
            )
        else:
            left_out.append(f"{name} (it wants {lack})")
    if left_out:
        log.warning("%s: no tools are made of %s", entry.document, ", ".join(left_out))
    return made


def _lack(operation: Mapping[str, Any], document: Mapping[str, Any]) -> str | None:
    """What the operation wants that we cannot send, if anything."""
    _, kind = _body_of(operation, document)
    if kind is not None and kind != FORM and "json" not in kind:
        return f"a body of {kind}"
    for parameter in (_resolved(listed, document) for listed in operation["parameters"]):
        if parameter.get("in") == "cookie" and parameter.get("required"):
            return f"the cookie {parameter['name']}"
        if parameter.get("in") in BY_PLACE and style_of(parameter) is None:
            return f"{parameter['name']} in the style {parameter['style']}"
    return None


def _read(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text(encoding="utf-8-sig")
        if path.suffix == ".json":
            document = json.loads(text)
        else:
            from ruamel.yaml import YAML

            document = YAML(typ="safe", pure=True).load(text)
    except Exception as error:
        words = (getattr(error, "strerror", None) or str(error)).splitlines()[0]
        raise ConfigurationError(f"{path}: cannot be read: {words}", remedy="name an OpenAPI file") from None
    if not isinstance(document, dict) or not str(document.get("openapi", "")).startswith("3"):
        raise ConfigurationError(f"{path} is no OpenAPI 3 document", remedy="name an OpenAPI 3 file")
    return document


def _operations(document: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every operation under its name, with its path and method in it."""
    for path, item in (document.get("paths") or {}).items():
        for method in METHODS:
            operation = item.get(method) if isinstance(item, Mapping) else None
            if isinstance(operation, dict):
                spoken = operation.get("operationId") or f"{method}_{path.strip('/')}"
                name = re.sub(r"[^a-zA-Z0-9_-]+", "_", spoken).strip("_")[:64]
                shared = item.get("parameters") or []
                own = operation.get("parameters") or []
                yield (
                    name,
                    {**operation, "path": path, "method": method.upper(), "parameters": [*shared, *own]},
                )


def _tool(
    entry: OpenApiEntry,
    name: str,
    operation: Mapping[str, Any],
    document: Mapping[str, Any],
    server: str,
    schemas: Mapping[str, Any],
) -> Tool:
    properties: dict[str, Any] = {}
    styles: dict[str, Style] = {}
    required: list[str] = []
    places: dict[str, dict[str, str]] = {"path": {}, "query": {}, "header": {}}
    for listed in operation["parameters"]:
        parameter = _resolved(listed, document)
        where, spoken = parameter.get("in"), parameter["name"]
        if where not in places:
            continue
        key = re.sub(r"\W+", "_", spoken, flags=re.ASCII).strip("_") or f"p{len(properties)}"
        key = f"_{key}" if key[0].isdigit() else key
        if key in properties and places[where].get(spoken) != key:
            key = f"{key}_{where}"
        schema = _modern(parameter.get("schema") or _first_schema(parameter) or {"type": "string"})
        if parameter.get("description"):
            schema["description"] = parameter["description"]
        properties[key] = schema
        places[where][spoken] = key
        if "content" not in parameter and (style := style_of(parameter)):
            styles[key] = style
        if parameter.get("required") or where == "path":
            required.append(key)
    body, kind = _body_of(operation, document)
    if kind is not None:
        properties[BODY] = _modern(_first_schema(body, kind) or {})
        if body.get("required"):
            required.append(BODY)
    parameters = {"type": "object", "properties": properties, "required": required}
    path = operation["path"]
    for spoken, key in places["path"].items():
        path = path.replace(f"{{{spoken}}}", f"{{{key}}}")
    words = [operation.get("summary"), operation.get("description")]
    request = HttpEntry(
        name=f"{entry.prefix}{name}"[:64],
        description=" ".join(dict.fromkeys(" ".join(word.split()) for word in words if word)) or name,
        parameters=tighten(parameters, schemas),
        method=operation["method"],
        url=server + path,
        query={spoken: f"{{{key}}}" for spoken, key in places["query"].items()},
        headers={**entry.headers, **{spoken: f"{{{key}}}" for spoken, key in places["header"].items()}},
        secret_headers=entry.secret_headers,
        body=None if kind is None else f"{{{BODY}}}",
        body_format="form" if kind == FORM else "json",
        approval=entry.approval,
        timeout_s=entry.timeout_s,
        fetches=entry.fetches,
    )
    return http_tool(request, styles=styles)


def _body_of(
    operation: Mapping[str, Any], document: Mapping[str, Any]
) -> tuple[Mapping[str, Any], str | None]:
    """The request body and the media type that we would send it as; None if there is no body."""
    body = _resolved(operation.get("requestBody") or {}, document)
    kinds = list(body.get("content") or {})
    json_or_form = [kind for kind in kinds if "json" in kind] or [kind for kind in kinds if kind == FORM]
    return body, next(iter([*json_or_form, *kinds]), None)


def _first_schema(part: Mapping[str, Any], kind: str | None = None) -> Mapping[str, Any] | None:
    """The schema of a body or a parameter that is described by its media type."""
    content = part.get("content") or {}
    media = content.get(kind) if kind else next(iter(content.values()), None)
    schema: Mapping[str, Any] | None = (media or {}).get("schema")
    return schema


def _modern(schema: Any) -> Any:
    """A schema of OpenAPI 3.0 in the words of JSON Schema; what only a server may set is left out."""
    if not isinstance(schema, Mapping):
        return {} if schema is True else schema
    result = {
        word: value
        for word, value in schema.items()
        if word not in NO_SCHEMA_WORDS and not word.startswith("x-")
    }
    for limit, word in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
        if isinstance(result.get(word), bool) and result.pop(word) and limit in result:
            result[word] = result.pop(limit)
    if result.get("format") in NUMBER_FORMATS:
        del result["format"]
    for word in ("items", "additionalProperties", "not"):
        if word in result:
            result[word] = _modern(result[word])
    for word in ("allOf", "anyOf", "oneOf"):
        if word in result:
            result[word] = [_modern(entry) for entry in result[word]]
    if isinstance(result.get("properties"), Mapping):
        result["properties"] = {
            name: _modern(entry)
            for name, entry in result["properties"].items()
            if not (isinstance(entry, Mapping) and entry.get("readOnly"))
        }
        if "required" in result:
            result["required"] = [name for name in result["required"] if name in result["properties"]]
    return nullable(result) if schema.get("nullable") else result


def _resolved(part: Mapping[str, Any], document: Mapping[str, Any]) -> Mapping[str, Any]:
    """What a local reference stands for."""
    for _ in range(10):
        if "$ref" not in part:
            return part
        target: Any = document
        for word in str(part["$ref"]).removeprefix("#/").split("/"):
            target = target.get(word) if isinstance(target, Mapping) else None
        if not isinstance(target, Mapping):
            raise ConfigurationError(f"{part['$ref']} leads nowhere", remedy="correct the OpenAPI document")
        part = target
    return part


def _server(document: Mapping[str, Any], name: str) -> str:
    servers = document.get("servers") or []
    url = str(servers[0].get("url", "")) if servers else ""
    if not url.startswith(("http://", "https://")) or "{" in url:
        raise ConfigurationError(f"{name} names no fixed server", remedy="give one with the key server")
    return url
