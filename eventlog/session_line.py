"""`SessionLine`: the reader's rule. Which records of a session stand, in log order.

Every keeper, reader and checker gives each record of a session to one `SessionLine`, in log order,
and does what the `Verdict` says. The rule is in docs/formats.md, numbered as here; the first
rule that matches decides. Pure: what the log already holds is asked through two callbacks.

- `known(digest)`: the event of *this* session that was ever accepted under this digest, standing or
  superseded; None if there is none. Not asked for ordinary events in order (see `accept`).
- `skipped(digest)`: for keepers that store every record with its verdict: `VerdictKind.LOST_CLAIM`
  or `.CONFLICT` where a record of this session was skipped as such, else None. Without it the line
  remembers the last `SKIPPED_KEPT_MAX` such digests itself, inside `LineState`. Forgetting one can
  only stop a line or turn a verdict into another refusal; it never lets a record in.

`LineState` is all that a keeper stores to go on later, in any process: a line built from a stored
state gives the verdicts that the first one would have given. A refused record changes the state too
(first error, counts, position); a writer that refuses an append and stores nothing keeps the old
state and drops the line.
"""

from collections.abc import Callable
from typing import Final

from eventlog.event import (
    FIRST_ATTEMPT,
    NO_PARENT,
    Body,
    SessionClosed,
    SessionForked,
    SessionLost,
    SessionReleased,
    SessionResumed,
    SessionSeeded,
)
from eventlog.line_state import (
    KINDS_WITH_BODY,
    Claim,
    KnownEvent,
    LineError,
    LinePrefix,
    LineState,
    Verdict,
    VerdictKind,
    body_of,
)

SKIPPED_KEPT_MAX: Final = 1_024
"""Digests of conflicts and lost claims that a line without `skipped` remembers: 32 KiB."""

STEP_MAX: Final = 2**53
"""The highest step that an event may have: what keepers count from it fits their integers, too."""
ATTEMPT_MAX: Final = 2**31 - 2
"""The highest attempt that an event may have: the next one is still a number of the schema."""

_AFTER_CLOSE: Final = frozenset({"verified", "annotated", "subject_erased"})

KnownCallback = Callable[[bytes], KnownEvent | None]
SkippedCallback = Callable[[bytes], VerdictKind | None]

_ACCEPTED: Final = Verdict(VerdictKind.ACCEPTED, 7)
_JUDGED: Final = Verdict(VerdictKind.JUDGED, 0)
_DUPLICATE: Final = Verdict(VerdictKind.DUPLICATE, 2)
_LOST_BY_RULE_3: Final = Verdict(VerdictKind.LOST_CLAIM, 3)
_SUPERSEDED: Final = Verdict(VerdictKind.SUPERSEDED, 4)
_LOST_BY_RULE_6: Final = Verdict(VerdictKind.LOST_CLAIM, 6)
_CONFLICT: Final = Verdict(VerdictKind.CONFLICT, 6)


def nothing_known(digest: bytes) -> None:
    """`known` for who reads a line that already stands: no event comes twice in it."""
    del digest


def bounds_problem(record: LinePrefix) -> str | None:
    """Why no log takes an event of this step or attempt, which its schema has room for, or None."""
    if not 0 <= record.step <= STEP_MAX:
        return f"step {record.step} is not between 0 and {STEP_MAX}"
    if not 1 <= record.attempt <= ATTEMPT_MAX:
        return f"attempt {record.attempt} is not between 1 and {ATTEMPT_MAX}"
    return None


