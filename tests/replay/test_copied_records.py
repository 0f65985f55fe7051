"""`check` on records as a mirror or a copy may hold them: twice, late, against the rule."""

from collections.abc import Callable

from eventlog.codec import EncodedEvent, decode_event, encode_event
from eventlog.content import Content
from eventlog.event import Annotated, Event, LineHead
from eventlog.log import EventLog, LogRecord
from replay.integrity import (
    DETAILS_MAX,
    CheckReport,
    Expectation,
    Kept,
    check_sessions,
)
from replay.workspace import Workspace
from tests.support.desk import Told

Play = Callable[..., Told]


def one(ws: Workspace, name: str = "s", *expect: Expectation) -> CheckReport:
    (report,) = ws.check(name, expect=expect)
    return report


class Copied:
    """A log whose records of "s" are these, in this order, as a mirror could have them."""

    def __init__(self, log: EventLog, records: list[LogRecord]) -> None:
        self._log = log
        self._records = records

    def __getattr__(self, name: str) -> object:
        return getattr(self._log, name)

    def read_records(self, session_id: str) -> object:
        """All of them, whatever their verdict."""
        return iter(self._records)

    def find_damage(self, session_ids: object = None) -> object:
        """Such a keeper judges as it reads."""
        return iter(())


def check_copy(ws: Workspace, records: list[LogRecord]) -> CheckReport:
    log = Copied(ws.log, records)
    kept = Kept(log, ws.blobs, ws.snapshots, ws._replayer)  # type: ignore[arg-type]
    (report,) = check_sessions(kept, "s", ())
    return report


def record_of(encoded: EncodedEvent, offset: int = 0) -> LogRecord:
    event = decode_event(encoded.data)
    return LogRecord(offset, encoded.digest, encoded.data, event)  # type: ignore[arg-type]


def test_duplicates_are_counted(ws: Workspace, play: Play) -> None:
    play(calls=3)
    records = list(ws.log.read_records("s"))
    report = check_copy(ws, [*records[:4], records[2], records[3], *records[4:], records[0]])
    assert report == CheckReport("s", "ok", 8, 3, 0, 0, 0, None, ())


def test_records_of_a_writer_that_was_taken_over_are_counted(ws: Workspace, play: Play) -> None:
    told = play(calls=3)
    ws.resume("s", at_step=6, reopen=True, state=lambda: told.desk.state).close()
    records = list(ws.log.read_records("s"))
    zombie = _following(records[6], Annotated("late", Content.of_value(1)))
    report = check_copy(ws, [*records, record_of(zombie)])
    assert (report.verdict, report.superseded) == ("ok", 2)
    lost = _following(records[6], decode_event(records[8].data).body)
    report = check_copy(ws, [*records, record_of(lost)])
    assert (report.verdict, report.lost_claims) == ("ok", 1)


def test_a_second_event_for_one_step_is_a_conflict(ws: Workspace, play: Play) -> None:
    play(calls=3)
    records = list(ws.log.read_records("s"))
    rival = _following(records[3], Annotated("rival", Content.of_value(1)))
    report = check_copy(ws, [*records[:5], record_of(rival), *records[5:]])
    assert (report.verdict, report.conflicts, report.first_bad) == ("conflicts", 1, 4)


def test_a_gap_stops_the_line(ws: Workspace, play: Play) -> None:
    play(calls=3)
    records = list(ws.log.read_records("s"))
    report = check_copy(ws, records[:3] + records[4:])
    assert (report.verdict, report.first_bad) == ("stopped", 4)
    assert "StepGapError" in report.details[0]


def test_a_broken_link_stops_the_line(ws: Workspace, play: Play) -> None:
    play(calls=3)
    records = list(ws.log.read_records("s"))
    wrong = encode_event(decode_event(records[4].data)._replace(parent=bytes(32)))
    report = check_copy(ws, [*records[:4], record_of(wrong)])
    assert (report.verdict, report.first_bad) == ("stopped", 4)
    assert "LinkBrokenError" in report.details[0]


def test_what_is_wrong_is_told_in_a_bounded_number_of_lines(ws: Workspace, play: Play) -> None:
    play(calls=3)
    records = list(ws.log.read_records("s"))
    rivals = [
        record_of(_following(records[3], Annotated("rival", Content.of_value(number))))
        for number in range(3)
    ]
    report = check_copy(ws, [*records, *rivals])
    assert (report.conflicts, len(report.details)) == (3, 1)
    wanted = [Expectation("s", step, bytes(32)) for step in range(10, 300)]
    report = one(ws, "s", *wanted)
    assert len(report.details) == DETAILS_MAX + 1
    assert report.details[-1] == f"and {len(wanted) - DETAILS_MAX} more"


def _following(record: LogRecord, body: object) -> EncodedEvent:
    prefix = record.prefix
    head = LineHead(prefix.session_id, prefix.step, prefix.attempt, record.digest)
    event = Event.following(head, body, event_id=bytes(16), time=1, actor="system")  # type: ignore[arg-type]
    return encode_event(event)
