"""Reading a session's line out of any keeper's rows, each record proven by the next.

A line is first planned as parts: ranges of one session and attempt, a branch's prefix included.
Rows are append-only, so a plan stays right while others write. Then the parts are read; a record
is given out only when its bytes have its digest, its own fields name the place it was found at, and
the record after it (or the line's head) names it as parent.
"""

from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256
from itertools import islice
from typing import NamedTuple

from eventlog.codec import decode_prefix
from eventlog.errors import (
    EventCorruptError,
    LinkBrokenError,
    SessionNotFoundError,
    StepGapError,
    SteplogError,
    StepNotFoundError,
)
from eventlog.kept_rows import KeptSession, LineSource, RecordSource, StoredEvent
from eventlog.log import LogRecord
from eventlog.standing_line import standing_ranges

_CHECK_HINT = "run `steplog check`; restore the log from a copy, or fork before this step"


class LinePart(NamedTuple):
    """Steps [first_step, end_step) of a chain, written by one session under one attempt."""

    number: int
    session_id: str
    attempt: int
    first_step: int
    end_step: int


class LinePlan(NamedTuple):
    """Where a chain lies, from its first step, and the digest of the event it ends in."""

    session_id: str
    parts: tuple[LinePart, ...]
    end_digest: bytes

    @property
    def end_step(self) -> int:
        """One past the chain's last step."""
        return self.parts[-1].end_step


def plan_line(source: LineSource, session_id: str, through: bytes | None = None) -> LinePlan:
    """Plan the standing line, or the chain that ends in the event `through`.

    Raises `SessionNotFoundError`, `StepNotFoundError` (`through` unknown), `LinkBrokenError`.
    """
    kept = source.find_session(session_id)
    if kept is None:
        raise SessionNotFoundError(
            f"no session {session_id!r} in the log",
            hint="`steplog sessions` lists what is there",
            session_id=session_id,
        )
    line = kept.line
    if through is None or through == line.head:
        parts = plan_chain(source, kept, line.attempt, line.next_step - 1)
        return LinePlan(session_id, tuple(parts), line.head)
    return LinePlan(session_id, tuple(plan_to_digest(source, kept, through)), through)


def plan_to_digest(
    source: LineSource, kept: KeptSession, digest: bytes, *, step: int | None = None
) -> list[LinePart]:
    """The parts of the chain that ends in the event `digest` of the session or of its prefix.

    `step`, where known, saves a search. Raises `StepNotFoundError` where there is no such event.
    """
    if step is not None and step >= kept.line.first_step:
        attempt = _attempt_of(source, kept, step, digest)
        if attempt is not None:
            return plan_chain(source, kept, attempt, step)
    else:
        known = source.find_digest(kept.number, digest)
        if known is not None:
            return plan_chain(source, kept, known.attempt, known.step)
        prefix = _prefix_of(source, kept)
        for index, part in enumerate(prefix):
            known = source.find_digest(part.number, digest)
            if known is not None and known.attempt == part.attempt and known.step < part.end_step:
                clipped = part._replace(end_step=known.step + 1)
                if clipped.first_step < clipped.end_step:
                    return [*prefix[:index], clipped]
    raise StepNotFoundError(
        f"no event {digest.hex()} was ever accepted in the session",
        hint="take the digest from the session's own records or from a receipt",
        session_id=kept.session_id,
        step=step,
    )


def plan_chain(source: LineSource, kept: KeptSession, attempt: int, step: int) -> list[LinePart]:
    """The parts of the chain that ends in the session's own event (`attempt`, `step`)."""
    own = [
        LinePart(kept.number, kept.session_id, *part)
        for part in standing_ranges(
            source.claims_of(kept.session_id), attempt, step, session_id=kept.session_id
        )
    ]
    return [*_prefix_of(source, kept), *own]


