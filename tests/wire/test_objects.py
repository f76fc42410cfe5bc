import json

import pytest

from assistant_runner.wire import assistants, base, failures, files, runs, stream, threads
from tests.conftest import FIXTURES

SCHEMA = json.loads((FIXTURES / "protocol" / "assistants-v2.schema.json").read_text(encoding="utf-8"))
MODELS = {
    "assistant": assistants.Assistant,
    "thread": threads.Thread,
    "thread.message": threads.Message,
    "thread.message.delta": stream.MessageDelta,
    "thread.run": runs.Run,
    "thread.run.step": runs.RunStep,
    "thread.run.step.delta": stream.RunStepDelta,
    "vector_store": files.VectorStore,
    "vector_store.file": files.VectorStoreFile,
    "vector_store.files_batch": files.FileBatch,
    "vector_store.search_results.page": files.SearchPage,
    "vector_store.file_content.page": files.FileContentPage,
    "file": files.File,
    "file.deleted": base.Deleted,
    "model": files.Model,
    "error": failures.ErrorBody,
    "list:thread.run": base.Page[runs.Run],
    "list:thread.message": base.Page[threads.Message],
}


@pytest.mark.parametrize("name", MODELS)
def test_every_field_of_the_schema_is_a_field_of_the_model(name):
    declared = set(SCHEMA["objects"][name]["schema"]["properties"])
    known = {field.alias or key for key, field in MODELS[name].model_fields.items()}

    assert declared - known - {"shutdown_date"} == set()


@pytest.mark.parametrize("name", MODELS)
def test_every_example_survives_a_round_trip(name):
    for example in SCHEMA["objects"][name]["examples"]:
        assert MODELS[name].model_validate(example).document() == example


def test_unknown_fields_and_statuses_survive_a_round_trip():
    document = {
        **SCHEMA["objects"]["thread.run"]["examples"][0],
        "status": "paused_for_review",
        "mood": {"deep": [1, None]},
        "required_action": {"type": "submit_tool_approval", "submit_tool_approval": {"tool_calls": []}},
        "tools": [{"type": "bing_grounding", "bing_grounding": {"x": 1}}],
    }

    assert runs.Run.model_validate(document).document() == document


@pytest.mark.parametrize("name", [name for name in SCHEMA["stream_events"] if name != "done"])
def test_every_event_of_the_protocol_is_parsed_to_its_object(name):
    kind = SCHEMA["stream_events"][name]["data_object"]
    examples = SCHEMA["objects"]["error_object" if name == "error" else kind]["examples"]

    event = stream.parse_event(name, examples[0])

    assert event.event == name
    assert event.data.document() == examples[0]


def test_case_050_an_error_inside_another_event_is_an_error():
    event = stream.parse_event(
        "thread.run.in_progress", {"error": {"message": "gone", "code": "server_error"}}
    )

    assert event.event == "error"
    assert event.data.message == "gone"
