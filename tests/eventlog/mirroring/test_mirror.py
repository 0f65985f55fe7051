"""The mirror as a handle: sharing a refresh, other processes and forks, its file, what stops it."""

import os
import sqlite3
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from eventlog.content import TEXT_PLAIN, Content
from eventlog.cut import Cut
from eventlog.errors import (
    ConfigError,
    EventCorruptError,
    IncompatibleSchemaError,
    LogError,
    LogUnavailableError,
    SessionNotFoundError,
    StepConflictError,
    UnknownKindError,
    UnknownSchemaError,
)
from eventlog.event import LineHead
from eventlog.kafka.mirrored_lines import MirroredLines
from eventlog.keeping.append_rule import Accepted, Append, judge_append
from eventlog.mirror import Mirror
from eventlog.mirroring import turns
from eventlog.mirroring.catching_up import CatchUp
from eventlog.sqlite.lock import LogLock
from eventlog.sqlite.log_end import LogEnd, write_log_end
from eventlog.sqlite_log import SqliteLog
from tests.support.events import EventChain
from tests.support.mirror_truth import read_line, require_true
from tests.support.topic import FakeTopic

OpenMirror = Callable[..., Mirror]


def write_session(topic: FakeTopic, name: str, calls: int = 5) -> EventChain:
    """A session in one transaction."""
    chain = EventChain(name)
    chain.seed(writer="w")
    for _ in range(calls):
        chain.call()
    topic.write([(name, each.data) for each in chain.events])
    return chain


def test_what_is_acknowledged_before_a_refresh_is_there_after_it(
    topic: FakeTopic, mirror: Mirror
) -> None:
    for number in range(30):
        chain = write_session(topic, f"s-{number}", calls=number % 4)
        cut = mirror.refresh()
        assert len(read_line(mirror, chain.session_id)) == 1 + number % 4
        assert cut == Cut({part: topic.end(part) for part in range(3)})
    require_true(mirror, topic)


def test_an_empty_topic(topic: FakeTopic, mirror: Mirror) -> None:
    assert mirror.cut() == Cut.empty()
    assert mirror.partition_count() == 3
    assert mirror.refresh() == Cut.empty()
    assert list(mirror.reader.list_sessions(None)) == []
    with pytest.raises(SessionNotFoundError):
        mirror.session_records("s")
    assert mirror.highest_attempt("s", 0) == 0
    assert list(mirror.find_damage()) == []


def test_only_markers_at_the_end_are_read_past(topic: FakeTopic, mirror: Mirror) -> None:
    chain = write_session(topic, "s")
    topic.write([("s", chain.call().data)] * 3, "aborted")
    part = topic.part_of("s")
    assert mirror.refresh().end(part) == topic.end(part) == 11
    assert mirror.records_read == 6


def test_only_the_partitions_asked_for_are_read(topic: FakeTopic, mirror: Mirror) -> None:
    names = [f"s-{number}" for number in range(9)]
    for name in names:
        write_session(topic, name)
    mirror.refresh({1})
    listed = {info.session_id for info in mirror.reader.list_sessions(None)}
    assert listed == {name for name in names if topic.part_of(name) == 1}
    mirror.refresh([0, 2])
    require_true(mirror, topic)


def test_threads_that_refresh_at_once_share_what_is_fetched(
    topic: FakeTopic, mirror: Mirror
) -> None:
    write_session(topic, "s")
    mirror.refresh()
    begun, go_on = threading.Event(), threading.Event()

    def wait() -> None:
        topic.before_fetch = lambda: None
        begun.set()
        assert go_on.wait(20)

    topic.before_fetch = wait
    chain = write_session(topic, "s2")
    before = topic.fetches
    with ThreadPoolExecutor(9) as pool:
        first = pool.submit(mirror.refresh)
        assert begun.wait(20)
        topic.write([("s2", chain.call().data)])
        asked = topic.questions
        others = [pool.submit(mirror.refresh, {0, 1, 2} if n % 2 else None) for n in range(8)]
        while topic.questions < asked + 8:
            time.sleep(0.001)
        go_on.set()
        ends = [each.result().end(topic.part_of("s2")) for each in others]
    assert first.result() is not None
    assert ends == [topic.end(topic.part_of("s2"))] * 8
    assert topic.fetches - before == 1
    assert mirror.records_read == 6 + 7