def _prefix_of(source: LineSource, kept: KeptSession) -> list[LinePart]:
    """A branch's part in its parent, its parent's parent, and so on; in step order."""
    parts: list[LinePart] = []
    end_step = kept.line.first_step
    seen = {kept.session_id}
    inherited: list[KeptSession] = []
    while kept.line.parent_session is not None:
        fork = kept
        kept = _parent_of(source, fork, seen)
        fork_step = fork.line.first_step - 1
        if fork_step < kept.line.first_step:
            # Forked from the prefix of a branch: the event is one of an ancestor's.
            end_step = min(end_step, fork_step + 1)
            inherited.append(fork)
            continue
        attempt = _attempt_of(source, kept, fork_step, fork.line.fork_parent)
        if attempt is None:
            raise _fork_broken(fork)
        ranges = standing_ranges(
            source.claims_of(kept.session_id), attempt, fork_step, session_id=kept.session_id
        )
        clipped = [
            LinePart(kept.number, kept.session_id, *part._replace(end_step=end))
            for part in ranges
            if part.first_step < (end := min(part.end_step, end_step))
        ]
        parts = [*clipped, *parts]
        end_step = min(end_step, kept.line.first_step)
    for fork in inherited:
        _require_inherited(source, fork, parts)
    return parts


def _require_inherited(source: LineSource, fork: KeptSession, parts: list[LinePart]) -> None:
    """The event a fork stands on must lie on the prefix of the branch it was forked from."""
    step = fork.line.first_step - 1
    for part in parts:
        if part.first_step <= step < part.end_step:
            stored = source.event_at(part.number, part.attempt, step)
            if stored is not None and stored.digest == fork.line.fork_parent:
                return
    raise _fork_broken(fork)


def _fork_broken(fork: KeptSession) -> LinkBrokenError:
    return LinkBrokenError(
        f"the fork stands on an event that {fork.line.parent_session!r} never had at step "
        f"{fork.line.first_step - 1}",
        hint=_CHECK_HINT,
        session_id=fork.session_id,
        step=fork.line.first_step,
    )


def _parent_of(source: LineSource, fork: KeptSession, seen: set[str]) -> KeptSession:
    parent_id = fork.line.parent_session
    assert parent_id is not None
    parent = None if parent_id in seen else source.find_session(parent_id)
    if parent is None:
        raise LinkBrokenError(
            f"the parent session {parent_id!r} of the branch is not in this log",
            hint="bring the parent session into the log; its events are the branch's prefix",
            session_id=fork.session_id,
            step=fork.line.first_step,
        )
    seen.add(parent_id)
    return parent


def _attempt_of(source: LineSource, kept: KeptSession, step: int, digest: bytes) -> int | None:
    """Under which attempt the session wrote the event `digest` as `step`; None if it never did."""
    for claim in reversed(source.claims_of(kept.session_id)):
        if claim.first_step <= step:
            stored = source.event_at(kept.number, claim.attempt, step)
            if stored is not None and stored.digest == digest:
                return claim.attempt
    return None


def read_plan(
    source: LineSource, plan: LinePlan, start_step: int, end_step: int | None
) -> Iterator[LogRecord]:
    """Records of steps [start_step, end_step) of a planned chain.

    Bounds are checked at once (`StepNotFoundError`), rows as they are read (`IntegrityError`).
    """
    end = plan.end_step if end_step is None else end_step
    if not 0 <= start_step <= end or end > plan.end_step:
        raise StepNotFoundError(
            f"the line has steps 0 to {plan.end_step - 1}, asked for [{start_step}, {end})",
            hint="`steplog show` lists the session's steps",
            session_id=plan.session_id,
            step=end - 1 if end > plan.end_step else start_step,
        )
    return _proven(source, plan, start_step, end)


def read_parts(source: LineSource, parts: Sequence[LinePart]) -> Iterator[LogRecord]:
    """All records of these parts, linked to each other; what comes after them is not looked at."""
    return _linked(source, parts)


