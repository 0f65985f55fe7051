"""Where a session's line lies among a keeper's rows: ranges of one session and attempt.

A branch's prefix is found through its fork event's parent, whatever its parent's line is now. Rows
are append-only, so a plan stays right while others write.
"""

from itertools import pairwise
from typing import NamedTuple

from eventlog.errors import LinkBrokenError, SessionNotFoundError, StepNotFoundError
from eventlog.keeping.kept_records import CHECK_HINT, read_kept
from eventlog.keeping.kept_rows import KeptSession, LineSource, RecordSource
from eventlog.line_state import KnownEvent
from eventlog.standing_line import standing_ranges


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


def plan_line(source: RecordSource, session_id: str, through: bytes | None = None) -> LinePlan:
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
    source: RecordSource, kept: KeptSession, digest: bytes, *, step: int | None = None
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
        for owner in dict.fromkeys(part.session_id for part in prefix):
            parent = source.find_session(owner)
            if parent is not None:
                _require_sound(source, parent)
    _require_sound(source, kept)
    raise _unknown(kept, digest, step)


def require_known(source: RecordSource, kept: KeptSession, digest: bytes) -> KnownEvent:
    """Where the session wrote the event `digest`. Raises `StepNotFoundError` if it never did."""
    known = source.find_digest(kept.number, digest)
    if known is None:
        _require_sound(source, kept)
        raise _unknown(kept, digest, None)
    return known


def _require_sound(source: RecordSource, kept: KeptSession) -> None:
    """Before "there is no such event" is said: no row of the session may be damaged or missing."""
    for _ in read_kept(source, kept):
        pass


def _unknown(kept: KeptSession, digest: bytes, step: int | None) -> StepNotFoundError:
    return StepNotFoundError(
        f"no event {digest.hex()} was ever accepted in the session",
        hint="take the digest from the session's own records or from a receipt",
        session_id=kept.session_id,
        step=step,
    )


def plan_chain(source: LineSource, kept: KeptSession, attempt: int, step: int) -> list[LinePart]:
    """The parts of the chain that ends in the session's own event (`attempt`, `step`)."""
    return [*_prefix_of(source, kept), *_own_parts(source, kept, attempt, step)]


def plan_own(source: LineSource, kept: KeptSession, digest: bytes, step: int) -> list[LinePart]:
    """As `plan_to_digest` for one of the session's own events, without the prefix of a branch."""
    attempt = _attempt_of(source, kept, step, digest)
    if attempt is None:
        raise _unknown(kept, digest, step)
    return _own_parts(source, kept, attempt, step)


def _own_parts(source: LineSource, kept: KeptSession, attempt: int, step: int) -> list[LinePart]:
    claims = source.claims_of(kept.session_id)
    return [
        LinePart(kept.number, kept.session_id, *part)
        for part in standing_ranges(claims, attempt, step, session_id=kept.session_id)
    ]


def _prefix_of(source: LineSource, kept: KeptSession) -> list[LinePart]:
    """A branch's part in its parent, its parent's parent, and so on; in step order."""
    lineage = [kept]
    seen = {kept.session_id}
    while lineage[-1].line.parent_session is not None:
        lineage.append(_parent_of(source, lineage[-1], seen))
    parts: list[LinePart] = []
    # From the root down: so each fork finds the whole prefix of its parent.
    for parent, fork in pairwise(reversed(lineage)):
        step = fork.line.first_step - 1
        if step < parent.line.first_step:
            # Forked from the prefix of a branch: the event is one of an ancestor's.
            parts = _clipped(source, fork, parts)
            continue
        attempt = _attempt_of(source, parent, step, fork.line.fork_parent)
        if attempt is None:
            raise _fork_broken(fork)
        parts += [
            LinePart(parent.number, parent.session_id, *part)
            for part in standing_ranges(
                source.claims_of(parent.session_id), attempt, step, session_id=parent.session_id
            )
        ]
    return parts


def _clipped(source: LineSource, fork: KeptSession, parts: list[LinePart]) -> list[LinePart]:
    """The parts up to the event that the fork stands on, which must lie on them."""
    step = fork.line.first_step - 1
    for index, part in enumerate(parts):
        if part.first_step <= step < part.end_step:
            stored = source.event_at(part.number, part.attempt, step)
            if stored is not None and stored.digest == fork.line.fork_parent:
                return [*parts[:index], part._replace(end_step=step + 1)]
    raise _fork_broken(fork)


def _fork_broken(fork: KeptSession) -> LinkBrokenError:
    return LinkBrokenError(
        f"the fork stands on an event that {fork.line.parent_session!r} never had at step "
        f"{fork.line.first_step - 1}",
        hint=CHECK_HINT,
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
