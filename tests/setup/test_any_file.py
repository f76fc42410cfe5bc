"""Whatever stands in a file, the loader answers with assistants or with problems that have a place."""

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from assistant_runner.errors import ConfigurationError
from assistant_runner.setup.load import load_assistant_file
from assistant_runner.setup.model import AssistantBody
from assistant_runner.setup.prompts import read_prompt
from assistant_runner.setup.rescue import rescue
from assistant_runner.setup.threads import read_threads

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=12)
WORDS = st.sampled_from(
    [
        "type",
        "function",
        "name",
        "parameters",
        "strict",
        "http",
        "command",
        "mcp",
        "openapi",
        "human",
        "file_search",
        "code_interpreter",
        "files",
        "url",
        "description",
        "text",
        "file",
        "expand",
        "schema",
        "properties",
        "rules",
        "allow",
        "extends",
        "abstract",
        "profiles",
    ]
)
VALUES = st.recursive(
    SCALARS | st.sampled_from(["get_weather", "${HOME", "${X:-1}", "$$", "auto", "embedded", "10m", "*.md"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(WORDS | st.text(max_size=6), inner, max_size=3)
    ),
    max_leaves=12,
)
KEYS = st.sampled_from(
    [*AssistantBody.model_fields, "extends", "profiles", "assistants", "defaults", "project"]
)
QUICK = settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def load(path: Path) -> None:
    try:
        load_assistant_file(path, environ={})
    except ConfigurationError as caught:
        error = caught
    else:
        return
    assert str(path.parent) in str(error)
    assert error.remedy


@QUICK
@given(st.dictionaries(KEYS, VALUES, max_size=5), st.sampled_from([".json", ".yaml"]))
def test_any_values_under_known_keys(tmp_path, document, suffix):
    path = tmp_path / f"assistant{suffix}"
    path.write_text(json.dumps({"name": "x", "model": "m", **document}), encoding="utf-8")

    load(path)


@QUICK
@given(st.text(max_size=80), st.sampled_from([".yaml", ".toml", ".json", ".prompt"]))
def test_any_text(tmp_path, text, suffix):
    path = tmp_path / f"assistant{suffix}"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))

    if suffix == ".prompt":
        try:
            read_prompt(path)
        except ConfigurationError:
            return
    else:
        load(path)


@QUICK
@given(
    st.dictionaries(WORDS | st.sampled_from(["id", "object", "data", "messages", "role", "content"]), VALUES)
)
def test_any_dump(tmp_path, document):
    path = tmp_path / "dump.json"
    path.write_text(json.dumps([document, {"id": "asst_1", **document}]), encoding="utf-8")

    found = rescue(path)
    dumps, _ = read_threads([document, {"role": "user", **document}])

    assert json.dumps(found.report())
    assert found.file_text() if found.found else True
    assert all(len(dump.text_hash) == 64 for dump in dumps)


@pytest.mark.parametrize("text", ["[" * 1200, "a: " * 500, '{"a":' * 1200], ids=["lists", "keys", "maps"])
def test_files_that_are_nested_too_deeply_are_refused(tmp_path, text):
    for suffix in (".yaml", ".json", ".toml"):
        path = tmp_path / f"assistant{suffix}"
        path.write_text(text)
        with pytest.raises(ConfigurationError):
            load_assistant_file(path, environ={})