def test_a_thread_that_is_held_back_holds_back_no_other(topic: FakeTopic, mirror: Mirror) -> None:
    names = [next(f"n{n}" for n in range(99) if topic.part_of(f"n{n}") == part) for part in (0, 1)]
    opened = topic.begin()
    opened.send(0, names[0].encode(), b"never ended")
    chain = EventChain(names[1])
    chain.seed(writer="w")
    with ThreadPoolExecutor(3) as pool:
        stuck = [pool.submit(mirror.refresh, parts, timeout_s=120) for parts in (None, {0})]
        while topic.fetches < 3:
            time.sleep(0.001)
        for _ in range(5):
            topic.write([(names[1], chain.call().data)])
            start = time.monotonic()
            assert mirror.refresh({1}).end(1) == topic.end(1)
            assert time.monotonic() - start < 60
        assert not any(each.done() for each in stuck)
        opened.end("aborted")
        for each in stuck:
            assert each.result().end(0) == 2


def test_reading_goes_on_while_a_refresh_is_at_it(
    topic: FakeTopic, open_mirror: OpenMirror
) -> None:
    mirror = open_mirror(3)
    chains = [write_session(topic, f"s-{number}", calls=40) for number in range(6)]
    mirror.refresh()
    stop = threading.Event()
    problems: list[BaseException] = []

    def read() -> None:
        while not stop.is_set():
            for chain in chains:
                name = chain.session_id
                try:
                    found = [each.data for each in read_line(mirror, name)]
                    assert found == [each.data for each in chain.events][: len(found)]
                    assert len(found) >= 41
                    records = [each.data for each in mirror.session_records(name)]
                    assert records[:41] == found[:41]
                    cut = mirror.cut()
                    assert sum(1 for _ in mirror.tail(Cut.empty(), cut)) >= 41 * 6
                    list(mirror.reader.list_sessions(None))
                except BaseException as error:
                    problems.append(error)
                    raise

    readers = [threading.Thread(target=read) for _ in range(3)]
    for each in readers:
        each.start()
    for number in range(60):
        chain = chains[number % 6]
        batch = [chain.call() for _ in range(3)]
        topic.write([(chain.session_id, each.data) for each in batch])
        mirror.refresh()
    stop.set()
    for each in readers:
        each.join()
    assert not problems
    require_true(mirror, topic)


def test_a_newer_kind_or_schema_stops_its_partition_and_nothing_else(
    topic: FakeTopic, mirror: Mirror, open_mirror: OpenMirror
) -> None:
    chain = write_session(topic, "s")
    part = topic.part_of("s")
    other = next(f"o{n}" for n in range(99) if topic.part_of(f"o{n}") != part)
    newer = chain.call().data
    unknown = newer[:2] + bytes(8) + newer[10:]
    topic.write([("s", unknown), ("s", chain.call().data)])
    write_session(topic, other)
    for each in (mirror, open_mirror(), mirror):
        with pytest.raises(UnknownSchemaError, match=f"partition {part}, offset 7") as caught:
            each.refresh()
        assert caught.value.session_id == "s"
        assert each.cut().end(part) == 7
        assert len(read_line(each, "s")) == 6
        assert len(read_line(each, other)) == 6
    assert mirror.refresh({topic.part_of(other)}).end(topic.part_of(other)) == 7
    # Once a build that knows it is there, it is read: here, once the bytes are of a known schema.
    entries = topic.parts[part]
    entries[7] = entries[7]._replace(value=newer)
    mirror.refresh()
    require_true(mirror, topic)


def test_an_unknown_kind_stops_too(topic: FakeTopic, mirror: Mirror) -> None:
    chain = write_session(topic, "s")
    data = chain.call().data.replace(b"tool_called", b"tool_cooled", 1)
    topic.write([("s", data)])
    with pytest.raises(UnknownKindError, match="offset 7"):
        mirror.refresh()


