"""`LineGrowth`: what the events accepted into one session's line change of it, and storing that.

Both who appends and who mirrors somebody else's log come through here: the rule has accepted an
event, `take` computes what follows from it, `put` stores that. `take` changes nothing in the store,
so that an append can still be given up.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Final

from eventlog.codec import EncodedEvent, decode_event
from eventlog.errors import IntegrityError, StepNotFoundError
from eventlog.event import NO_PARENT, Event
from eventlog.keeping.kept_records import read_kept
from eventlog.keeping.kept_rows import KeptSession, LineStore, Mark, RecordSource
from eventlog.keeping.line_plan import LinePart, plan_own, plan_to_digest
from eventlog.keeping.line_reading import read_parts
from eventlog.line_state import Claim, LineState
from eventlog.log import LogRecord
from eventlog.session_summary import SessionSummary

MARK_EVERY_STEPS: Final = 256
"""A summary is stored at each such step, so that rewinding or forking reads at most so many."""

_LAST_STEP: Final = MARK_EVERY_STEPS - 1


class LineGrowth:
    """One session's summary, marks and row while events are added to its line.

    `kept` is the session as it is stored, None where it is new; `number` its number, `summary` that
    of the line with all that was taken.
    """

    __slots__ = ("_head", "_marks", "_store", "kept", "number", "session_id", "summary")

    def __init__(self, store: LineStore, session_id: str, kept: KeptSession | None) -> None:
        self._store: Final = store
        self.session_id: Final = session_id
        self.kept = kept
        if kept is None:
            self.number = store.next_number()
            self.summary = SessionSummary()
            self._head = NO_PARENT
        else:
            self.number = kept.number
            self.summary = kept.summary
            self._head = kept.line.head
        self._marks: list[Mark] = []

    def take(self, events: Sequence[EncodedEvent]) -> None:
        """Go on by events that the rule has accepted next, each standing on the one before it.

        The first may go back to an earlier event. Afterwards `summary.is_whole` may not hold: then
        call `rebuild` before `put`.
        """
        first = events[0].event
        summary = self.summary if first.parent == self._head else self._summary_before(first)
        for event, _, _ in events:
            summary = summary.accept(event)
            if event.step % MARK_EVERY_STEPS == _LAST_STEP and summary.is_whole:
                self._marks.append(Mark(event.attempt, event.step, summary))
        self.summary = summary
        self._head = events[-1].digest

    def rebuild(self, events: Sequence[EncodedEvent]) -> None:
        """Make the summary anew from the stored line and the events taken since: it is rare.

        Needed where more verifications were superseded than a summary remembers, and once where an
        older steplog stored it, which kept less.
        """
        batch = [encoded.event for encoded in events]
        if self.kept is None:
            self.summary = SessionSummary.of_line(batch)
            return
        first = batch[0]
        parts = _plan_before(self._store, self.kept, self.summary, first)
        line = chain(_events_of(read_parts(self._store, parts)), batch)
        self.summary = SessionSummary.of_line(line)

    def rebuild_stored(self, line: LineState) -> None:
        """As `rebuild`, where all that was taken is stored already, and `line` is the line now."""
        assert self.kept is not None, "what is stored has a row"
        kept = self.kept._replace(line=line, summary=self.summary)
        self.summary = SessionSummary.of_line(read_line(self._store, kept))

    def put(self, line: LineState, claims: Sequence[Claim], last_offset: int) -> None:
        """Store what was taken, but the events themselves: `line` is the line after them."""
        store, number = self._store, self.number
        for claim in claims:
            store.put_claim(self.session_id, claim)
        for mark in self._marks:
            store.put_mark(number, mark)
        self._marks.clear()
        self.kept = kept = KeptSession(number, self.session_id, line, self.summary, last_offset)
        store.put_session(kept)

    def _summary_before(self, event: Event) -> SessionSummary:
        """The summary of the line that an event stands on which goes back, or begins a branch."""
        if self.kept is None:
            if event.kind == "session_seeded":
                return SessionSummary()
            return summary_of_prefix(self._store, event)
        return summary_before(self._store, self.kept, self.summary, event)


def summary_of_prefix(source: RecordSource, fork: Event) -> SessionSummary:
    """A branch's summary goes on from its parent's; alone where the parent is not to be had.

    The link to the parent is judged when it is read, not here.
    """
    parent_id = getattr(fork.body, "parent_session", "")
    try:
        parent = source.find_session(parent_id)
        if parent is None:
            return SessionSummary()
        if parent.line.head == fork.parent and parent.summary.is_whole:
            return parent.summary
        return summary_through(source, parent, fork.parent, step=fork.step - 1)
    except (IntegrityError, StepNotFoundError):
        return SessionSummary()


def read_line(source: RecordSource, kept: KeptSession) -> Iterator[Event]:
    """The events that the session's summary is of: a branch's prefix too, where it is to be had."""
    head = kept.line.line_head(kept.session_id)
    if _stands_alone(kept, kept.summary):
        parts = plan_own(source, kept, head.digest, head.step)
    else:
        parts = plan_to_digest(source, kept, head.digest, step=head.step)
    return _events_of(read_parts(source, parts))


def summary_before(
    source: RecordSource, kept: KeptSession, summary: SessionSummary, event: Event
) -> SessionSummary:
    """The summary of the session's line that `event` stands on, as it goes back to before it.

    `summary` is that of the line until now: a branch without its prefix stays without it.
    """
    return _summary_of_parts(source, _plan_before(source, kept, summary, event))


def summary_through(
    source: RecordSource, kept: KeptSession, digest: bytes, *, step: int | None = None
) -> SessionSummary:
    """The summary of the chain that ends in the event `digest`, from the nearest stored one."""
    return _summary_of_parts(source, plan_to_digest(source, kept, digest, step=step))


def _plan_before(
    source: RecordSource, kept: KeptSession, summary: SessionSummary, event: Event
) -> list[LinePart]:
    if _stands_alone(kept, summary):
        return plan_own(source, kept, event.parent, event.step - 1)
    return plan_to_digest(source, kept, event.parent, step=event.step - 1)


def _stands_alone(kept: KeptSession, summary: SessionSummary) -> bool:
    """Whether it is a branch whose prefix could not be read: no seed went into its summary."""
    return kept.line.parent_session is not None and not summary.seeded


def _summary_of_parts(source: RecordSource, parts: Sequence[LinePart]) -> SessionSummary:
    for index in range(len(parts) - 1, -1, -1):
        part = parts[index]
        mark = source.mark_before(part.number, part.attempt, part.end_step)
        if mark is None or mark.step < part.first_step:
            continue
        rest = [part._replace(first_step=mark.step + 1), *parts[index + 1 :]]
        summary = SessionSummary.of_line(_events_of(read_parts(source, rest)), mark.summary)
        if summary.is_whole:
            return summary
        break
    return SessionSummary.of_line(_events_of(read_parts(source, parts)))


def _events_of(records: Iterable[LogRecord]) -> Iterator[Event]:
    return (decode_event(record.data) for record in records)


def regrow(store: LineStore, kept: KeptSession) -> SessionSummary:
    """Make a session's summary and marks anew from all its stored events, and store them.

    For a branch whose parent was not to be had when it began. Its old marks must be gone.
    """
    growth = LineGrowth(store, kept.session_id, None)
    growth.number = kept.number
    for record in read_kept(store, kept):
        encoded = EncodedEvent(decode_event(record.data), record.data, record.digest)
        growth.take((encoded,))
        growth.kept = kept
    if not growth.summary.is_whole:
        growth.rebuild_stored(kept.line)
    growth.put(kept.line, (), kept.last_offset)
    return growth.summary
