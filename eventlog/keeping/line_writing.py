"""Appends, claims and releases, as every keeper does them inside one transaction of its own.

Each function first decides and computes everything, and only then stores: an error of ours leaves
the transaction as it was.
"""

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Final, NamedTuple

from eventlog.codec import decode_event
from eventlog.errors import (
    IntegrityError,
    StepNotFoundError,
)
from eventlog.event import Event, SessionReleased
from eventlog.keeping.append_rule import Accepted, Append, judge_append, require_owner
from eventlog.keeping.claims import Claimant, Takeover, claim_append, own_event, require_session
from eventlog.keeping.kept_rows import KeptSession, LineStore, Mark, RecordSource
from eventlog.keeping.line_plan import plan_chain, plan_to_digest
from eventlog.keeping.line_reading import read_parts
from eventlog.log import LogRecord, Receipt
from eventlog.session_summary import SessionSummary

MARK_EVERY_STEPS: Final = 256
"""A summary is stored at each such step, so that rewinding or forking reads at most so many."""


def append_events(store: LineStore, append: Append) -> Receipt:
    """Judge and store one append. Raises as `EventLog.append_events`; then nothing is stored."""
    kept = store.find_session(append.session_id)
    judged = judge_append(append, kept, store)
    if isinstance(judged, Receipt):
        return judged
    return _store(store, append, kept, judged)


def take_over(store: LineStore, wish: Takeover, claimant: Claimant) -> dict[str, int]:
    """Claim all of the sessions or none; the new attempt of each."""
    ready: list[tuple[Append, KeptSession, Accepted]] = []
    for session_id in dict.fromkeys(wish.session_ids):
        kept = require_session(store, session_id)
        append = claim_append(store, kept, wish, claimant)
        judged = judge_append(append, kept, store)
        assert isinstance(judged, Accepted), "a minted event id stands already"
        ready.append((append, kept, judged))
    written = [_prepare(store, append, kept) for append, kept, _ in ready]
    for (append, _, judged), prepared in zip(ready, written, strict=True):
        _put(store, append, judged, prepared)
    return {append.session_id: judged.line.attempt for append, _, judged in ready}


def release(
    store: LineStore, session_id: str, to_writer: str | None, claimant: Claimant
) -> Receipt:
    """Append `session_released`. Raises `FencedError` where the claimant does not own it."""
    kept = require_session(store, session_id)
    require_owner(kept, claimant.writer_id)
    head = kept.line.line_head(session_id)
    event = own_event(head, SessionReleased(to_writer), claimant)
    append = Append(session_id, [event], head.step, claimant.writer_id)
    judged = judge_append(append, kept, store)
    assert isinstance(judged, Accepted), "a minted event id stands already"
    return _store(store, append, kept, judged)


class _Prepared(NamedTuple):
    """All that is to be stored, computed before anything is."""

    number: int
    summary: SessionSummary
    marks: tuple[Mark, ...]


def _store(store: LineStore, append: Append, kept: KeptSession | None, judged: Accepted) -> Receipt:
    return _put(store, append, judged, _prepare(store, append, kept))


def _prepare(store: LineStore, append: Append, kept: KeptSession | None) -> _Prepared:
    summary = _summary_before(store, append, kept)
    marks = []
    for encoded in append.events:
        event = encoded.event
        summary = summary.accept(event)
        if event.step % MARK_EVERY_STEPS == MARK_EVERY_STEPS - 1 and not summary.must_rebuild:
            marks.append(Mark(event.attempt, event.step, summary))
    number = store.next_number() if kept is None else kept.number
    if summary.must_rebuild:
        summary = _rebuilt(store, append, kept)
    return _Prepared(number, summary, tuple(marks))


def _put(store: LineStore, append: Append, judged: Accepted, prepared: _Prepared) -> Receipt:
    number = prepared.number
    last_offset = store.put_events(number, append.events)
    for claim in judged.claims:
        store.put_claim(append.session_id, claim)
    for mark in prepared.marks:
        store.put_mark(number, mark)
    store.put_session(
        KeptSession(number, append.session_id, judged.line, prepared.summary, last_offset)
    )
    first, last = append.events[0].event, append.events[-1]
    return Receipt(
        append.session_id,
        first.step,
        last.event.step,
        last.event.attempt,
        last.digest,
        last_offset,
    )


def _summary_before(store: LineStore, append: Append, kept: KeptSession | None) -> SessionSummary:
    """The summary of the line that the batch's first event stands on."""
    first = append.events[0].event
    if kept is None:
        if first.kind == "session_seeded":
            return SessionSummary()
        return _summary_of_prefix(store, first)
    if first.parent == kept.line.head:
        return kept.summary
    return summary_through(store, kept, first.parent)


def _summary_of_prefix(store: LineStore, fork: Event) -> SessionSummary:
    """A branch's summary goes on from its parent's; alone where the parent is not to be had.

    The link to the parent is judged when it is read, not here.
    """
    body = fork.body
    parent_id = getattr(body, "parent_session", "")
    try:
        parent = store.find_session(parent_id)
        if parent is None:
            return SessionSummary()
        if parent.line.head == fork.parent:
            return parent.summary
        return summary_through(store, parent, fork.parent, step=fork.step - 1)
    except (IntegrityError, StepNotFoundError):
        return SessionSummary()


def summary_through(
    source: RecordSource, kept: KeptSession, digest: bytes, *, step: int | None = None
) -> SessionSummary:
    """The summary of the chain that ends in the event `digest`, from the nearest stored one."""
    parts = plan_to_digest(source, kept, digest, step=step)
    for index in range(len(parts) - 1, -1, -1):
        part = parts[index]
        mark = source.mark_before(part.number, part.attempt, part.end_step)
        if mark is None or mark.step < part.first_step:
            continue
        rest = [part._replace(first_step=mark.step + 1), *parts[index + 1 :]]
        summary = SessionSummary.of_line(_events_of(read_parts(source, rest)), mark.summary)
        if not summary.must_rebuild:
            return summary
        break
    return SessionSummary.of_line(_events_of(read_parts(source, parts)))


def _rebuilt(store: LineStore, append: Append, kept: KeptSession | None) -> SessionSummary:
    """From the whole line: rare, where more verifications were superseded than are remembered."""
    batch = [encoded.event for encoded in append.events]
    if kept is None:
        return SessionSummary.of_line(batch)
    line = kept.line
    parent = batch[0].parent
    if parent == line.head:
        parts = plan_chain(store, kept, line.attempt, line.next_step - 1)
    else:
        parts = plan_to_digest(store, kept, parent)
    return SessionSummary.of_line(chain(_events_of(read_parts(store, parts)), batch))


def _events_of(records: Iterable[LogRecord]) -> Iterator[Event]:
    return (decode_event(record.data) for record in records)
