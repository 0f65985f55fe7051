"""Whether an append may be written: the writer's side of the reader's rule.

Pure but for the questions to the keeper. Order: the batch must stand on itself; what stands already
under the same ids is answered with its first receipt; then ownership (claims, fencing); then the
place; then the reader's rule itself (`SessionLine`) has the last word, so a keeper never stores
what a reader would refuse.
"""

from collections.abc import Sequence
from hashlib import sha256
from typing import Final, NamedTuple

from eventlog.codec import EVENT_BYTES_MAX, EncodedEvent
from eventlog.errors import (
    EventCorruptError,
    EventTooLargeError,
    FencedError,
    LinkBrokenError,
    LogError,
    SessionExistsError,
    SessionNotFoundError,
    StepConflictError,
)
from eventlog.event import Event, LineHead
from eventlog.keeping.kept_records import checked_record
from eventlog.keeping.kept_rows import JudgeSource, KeptSession, LineSource
from eventlog.line_state import KINDS_WITH_BODY, Claim, KnownEvent, LineState, Verdict, VerdictKind
from eventlog.log import LogRecord, Receipt
from eventlog.session_line import SessionLine, bounds_problem
from eventlog.standing_line import standing_ranges

HELD_BYTES_PER_EVENT: Final = 3_072
"""What the objects of a small event, its append and its answer take."""

_FIRST_KINDS: Final = ("session_seeded", "session_forked")
_CLAIM_KINDS: Final = (*_FIRST_KINDS, "session_resumed")


class Append(NamedTuple):
    """A batch of one session's events, to stand after `expected_step`, brought by `writer_id`.

    `head` is the line's head as a claimant has read it, where it has.
    """

    session_id: str
    events: Sequence[EncodedEvent]
    expected_step: int
    writer_id: str
    head: LineHead | None = None

    @property
    def size_bytes(self) -> int:
        """How many bytes the events have together."""
        events = self.events
        return (
            len(events[0].data) if len(events) == 1 else sum([len(data) for _, data, _ in events])
        )

    def held_bytes(self, size_bytes: int) -> int:
        """How much memory it holds: each event as objects and as bytes, and its answer."""
        return 2 * size_bytes + HELD_BYTES_PER_EVENT * len(self.events)


class Accepted(NamedTuple):
    """The append may be written: the line after it, and the claims it brings."""

    line: LineState
    claims: tuple[Claim, ...]


def require_whole_batch(append: Append) -> None:
    """Check, before any I/O, that the batch is one chain of this session, and small enough.

    Raises `EventTooLargeError`; `StepConflictError` where the steps do not follow `expected_step`;
    `LinkBrokenError`, `EventCorruptError` where links or digests do not fit; `LogError` where a
    step or an attempt is higher than any log takes; `ValueError` if empty.
    """
    if not append.events:
        raise ValueError("an append needs at least one event")
    step, parent = append.expected_step, None
    for encoded in append.events:
        event = encoded.event
        step += 1
        if len(encoded.data) > EVENT_BYTES_MAX:
            raise EventTooLargeError(
                f"a {event.kind} event has {len(encoded.data)} bytes, over {EVENT_BYTES_MAX}",
                hint="encode it with `fit_event`, which moves large contents to blobs",
                event_bytes=len(encoded.data),
                event_bytes_max=EVENT_BYTES_MAX,
                session_id=append.session_id,
                step=event.step,
            )
        _require_bounds(event)
        if event.session_id != append.session_id or event.step != step:
            raise StepConflictError(
                f"the batch holds step {event.step} of {event.session_id!r} where step {step} "
                f"of {append.session_id!r} is due",
                hint="append the events of one session, in order, right after expected_step",
                expected=append.expected_step,
                actual=event.step - 1,
                session_id=append.session_id,
                step=step,
            )
        if parent is not None and event.parent != parent:
            raise LinkBrokenError(
                "an event of the batch does not stand on the one before it",
                hint="make each event with `Event.following` the one before",
                session_id=append.session_id,
                step=step,
            )
        if sha256(encoded.data).digest() != encoded.digest:
            raise EventCorruptError(
                "an event's bytes do not have its digest",
                hint="encode events with `encode_event`",
                session_id=append.session_id,
                step=step,
            )
        parent = encoded.digest


def _require_bounds(event: Event) -> None:
    problem = bounds_problem(event)
    if problem is not None:
        raise LogError(
            f"a {event.kind} event is refused: {problem}",
            hint="steps count from 0 and attempts from 1, one by one: see who gave so high a one",
            session_id=event.session_id,
            step=event.step,
        )


