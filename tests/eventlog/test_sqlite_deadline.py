"""A disk that does not answer: every request is answered by its deadline, and settled later."""

import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from eventlog.errors import AppendUncertainError, LogUnavailableError
from eventlog.keeping import log_writer
from eventlog.keeping.log_writer import LogWriter
from eventlog.sqlite.store import SqliteStore
from eventlog.sqlite_log import SqliteLog
from replay.workspace import open_workspace
from tests.support.recorded import append_all, data_of, seeded_chain

DEADLINE_S = 0.3
PATIENCE_S = 60.0
"""Far above any deadline of these tests: what takes so long would have waited for ever."""


class _Stopped(sqlite3.OperationalError):
    """What sqlite3 raises when the sync of a commit fails at last."""

    sqlite_errorcode = sqlite3.SQLITE_IOERR_FSYNC


class StuckDisk:
    """While `stuck`, a COMMIT does not return; once freed it does what `ends` says.

    Deadlines count only meanwhile: the real disk below may be slow for a moment, too.
    """

    def __init__(self) -> None:
        self.freed = threading.Event()
        self.freed.set()
        self.entered = threading.Event()
        self.ends = "written"

    def stick(self) -> None:
        self.entered.clear()
        self.freed.clear()

    def commit_of(self) -> Callable[[SqliteStore], None]:
        """A `SqliteStore.commit` on this disk."""
        return lambda store: self._commit(store)

    def _commit(self, store: SqliteStore) -> None:
        self.entered.set()
        assert self.freed.wait(PATIENCE_S)
        if self.ends == "failed":
            self.ends = "written"
            raise _Stopped("disk I/O error")
        if self.ends == "full":
            self.ends = "written"
            error = sqlite3.OperationalError("disk is full")
            error.sqlite_errorcode = sqlite3.SQLITE_FULL
            raise error
        _commit(store)


_commit = SqliteStore.commit


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[StuckDisk]:
    disk = StuckDisk()
    monkeypatch.setattr(SqliteStore, "commit", disk.commit_of())
    monkeypatch.setattr(log_writer, "_WATCH_EVERY_S", 0.05)
    name = "commit_deadline_s"  # Stays in the writer, whose threads may outlive the test.
    commit_s = property(
        lambda writer: PATIENCE_S if disk.freed.is_set() else vars(writer)[name],
        lambda writer, deadline_s: vars(writer).update({name: deadline_s}),
    )
    wait_s = property(lambda _: PATIENCE_S if disk.freed.is_set() else log_writer.DEADLINE_S)
    monkeypatch.setattr(log_writer, "DEADLINE_S", DEADLINE_S)
    monkeypatch.setattr(LogWriter, name, commit_s, raising=False)
    monkeypatch.setattr(LogWriter, "wait_deadline_s", wait_s)
    yield disk
    disk.freed.set()


@pytest.fixture
def log(tmp_path: Path, disk: StuckDisk) -> Iterator[SqliteLog]:
    with SqliteLog(tmp_path / "log.db", commit_deadline_s=DEADLINE_S) as log:
        yield log
        disk.freed.set()


@pytest.mark.parametrize("ends", ["written", "failed", "full"])
@pytest.mark.parametrize("queued", [True, False])
def test_a_stuck_commit_is_answered_at_its_deadline_and_reconciled_after(
    log: SqliteLog, disk: StuckDisk, ends: str, queued: bool
) -> None:
    chain, other = seeded_chain(log, "s"), seeded_chain(log, "other")
    disk.ends = ends
    disk.stick()
    begun = time.monotonic()
    batch = [chain.call(), chain.returned()]
    if queued:
        future = log.submit_events("s", batch, expected_step=4)
        error = future.exception(PATIENCE_S)
        assert isinstance(error, AppendUncertainError)
    else:
        with pytest.raises(AppendUncertainError) as caught:
            append_all(log, batch)
        error = caught.value
    assert time.monotonic() - begun < PATIENCE_S / 2
    assert error.session_id == "s"
    assert "did not answer for 0.3 s" in error.message
    # What comes after it in the queue is surely not written.
    with pytest.raises(LogUnavailableError, match="stuck"):
        append_all(log, [other.call()])
    with pytest.raises(LogUnavailableError, match="stuck"):
        log.reconcile("s")
    disk.freed.set()
    with pytest.raises(AppendUncertainError, match="unknown"):
        append_all(log, [chain.call()])
    receipt = log.reconcile("s")
    if ends == "written":
        assert receipt is not None
        assert receipt[:5] == ("s", 5, 6, 1, batch[-1].digest)
        append_all(log, [chain.events[-1]])
    else:
        assert receipt is None
        append_all(log, chain.events[5:])
    append_all(log, [other.events[-1]])
    for each in (chain, other):
        assert data_of(log.read_session(each.session_id)) == [one.data for one in each.events]
    assert list(log.find_damage()) == []


