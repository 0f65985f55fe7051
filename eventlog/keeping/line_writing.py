"""Appends, claims and releases, as every keeper does them inside one transaction of its own.

Each function first decides and computes everything, and only then stores: an error of ours leaves
the transaction as it was. Time and ids come in through `Claimant`.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Final, NamedTuple

from eventlog.codec import EncodedEvent, decode_event, encode_event
from eventlog.errors import (
    IntegrityError,
    LinkBrokenError,
    SessionNotFoundError,
    StepGapError,
    StepNotFoundError,
)
from eventlog.event import Event, LineHead, SessionReleased, SessionResumed
from eventlog.keeping.append_rule import Accepted, Append, judge_append, require_head, require_owner
from eventlog.keeping.kept_records import checked_record
from eventlog.keeping.kept_rows import KeptSession, LineStore, Mark, RecordSource
from eventlog.keeping.line_plan import plan_chain, plan_to_digest, require_known
from eventlog.keeping.line_reading import read_parts
from eventlog.line_state import Claim
from eventlog.log import LogRecord, Receipt
from eventlog.session_summary import SessionSummary

MARK_EVERY_STEPS: Final = 256
"""A summary is stored at each such step, so that rewinding or forking reads at most so many."""


class Claimant(NamedTuple):
    """Who writes of its own accord: its writer id, its clock (microseconds UTC) and ids."""

    writer_id: str
    clock_us: Callable[[], int]
    mint_event_id: Callable[[], bytes]


class Takeover(NamedTuple):
    """A wish to own sessions: each goes on after the event of its digest.

    `heads` are the lines' heads as the claimant has read them, where it has.
    """

    session_ids: Sequence[str]
    stands_on: Mapping[str, bytes]
    reason: str
    heads: Mapping[str, LineHead]


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
        kept = _require_session(store, session_id)
        append = _claim_append(store, kept, wish, claimant)
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
    kept = _require_session(store, session_id)
    require_owner(kept, claimant.writer_id)
    head = kept.line.line_head(session_id)
    event = _own_event(head, SessionReleased(to_writer), claimant)
    append = Append(session_id, [event], head.step, claimant.writer_id)
    judged = judge_append(append, kept, store)
    assert isinstance(judged, Accepted), "a minted event id stands already"
    return _store(store, append, kept, judged)


def _require_session(store: LineStore, session_id: str) -> KeptSession:
    kept = store.find_session(session_id)
    if kept is None:
        raise SessionNotFoundError(
            f"no session {session_id!r} in the log",
            hint="`steplog sessions` lists what is there",
            session_id=session_id,
        )
    return kept


def _claim_append(
    store: LineStore, kept: KeptSession, wish: Takeover, claimant: Claimant
) -> Append:
    line = kept.line
    require_head(kept, wish.heads.get(kept.session_id))
    digest = wish.stands_on.get(kept.session_id)
    if digest is None:
        raise StepNotFoundError(
            "the take-over does not say which event the session goes on after",
            hint="give stands_on the digest of the session's head",
            session_id=kept.session_id,
        )
    if digest == line.head:
        from_step, parent = line.next_step - 1, line.head
    elif line.parent_session is not None and digest == line.fork_parent:
        # The branch goes on right after the fork; its fork event has the same state.
        from_step, parent = line.first_step, _fork_event_digest(store, kept)
    else:
        known = require_known(store, kept, digest)
        from_step, parent = known.step, digest
    attempt = 1 + _claims_of(store, kept)[-1].attempt
    over_release = line.released and parent == line.head
    body = SessionResumed(from_step, wish.reason, claimant.writer_id, over_release)
    head = LineHead(kept.session_id, from_step, attempt, parent)
    event = _own_event(head, body, claimant)
    return Append(kept.session_id, [event], from_step, claimant.writer_id)


def _fork_event_digest(store: LineStore, kept: KeptSession) -> bytes:
    first = _claims_of(store, kept)[0]
    stored = store.event_at(kept.number, first.attempt, kept.line.first_step)
    if stored is None:
        raise StepGapError(
            "the branch's fork event is missing",
            hint="run `steplog check`",
            session_id=kept.session_id,
            step=kept.line.first_step,
        )
    return checked_record(stored, kept.session_id).digest


def _claims_of(store: LineStore, kept: KeptSession) -> Sequence[Claim]:
    """The session's claims, of which the last must be the one in force."""
    claims = store.claims_of(kept.session_id)
    if not claims or claims[-1].attempt != kept.line.attempt:
        raise LinkBrokenError(
            f"the claim of attempt {kept.line.attempt} is missing",
            hint="run `steplog check`; restore the log from a copy",
            session_id=kept.session_id,
        )
    return claims


def _own_event(
    head: LineHead, body: SessionResumed | SessionReleased, claimant: Claimant
) -> EncodedEvent:
    return encode_event(
        Event.following(
            head,
            body,
            event_id=claimant.mint_event_id(),
            time=claimant.clock_us(),
            actor="system",
        )
    )


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
