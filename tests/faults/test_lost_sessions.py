"""A session whose rows were lost is missed: it is neither hidden by a filter nor begun anew."""

import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from eventlog.errors import EventCorruptError
from eventlog.log import SessionFilter
from eventlog.sqlite_log import SqliteLog
from replay.workspace import open_workspace
from tests.support.events import EventChain
from tests.support.recorded import append_all, data_of, seeded_chain

HEAD_LOST = ("DELETE FROM head WHERE session='y'",)
HEAD_AND_CLAIMS_LOST = (*HEAD_LOST, "DELETE FROM claims WHERE session='y'")
FILTERS = [
    None,
    SessionFilter(),
    SessionFilter(environment="test"),
    SessionFilter(environment="another"),
    SessionFilter(id_prefix="z"),
    SessionFilter(reward_min=0.5),
]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A log of the sessions x, y and z."""
    with SqliteLog(tmp_path / "log.db") as log:
        for name in "xyz":
            seeded_chain(log, name)
    return tmp_path / "log.db"


@pytest.fixture
def log(path: Path) -> Iterator[SqliteLog]:
    with SqliteLog(path) as log:
        yield log


def change(path: Path, *statements: str) -> None:
    """Change rows behind the log's back."""
    db = sqlite3.connect(path, isolation_level=None)
    for statement in statements:
        assert db.execute(statement).rowcount > 0
    db.close()


@pytest.mark.parametrize("where", FILTERS)
@pytest.mark.parametrize("lost", [HEAD_LOST, HEAD_AND_CLAIMS_LOST])
def test_a_filter_does_not_hide_a_lost_session(
    log: SqliteLog, lost: tuple[str, ...], where: SessionFilter | None
) -> None:
    change(log.path, *lost)
    with pytest.raises(EventCorruptError, match="number 2 is missing") as caught:
        list(log.list_sessions(where))
    assert caught.value.session_id == "y"


def test_a_filter_misses_the_last_session_too(log: SqliteLog) -> None:
    change(log.path, "DELETE FROM head WHERE session='z'")
    with pytest.raises(EventCorruptError, match="number 3 is missing"):
        list(log.list_sessions(SessionFilter(id_prefix="x")))


@pytest.mark.parametrize(
    ("column", "where"),
    [
        ("environment='tesu'", SessionFilter(environment="test")),
        ("status='lost'", SessionFilter(status="open")),
        ("task_id='t'", SessionFilter(task_id="")),
        ("last_time=1", SessionFilter(last_time_min=2)),
        ("session='Y'", SessionFilter(id_prefix="y")),
    ],
)
def test_a_change_in_a_filtered_column_does_not_hide_the_row(
    log: SqliteLog, column: str, where: SessionFilter
) -> None:
    change(log.path, f"UPDATE head SET {column} WHERE session='y'")
    with pytest.raises(EventCorruptError, match="not what was written"):
        list(log.list_sessions(where))


@pytest.mark.parametrize(
    "ask",
    [
        lambda log: log.session_info("y"),
        lambda log: list(log.read_session("y")),
        lambda log: list(log.read_records("y")),
        lambda log: log.release("y"),
        lambda log: log.take_over(["y"], stands_on={"y": bytes(32)}, reason="x"),
    ],
)
def test_a_session_that_lost_head_and_claims_is_damage_and_not_unknown(
    log: SqliteLog, ask: Callable[[SqliteLog], object]
) -> None:
    change(log.path, *HEAD_AND_CLAIMS_LOST)
    with pytest.raises(EventCorruptError, match="1 head rows are missing") as caught:
        ask(log)
    assert caught.value.session_id == "y"


@pytest.mark.parametrize("reopened", [True, False])
def test_the_id_of_a_lost_session_is_not_given_away_again(path: Path, reopened: bool) -> None:
    log = SqliteLog(path)
    other = seeded_chain(log, "other")
    if reopened:
        log.close()
    change(path, *HEAD_AND_CLAIMS_LOST)
    if reopened:
        log = SqliteLog(path)
    with log:
        chain = EventChain("y", seed=7)
        for _ in range(2):
            with pytest.raises(EventCorruptError, match="head rows are missing"):
                append_all(log, [chain.seed(writer=log.writer_id)])
            chain = EventChain("y", seed=7)
        if not reopened:
            # What is whole is written on.
            append_all(log, [other.call()])
        assert data_of(log.read_session("other")) == [each.data for each in other.events]


def test_sessions_begun_in_one_commit_miss_none(log: SqliteLog) -> None:
    chains = [EventChain(f"new/{number}") for number in range(40)]
    futures = [
        log.submit_events(chain.session_id, [chain.seed(writer=log.writer_id)], expected_step=-1)
        for chain in chains
    ]
    assert [future.result().last_step for future in futures] == [0] * 40
    assert len(list(log.list_sessions(SessionFilter(id_prefix="new/")))) == 40


@pytest.mark.parametrize("lost", [HEAD_LOST, HEAD_AND_CLAIMS_LOST])
def test_the_check_names_a_lost_session_by_its_events(
    log: SqliteLog, lost: tuple[str, ...]
) -> None:
    change(log.path, *lost)
    named = [each for each in log.find_damage() if each.session_id == "y"]
    assert [(each.step, each.error) for each in named] == [(0, "StepGapError")]
    assert "number 2 has events but no head row" in named[0].detail
    assert [each.session_id for each in log.find_damage(["y"])] == ["y"]
    assert list(log.find_damage(["x"])) == []


def test_the_check_names_a_session_of_which_only_claims_are_left(log: SqliteLog) -> None:
    change(log.path, *HEAD_LOST, "DELETE FROM events WHERE session=2")
    named = [each.detail for each in log.find_damage() if each.session_id == "y"]
    assert named == ["the session has claims but no head row"]


def test_the_check_does_not_believe_a_name_in_a_damaged_event(log: SqliteLog) -> None:
    change(log.path, *HEAD_AND_CLAIMS_LOST)
    db = sqlite3.connect(log.path)
    ((data,),) = db.execute("SELECT data FROM events WHERE session=2 AND step=0")
    assert data.count(b"\x02y") == 1
    data = data.replace(b"\x02y", b"\x02q")
    db.execute("UPDATE events SET data=? WHERE session=2 AND step=0", (data,))
    db.commit()
    db.close()
    found = list(log.find_damage())
    assert {each.session_id for each in found} == {None}
    assert any("number 2 has events" in each.detail for each in found)


def test_a_workspace_neither_begins_a_lost_session_anew_nor_lists_without_it(
    tmp_path: Path,
) -> None:
    with open_workspace(tmp_path) as ws:
        for name in "xyz":
            with ws.record(name, environment="e", state={"n": 1}):
                pass
        change(tmp_path / "log.db", *HEAD_AND_CLAIMS_LOST)
        with pytest.raises(EventCorruptError):
            list(ws.sessions(SessionFilter(environment="e")))
        with pytest.raises(EventCorruptError):
            ws.replay("y")
        for if_exists in ("fail", "resume", "new"):
            with pytest.raises(EventCorruptError):
                ws.record("y", environment="e", state={"n": 1}, if_exists=if_exists)
        reports = {report.session: report.verdict for report in ws.check()}
        assert reports["y"] == "damaged"
