"""What people still have of the old API: JSON, JSON lines, or what an SDK printed. Read, not judged.

Python's own print of SDK objects (`Assistant(id='asst_…', tools=[FunctionTool(…)])`) is read as data by
the parser of the standard library; nothing in it is run.
"""

import ast
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from assistant_runner.errors import ConfigurationError

MAX_BYTES = 512 * 1024 * 1024
_BOMS = ((b"\xff\xfe\x00\x00", "utf-32"), (b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16"))


def read_dump(path: Path) -> list[Any]:
    """The documents of a file, in order; ConfigurationError names the line that cannot be read."""
    try:
        if path.stat().st_size > MAX_BYTES:
            raise ConfigurationError(f"{path}: larger than 512 MB", remedy="split it by threads")
        raw = path.read_bytes()
    except OSError as error:
        raise ConfigurationError(
            f"{path}: cannot be read: {error.strerror or error}", remedy="name a file that exists"
        ) from None
    encoding = next((name for bom, name in _BOMS if raw.startswith(bom)), "utf-8-sig")
    try:
        text = raw.decode(encoding)
    except UnicodeDecodeError as error:
        raise ConfigurationError(
            f"{path}: not text: byte {error.start}", remedy="give JSON in UTF-8"
        ) from None
    if not text.strip():
        raise ConfigurationError(f"{path}: empty", remedy="give the JSON of assistants or threads")
    return list(parse_dump(text, str(path)))


def parse_dump(text: str, source: str = "dump") -> Iterator[Any]:
    """The documents of a text: one JSON document, several one after the other, or a Python print."""
    decoder = json.JSONDecoder()
    position, size = 0, len(text)
    while position < size:
        while position < size and text[position] in " \t\r\n,":
            position += 1
        if position >= size:
            return
        try:
            document, position = decoder.raw_decode(text, position)
        except json.JSONDecodeError as error:
            if position == 0 or text[position].isalpha():
                printed = _python_print(text[position:].strip())
                if printed is not None:
                    yield printed
                    return
            line = text.count("\n", 0, error.pos) + 1
            raise ConfigurationError(
                f"{source}:{line}: neither JSON nor a printed SDK object: {error.msg}",
                remedy="export it as JSON, for example with .model_dump_json()",
            ) from None
        yield document


def _python_print(text: str) -> Any:
    """The data of `Name(key=value, …)`, None if it is no such print."""
    try:
        tree = ast.parse(text, mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    try:
        return _data_of(tree.body)
    except ValueError:
        return None


def _data_of(node: ast.expr) -> Any:
    match node:
        case ast.Constant():
            return node.value
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as number)):
            return -number
        case ast.List() | ast.Tuple():
            return [_data_of(item) for item in node.elts]
        case ast.Dict():
            pairs = zip(node.keys, node.values, strict=True)
            return {_data_of(key): _data_of(value) for key, value in pairs if key is not None}
        case ast.Call(
            func=ast.Name() | ast.Attribute(value=ast.Name()) | ast.Subscript(value=ast.Name())
        ) if not node.args:
            return {one.arg: _data_of(one.value) for one in node.keywords if one.arg is not None}
        case _:
            raise ValueError(type(node).__name__)