def judge_append(
    append: Append, kept: KeptSession | None, store: JudgeSource
) -> Accepted | Receipt:
    """What becomes of the append: it may be written, or its first receipt, or an error.

    Raises `StepConflictError`, `FencedError`, `SessionExistsError`, `SessionNotFoundError`;
    `LogError` for a claim of an attempt that no log takes.
    """
    first = append.events[0].event
    if kept is None:
        if first.kind not in _FIRST_KINDS:
            raise SessionNotFoundError(
                f"no session {append.session_id!r} to append to",
                hint="a session begins with session_seeded or session_forked",
                session_id=append.session_id,
            )
        return _judge_by_line(append, None, store)
    receipt = _standing_receipt(append, kept, store)
    if receipt is not None:
        return receipt
    if first.kind in _FIRST_KINDS:
        raise SessionExistsError(
            f"session {append.session_id!r} is already in the log",
            hint="choose another id, resume the session, or fork it",
            session_id=append.session_id,
        )
    require_head(kept, append.head)
    if first.kind not in _CLAIM_KINDS:
        _require_ownership(append, kept)
        _require_place(append, kept)
    else:
        _require_bounds(first)  # Who takes over makes the claim here, from the attempts it found.
    return _judge_by_line(append, kept, store)


def require_head(kept: KeptSession, read: LineHead | None) -> None:
    """Raise `StepConflictError` unless the line stands where it was read, if it was."""
    head = kept.line.line_head(kept.session_id)
    if read is not None and read != head:
        raise StepConflictError(
            f"the session stands at step {head.step} (attempt {head.attempt}), not at step "
            f"{read.step} (attempt {read.attempt}) as it was read",
            hint="read the session's head again; nothing was claimed",
            expected=read.step,
            actual=head.step,
            session_id=kept.session_id,
        )


def require_owner(kept: KeptSession, writer_id: str) -> None:
    """Raise `FencedError` unless `writer_id` holds the claim in force on the session."""
    line = kept.line
    if line.writer != writer_id or line.released:
        raise _fenced(kept)


def _fenced(kept: KeptSession) -> FencedError:
    """For a writer without the claim: what the line is now, and what that writer may do."""
    line = kept.line
    by = f"attempt {line.attempt}" + ("" if line.writer is None else f" (writer {line.writer})")
    unwritten = "nothing of this append was written"
    if line.status == "open":
        message = f"the session is held by {by}, not by this writer"
        hint = (
            f"another process owns it now: stop here, {unwritten}; resume the session only if that "
            "process is surely gone"
        )
    elif line.status == "released":
        message = f"the session was released by {by}: nobody holds it"
        hint = f"{unwritten}; resume the session to go on with it"
    else:
        message = f"the session was {line.status} by {by}, not by this writer"
        hint = (
            f"another process ended it: stop here, {unwritten}; to go on with it, fork it or "
            "resume it with reopen=True"
        )
    return FencedError(message, hint=hint, session_id=kept.session_id, step=line.next_step - 1)


def _require_ownership(append: Append, kept: KeptSession) -> None:
    require_owner(kept, append.writer_id)
    attempt, line = append.events[0].event.attempt, kept.line
    if attempt < line.attempt:
        # The writer is the same: the session was resumed through the same handle.
        is_open = line.status == "open"
        go_on = "use the recorder of that attempt" if is_open else "resume it, or fork it"
        raise FencedError(
            f"attempt {attempt} was taken over in this process: attempt {line.attempt} stands, "
            f"and the session is {line.status}",
            hint=f"nothing of this append was written; {go_on}",
            session_id=append.session_id,
            step=append.expected_step,
        )


def _require_place(append: Append, kept: KeptSession) -> None:
    if append.expected_step != kept.line.next_step - 1:
        raise _conflict(append, kept.line, "the line is not where the append expects it")


def _judge_by_line(append: Append, kept: KeptSession | None, store: JudgeSource) -> Accepted:
    """Give the whole batch to `SessionLine`; all of it must be accepted."""
    if kept is not None:
        plainly = plain_line(append, kept.line)
        if plainly is not None:
            return Accepted(plainly, ())
    memory = _BatchMemory(append.session_id, kept, store)
    line = SessionLine(append.session_id, memory.known, None if kept is None else kept.line)
    for encoded in append.events:
        memory.judged = encoded
        verdict = line.accept(encoded.event, encoded.digest)
        if verdict.kind is not VerdictKind.ACCEPTED:
            raise _refusal(append, encoded, verdict, LineState() if kept is None else kept.line)
        memory.note(encoded, verdict)
    return Accepted(line.state, tuple(memory.claims))


def plain_line(append: Append, line: LineState) -> LineState | None:
    """The line after a batch of ordinary events that stands on its head; None for any other.

    The commonest case by far, and rule 7 alone: the events are known to be one chain already.
    """
    events = append.events
    first = events[0].event
    if (
        line.status != "open"
        or line.error is not None
        or first.parent != line.head
        or first.step != line.next_step
    ):
        return None
    for encoded in events:
        event = encoded.event
        if event.attempt != line.attempt or event.kind in KINDS_WITH_BODY:
            return None
    return line._replace(
        next_step=line.next_step + len(events),
        head=events[-1].digest,
        accepted=line.accepted + len(events),
    )


