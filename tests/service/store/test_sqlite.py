"""The store: documents, pages, locks, migrations, and what two connections see of each other."""

import sqlite3
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assistant_runner.errors import ConfigurationError
from assistant_runner.service.store.base import ActiveRun, Conflict, UnknownCursor
from assistant_runner.service.store.sqlite import MIGRATIONS, SqliteStore


@pytest.fixture
def store():
    opened = SqliteStore.open(":memory:")
    yield opened
    opened.close()


def active(run_id: str, thread_id: str = "thread_a", **fields: object) -> ActiveRun:
    values = {
        "run_id": run_id,
        "thread_id": thread_id,
        "world": "w:",
        "status": "queued",
        "deadline_at": 700.0,
        "owner": "me",
        "seen_at": 100.0,
    }
    return ActiveRun(**{**values, **fields})  # type: ignore[arg-type]


@given(
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats(allow_nan=False, allow_infinity=False)
        | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_a_document_comes_back_exactly(value: object):
    store = SqliteStore.open(":memory:")
    store.insert("thing", "w:", "a", {"value": value, "lone": "\ud800", "big": 10**30})

    row = store.get("thing", "w:", "a")

    assert row is not None
    assert row.doc == {"value": value, "lone": "\ud800", "big": 10**30}
    store.close()


def test_an_update_of_an_old_version_is_a_conflict(store: SqliteStore):
    store.insert("thing", "w:", "a", {"n": 1})
    first, second = store.get("thing", "w:", "a"), store.get("thing", "w:", "a")
    assert first is not None
    assert second is not None
    first.doc = {"n": 2}
    store.update(first)

    second.doc = {"n": 3}
    with pytest.raises(Conflict):
        store.update(second)


def test_a_transaction_that_fails_changes_nothing(store: SqliteStore):
    store.insert("thing", "w:", "b", {})

    with pytest.raises(Conflict), store.transaction():
        _ = store.insert("thing", "w:", "a", {}), store.insert("thing", "w:", "b", {})

    assert store.get("thing", "w:", "a") is None


def test_a_deleted_document_is_gone_and_may_be_made_again(store: SqliteStore):
    store.insert("thing", "w:", "a", {"n": 1})

    assert store.delete("thing", "w:", "a")
    assert not store.delete("thing", "w:", "a")
    assert store.page("thing", "w:", limit=9) == ([], False)
    store.insert("thing", "w:", "a", {"n": 2})
    [row], _ = store.page("thing", "w:", limit=9)
    assert row.doc == {"n": 2}


@given(st.data())
def test_pages_walk_every_document_once_in_both_orders(data: st.DataObject):
    store = SqliteStore.open(":memory:")
    count = data.draw(st.integers(0, 12))
    gone = data.draw(st.sets(st.integers(0, 11)))
    for number in range(count):
        store.insert("thing", "w:", f"id{number}", {"n": number}, tag=str(number % 2))
    for number in gone:
        store.delete("thing", "w:", f"id{number}")
    order = data.draw(st.sampled_from(["asc", "desc"]))
    tag = data.draw(st.sampled_from([None, "0"]))
    limit = data.draw(st.integers(1, 5))
    expected = [n for n in range(count) if n not in gone and (tag is None or n % 2 == 0)]
    expected = expected if order == "asc" else expected[::-1]

    seen: list[int] = []
    after, more = None, True
    while more:
        rows, more = store.page("thing", "w:", limit=limit, order=order, after=after, tag=tag)
        seen += [row.doc["n"] for row in rows]
        after = rows[-1].id if rows else None

    assert seen == expected
    store.close()


@pytest.mark.parametrize("param", ["after", "before"])
def test_an_unknown_cursor_is_named(store: SqliteStore, param: str):
    with pytest.raises(UnknownCursor) as caught:
        store.page("thing", "w:", limit=1, **{param: "none"})  # type: ignore[arg-type]

    assert (caught.value.param, caught.value.identifier) == (param, "none")


def test_a_thread_is_locked_by_one_run(store: SqliteStore):
    assert store.activate(active("run_a")) is None
    assert store.activate(active("run_b")) == "run_a"
    assert store.activate(active("run_b", "thread_b")) is None
    store.deactivate("run_a")
    assert store.active_run("thread_a") is None
    assert store.activate(active("run_c")) is None


def test_a_claim_works_once(store: SqliteStore):
    store.activate(active("run_a"))

    assert store.claim("run_a", expected="me", owner="you", seen_at=1.0)
    assert not store.claim("run_a", expected="me", owner="they", seen_at=1.0)
    assert [run.owner for run in store.active_runs(owner="you")] == ["you"]


def test_runs_are_found_when_they_are_overdue_or_unseen(store: SqliteStore):
    store.activate(active("run_late", "thread_a", deadline_at=10.0, status="requires_action"))
    store.activate(active("run_dead", "thread_b", seen_at=1.0))
    store.activate(active("run_idle", "thread_c", owner=None))
    store.activate(active("run_well", "thread_d"))

    assert [run.run_id for run in store.active_runs(overdue_at=20.0)] == ["run_late"]
    assert {run.run_id for run in store.active_runs(unseen_since=50.0)} == {"run_dead", "run_idle"}


def test_the_lock_and_the_pages_are_found_by_index(store: SqliteStore):
    questions = [
        "SELECT 1 FROM active_runs WHERE thread_id = 'a'",
        "SELECT 1 FROM documents WHERE id = 'a' AND kind = 'b' AND parent = 'c' AND gone = 0",
        "SELECT seq FROM documents WHERE parent = 'a' AND kind = 'b' AND gone = 0 AND seq < 9 ORDER BY seq",
        "SELECT seq FROM documents WHERE parent = 'a' AND kind = 'b' AND gone = 0 AND tag = 'c' ORDER BY seq",
    ]
    for question in questions:
        plan = " ".join(row[3] for row in store._execute(f"EXPLAIN QUERY PLAN {question}"))
        assert "USING" in plan, question
        assert "SCAN" not in plan, question
        assert "TEMP B-TREE" not in plan, question


def test_two_connections_see_each_others_transactions_whole(tmp_path: Path):
    first, second = (SqliteStore.open(tmp_path / "store.sqlite3") for _ in range(2))
    with first.transaction():
        first.insert("thing", "w:", "a", {})
        assert second.get("thing", "w:", "a") is None
    assert second.get("thing", "w:", "a") is not None
    assert first.activate(active("run_a")) is None
    assert second.activate(active("run_b")) == "run_a"
    first.close()
    second.close()


def test_a_file_keeps_its_version_and_a_newer_one_is_refused(tmp_path: Path):
    path = tmp_path / "store.sqlite3"
    SqliteStore.open(path).close()
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA user_version").fetchone() == (len(MIGRATIONS),)
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    connection.execute(f"PRAGMA user_version = {len(MIGRATIONS) + 1}")
    connection.close()

    with pytest.raises(ConfigurationError, match="this program knows up to"):
        SqliteStore.open(path)


@pytest.mark.parametrize("content", [b"no database at all" * 100, None], ids=["other file", "folder"])
def test_what_is_no_store_is_refused_in_words(tmp_path: Path, content: bytes | None):
    path = tmp_path / "store.sqlite3"
    path.mkdir() if content is None else path.write_bytes(content)

    with pytest.raises(ConfigurationError, match="cannot be used"):
        SqliteStore.open(path)


def test_the_file_and_the_folder_made_for_it_are_private(tmp_path: Path):
    path = tmp_path / "data" / "store.sqlite3"

    SqliteStore.open(path).close()

    assert [oct(place.stat().st_mode & 0o777) for place in (path.parent, path)] == ["0o700", "0o600"]