def _proven(source: LineSource, plan: LinePlan, start: int, end: int) -> Iterator[LogRecord]:
    if start == end:
        return
    # One record more is read than is given out: it names the last one as its parent.
    look_end = min(end + 1, plan.end_step)
    parts = [
        part._replace(first_step=low, end_step=high)
        for part in plan.parts
        if (low := max(part.first_step, start)) < (high := min(part.end_step, look_end))
    ]
    # Parts that do not reach back to the asked step would leave a gap at the front.
    if not parts or parts[0].first_step != start:
        raise _gap(plan.session_id, start)
    held: LogRecord | None = None
    for record in _linked(source, parts):
        if held is not None:
            yield held
        held = record
    assert held is not None
    if look_end == end:
        if held.digest != plan.end_digest:
            raise LinkBrokenError(
                "the line's last event is not the one its head names",
                hint=_CHECK_HINT,
                session_id=plan.session_id,
                step=held.prefix.step,
            )
        yield held


def _linked(source: LineSource, parts: Iterable[LinePart]) -> Iterator[LogRecord]:
    """Every record of the parts, each checked against the one before it."""
    parent: bytes | None = None
    for part in parts:
        step = part.first_step
        for stored in source.events_between(
            part.number, part.attempt, part.first_step, part.end_step
        ):
            record = checked_record(stored, part.session_id)
            if stored.step != step:
                raise _gap(part.session_id, step)
            if parent is not None and record.prefix.parent != parent:
                raise LinkBrokenError(
                    f"the event (offset {stored.offset}) does not stand on the event before it",
                    hint=_CHECK_HINT,
                    session_id=part.session_id,
                    step=step,
                )
            yield record
            parent = record.digest
            step += 1
        if step != part.end_step:
            raise _gap(part.session_id, step)


def read_kept(source: RecordSource, kept: KeptSession) -> Iterator[LogRecord]:
    """Every record that the session's own line ever accepted, in log order; none may be missing.

    An attempt writes only while it is the last one, so log order is that of (attempt, step).
    """
    return _all_kept(source, kept, islice(source.all_events(kept.number), kept.line.accepted))


def _all_kept(
    source: RecordSource, kept: KeptSession, rows: Iterator[StoredEvent]
) -> Iterator[LogRecord]:
    session_id = kept.session_id
    first_steps = {claim.attempt: claim.first_step for claim in source.claims_of(session_id)}
    count, attempt, step, parent = 0, 0, 0, b""
    for stored in rows:
        record = checked_record(stored, session_id)
        if stored.attempt != attempt:
            attempt, step = stored.attempt, first_steps.get(stored.attempt, -1)
            parent = record.prefix.parent
        if stored.step != step or record.prefix.parent != parent:
            raise _gap(session_id, step)
        yield record
        count, step, parent = count + 1, step + 1, record.digest
    if count != kept.line.accepted:
        raise _gap(session_id, step)


def checked_record(stored: StoredEvent, session_id: str | None) -> LogRecord:
    """The stored row as a record, its bytes proven to be what was stored at this place.

    `session_id` None: any session. Raises `EventCorruptError`, or what decoding raises, naming
    session, step and offset.
    """
    digest = sha256(stored.data).digest()
    if digest != stored.digest:
        raise EventCorruptError(
            f"the bytes of the event at offset {stored.offset} do not have its digest",
            hint=_CHECK_HINT,
            session_id=session_id,
            step=stored.step,
        )
    try:
        prefix = decode_prefix(stored.data)
    except SteplogError as error:
        error.message = f"{error.message} (offset {stored.offset})"
        if error.session_id is None:
            error.session_id = session_id
        if error.step is None:
            error.step = stored.step
        raise
    if (
        prefix.step != stored.step
        or prefix.attempt != stored.attempt
        or (session_id is not None and prefix.session_id != session_id)
    ):
        raise EventCorruptError(
            f"the row at offset {stored.offset} holds step {prefix.step} (attempt "
            f"{prefix.attempt}) of session {prefix.session_id!r}",
            hint=_CHECK_HINT,
            session_id=session_id,
            step=stored.step,
        )
    return LogRecord(stored.offset, digest, stored.data, prefix)


def _gap(session_id: str, step: int) -> StepGapError:
    return StepGapError(
        "the event is missing from the log", hint=_CHECK_HINT, session_id=session_id, step=step
    )
