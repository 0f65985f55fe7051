"""The SQLite keeper when its writing goes wrong: full disks, failed commits, stuck processes."""

import fcntl
import os
import sqlite3
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from eventlog.content import OCTET_STREAM, Content
from eventlog.errors import (
    AppendUncertainError,
    EventCorruptError,
    LogUnavailableError,
    StepConflictError,
    SteplogError,
)
from eventlog.keeping import log_writer
from eventlog.keeping.append_rule import Append
from eventlog.sqlite import connection as sqlite_connection
from eventlog.sqlite.committer import CHECKPOINT_BYTES
from eventlog.sqlite.store import SqliteStore
from eventlog.sqlite_log import SqliteLog
from tests.support.events import EventChain
from tests.support.processes import finish, python_script
from tests.support.recorded import append_all, data_of, seeded_chain


@pytest.fixture
def log(tmp_path: Path) -> Iterator[SqliteLog]:
    with SqliteLog(tmp_path / "log.db") as log:
        yield log


def written(log: SqliteLog, chain: EventChain) -> bool:
    """Whether the log holds exactly the chain."""
    return data_of(log.read_session(chain.session_id)) == [each.data for each in chain.events]


class TestDiskFull:
    """`PRAGMA max_page_count` gives SQLITE_FULL as a full disk does, for root too; RLIMIT_FSIZE
    makes the operating system refuse the write itself."""

    def test_a_full_disk_is_named_and_nothing_is_lost(self, log: SqliteLog) -> None:
        chain = seeded_chain(log, "s")
        db = log._own.writer.committer._db
        assert db is not None
        pages = db.execute("PRAGMA page_count").fetchone()[0]
        db.execute(f"PRAGMA max_page_count={pages + 2}")
        large = Content(OCTET_STREAM, bytes(200_000))
        event = chain.call(arguments=large)
        with pytest.raises(LogUnavailableError, match="full") as caught:
            append_all(log, [event])
        assert str(log.path) in caught.value.message
        assert "free some space" in caught.value.hint
        assert caught.value.retryable
        assert log.session_info("s").step_count == 5
        # The connection was opened anew, as it is when space was freed: the same append goes in.
        append_all(log, [event])
        assert written(log, chain)
        assert list(log.find_damage()) == []

    def test_a_write_that_the_system_refuses(self, tmp_path: Path) -> None:
        code = """
import resource, sys
from eventlog.content import OCTET_STREAM, Content
from eventlog.errors import LogUnavailableError
from eventlog.sqlite_log import SqliteLog
from tests.support.recorded import append_all, data_of, seeded_chain
log = SqliteLog(sys.argv[1])
chain = seeded_chain(log, "s")
hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
resource.setrlimit(resource.RLIMIT_FSIZE, (1_500_000, hard))
refused = 0
for number in range(40):
    event = chain.call(arguments=Content(OCTET_STREAM, bytes([number]) * 100_000))
    try:
        append_all(log, [event])
    except LogUnavailableError as error:
        assert sys.argv[1] in error.message, error
        assert log.session_info("s").step_count == event.event.step, "it was written after all"
        refused += 1
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
        append_all(log, [event])
        resource.setrlimit(resource.RLIMIT_FSIZE, (1_500_000, hard))
assert data_of(log.read_session("s")) == [each.data for each in chain.events]
assert not list(log.find_damage())
resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
log.close()
print(refused)
"""
        refused = finish(python_script(code, tmp_path / "log.db"))
        assert int(refused) > 0


class _Stopped(sqlite3.OperationalError):
    """What sqlite3 raises when the sync of a commit fails."""

    sqlite_errorcode = sqlite3.SQLITE_IOERR_FSYNC
    sqlite_errorname = "SQLITE_IOERR_FSYNC"


def failing_commit(monkeypatch: pytest.MonkeyPatch, *, reaches_the_disk: bool) -> None:
    """The next COMMIT reports a failed sync; its frames are on disk all the same, or not."""
    real = SqliteStore.commit
    left = [1]

    def commit(store: SqliteStore) -> None:
        if not left:
            real(store)
            return
        left.clear()
        if reaches_the_disk:
            real(store)
        raise _Stopped("disk I/O error")

    monkeypatch.setattr(SqliteStore, "commit", commit)