class _BatchMemory:
    """Answers `known` for a batch: by place, since a digest fixes session, step and attempt."""

    def __init__(self, session_id: str, kept: KeptSession | None, source: LineSource) -> None:
        self._session_id = session_id
        self._kept = kept
        self._source = source
        self._accepted: list[EncodedEvent] = []
        self.claims: list[Claim] = []
        self.judged: EncodedEvent | None = None

    def note(self, encoded: EncodedEvent, verdict: Verdict) -> None:
        """Remember an accepted event of the batch."""
        self._accepted.append(encoded)
        if verdict.claim is not None:
            self.claims.append(verdict.claim)

    def known(self, digest: bytes) -> KnownEvent | None:
        """The accepted event of this digest, if it is the judged one or may be its parent."""
        for encoded in self._accepted:
            if encoded.digest == digest:
                return KnownEvent(encoded.event.step, encoded.event.attempt)
        if self._kept is None or self.judged is None:
            return None
        event = self.judged.event
        if digest == self.judged.digest:
            return self._at(digest, event.attempt, event.step)
        # A parent at another step than the one before is refused by rule 3 whatever it is.
        for claim in reversed(self._source.claims_of(self._session_id)):
            if claim.first_step < event.step:
                parent = self._at(digest, claim.attempt, event.step - 1)
                if parent is not None:
                    return parent
        return None

    def _at(self, digest: bytes, attempt: int, step: int) -> KnownEvent | None:
        assert self._kept is not None
        stored = self._source.event_at(self._kept.number, attempt, step)
        if stored is None or stored.digest != digest:
            return None
        return KnownEvent(step, attempt)


def _standing_receipt(append: Append, kept: KeptSession, store: JudgeSource) -> Receipt | None:
    """The first receipt, where exactly these ids stand already; a conflict where some do."""
    ids = [encoded.event.event_id for encoded in append.events]
    first = append.expected_step + 1
    stands_there = kept.line.first_step <= first < kept.line.next_step
    if stands_there:
        standing = _standing_events(kept, store, first, first + len(ids))
        if [record.prefix.event_id for record in standing] == ids:
            return _receipt_of(append.session_id, standing)
    found = store.recent_step_of(kept, ids)
    if found is None:
        return None
    standing = _standing_events(kept, store, found, found + len(ids))
    if [record.prefix.event_id for record in standing] == ids:
        return _receipt_of(append.session_id, standing)
    raise _conflict(append, kept.line, f"the event at step {found} has one of these ids already")


def _standing_events(
    kept: KeptSession, source: LineSource, start: int, end: int
) -> list[LogRecord]:
    line = kept.line
    found: list[LogRecord] = []
    claims = source.claims_of(kept.session_id)
    for part in standing_ranges(
        claims, line.attempt, line.next_step - 1, session_id=kept.session_id
    ):
        low, high = max(start, part.first_step), min(end, part.end_step)
        if low < high:
            rows = source.events_between(kept.number, part.attempt, low, high)
            found.extend(checked_record(stored, kept.session_id) for stored in rows)
    return found


def _receipt_of(session_id: str, standing: Sequence[LogRecord]) -> Receipt:
    first, last = standing[0].prefix, standing[-1]
    place = last.prefix
    return Receipt(session_id, first.step, place.step, place.attempt, last.digest, last.offset)


def _refusal(
    append: Append, encoded: EncodedEvent, verdict: Verdict, line: LineState
) -> StepConflictError | FencedError:
    event = encoded.event
    if verdict.kind in (VerdictKind.LOST_CLAIM, VerdictKind.SUPERSEDED):
        return FencedError(
            f"a {event.kind} of attempt {event.attempt} comes too late: attempt {line.attempt} "
            "stands",
            hint="read the session again and claim it anew",
            session_id=append.session_id,
            step=event.step,
        )
    if line.status in ("closed", "lost") and verdict.kind is VerdictKind.CONFLICT:
        return _conflict(append, line, f"the session is {line.status}; it takes no {event.kind}")
    why = "" if verdict.error is None else f": {verdict.error.message}"
    return _conflict(append, line, f"the rule refuses a {event.kind} here ({verdict.kind}{why})")


def _conflict(append: Append, line: LineState, message: str) -> StepConflictError:
    return StepConflictError(
        f"{message} (expected last step {append.expected_step}, found {line.next_step - 1})",
        hint="read the session's head again; nothing of this append was written",
        expected=append.expected_step,
        actual=line.next_step - 1,
        session_id=append.session_id,
        step=append.expected_step + 1,
    )
