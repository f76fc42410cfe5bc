"""An MCP server over stdio as no library would write it: odd schemas and names, noise, an early end."""

import json
import os
import sys

TOOLS = [
    {
        "name": "read.file",
        "inputSchema": {
            "type": "object",
            "properties": {"path": {"type": ["string", "null"]}, "line": {"type": "integer"}},
            "required": ["path"],
        },
    },
    {"name": "read_file", "inputSchema": {"type": "object"}},
    {"name": "leave", "description": " ", "inputSchema": {"type": "object"}},
    {"name": "wrong", "inputSchema": {"type": "object", "properties": {"x": {"type": "strin"}}}},
    {"name": "lost", "inputSchema": {"type": "object", "properties": {"x": {"$ref": "#/$defs/X"}}}},
    {"name": "far", "inputSchema": {"type": "object", "properties": {"x": {"$ref": "http://a.test/x"}}}},
]

for line in sys.stdin:
    asked = json.loads(line)
    answer: dict[str, object] = {"error": {"code": -32601, "message": "unknown"}}
    if asked["method"] == "initialize":
        version = asked["params"]["protocolVersion"]
        about = {"name": "odd", "version": "1"}
        answer = {"result": {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": about}}
    elif asked["method"] == "tools/list":
        answer = {"result": {"tools": TOOLS}}
    elif asked["method"] == "tools/call":
        if asked["params"]["name"] == "leave":
            os._exit(9)
        text = json.dumps(asked["params"]["arguments"])
        content = [
            {"type": "resource", "resource": {"uri": "file:///a", "text": text}},
            {"type": "resource_link", "uri": "file:///b", "name": "b"},
        ]
        answer = {"result": {"content": content}}
    if "id" in asked:
        print("starting to think")
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], **answer}), flush=True)