class TestFailedCommit:
    """Nobody knows whether a commit whose sync failed is on disk, until somebody looks."""

    @pytest.mark.parametrize("reaches_the_disk", [True, False])
    def test_the_session_is_blocked_until_it_is_reconciled(
        self, log: SqliteLog, monkeypatch: pytest.MonkeyPatch, reaches_the_disk: bool
    ) -> None:
        chain, other = seeded_chain(log, "s"), seeded_chain(log, "other")
        batch = [chain.call(), chain.returned()]
        failing_commit(monkeypatch, reaches_the_disk=reaches_the_disk)
        with pytest.raises(AppendUncertainError) as caught:
            append_all(log, batch)
        assert caught.value.session_id == "s"
        assert "reconcile" in caught.value.hint
        with pytest.raises(AppendUncertainError):
            append_all(log, batch)
        with pytest.raises(AppendUncertainError):
            log.take_over(["other", "s"], stands_on={"s": bytes(32)}, reason="x")
        append_all(log, [other.call()])
        receipt = log.reconcile("s")
        if reaches_the_disk:
            assert receipt is not None
            assert receipt[:5] == ("s", 5, 6, 1, batch[-1].digest)
            assert append_all(log, batch) == receipt
        else:
            assert receipt is None
            append_all(log, batch)
        append_all(log, [chain.call()])
        assert written(log, chain)
        assert log.reconcile("s") is None

    @pytest.mark.parametrize("reaches_the_disk", [True, False])
    def test_a_seed_of_unknown_outcome(
        self, log: SqliteLog, monkeypatch: pytest.MonkeyPatch, reaches_the_disk: bool
    ) -> None:
        chain = EventChain("new")
        seed = chain.seed(writer=log.writer_id)
        failing_commit(monkeypatch, reaches_the_disk=reaches_the_disk)
        with pytest.raises(AppendUncertainError):
            append_all(log, [seed])
        assert (log.reconcile("new") is not None) is reaches_the_disk
        append_all(log, [seed])
        assert written(log, chain)

    @pytest.mark.parametrize("reaches_the_disk", [True, False])
    def test_a_take_over_of_unknown_outcome(
        self, log: SqliteLog, monkeypatch: pytest.MonkeyPatch, reaches_the_disk: bool
    ) -> None:
        stands_on = {name: seeded_chain(log, name).head.digest for name in ("a", "b")}
        failing_commit(monkeypatch, reaches_the_disk=reaches_the_disk)
        with pytest.raises(AppendUncertainError):
            log.take_over(["a", "b"], stands_on=stands_on, reason="x")
        receipts = [log.reconcile("a"), log.reconcile("b")]
        if reaches_the_disk:
            assert [receipt and receipt.attempt for receipt in receipts] == [2, 2]
        else:
            assert receipts == [None, None]

    def test_a_commit_that_surely_failed_leaves_nothing_blocked(
        self, log: SqliteLog, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        chain = seeded_chain(log, "s")
        monkeypatch.setattr(_Stopped, "sqlite_errorcode", sqlite3.SQLITE_FULL)
        failing_commit(monkeypatch, reaches_the_disk=False)
        event = chain.call()
        with pytest.raises(LogUnavailableError):
            append_all(log, [event])
        append_all(log, [event])
        assert written(log, chain)


class TestOthersInTheBatch:
    """Requests share a transaction, not their faults."""

    def test_a_request_that_breaks_the_transaction_breaks_no_other(self, log: SqliteLog) -> None:
        chains = [seeded_chain(log, f"s{number}") for number in range(6)]

        def spoil(store: SqliteStore) -> None:
            store._db.execute("INSERT INTO events SELECT * FROM events")

        def fail(_store: SqliteStore) -> None:
            raise ZeroDivisionError("a bug")

        with held_back(log):
            futures: list[Any] = []
            for chain in chains:
                event = chain.call()
                futures.append(log.submit_events(chain.session_id, [event], expected_step=4))
            threads = [
                threading.Thread(target=_expect, args=(log, run, error))
                for run, error in ((spoil, EventCorruptError), (fail, ZeroDivisionError))
            ]
            for thread in threads:
                thread.start()
            late = chains[0].returned()
            futures.append(log.submit_events("s0", [late], expected_step=5))
        for thread in threads:
            thread.join()
        assert [future.result().last_step for future in futures] == [5] * 6 + [6]
        assert all(written(log, chain) for chain in chains)
        assert list(log.find_damage()) == []

    def test_a_refused_append_in_the_middle_stops_only_those_after_it(self, log: SqliteLog) -> None:
        chain = seeded_chain(log, "s")
        events = [chain.call() for _ in range(4)]
        with held_back(log):
            futures = [
                log.submit_events("s", [event], expected_step=event.event.step - 1)
                for event in (events[0], events[2], events[1], events[3])
            ]
        outcomes = [type(future.exception()) for future in futures]
        assert outcomes == [type(None), StepConflictError, type(None), StepConflictError]


def _expect(log: SqliteLog, run: Any, error: type[BaseException]) -> None:
    with pytest.raises(error):
        log._ask(run)


class held_back:  # noqa: N801 - reads as a statement
    """Hold the lock file, as another process would, so that requests gather."""

    def __init__(self, log: SqliteLog) -> None:
        self._path = f"{log.path}.lock"

    def __enter__(self) -> None:
        self._file = os.open(self._path, os.O_RDWR)
        fcntl.flock(self._file, fcntl.LOCK_EX)

    def __exit__(self, *exc: object) -> None:
        os.close(self._file)


class TestBounds:
    """What waits is bounded in bytes and in time."""

    def test_a_stuck_process_is_named_at_the_deadline_and_nothing_is_written(
        self, log: SqliteLog, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        chain = seeded_chain(log, "s")
        event = chain.call()
        monkeypatch.setattr(log_writer, "DEADLINE_S", 0.3)
        monkeypatch.setattr(log_writer, "_WATCH_EVERY_S", 0.05)
        begun = time.monotonic()
        with held_back(log), pytest.raises(LogUnavailableError, match="locked") as caught:
            append_all(log, [event])
        assert time.monotonic() - begun < 60
        assert str(log.path) in caught.value.message
        append_all(log, [event])
        assert written(log, chain)

    def test_bytes_in_flight_are_bounded_and_submitting_more_waits(
        self, log: SqliteLog, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        chain = seeded_chain(log, "s")
        monkeypatch.setattr(log_writer, "IN_FLIGHT_BYTES_MAX", 100_000)
        monkeypatch.setattr(log_writer, "DEADLINE_S", 0.2)
        futures = []
        with held_back(log):

            def submit_many() -> None:
                for _ in range(100):
                    event = chain.call(arguments=Content(OCTET_STREAM, bytes(10_000)))
                    futures.append(
                        log.submit_events("s", [event], expected_step=event.event.step - 1)
                    )

            with pytest.raises(LogUnavailableError, match="wait to be written"):
                submit_many()
            assert 8 <= len(futures) <= 10
            assert log._own.writer._in_flight_bytes <= 100_000
            monkeypatch.setattr(log_writer, "DEADLINE_S", 60.0)
        outcomes = {type(future.exception()) for future in futures}
        assert outcomes <= {type(None), LogUnavailableError}
        assert log._own.writer._in_flight_bytes == 0

    def test_one_batch_larger_than_the_bound_goes_alone(
        self, log: SqliteLog, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(log_writer, "IN_FLIGHT_BYTES_MAX", 50_000)
        chain = seeded_chain(log, "s")
        large = Content(OCTET_STREAM, bytes(20_000))
        append_all(log, [chain.call(arguments=large) for _ in range(10)])
        assert written(log, chain)

    def test_the_write_ahead_log_is_begun_anew_again_and_again(self, log: SqliteLog) -> None:
        chain = seeded_chain(log, "s", calls=0)
        text = Content(OCTET_STREAM, bytes(200_000))
        sizes = []
        for _ in range(6 * CHECKPOINT_BYTES // 1_000_000):
            append_all(log, [chain.call(arguments=text) for _ in range(5)])
            sizes.append(os.stat(f"{log.path}-wal").st_size)
            next(log.read_session("s"))
        assert max(sizes) < 2 * CHECKPOINT_BYTES

    def test_a_withdrawn_append_is_not_written(self, log: SqliteLog) -> None:
        chain = seeded_chain(log, "s")
        with held_back(log):
            future = log.submit_events("s", [chain.call()], expected_step=4)
            assert future.cancel()
        log.commit_cut("after", log.end_cut())
        assert log.session_info("s").step_count == 5


class TestOthersAtTheFile:
    """Programs that do not take turns, and files that change under the log."""

    def test_a_program_that_holds_sqlites_lock_is_named(
        self, log: SqliteLog, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(sqlite_connection, "BUSY_TIMEOUT_S", 0.1)
        SqliteLog(log.path).close()
        other = sqlite3.connect(log.path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        chain = EventChain("s")
        seed = chain.seed(writer=log.writer_id)
        with pytest.raises(LogUnavailableError, match="locked") as caught:
            append_all(log, [seed])
        assert str(log.path) in caught.value.message
        other.execute("ROLLBACK")
        other.close()
        append_all(log, [seed])
        assert written(log, chain)

    @pytest.mark.parametrize("what", ["removed", "replaced"])
    def test_a_file_that_went_away_takes_no_events(self, log: SqliteLog, what: str) -> None:
        chain = seeded_chain(log, "s")
        kept = log.path.with_name("kept.db")
        os.rename(log.path, kept)
        if what == "replaced":
            log.path.write_bytes(kept.read_bytes())
        event = chain.call()
        for _ in range(2):
            with pytest.raises(LogUnavailableError, match="removed or replaced"):
                append_all(log, [event])
        os.replace(kept, log.path)
        append_all(log, [event])
        assert written(log, chain)

    def test_rows_that_vanish_while_it_is_open_are_refused_as_damage(self, log: SqliteLog) -> None:
        chain = seeded_chain(log, "s")
        other = sqlite3.connect(log.path, isolation_level=None)
        other.execute("DELETE FROM events WHERE step=4")
        other.close()
        with pytest.raises(SteplogError) as caught:
            append_all(log, [chain.call()])
        assert caught.value.exit_code == 4


def test_the_append_knows_its_size() -> None:
    chain = EventChain("s")
    events = [chain.seed(), chain.call()]
    size = Append("s", events, -1, "writer").size_bytes
    assert size == sum(len(each.data) for each in events)
