"""Claims and releases as events: what a writer that wants a session, or gives it up, appends.

Reads only; whether the event may stand is judged like any other append's. Time and ids come in
through `Claimant`.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from eventlog.codec import EncodedEvent, decode_event, encode_event
from eventlog.errors import (
    FencedError,
    LinkBrokenError,
    SessionNotFoundError,
    StepGapError,
    StepNotFoundError,
)
from eventlog.event import Event, LineHead, Restore, SessionReleased, SessionResumed
from eventlog.keeping.append_rule import Append, require_head
from eventlog.keeping.kept_records import checked_record
from eventlog.keeping.kept_rows import KeptSession, LineSource, RecordSource
from eventlog.keeping.line_plan import require_known
from eventlog.line_state import Claim


class Claimant(NamedTuple):
    """Who writes of its own accord: its writer id, its clock (microseconds UTC) and ids."""

    writer_id: str
    clock_us: Callable[[], int]
    mint_event_id: Callable[[], bytes]


class Takeover(NamedTuple):
    """A wish to own sessions: each goes on after the event of its digest.

    `heads` are the lines' heads as the claimant has read them, where it has. `restore` is what the
    claims belong to, where they bring a checkpoint set back.
    """

    session_ids: Sequence[str]
    stands_on: Mapping[str, bytes]
    reason: str
    heads: Mapping[str, LineHead]
    restore: Restore | None = None


def require_session(store: LineSource, session_id: str) -> KeptSession:
    """The session's row. Raises `SessionNotFoundError`."""
    kept = store.find_session(session_id)
    if kept is None:
        raise SessionNotFoundError(
            f"no session {session_id!r} in the log",
            hint="`steplog sessions` lists what is there",
            session_id=session_id,
        )
    return kept


def claim_append(
    store: RecordSource,
    kept: KeptSession,
    wish: Takeover,
    claimant: Claimant,
    *,
    highest_attempt: int = 0,
) -> Append:
    """The claim that the wish asks for on one session, as an append of one event.

    Its attempt is one above those of all claims kept, and above `highest_attempt`. Raises
    `StepConflictError` (another head than was read), `StepNotFoundError`, `FencedError` (a later
    restore of the same training has claimed the session).
    """
    line = kept.line
    require_head(kept, wish.heads.get(kept.session_id))
    if wish.restore is not None:
        _refuse_older_restore(store, kept, wish.restore)
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
    attempt = 1 + max(highest_attempt, _claims_of(store, kept)[-1].attempt)
    over_release = line.released and parent == line.head
    body = SessionResumed(
        from_step, wish.reason, claimant.writer_id, over_release, restore=wish.restore
    )
    head = LineHead(kept.session_id, from_step, attempt, parent)
    event = own_event(head, body, claimant)
    return Append(kept.session_id, [event], from_step, claimant.writer_id)


def _fork_event_digest(store: LineSource, kept: KeptSession) -> bytes:
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


def _refuse_older_restore(store: RecordSource, kept: KeptSession, restore: Restore) -> None:
    """Two trainers may bring one training back at once: the one that claimed it later goes on."""
    for claim in store.claims_of(kept.session_id):
        stored = store.event_at(kept.number, claim.attempt, claim.first_step)
        if stored is None:
            continue  # Told by `check`; here it only cannot speak against anybody.
        body = decode_event(checked_record(stored, kept.session_id).data).body
        other = body.restore if isinstance(body, SessionResumed) else None
        if other is None or other.training_session != restore.training_session:
            continue
        if other.attempt > restore.attempt:
            raise FencedError(
                f"a later restore of {restore.training_session!r} (attempt {other.attempt}, this "
                f"is {restore.attempt}) has claimed the session",
                hint="another trainer goes on with this training; stop this one",
                session_id=kept.session_id,
                step=claim.first_step,
            )


def _claims_of(store: LineSource, kept: KeptSession) -> Sequence[Claim]:
    """The session's claims, of which the last must be the one in force."""
    claims = store.claims_of(kept.session_id)
    if not claims or claims[-1].attempt != kept.line.attempt:
        raise LinkBrokenError(
            f"the claim of attempt {kept.line.attempt} is missing",
            hint="run `steplog check`; restore the log from a copy",
            session_id=kept.session_id,
        )
    return claims


def own_event(
    head: LineHead, body: SessionResumed | SessionReleased, claimant: Claimant
) -> EncodedEvent:
    """The event of this handle's own that comes after `head`."""
    return encode_event(
        Event.following(
            head,
            body,
            event_id=claimant.mint_event_id(),
            time=claimant.clock_us(),
            actor="system",
        )
    )