class SessionLine:
    """Judges the records of one session, in log order. Not thread-safe; does no I/O of its own.

    `accept` changes the line; `state` is its value now. `known` and `skipped` must answer for all
    records judged so far, those that this line judged a moment ago included. The line asks neither
    about its head.
    """

    __slots__ = (
        "_attempt",
        "_head",
        "_known",
        "_memory",
        "_next",
        "_position",
        "_ready",
        "_skipped",
        "_stored",
        "session_id",
    )

    _stored: LineState
    _next: int
    _head: bytes
    _attempt: int
    _position: int
    _ready: bool

    def __init__(
        self,
        session_id: str,
        known: KnownCallback,
        state: LineState | None = None,
        *,
        skipped: SkippedCallback | None = None,
    ) -> None:
        self.session_id: Final = session_id
        self._known: Final = known
        self._skipped: Final = skipped
        start = LineState() if state is None else state
        self._memory: Final = {digest: VerdictKind(kind) for digest, kind in start.skipped}
        self._settle(start)

    @property
    def state(self) -> LineState:
        """The line's value now: store it, and go on from it later."""
        skipped = tuple((digest, str(kind)) for digest, kind in self._memory.items())
        return self._current()._replace(skipped=skipped)

    def accept(
        self,
        record: LinePrefix,
        digest: bytes,
        body: Body | None = None,
        *,
        offset: int | None = None,
    ) -> Verdict:
        """Judge the next record of the log: `digest` is the SHA-256 of its stored bytes.

        `record` is an event or its prefix; for kinds of `needs_body`, `body` must be given unless
        `record` has it (`TypeError`). `offset` is the record's place in the log: one below the
        position judged up to is not judged again. Never raises for what a log may hold.

        An ordinary event that stands on the head is accepted without asking `known`: a head's
        digest never becomes head again (rule 2 keeps it from being accepted twice), so no event
        that stands on the present head was ever accepted before.
        """
        if offset is not None:
            if offset < self._position:
                return _JUDGED
            self._position = offset + 1
        if (
            self._ready
            and record.parent == self._head
            and record.step == self._next
            and record.attempt == self._attempt
            and record.kind not in KINDS_WITH_BODY
            and record.session_id == self.session_id
        ):
            self._head = digest
            self._next += 1
            return _ACCEPTED
        verdict, state = self._judge(self._current(), record, digest, body)
        self._remember(digest, verdict.kind)
        self._settle(_tally(state, verdict, record.step))
        return verdict

    def _judge(
        self, state: LineState, record: LinePrefix, digest: bytes, body: Body | None
    ) -> tuple[Verdict, LineState]:
        """The first rule that matches, and the state it leaves; counting is the caller's."""
        if record.session_id != self.session_id:
            message = f"a record of session {record.session_id!r} lies among this session's"
            return _stop(state, 0, "LinkBrokenError", message, record)
        if not state.begun:
            return _begin(state, record, digest, body)
        if self._known(digest) is not None:
            return _DUPLICATE, state
        if record.kind == "session_resumed":
            return self._claim(state, record, digest, body_of(record, body, SessionResumed))
        skipped_as = self._parent_skipped_as(state, record.parent)
        if skipped_as is not None:
            return Verdict(skipped_as, 4), state
        return _follow(state, record, digest, body)

    def _claim(
        self, state: LineState, record: LinePrefix, digest: bytes, claim: SessionResumed
    ) -> tuple[Verdict, LineState]:
        """Rule 3: a claim stands, is lost, or names a place that the session never had."""
        over_head = state.released and record.parent == state.head
        if record.attempt <= state.attempt or (claim.over_release and not over_head):
            return _LOST_BY_RULE_3, state
        if record.parent == state.head:
            parent: KnownEvent | None = KnownEvent(state.next_step - 1, state.attempt)
        else:
            parent = self._known(record.parent)
        place = f"the claim goes on after step {claim.from_step}"
        if claim.from_step < state.first_step:
            message = f"{place}, before this session's own first step {state.first_step}"
            return _stop(state, 3, "LinkBrokenError", message, record)
        if parent is None or parent.step != claim.from_step or record.step != parent.step + 1:
            if claim.from_step >= state.next_step:
                message = f"{place}, but the line ends at step {state.next_step - 1}"
                return _stop(state, 3, "StepGapError", message, record)
            message = f"{place}, but its parent is not an event of this session at that step"
            if parent is not None and parent.step == claim.from_step:
                message = f"{place}, but is itself at step {record.step}"
            return _stop(state, 3, "LinkBrokenError", message, record)
        after = state._replace(
            next_step=record.step + 1,
            head=digest,
            attempt=record.attempt,
            writer=claim.writer,
            closed=None,
            lost=None,
            released=False,
            released_to=None,
            error=None,
            accepted=state.accepted + 1,
        )
        made = Claim(record.attempt, record.step, parent.attempt)
        return Verdict(VerdictKind.ACCEPTED, 3, claim=made), after

    def _parent_skipped_as(self, state: LineState, parent: bytes) -> VerdictKind | None:
        """Rule 4's memory. A record skipped once and accepted later counts as accepted."""
        if parent == state.head:
            return None
        kind = self._memory.get(parent) if self._skipped is None else self._skipped(parent)
        return None if kind is None or self._known(parent) is not None else kind

    def _remember(self, digest: bytes, kind: VerdictKind) -> None:
        if self._skipped is not None:
            return
        if kind in (VerdictKind.LOST_CLAIM, VerdictKind.CONFLICT):
            self._memory.pop(digest, None)
            self._memory[digest] = kind
            if len(self._memory) > SKIPPED_KEPT_MAX:
                del self._memory[next(iter(self._memory))]
        elif kind is VerdictKind.ACCEPTED:
            self._memory.pop(digest, None)

    def _current(self) -> LineState:
        """The state now, without the memory of skipped records."""
        stored = self._stored
        return stored._replace(
            next_step=self._next,
            head=self._head,
            accepted=stored.accepted + self._next - stored.next_step,
            position=self._position,
        )

    def _settle(self, state: LineState) -> None:
        """Take `state` over; the fast path reads and changes only these few fields."""
        self._stored = state if not state.skipped else state._replace(skipped=())
        self._next = state.next_step
        self._head = state.head
        self._attempt = state.attempt
        self._position = state.position
        self._ready = state.begun and state.error is None and state.status == "open"


