import pytest

from assistant_runner.run.answer import render_answer
from tests.fakes import message_object


def cited(text, *annotations):
    return message_object(
        "", content=[{"type": "text", "text": {"value": text, "annotations": list(annotations)}}]
    )


def citation(marker, file_id, begin=None):
    places = {} if begin is None else {"start_index": begin, "end_index": begin + len(marker)}
    return {"type": "file_citation", "text": marker, "file_citation": {"file_id": file_id}, **places}


def test_case_013_a_picture_before_the_text_hides_nothing():
    picture = {"type": "image_file", "image_file": {"file_id": "file-1"}}
    text = {"type": "text", "text": {"value": "See chart", "annotations": []}}

    answer, notes = render_answer([message_object("", content=[picture, text])])

    assert (answer, notes) == ("See chart", ["the reply holds an image: file file-1"])


def test_case_013_no_message_is_said_in_words():
    assert render_answer([]) == ("", ["no text in the reply"])


def test_case_056_a_known_marker_becomes_a_footnote_and_an_unknown_one_stays():
    message = cited("Dry【4:0†a】 then wet【5:1†b】.", citation("【4:0†a】", "file-abc", 3))

    assert render_answer([message])[0] == "Dry[1] then wet【5:1†b】.\n\n[1] file-abc"


@pytest.mark.parametrize("known_places", [True, False], ids=["by-index", "by-text"])
def test_case_056_equal_markers_keep_their_own_files(known_places):
    places = (0, 5) if known_places else (None, None)
    message = cited("[a] x[a]", citation("[a]", "file-1", places[0]), citation("[a]", "file-2", places[1]))

    assert render_answer([message])[0] == "[1] x[2]\n\n[1] file-1\n[2] file-2"


def test_case_056_indexes_that_point_elsewhere_are_not_believed():
    message = cited("🌧 wet[a]", citation("[a]", "file-1", 0))

    assert render_answer([message])[0] == "🌧 wet[1]\n\n[1] file-1"
