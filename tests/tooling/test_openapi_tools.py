"""Operations of an OpenAPI document as tools, called on a real server."""

import json
from pathlib import Path
from typing import Any
from urllib.parse import unquote_plus

import pytest

from assistant_runner.errors import ConfigurationError
from assistant_runner.tooling.contract import Tool
from assistant_runner.tooling.entries import OpenApiEntry, build_tools
from assistant_runner.tooling.fetcher import guarded_client
from assistant_runner.tooling.gate import ToolGate
from assistant_runner.tooling.policy import Policy
from tests.tooling.server import Reply, Seen, page, serve
from tests.tooling.support import make_context

DOCUMENT = """
openapi: 3.1.0
info: {title: Rooms, version: "1"}
servers: [{url: SERVER/v1}]
paths:
  /rooms/{room-id}:
    parameters:
      - {name: room-id, in: path, required: true, schema: {type: string}}
    get:
      operationId: showRoom
      summary: Show a room
      parameters:
        - {name: "filter[day]", in: query, description: The day, schema: {type: string}}
        - {$ref: "#/components/parameters/Language"}
    put:
      operationId: change room
      summary: Change a room
      requestBody:
        content: {application/json: {schema: {$ref: "#/components/schemas/Room"}}}
  /ping:
    get: {summary: Ping}
components:
  parameters:
    Language: {name: x-language, in: header, schema: {type: string, enum: [en, de]}}
  schemas:
    Room:
      type: object
      properties: {seats: {type: integer}, note: {type: string}}
      required: [seats]
"""


def answer(seen: Seen) -> Reply:
    document = {"method": seen.method, "path": seen.path, "language": seen.headers.get("x-language")}
    return page(json.dumps({**document, "body": seen.body.decode()}), kind="application/json")


def tools(folder: Path, server: str = "https://rooms.test", **fields: Any) -> dict[str, Tool]:
    (folder / "rooms.yaml").write_text(DOCUMENT.replace("SERVER", server))
    entry = OpenApiEntry.model_validate({"document": "rooms.yaml", **fields})
    return {tool.name: tool for tool in build_tools(entry, folder=folder)}


def test_operations_become_tools_with_strict_schemas(tmp_path: Path):
    found = tools(tmp_path)

    assert list(found) == ["showRoom", "change_room", "get_ping"]
    assert [tool.effects for tool in found.values()] == ["read", "write", "read"]
    assert found["showRoom"].parameters["properties"] == {
        "room_id": {"type": "string"},
        "filter_day": {"type": ["string", "null"], "description": "The day"},
        "x_language": {"anyOf": [{"type": "string", "enum": ["en", "de"]}, {"type": "null"}]},
    }
    assert found["change_room"].parameters["properties"]["body"]["required"] == ["seats", "note"]
    assert all(tool.strict for tool in found.values())


async def test_arguments_go_where_the_document_says(tmp_path: Path):
    async with serve(answer) as server, guarded_client(allow_hosts=["127.0.0.1"]) as http:
        found = tools(tmp_path, server.url)
        gate = ToolGate(policy=Policy(writes="allow"))
        arguments = {"room_id": "a/b", "filter_day": "Mon & Tue", "x_language": "de"}
        shown = await gate.call(found["showRoom"], arguments, make_context(http=http))
        changed = await gate.call(
            found["change_room"], {"room_id": "7", "body": {"seats": "4"}}, make_context(http=http)
        )

    assert shown.content["path"] == "/v1/rooms/a%2Fb?filter%5Bday%5D=Mon+%26+Tue"
    assert shown.content["language"] == "de"
    assert json.loads(changed.content["body"]) == {"seats": 4}


