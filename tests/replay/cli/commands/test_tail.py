"""`steplog tail`: the last events of the whole log, and those that come."""

import random
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from eventlog.codec import decode_prefix, encode_event
from eventlog.cut import Cut
from eventlog.errors import LogUnavailableError
from eventlog.log import LogRecord
from replay.cli.commands.tail import arrivals_from, last_records
from tests.support.command import Command
from tests.support.events import random_event


def test_the_last_events_of_the_whole_log(desk: Command) -> None:
    with desk.open() as ws, ws.record("shop/1", environment="shop") as session:
        session.record_message("user", "hello")
    rows = desk.rows("tail", "--lines", 4)
    assert [(row["session"], row["step"]) for row in rows] == [
        ("desk/1", 11),
        ("shop/1", 0),
        ("shop/1", 1),
        ("shop/1", 2),
    ]
    assert [row["offset"] for row in rows] == [11, 12, 13, 14]
    assert rows[0] == desk.row("show", "desk/1@11")


@pytest.mark.parametrize(("options", "count"), [([], 10), (["-n", "0"], 0), (["-n", "1000"], 12)])
def test_how_many(desk: Command, options: list[str], count: int) -> None:
    assert len(desk.rows("tail", *options)) == count


def test_a_table_for_people(desk: Command) -> None:
    headings, line = desk("tail", "-n", 1).lines
    assert headings[:4] == ["SESSION", "STEP", "ATTEMPT", "KIND"]
    assert line[:4] == ["desk/1", "11", "1", "session_closed"]


def test_events_that_a_claim_superseded_are_told_too(desk: Command) -> None:
    with desk.open() as ws:
        ws.resume("desk/1", at_step=4, reopen=True).release()
    assert [row["step"] for row in desk.rows("tail", "-n", 3)] == [11, 5, 6]


def test_following_prints_what_comes(desk: Command) -> None:
    def record_later() -> None:
        with desk.open() as ws, ws.record("later", environment="shop"):
            pass

    writer = threading.Timer(0.3, record_later)
    writer.start()
    ran = desk("tail", "-n", 1, "--follow", "--for", "2s", "--json")
    writer.join()
    assert [(row["session"], row["step"]) for row in ran.rows] == [
        ("desk/1", 11),
        ("later", 0),
        ("later", 1),
    ]
    assert ran.code == 0


def test_following_an_empty_log_ends_when_told_to(steplog: Command) -> None:
    steplog.open().close()
    assert steplog("tail", "-f", "--for", "0s") == (0, "", "")


def test_for_goes_with_follow(desk: Command) -> None:
    assert desk("tail", "--for", "1s").code == 2
    assert desk("tail", "-f", "--for", "soon").code == 2


class Partitions:
    """Stands in for a log of several partitions: (offset, time) of each record, holes and all."""

    def __init__(self, *partitions: list[tuple[int, int]], ends: list[int]) -> None:
        rng = random.Random(0)
        self.records = []
        for partition, places in enumerate(partitions):
            for offset, time_us in places:
                event = random_event(rng, "annotated")._replace(time=time_us)
                data = encode_event(event).data
                record = LogRecord(offset, b"", data, decode_prefix(data), partition)
                self.records.append(record)
        self.ends = ends
        self.read = 0

    def end_cut(self) -> Cut:
        return Cut(dict(enumerate(self.ends)))

    def tail_events(self, cut: Cut) -> Iterator[LogRecord]:
        for record in self.records:
            if record.offset >= cut.end(record.partition):
                self.read += 1
                yield record


def last(log: Any, count: int) -> list[tuple[int, int]]:
    """Partition and offset of the last records."""
    found, end = last_records(log, count)
    assert end == log.end_cut()
    return [(record.partition, record.offset) for record in found]


def test_the_last_of_several_partitions_are_laid_together_by_time() -> None:
    log = Partitions([(0, 10), (1, 30)], [(0, 20), (2, 40)], [], ends=[2, 3, 0])
    assert last(log, 10) == [(0, 0), (1, 0), (0, 1), (1, 2)]
    assert last(log, 2) == [(0, 1), (1, 2)]
    assert last(log, 0) == []


def test_a_partition_keeps_its_order_whatever_its_clocks_said() -> None:
    log = Partitions([(0, 50), (1, 10), (2, 20)], [(0, 30), (1, 60)], ends=[3, 2])
    assert last(log, 10) == [(1, 0), (0, 0), (0, 1), (0, 2), (1, 1)]


def test_offsets_that_no_record_has_are_stepped_over() -> None:
    holes = [(offset * 100, offset) for offset in range(50)]
    log = Partitions(holes, [(7, 3)], ends=[5_000, 8])
    assert last(log, 3) == [(0, 4_700), (0, 4_800), (0, 4_900)]
    assert log.read < 60, "it need not read all to find the last"


def test_what_comes_meanwhile_is_left_for_who_follows() -> None:
    log = Partitions([(0, 1), (1, 2)], [(0, 1)], ends=[1, 1])
    assert last(log, 5) == [(0, 0), (1, 0)]


class Shaky(Partitions):
    """Stands in for a log whose servers are away at times: also in the middle of an answer."""

    def __init__(self, *away: bool) -> None:
        super().__init__([(0, 1), (1, 2), (2, 3)], ends=[3])
        self.away = list(away)

    def tail_events(self, cut: Cut) -> Iterator[LogRecord]:
        for record in super().tail_events(cut):
            if self.away and self.away.pop(0):
                raise LogUnavailableError("no broker answers", hint="wait")
            yield record


def test_following_goes_on_after_an_outage_and_tells_of_it_once() -> None:
    told: list[str] = []
    log: Any = Shaky(False, True, True, False, True)
    found = list(arrivals_from(log, Cut({0: 0}), 1.5, told.append))
    assert [record.offset for record in found] == [0, 1, 2], "none twice, none left out"
    assert told == [
        "no broker answers; waiting until the log can be read again",
        "the log can be read again",
    ]