def test_records_of_odd_keys_and_values_are_kept_as_unreadable(
    topic: FakeTopic, mirror: Mirror
) -> None:
    chain = write_session(topic, "s")
    part, event = topic.part_of("s"), chain.call().data
    wrong = (part + 1) % 3
    rubbish: list[tuple[int, bytes | None, bytes | None]] = [
        (part, None, event),
        (part, b"", event),
        (part, b"\xff", event),
        (part, b"s", None),
        (part, b"s", b""),
        (part, b"s", b"hello"),
        (part, b"s", event[:-1]),
        (part, b"another", event),
        (wrong, b"s", event),
    ]
    transaction = topic.begin()
    for each in rubbish:
        transaction.send(*each)
    transaction.end("committed")
    topic.write([("s", event)])
    mirror.refresh()
    require_true(mirror, topic)
    assert len(read_line(mirror, "s")) == 7
    details = [finding.detail for finding in mirror.find_damage() if finding.session_id is None]
    assert len(details) == len(rubbish)
    assert any("no session's id" in each for each in details)
    assert any("it has no value" in each for each in details)
    assert any("belong elsewhere" in each for each in details)


def test_a_stopped_line_shows_its_error_and_its_standing_part(
    topic: FakeTopic, mirror: Mirror
) -> None:
    chain = EventChain("s")
    chain.seed(writer="w")
    kept = [chain.events[0], chain.call()]
    chain.call()
    late = [chain.call(), chain.call()]
    topic.write([("s", each.data) for each in (*kept, *late)])
    mirror.refresh()
    (info,) = mirror.reader.list_sessions(None)
    assert info == mirror.reader.session_info("s")
    assert info.error == "StepGapError: step 2 is missing"
    assert info.step_count == 2
    assert [each.data for each in read_line(mirror, "s")] == [each.data for each in kept]
    # Only a claim helps.
    head = LineHead("s", 1, 1, kept[1].digest)
    topic.write([("s", chain.resumed(head, writer="w").data), ("s", chain.call().data)])
    mirror.refresh()
    assert mirror.reader.session_info("s").error is None
    assert len(read_line(mirror, "s")) == 4
    require_true(mirror, topic)


def test_long_sessions_with_rewinds_and_corrected_rewards(
    topic: FakeTopic, open_mirror: OpenMirror
) -> None:
    chain = EventChain("s")
    chain.seed(writer="w")
    large = Content(TEXT_PLAIN, b"x" * 900)
    for number in range(400):
        chain.call(arguments=large)
        chain.verified(number / 7, supersedes_step=chain.head.step - 2 if number % 5 == 0 else None)
    topic.write([("s", each.data) for each in chain.events])
    for step in (700, 300, 650, 40):
        base = chain.events[min(step, len(chain.events) - 1)]
        head = LineHead("s", base.event.step, base.event.attempt, base.digest)
        start = [chain.resumed(head, writer="w")]
        more = [chain.verified(n / 3, supersedes_step=n + 1) for n in range(350)]
        topic.write([("s", each.data) for each in start + more])
    for records_max in (64, 5_000):
        mirror = open_mirror(records_max, folder=str(records_max))
        mirror.refresh()
        require_true(mirror, topic)


def test_the_attempts_ever_sent(topic: FakeTopic, mirror: Mirror, open_mirror: OpenMirror) -> None:
    chain = write_session(topic, "s")
    part = topic.part_of("s")
    mirror.refresh()
    assert mirror.highest_attempt("s", part) == 1
    claims = [chain.resumed(attempt=attempt, writer="x") for attempt in (2, 3)]
    topic.write([("s", claims[0].data)], "aborted")
    opened = topic.begin()
    opened.send(part, b"s", claims[1].data)
    after = topic.end(part)
    for each in (mirror, open_mirror()):
        # Sent, and not ended: it may still be committed, but the attempt is taken.
        assert each.highest_attempt("s", part) == 3
        assert each.aborted_claims("s", part, 0) in (0, 1)
    opened.end("aborted")
    mirror.refresh()
    assert mirror.highest_attempt("s", part) == 3
    assert mirror.aborted_claims("s", part, 0) == 2
    assert mirror.aborted_claims("s", part, after - 1) == 0
    assert mirror.aborted_claims("other", part, 0) == 0
    fetches = topic.fetches
    assert open_mirror().highest_attempt("s", part) == 3
    assert topic.fetches == fetches, "each offset is scanned once in a mirror's life"
    topic.write([("s", chain.resumed(attempt=7, writer="x").data)])
    assert mirror.highest_attempt("s", part) == 7
    mirror.refresh()
    assert open_mirror().highest_attempt("s", part) == 7
    require_true(mirror, topic)