PETS = """
openapi: 3.0.3
servers: [{url: SERVER}]
paths:
  x-note: nothing
  /pets:
    parameters: [{name: context, in: query, schema: {type: string, nullable: true, example: x}}]
    post:
      operationId: addDog
      requestBody: {required: true, content: {application/json: {schema: {$ref: "#/components/schemas/Dog"}}}}
  /login:
    post:
      operationId: login
      requestBody:
        content: {application/x-www-form-urlencoded: {schema: {$ref: "#/components/schemas/Login"}}}
  /ping:
    post: {operationId: ping, parameters: [{name: x-trace, in: header, schema: {type: string}}]}
  /upload:
    post: {operationId: upload, requestBody: {content: {multipart/form-data: {schema: {type: object}}}}}
components:
  schemas:
    Pet:
      type: object
      required: [id, name]
      properties:
        id: {type: integer, readOnly: true}
        name: {type: string}
        note: true
        age: {type: integer, format: int64, minimum: 0, exclusiveMinimum: true}
        parent: {nullable: true, allOf: [{$ref: "#/components/schemas/Pet"}]}
    Dog:
      allOf:
        - $ref: "#/components/schemas/Pet"
        - {type: object, required: [barks], properties: {barks: {type: boolean}}}
    Login: {type: object, properties: {user: {type: string}}}
"""


async def test_a_document_in_the_words_of_3_0_gives_tools_that_can_be_called(tmp_path: Path):
    async with serve(answer) as server, guarded_client(allow_hosts=["127.0.0.1"]) as http:
        (tmp_path / "pets.yaml").write_text(PETS.replace("SERVER", server.url))
        found = {tool.name: tool for tool in build_tools(OpenApiEntry(document="pets.yaml"), folder=tmp_path)}
        gate = ToolGate(policy=Policy(writes="allow"))
        dog = {"name": "Rex", "age": None, "parent": {"name": "Bo", "age": 3, "parent": None}, "barks": True}
        added = await gate.call(found["addDog"], {"context": "c", "body": dog}, make_context(http=http))
        logged_in = await gate.call(found["login"], {"body": {"user": "a b"}}, make_context(http=http))
        pinged = await gate.call(found["ping"], {"x_trace": "t"}, make_context(http=http))

    assert list(found) == ["addDog", "login", "ping"]
    assert [tool.strict for tool in found.values()] == [None, True, True]  # a note may be anything
    assert added.content["path"] == "/pets?context=c"
    assert json.loads(added.content["body"]) == {
        "name": "Rex",
        "parent": {"name": "Bo", "age": 3},
        "barks": True,
    }
    assert (logged_in.content["body"], pinged.content["body"]) == ("user=a+b", "")


def test_an_operation_that_wants_another_kind_of_body_cannot_be_chosen(tmp_path: Path):
    (tmp_path / "pets.yaml").write_text(PETS.replace("SERVER", "https://pets.test"))

    with pytest.raises(ConfigurationError, match="upload wants a body of multipart/form-data"):
        build_tools(OpenApiEntry(document="pets.yaml", operations=["upload"]), folder=tmp_path)


STYLES = """
openapi: 3.0.3
servers: [{url: SERVER}]
paths:
  /rooms/{ids}:
    get:
      operationId: find
      parameters:
        - {name: ids, in: path, required: true, schema: {type: array, items: {type: integer}}}
        - {name: open, in: query, schema: {type: array, items: {type: boolean}}}
        - {name: sizes, in: query, explode: false, schema: {type: array, items: {type: string}}}
        - {name: floors, in: query, style: pipeDelimited, explode: false, schema: {type: array, items: {}}}
        - {name: where, in: query, style: deepObject, schema: {$ref: "#/components/schemas/Where"}}
        - {name: when, in: query, schema: {$ref: "#/components/schemas/Where"}}
        - {name: raw, in: query, content: {application/json: {schema: {$ref: "#/components/schemas/Where"}}}}
        - {name: x-language, in: header, schema: {type: array, items: {type: string}}}
  /upload:
    post: {operationId: upload, requestBody: {content: {multipart/form-data: {schema: {type: object}}}}}
  /seats{seat}:
    get:
      operationId: seat
      parameters: [{name: seat, in: path, required: true, style: matrix, schema: {type: string}}]
  /me:
    get: {operationId: me, parameters: [{name: sid, in: cookie, required: true, schema: {type: string}}]}
components:
  schemas:
    Where: {type: object, properties: {town: {type: string}}, required: [town]}
"""