def test_a_stuck_take_over_is_reconciled(log: SqliteLog, disk: StuckDisk) -> None:
    head = seeded_chain(log, "s").head
    disk.stick()
    with pytest.raises(AppendUncertainError):
        log.take_over(["s"], stands_on={"s": head.digest}, reason="x")
    disk.freed.set()
    receipt = log.reconcile("s")
    assert receipt is not None
    assert (receipt.attempt, receipt.last_step) == (2, 5)


def test_a_reconcile_that_sticks_leaves_the_session_blocked(
    log: SqliteLog, disk: StuckDisk
) -> None:
    chain = seeded_chain(log, "s")
    event = chain.call()
    disk.ends = "failed"
    with pytest.raises(AppendUncertainError):
        append_all(log, [event])
    disk.stick()
    with pytest.raises(AppendUncertainError):
        log.reconcile("s")
    disk.freed.set()
    with pytest.raises(AppendUncertainError):
        append_all(log, [event])
    assert log.reconcile("s") is None
    append_all(log, [event])


def test_a_stuck_cut_is_unavailable_and_may_be_tried_again(log: SqliteLog, disk: StuckDisk) -> None:
    seeded_chain(log, "s")
    disk.stick()
    with pytest.raises(LogUnavailableError, match="did not answer"):
        log.commit_cut("group", log.end_cut())
    disk.freed.set()
    log.commit_cut("group", log.end_cut())
    assert log.committed_cut("group") == log.end_cut()


def test_a_close_does_not_wait_for_ever(tmp_path: Path, disk: StuckDisk) -> None:
    log = SqliteLog(tmp_path / "log.db", commit_deadline_s=DEADLINE_S)
    chain = seeded_chain(log, "s")
    disk.stick()
    future = log.submit_events("s", [chain.call()], expected_step=4)
    assert disk.entered.wait(PATIENCE_S)
    begun = time.monotonic()
    log.close()
    assert time.monotonic() - begun < PATIENCE_S / 2
    assert isinstance(future.exception(PATIENCE_S), AppendUncertainError)


def test_a_recording_on_a_stuck_disk_ends_with_an_error_of_ours(
    tmp_path: Path, disk: StuckDisk
) -> None:
    with open_workspace(tmp_path) as ws:
        ws.log.close()
        ws.log = SqliteLog(tmp_path / "log.db", commit_deadline_s=DEADLINE_S)
        session = ws.record("s", environment="desk", state={"n": 1})
        disk.stick()
        with pytest.raises(AppendUncertainError):
            session.close()
        disk.freed.set()
        receipt = ws.log.reconcile("s")
        assert receipt is not None
        assert ws.session("s").status == "closed"


def test_a_slow_disk_within_the_deadline_is_waited_for(
    tmp_path: Path, disk: StuckDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_writer, "DEADLINE_S", PATIENCE_S)
    with SqliteLog(tmp_path / "log.db", commit_deadline_s=PATIENCE_S) as log:
        chain = seeded_chain(log, "s")
        disk.stick()
        threading.Timer(0.4, disk.freed.set).start()
        append_all(log, [chain.call()])
        assert log.session_info("s").step_count == 6


def test_the_most_impatient_handle_decides(tmp_path: Path, disk: StuckDisk) -> None:
    with SqliteLog(tmp_path / "log.db") as patient:
        chain = seeded_chain(patient, "s")
        with SqliteLog(tmp_path / "log.db", commit_deadline_s=DEADLINE_S):
            disk.stick()
            with pytest.raises(AppendUncertainError):
                append_all(patient, [chain.call()])
            disk.freed.set()