def _begin(
    state: LineState, record: LinePrefix, digest: bytes, body: Body | None
) -> tuple[Verdict, LineState]:
    """Rule 1: the session's first record. A fork's link to its parent is checked at read."""
    after = state._replace(
        next_step=record.step + 1,
        head=digest,
        attempt=FIRST_ATTEMPT,
        first_step=record.step,
        accepted=1,
    )
    begun = Verdict(VerdictKind.ACCEPTED, 1, claim=Claim(FIRST_ATTEMPT, record.step, 0))
    if record.kind == "session_seeded" and record.attempt == FIRST_ATTEMPT:
        seed = body_of(record, body, SessionSeeded)
        if record.step == 0 and record.parent == NO_PARENT:
            return begun, after._replace(writer=seed.writer)
    if record.kind == "session_forked" and record.attempt == FIRST_ATTEMPT:
        fork = body_of(record, body, SessionForked)
        if record.step == fork.parent_step + 1:
            return begun, after._replace(
                writer=fork.writer,
                parent_session=fork.parent_session,
                fork_parent=record.parent,
                released=fork.writer is None,
            )
    message = f"head missing: the first record is a {record.kind} of attempt {record.attempt}"
    return _stop(state, 1, "StepGapError", message, record)


def _follow(
    state: LineState, record: LinePrefix, digest: bytes, body: Body | None
) -> tuple[Verdict, LineState]:
    """Rules 4 (attempts) to 7, for any record but a claim."""
    if record.attempt < state.attempt:
        return _SUPERSEDED, state
    if record.attempt > state.attempt:
        message = f"attempt {record.attempt} was never claimed; attempt {state.attempt} stands"
        return _stop(state, 4, "LinkBrokenError", message, record)
    if state.error is not None:
        return Verdict(VerdictKind.STOPPED, 5, state.error), state
    if record.kind in ("session_seeded", "session_forked"):
        return _LOST_BY_RULE_6, state
    ended = state.closed is not None or state.lost is not None
    if (
        (ended and record.kind not in _AFTER_CLOSE)
        or state.released
        or record.step < state.next_step
    ):
        return _CONFLICT, state
    if record.step > state.next_step:
        last = record.step - 1
        message = f"step {last} is missing"
        if last > state.next_step:
            message = f"steps {state.next_step} to {last} are missing"
        return _stop(state, 7, "StepGapError", message, record)
    if record.parent != state.head:
        message = f"the parent is not the event at step {record.step - 1}"
        return _stop(state, 7, "LinkBrokenError", message, record)
    after = state._replace(next_step=record.step + 1, head=digest, accepted=state.accepted + 1)
    verdict = Verdict(VerdictKind.ACCEPTED, 7, after_close=state.closed is not None)
    return verdict, _applied(after, record, body)


def _applied(state: LineState, record: LinePrefix, body: Body | None) -> LineState:
    """What an accepted event of rule 7 does to the session's status."""
    if record.kind == "session_closed":
        return state._replace(closed=body_of(record, body, SessionClosed).reason)
    if record.kind == "session_lost":
        return state._replace(lost=body_of(record, body, SessionLost).reason)
    if record.kind == "session_released":
        to_writer = body_of(record, body, SessionReleased).to_writer
        return state._replace(released=True, released_to=to_writer)
    return state


def _stop(
    state: LineState, rule: int, name: str, message: str, record: LinePrefix
) -> tuple[Verdict, LineState]:
    error = LineError(name, message, record.step)
    after = state if state.error is not None else state._replace(error=error)
    return Verdict(VerdictKind.STOPPED, rule, error), after


def _tally(state: LineState, verdict: Verdict, step: int) -> LineState:
    """`state` with the record counted, and marked where it is the first bad one."""
    counts = state.counts
    bad = False
    match verdict.kind:
        case VerdictKind.DUPLICATE:
            counts = counts._replace(duplicates=counts.duplicates + 1)
        case VerdictKind.LOST_CLAIM:
            counts = counts._replace(lost_claims=counts.lost_claims + 1)
        case VerdictKind.SUPERSEDED:
            counts = counts._replace(superseded=counts.superseded + 1)
        case VerdictKind.CONFLICT:
            counts = counts._replace(conflicts=counts.conflicts + 1)
            bad = True
        case VerdictKind.STOPPED:
            counts = counts._replace(stopped=counts.stopped + 1)
            bad = verdict.rule != 5
    if verdict.after_close:
        counts = counts._replace(after_close=counts.after_close + 1)
    first_bad = step if bad and state.first_bad is None else state.first_bad
    return state._replace(counts=counts, first_bad=first_bad)
