"""Imports into the embedded log: the same bytes as in memory, and several at once."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from eventlog.blob_store import LocalBlobStore
from eventlog.importers.import_file import ImportOutcome, import_file
from eventlog.log import EventLog
from eventlog.sqlite_log import SqliteLog
from tests.support.data import data_path
from tests.support.imported import Imported, chat_record, said, write_lines


def digests(log: EventLog) -> dict[str, list[str]]:
    return {
        info.session_id: [record.digest.hex() for record in log.read_session(info.session_id)]
        for info in log.list_sessions()
    }


def test_importers_at_once_bring_each_session_once(tmp_path: Path) -> None:
    path = data_path("traces", "tau_bench_airline", "gpt-4o-airline.trial0.jsonl")

    def take(_: int) -> list[ImportOutcome]:
        # A handle of its own is a writer of its own, as another process would be.
        with SqliteLog(tmp_path / "log.db") as log:
            return list(import_file(path, log, LocalBlobStore(tmp_path / "blobs")))

    with ThreadPoolExecutor(3) as pool:
        told = list(pool.map(take, range(3)))
    assert [sum(each.failed for each in outcomes) for outcomes in told] == [0, 0, 0]
    assert len({tuple(each.session_id for each in outcomes) for outcomes in told}) == 1
    in_memory = Imported()
    in_memory.take(path)
    with SqliteLog(tmp_path / "log.db") as log:
        assert digests(log) == in_memory.digests()
        assert list(log.find_damage()) == []


def test_a_session_larger_than_what_may_be_in_flight_is_one_append(tmp_path: Path) -> None:
    record = chat_record("large", *(said("user", "x" * 200_000) for _ in range(200)))
    path = write_lines(tmp_path / "large.jsonl", [record])
    with SqliteLog(tmp_path / "log.db") as log:
        (outcome,) = import_file(path, log, LocalBlobStore(tmp_path / "blobs"))
        assert outcome.events == 203
        assert log.session_info(str(outcome.session_id)).step_count == 203
