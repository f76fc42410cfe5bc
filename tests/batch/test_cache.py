"""Answers that are kept across batches."""

from assistant_runner.batch.cache import AnswerCache


def test_the_file_is_private(tmp_path):
    path = tmp_path / "cache" / "answers.sqlite3"

    cache = AnswerCache(path)
    cache.put("hash", "fingerprint", {"answer": "42"})
    found = cache.get("hash", "fingerprint")
    modes = {oct(place.stat().st_mode & 0o777) for place in path.parent.iterdir()}
    cache.close()

    assert found == {"answer": "42"}
    assert modes == {"0o600"}
    assert path.parent.stat().st_mode & 0o777 == 0o700