async def test_lists_and_objects_are_written_in_the_documents_styles(tmp_path: Path):
    arguments: dict[str, Any] = {
        "ids": [1, 2],
        "open": [True, False],
        "sizes": ["s", "m"],
        "floors": ["1", "2"],
    }
    arguments |= {"where": {"town": "Oslo"}, "when": {"town": "Rome"}, "raw": {"town": "Bonn"}}
    async with serve(answer) as server, guarded_client(allow_hosts=["127.0.0.1"]) as http:
        (tmp_path / "rooms.yaml").write_text(STYLES.replace("SERVER", server.url))
        [find] = build_tools(OpenApiEntry(document="rooms.yaml", operations=["find"]), folder=tmp_path)
        context = make_context(http=http)
        outcome = await ToolGate().call(find, arguments | {"x_language": ["de", "en"]}, context)

    assert unquote_plus(outcome.content["path"]) == (
        '/rooms/1,2?open=true&open=false&sizes=s,m&floors=1|2&where[town]=Oslo&town=Rome&raw={"town":"Bonn"}'
    )
    assert outcome.content["language"] == "de,en"


def test_operations_that_no_tool_can_send_are_named(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    (tmp_path / "rooms.yaml").write_text(STYLES.replace("SERVER", "https://rooms.test"))

    found = build_tools(OpenApiEntry(document="rooms.yaml"), folder=tmp_path)

    assert [tool.name for tool in found] == ["find"]
    assert caplog.messages == [
        "rooms.yaml: no tools are made of upload (it wants a body of multipart/form-data), "
        "seat (it wants seat in the style matrix), me (it wants the cookie sid)"
    ]


def test_operations_can_be_chosen_and_prefixed(tmp_path: Path):
    assert list(tools(tmp_path, operations=["showRoom"], prefix="rooms_")) == ["rooms_showRoom"]

    with pytest.raises(ConfigurationError, match=r"no operation 'sail'; there are: showRoom, change_room"):
        tools(tmp_path, operations=["sail"])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        pytest.param("swagger: '2.0'", "is no OpenAPI 3 document", id="old"),
        pytest.param("{", "cannot be read", id="broken"),
        pytest.param("openapi: 3.0.0\npaths: {/x: {get: {}}}", "names no fixed server", id="no-server"),
        pytest.param(
            "openapi: 3.0.0\nservers: [{url: 'https://a.test'}]\n"
            "paths: {/x: {get: {parameters: [{$ref: '#/components/parameters/P'}]}}}",
            "leads nowhere",
            id="reference",
        ),
        pytest.param(
            "openapi: 3.0.0\nservers: [{url: 'https://a.test'}]\n"
            "paths: {/x: {get: {parameters: [{in: query}]}}}",
            "is not as OpenAPI 3 wants it",
            id="parameter",
        ),
        pytest.param("openapi: 3.0.0\npaths: [a]", "is not as OpenAPI 3 wants it", id="paths"),
    ],
)
def test_a_document_that_cannot_work_is_refused(tmp_path: Path, text: str, words: str):
    (tmp_path / "x.yaml").write_text(text)

    with pytest.raises(ConfigurationError, match=words):
        build_tools(OpenApiEntry(document="x.yaml"), folder=tmp_path)


@pytest.mark.parametrize(
    "last", [{"type": "string"}, {"$ref": "#/components/schemas/s40"}], ids=["bomb", "loop"]
)
def test_references_without_an_end_are_refused(tmp_path: Path, last: dict[str, Any]):
    steps = {f"s{n}": {"anyOf": [{"$ref": f"#/components/schemas/s{n + 1}"}] * 2} for n in range(40)}
    wanted = {"name": "p", "in": "query", "schema": {"allOf": [{"$ref": "#/components/schemas/s0"}]}}
    document = {
        "openapi": "3.1.0",
        "servers": [{"url": "https://rooms.example"}],
        "paths": {"/": {"get": {"operationId": "list", "parameters": [wanted]}}},
        "components": {"schemas": {**steps, "s40": last}},
    }
    (tmp_path / "d.json").write_text(json.dumps(document))

    with pytest.raises(ConfigurationError, match="no end in sight"):
        build_tools(OpenApiEntry(document="d.json"), folder=tmp_path)
