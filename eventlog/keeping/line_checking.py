"""Checking one session's rows in any keeper: everything derived is derived again and compared.

Every row is re-hashed and decoded whole, the reader's rule is run from the first record on, and
the stored claims, head, summary, marks and blob references must be what comes out. Nothing is
raised for damage: each is a `Finding`.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

from eventlog.codec import decode_event
from eventlog.errors import IntegrityError, SchemaError, SteplogError
from eventlog.event import Event
from eventlog.keeping.kept_records import checked_record
from eventlog.keeping.kept_rows import KeptSession, Mark, RecordSource, blob_digests
from eventlog.keeping.line_growth import summary_before, summary_through
from eventlog.keeping.line_plan import plan_chain, plan_to_digest
from eventlog.keeping.line_reading import read_parts
from eventlog.line_state import Claim, KnownEvent, LineState, VerdictKind
from eventlog.log import Finding, LogRecord
from eventlog.session_line import SessionLine
from eventlog.session_summary import SessionSummary


class BlobUse(NamedTuple):
    """A stored reference: the event of this attempt and step holds the blob of this digest."""

    digest: bytes
    attempt: int
    step: int


class CheckSource(RecordSource, Protocol):
    """What checking asks of a keeper beside reading."""

    def marks_of(self, number: int) -> Sequence[Mark]:
        """Every stored mark of the session."""
        ...

    def blob_uses(self, number: int) -> Sequence[BlobUse]:
        """Every stored blob reference of the session."""
        ...


def finding_of(error: SteplogError, *, offset: int | None = None) -> Finding:
    """An error of ours as a finding."""
    return Finding(error.session_id, error.step, offset, type(error).__name__, error.message)


def check_session(source: CheckSource, kept: KeptSession) -> Iterator[Finding]:
    """All that is wrong in what is stored of one session."""
    rerun = _Rerun(source, kept)
    for stored in source.all_events(kept.number):
        try:
            record = checked_record(stored, kept.session_id)
            event = decode_event(stored.data)
            finding = rerun.take(record, event)
        except (IntegrityError, SchemaError) as error:
            rerun.sound = False
            finding = finding_of(error, offset=stored.offset)
            finding = finding._replace(session_id=kept.session_id, step=stored.step)
        if finding is not None:
            yield finding
    yield from rerun.compare()
    try:
        # Also where rows are damaged: whether the line can be read to its head is what matters.
        line = kept.line
        for _ in read_parts(source, plan_chain(source, kept, line.attempt, line.next_step - 1)):
            pass
    except (IntegrityError, SchemaError) as error:
        finding = finding_of(error)
        if rerun.sound:
            yield finding


class _Rerun:
    """Runs the reader's rule and the summary over a session's records from the first one on."""

    def __init__(self, source: CheckSource, kept: KeptSession) -> None:
        self._source = source
        self._kept = kept
        self._line = SessionLine(kept.session_id, self._known)
        self._judged: LogRecord | None = None
        self._claims: list[Claim] = []
        self._summary = SessionSummary()
        self._marks = {(mark.attempt, mark.step): mark for mark in source.marks_of(kept.number)}
        self._uses = set(source.blob_uses(kept.number))
        self._last_offset = -1
        self.sound = True
        """Whether every row so far was whole and accepted: only then derived rows are compared."""

    def take(self, record: LogRecord, event: Event) -> Finding | None:
        """Judge the next record; a finding where it should not be there or is not as derived."""
        if not self.sound:
            return None
        self._judged = record
        head = self._line.state.head
        verdict = self._line.accept(event, record.digest)
        if verdict.kind is not VerdictKind.ACCEPTED:
            self.sound = False
            name = "LinkBrokenError" if verdict.error is None else verdict.error.name
            detail = f"the rule does not accept the record ({verdict.kind})"
            if verdict.error is not None:
                detail = verdict.error.message
            return self._finding(name, detail, record)
        if verdict.claim is not None:
            self._claims.append(verdict.claim)
        self._last_offset = record.offset
        self._summarise(event, head)
        return self._derived(record, event)

    def compare(self) -> Iterator[Finding]:
        """Findings where the stored head, claims and summary are not what the records give."""
        if not self.sound:
            return
        kept = self._kept
        if not self._line.state.begun:
            yield self._finding("StepGapError", "the session has a head but no events")
            return
        if _lasting(kept.line) != _lasting(self._line.state):
            yield self._finding("EventCorruptError", "the head row is not what the events give")
        if kept.last_offset != self._last_offset:
            yield self._finding("EventCorruptError", "the head row names another last offset")
        if not kept.summary.agrees_with(self._whole_summary()):
            yield self._finding("EventCorruptError", "the summary is not what the events give")
        if list(self._source.claims_of(kept.session_id)) != self._claims:
            yield self._finding("EventCorruptError", "the claims are not what the events give")
        for attempt, step in self._marks:
            detail = f"a summary is stored for an event that is not there (attempt {attempt})"
            yield Finding(kept.session_id, step, None, "StepGapError", detail)
        for use in self._uses:
            detail = "a blob reference is stored that no event has"
            yield Finding(kept.session_id, use.step, None, "EventCorruptError", detail)

    def _summarise(self, event: Event, head: bytes) -> None:
        if event.kind == "session_forked":
            self._summary = self._summary_of_parent(event)
        elif event.step > 0 and event.parent != head:
            self._summary = summary_before(self._source, self._kept, self._summary, event)
        self._summary = self._summary.accept(event)

    def _whole_summary(self) -> SessionSummary:
        """The summary after the record just taken, made anew where it no longer can be gone on."""
        judged = self._judged
        if self._summary.must_rebuild and judged is not None:
            parts = plan_to_digest(self._source, self._kept, judged.digest, step=judged.prefix.step)
            self._summary = SessionSummary.of_line(
                decode_event(record.data) for record in read_parts(self._source, parts)
            )
        return self._summary

    def _summary_of_parent(self, fork: Event) -> SessionSummary:
        parent_id = self._kept.line.parent_session
        parent = None if parent_id is None else self._source.find_session(parent_id)
        if parent is None:
            return SessionSummary()
        return summary_through(self._source, parent, fork.parent, step=fork.step - 1)

    def _derived(self, record: LogRecord, event: Event) -> Finding | None:
        mark = self._marks.pop((event.attempt, event.step), None)
        if mark is not None and not mark.summary.agrees_with(self._whole_summary()):
            return self._finding(
                "EventCorruptError", "a stored summary is not what the events give", record
            )
        uses = {BlobUse(digest, event.attempt, event.step) for digest in blob_digests(event)}
        if not uses <= self._uses:
            return self._finding(
                "EventCorruptError", "the event's blob reference has no row", record
            )
        self._uses -= uses
        return None

    def _known(self, digest: bytes) -> KnownEvent | None:
        """An earlier record of this digest. The rows of one place are one, so none is its own."""
        judged = self._judged
        if judged is None or digest == judged.digest:
            return None
        step = judged.prefix.step - 1
        for claim in reversed(self._claims):
            stored = self._source.event_at(self._kept.number, claim.attempt, step)
            if stored is not None and stored.digest == digest and stored.offset < judged.offset:
                return KnownEvent(step, claim.attempt)
        return None

    def _finding(self, error: str, detail: str, record: LogRecord | None = None) -> Finding:
        step = None if record is None else record.prefix.step
        offset = None if record is None else record.offset
        return Finding(self._kept.session_id, step, offset, error, detail)


def _lasting(line: LineState) -> LineState:
    """A line without what only a reader of a whole log keeps (positions, counts, its error)."""
    return line._replace(
        position=0, counts=LineState().counts, skipped=(), error=None, first_bad=None
    )
