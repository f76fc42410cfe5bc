"""A first assistant file: from a few answers, or one of the worked examples that are shipped."""

import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from assistant_runner.errors import UsageError, near_words
from assistant_runner.service.engines.catalog import DEFAULT_MODEL

_TEXT = """\
# An assistant as code. Check it:  assistant-runner assistant plan
# Make it:                         assistant-runner assistant apply
# Ask it:                          assistant-runner "your question"    (in this folder)
name: {name}
model: {model}{model_note}
instructions: {instructions}

# Tools: shipped ones by name, your own as ./my_tools.py:function, hosted ones (file_search,
# code_interpreter), and http, command and mcp entries. See them with: assistant-runner tools list
{tools}
# temperature: 1                 # 0 to 2
# tool_choice: auto              # auto, none, required, or {{function: get_weather}}
# parallel_tool_calls: true
# response_format: auto          # text, json_object, or {{name, schema, strict}}
# limits: {{rounds: 25, timeout: 10m, tool_timeout: 60s}}
# metadata: {{team: maps}}

# Where it lives (embedded: in this process) and what thinks for it there:
# backend: embedded              # or http://127.0.0.1:8080/v1, or {{foundry: …}}, {{azure: …}}
# engine: {{api: responses, base_url: '${{OPENAI_BASE_URL:-}}'}}

# What differs elsewhere, chosen with --profile prod:
# profiles:
#   prod: {{model: gpt-6.1-sol}}
"""


@dataclass(frozen=True, slots=True)
class Answers:
    """What a new file should say. `files`: paths and globs for file_search."""

    name: str
    model: str = DEFAULT_MODEL
    instructions: str = "Answer with the tools you have."
    tools: tuple[str, ...] = ("get_weather",)
    files: tuple[str, ...] = ()


def first_file(answers: Answers, *, note: str = "") -> str:
    """The commented text of a new assistant file."""
    entries = [f"  - {_scalar(tool)}" for tool in answers.tools]
    if answers.files:
        entries.append(f"  - file_search: {{files: [{', '.join(_scalar(one) for one in answers.files)}]}}")
    tools = "tools:\n" + "\n".join(entries) + "\n" if entries else "tools: []\n"
    return _TEXT.format(
        name=_scalar(answers.name),
        model=_scalar(answers.model),
        model_note=f"  # {note}" if note else "",
        instructions=_instructions(answers.instructions),
        tools=tools,
    )


def _scalar(text: str) -> str:
    """The text as YAML takes it back: bare where nothing can be misread, else in double quotes."""
    bare = text.replace(" ", "").replace("_", "").replace("-", "").replace(".", "").replace("/", "")
    plain = bare.isalnum() and bare.isascii() and text[:1].isalpha() and text == text.strip()
    return text.replace("$", "$$") if plain else json.dumps(text.replace("$", "$$"), ensure_ascii=False)


def _instructions(text: str) -> str:
    if "\n" in text.strip():
        return "|\n" + "\n".join(f"  {line}" if line else "" for line in text.strip().splitlines())
    return json.dumps(text, ensure_ascii=False) if not _is_plain_sentence(text) else text


def _is_plain_sentence(text: str) -> bool:
    signs = set(":#{}[]&*!|>'\"%@`\\\t")
    return (
        bool(text)
        and text == text.strip()
        and text[0].isalpha()
        and not signs & set(text)
        and text.isprintable()
    )


# --- examples --------------------------------------------------------------------------------------


def examples_folder() -> Path:
    """Where the worked examples lie: beside the package in a checkout, inside it in an installed wheel."""
    package = Path(__file__).resolve().parent.parent
    inside = package / "_shipped" / "examples"
    return inside if inside.is_dir() else package.parent / "docs" / "examples"


def example_names() -> list[str]:
    """The names that `init --example` takes."""
    return sorted(path.parent.name for path in examples_folder().glob("*/assistant.yaml"))


def copy_example(name: str, target: Path, *, force: bool = False) -> Sequence[Path]:
    """The files of an example, copied to a folder; UsageError before anything is written over."""
    names = example_names()
    if name not in names:
        near = near_words(name, names)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise UsageError(f"no example {name!r}{hint}", remedy=f"there are: {', '.join(names)}")
    source = examples_folder() / name
    files = sorted(path for path in source.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    pairs = [(path, target / path.relative_to(source)) for path in files]
    there = [str(copy) for path, copy in pairs if copy.exists() and copy.read_bytes() != path.read_bytes()]
    if there and not force:
        raise UsageError(
            f"{', '.join(there)}: there already, and different", remedy="another folder, or --force"
        )
    for path, copy in pairs:
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copy)
    return [copy for _, copy in pairs]