def test_a_scan_of_more_than_is_remembered(
    topic: FakeTopic, open_mirror: OpenMirror, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("eventlog.mirroring.sent_scan.PENDING_MAX", 20)
    chain = write_session(topic, "s", calls=100)
    part = topic.part_of("s")
    topic.write([("s", chain.resumed(attempt=5, writer="x").data)], "aborted")
    mirror = open_mirror(7)
    assert mirror.partition_count() == 3
    assert mirror.highest_attempt("s", part) == 5
    mirror.refresh()
    assert mirror.highest_attempt("s", part) == 5
    assert mirror.aborted_claims("s", part, 0) == 1
    assert mirror.reader.positions()[part].scanned == topic.end(part)


def test_a_mirror_is_no_log_and_a_newer_one_is_refused(
    topic: FakeTopic, mirror: Mirror, open_mirror: OpenMirror
) -> None:
    write_session(topic, "s")
    mirror.refresh()
    mirror.close()
    with pytest.raises(ConfigError, match="mirror of a Kafka topic"):
        SqliteLog(mirror.path)
    db = sqlite3.connect(mirror.path)
    db.execute("PRAGMA user_version=2")
    db.commit()
    db.close()
    db = sqlite3.connect(mirror.path, isolation_level=None)
    write_log_end(db, LogEnd(2, 6, 1, 0))
    db.close()
    with pytest.raises(IncompatibleSchemaError, match="mirror format 2"):
        open_mirror()


def test_a_mirror_that_was_removed_is_made_anew(
    topic: FakeTopic, mirror: Mirror, open_mirror: OpenMirror
) -> None:
    write_session(topic, "s")
    mirror.refresh()
    # Without closing it: what SQLite keeps beside it stays behind.
    os.unlink(mirror.path)
    again = open_mirror()
    assert again.cut() == Cut.empty()
    again.refresh()
    require_true(again, topic)
    write_session(topic, "s2")
    with pytest.raises(LogUnavailableError, match="removed or replaced"):
        mirror.refresh()


def test_a_closed_handle_and_its_second_close(mirror: Mirror) -> None:
    mirror.close()
    mirror.close()
    with pytest.raises(LogError, match="closed"):
        mirror.refresh()


def test_a_damaged_mirror_says_what_mends_it(topic: FakeTopic, mirror: Mirror) -> None:
    write_session(topic, "s")
    mirror.refresh()
    db = sqlite3.connect(mirror.path, isolation_level=None)
    db.execute("UPDATE positions SET next=next+1 WHERE next>0")
    db.close()
    with pytest.raises(EventCorruptError) as caught:
        mirror.refresh()
    assert "remove" in caught.value.hint
    assert str(mirror.path) in caught.value.hint


def test_a_process_that_fetches_and_stands_still_is_not_waited_for(
    topic: FakeTopic, mirror: Mirror, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turns, "PATIENCE_S", 0.2)
    write_session(topic, "s")
    lock = LogLock(mirror.path.with_suffix(""))
    lock.acquire()
    try:
        start = time.monotonic()
        mirror.refresh()
        assert time.monotonic() - start >= 0.2
        require_true(mirror, topic)
    finally:
        lock.close()


def test_a_process_that_holds_the_file_is_named_at_the_deadline(
    topic: FakeTopic, mirror: Mirror
) -> None:
    write_session(topic, "s")
    mirror.partition_count()
    lock = LogLock(mirror.path)
    lock.acquire()
    try:
        with pytest.raises(LogUnavailableError, match="holds the mirror"):
            mirror.refresh(timeout_s=0.1)
    finally:
        lock.close()
    mirror.refresh()
    require_true(mirror, topic)


def test_an_interrupt_in_the_middle_leaves_the_mirror_usable(
    topic: FakeTopic, mirror: Mirror
) -> None:
    for number in range(4):
        write_session(topic, f"s-{number}")

    def interrupt() -> None:
        topic.before_fetch = lambda: None
        raise KeyboardInterrupt

    topic.before_fetch = interrupt
    with pytest.raises(KeyboardInterrupt):
        mirror.refresh()
    mirror.refresh()
    require_true(mirror, topic)


@pytest.mark.parametrize("moment", ["_checked", "_store"])
def test_what_ctrl_c_took_between_fetch_and_store_is_fetched_again(
    topic: FakeTopic, open_mirror: OpenMirror, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    mirror, chain = open_mirror(records_max=2), write_session(topic, "s")
    mirror.refresh()
    topic.write([("s", chain.call().data)])

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(CatchUp, moment, interrupted)
        with pytest.raises(KeyboardInterrupt):
            mirror.refresh()
    topic.write([("s", chain.call().data)])
    mirror.refresh()
    assert len(read_line(mirror, "s")) == 8
    require_true(mirror, topic)


def test_a_forked_child_goes_on_by_itself(topic: FakeTopic, mirror: Mirror) -> None:
    chain = write_session(topic, "s")
    mirror.refresh()
    topic.write([("s", chain.call().data)])
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            mirror.refresh()
            os.write(write_end, str(len(read_line(mirror, "s"))).encode())
        finally:
            os._exit(0)
    os.close(write_end)
    os.waitpid(child, 0)
    assert os.read(read_end, 100) == b"7"
    os.close(read_end)
    assert len(read_line(mirror, "s")) == 7, "the child wrote into the same file"
    topic.write([("s", chain.call().data)])
    mirror.refresh()
    require_true(mirror, topic)


def test_the_order_of_the_tail_and_its_bounds(topic: FakeTopic, mirror: Mirror) -> None:
    for number in range(12):
        chain = write_session(topic, f"s-{number}", calls=3)
        topic.write([(chain.session_id, chain.events[2].data)])
    mirror.refresh()
    end = mirror.cut()
    whole = [(each.partition, each.offset) for each in mirror.tail(Cut.empty(), end)]
    assert whole == sorted(whole)
    for cut_at in range(end.end(0) + 1):
        for until in (cut_at, cut_at + 3, end.end(0)):
            found = [
                (each.partition, each.offset)
                for each in mirror.tail(Cut({0: cut_at}), Cut({0: until}))
            ]
            assert found == [each for each in whole if each[0] == 0 and cut_at <= each[1] < until]


def test_the_folder_is_made_and_the_file_lies_in_it(topic: FakeTopic, tmp_path: Path) -> None:
    with Mirror(tmp_path / "a" / "b", topic.client()) as mirror:
        assert mirror.path == tmp_path / "a" / "b" / "mirror.db"
        assert mirror.path.exists()


def test_nothing_but_a_claim_is_taken_by_a_stopped_line(topic: FakeTopic, mirror: Mirror) -> None:
    chain = EventChain("s")
    topic.write([("s", chain.seed(writer="w").data)])
    kept = chain.head
    chain.call()
    topic.write([("s", chain.call().data)])
    mirror.refresh()
    lines = MirroredLines(mirror)
    session = lines.find_session("s")
    goes_on = EventChain("s", seed=1)
    goes_on.head = kept
    plain = Append("s", [goes_on.call()], 0, "w")
    with pytest.raises(StepConflictError, match="step 1 is missing"):
        judge_append(plain, session, lines)
    goes_on.head = kept
    claim = Append("s", [goes_on.resumed(writer="w")], 0, "w")
    judged = judge_append(claim, session, lines)
    assert isinstance(judged, Accepted)
    assert judged.line.error is None
