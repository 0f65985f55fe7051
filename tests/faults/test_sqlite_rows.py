"""Damaged pages and rows of a SQLite log: rows out of order, and values of a wrong type."""

import sqlite3
from collections.abc import Callable, Sequence
from operator import itemgetter
from pathlib import Path

import pytest

from eventlog.errors import EventCorruptError
from eventlog.sqlite.paging import pages
from eventlog.sqlite.schema import PAGE_BYTES
from eventlog.sqlite_log import SqliteLog
from replay.workspace import open_workspace
from tests.support.recorded import seeded_chain

NAMES = ("a", "b", "c", "d", "e")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A closed workspace's log, with blobs."""
    with open_workspace(tmp_path / "w") as ws:
        for name in NAMES:
            with ws.record(name, environment="e", state={"n": name}) as session:
                session.annotate("v", "x" * 300_000)
    return tmp_path / "w" / "log.db"


def spoil_order(path: Path) -> None:
    """Point the last row of the root page of `head` into the page's unused middle, which is zeros.

    It comes as an empty row, number 0. (Only the pointer's higher byte was zeroed: where it led to
    then hung on how long the rows are.)
    """
    db = sqlite3.connect(path)
    root = db.execute("SELECT rootpage FROM sqlite_master WHERE name='head'").fetchone()[0]
    db.close()
    with path.open("rb+") as file:
        file.seek((root - 1) * PAGE_BYTES + 16)
        file.write(b"\1\0")


def test_head_rows_that_lead_back_to_the_first_end_a_check_and_a_listing(path: Path) -> None:
    spoil_order(path)
    with SqliteLog(path) as log:
        findings = list(log.find_damage())
        assert any("do not stand in their order" in each.detail for each in findings)
        assert any(each.session_id == "e" for each in findings)
        with pytest.raises(EventCorruptError):
            list(log.list_sessions())
        with pytest.raises(EventCorruptError, match="order"):
            list(log.session_ids())
    with open_workspace(path.parent) as ws:
        verdicts = {report.session: report.verdict for report in ws.check()}
    assert [verdicts[name] for name in NAMES] == ["ok", "ok", "ok", "ok", "damaged"]


@pytest.mark.parametrize(
    ("rows", "sound"),
    [
        ([1, 2, 0], [1, 2]),
        ([1, 2, 2], [1, 2]),
        ([0], []),
        ([3, 1, 2], [3]),
    ],
)
def test_pages_that_do_not_grow_end_with_an_error(rows: Sequence[int], sound: list[int]) -> None:
    found: list[int] = []
    with pytest.raises(EventCorruptError, match="rows do not stand in their order"):  # noqa: PT012
        for page in pages(lambda after: [(row,) for row in rows], itemgetter(0), 0, "rows"):
            found.extend(number for (number,) in page)
    assert found == sound


def test_pages_end_with_an_empty_one() -> None:
    read: Callable[[int], list[int]] = lambda after: list(range(after + 1, min(after + 4, 9)))  # noqa: E731
    assert [list(page) for page in pages(read, int, 0, "rows")] == [[1, 2, 3], [4, 5, 6], [7, 8]]


def test_findings_of_one_session_are_bounded(tmp_path: Path) -> None:
    with SqliteLog(tmp_path / "log.db") as log:
        seeded_chain(log, "s", calls=100)
        seeded_chain(log, "t", calls=1)
        db = sqlite3.connect(log.path, isolation_level=None)
        db.execute("UPDATE events SET data=zeroblob(40) WHERE session=1")
        db.execute("UPDATE events SET data=zeroblob(40) WHERE session=2 AND step=1")
        db.close()
        findings = list(log.find_damage())
    of_s = [each for each in findings if each.session_id == "s"]
    assert len(of_s) == 101
    assert "and more" in of_s[-1].detail
    assert [each.step for each in findings if each.session_id == "t"] == [1]


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE blob_refs SET step='text' WHERE session=2",
        "UPDATE blob_refs SET step=x'00' WHERE session=2",
        "UPDATE blob_refs SET blob=5 WHERE session=2",
        "UPDATE blob_refs SET attempt='one' WHERE session=2",
        "UPDATE blob_refs SET session='x' WHERE session=2",
        "UPDATE head SET session=x'61' WHERE number=2",
        "UPDATE head SET session=7 WHERE number=2",
        "UPDATE head SET step_count='many' WHERE number=2",
        "UPDATE head SET summary=1 WHERE number=2",
        "UPDATE claims SET session=5 WHERE session='b'",
        "UPDATE claims SET seal='x' WHERE session='b'",
        "UPDATE events SET step='x' WHERE session=2 AND step=1",
        "UPDATE events SET data='x' WHERE session=2 AND step=1",
        "UPDATE events SET attempt=x'00' WHERE session=2 AND step=1",
        "UPDATE events SET digest=5 WHERE session=2 AND step=1",
        "UPDATE events SET session='x' WHERE session=2 AND step=1",
    ],
)
def test_values_of_a_wrong_type_are_findings(path: Path, change: str) -> None:
    db = sqlite3.connect(path, isolation_level=None)
    assert db.execute(change).rowcount
    db.close()
    with SqliteLog(path) as log:
        whole, one = list(log.find_damage()), list(log.find_damage(["b"]))
    assert whole
    assert one
    for finding in (*whole, *one):
        assert type(finding.session_id) in (str, type(None))
        assert type(finding.step) in (int, type(None))
        assert type(finding.offset) in (int, type(None))
    with open_workspace(path.parent) as ws:
        verdicts = {report.session: report.verdict for report in ws.check()}
        assert verdicts.pop("b") == "damaged"
        assert all(verdicts[name] == "ok" for name in NAMES if name != "b")
