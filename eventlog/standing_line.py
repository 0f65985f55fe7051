"""The standing line of a session: where its parts lie, and that what was read is one whole chain.

`standing_ranges` tells a keeper that stores (attempt, step) with each accepted event how to read a
line without walking parents: an attempt writes its claim at `first_step` and then each next step,
so every part of a line is one range of one attempt. `StandingChain` is for the reader: each record
must follow from the one before it, by the reader's rule, a branch's prefix included. Pure.
"""

from collections.abc import Iterable
from typing import NamedTuple

from eventlog.errors import LinkBrokenError
from eventlog.event import Body, LineHead, SessionForked, SessionResumed
from eventlog.line_state import Claim, LinePrefix, LineState, VerdictKind, body_of
from eventlog.session_line import SessionLine, nothing_known


class StandingRange(NamedTuple):
    """Steps [first_step, end_step) of a line, written under `attempt`."""

    attempt: int
    first_step: int
    end_step: int


def standing_ranges(
    claims: Iterable[Claim], head_attempt: int, head_step: int, *, session_id: str | None = None
) -> list[StandingRange]:
    """The parts of the line that ends in the event (`head_attempt`, `head_step`), in step order.

    Any accepted event can be the end, not only the head: the chain of parents of a superseded event
    is read in the same way. A branch's ranges begin at its fork event. Raises `LinkBrokenError`
    where the claims do not lead back to the first one.
    """
    by_attempt = {claim.attempt: claim for claim in claims}
    ranges: list[StandingRange] = []
    attempt, end_step = head_attempt, head_step + 1
    while True:
        claim = by_attempt.get(attempt)
        if claim is None or claim.first_step >= end_step or claim.parent_attempt >= attempt:
            raise LinkBrokenError(
                f"the claim of attempt {attempt} is missing or leads nowhere",
                hint="run `steplog check`; the claims can be made again from the session's records",
                session_id=session_id,
                step=end_step - 1,
            )
        ranges.append(StandingRange(attempt, claim.first_step, end_step))
        attempt, end_step = claim.parent_attempt, claim.first_step
        if attempt == 0:
            ranges.reverse()
            return ranges


class StandingChain:
    """Checks that records, read in step order, are one chain: each is the next one's parent.

    The first record may be at any step; whether it is the right one (a snapshot's event, say) is
    for the caller to compare. A branch is followed from its parent session's events into its own.
    After an error the chain is of no more use.
    """

    __slots__ = ("_line",)

    def __init__(self) -> None:
        self._line: SessionLine | None = None

    @property
    def head(self) -> LineHead | None:
        """The last record followed; None before the first."""
        line = self._line
        return None if line is None else line.state.line_head(line.session_id)

    def follow(self, record: LinePrefix, digest: bytes, body: Body | None = None) -> None:
        """Take the next record. `digest` is the SHA-256 of its bytes; `body` as in `SessionLine`.

        Raises `StepGapError` or `LinkBrokenError`, naming session and step, if it does not follow.
        """
        line = self._line
        if line is None or line.session_id != record.session_id:
            line = self._line = self._line_of(record, body)
        verdict = line.accept(record, digest, body)
        if verdict.kind is VerdictKind.ACCEPTED:
            return
        if verdict.error is not None:
            raise verdict.error.as_error(record.session_id)
        raise _broken(record, f"the record cannot stand here ({verdict.kind})")

    def _line_of(self, record: LinePrefix, body: Body | None) -> SessionLine:
        """The line to judge `record`: the first session's, or the branch's that begins here."""
        if self._line is not None:
            _require_fork(self._line, record, body)
        state = LineState()
        if record.kind not in ("session_seeded", "session_forked"):
            claims = record.kind == "session_resumed"
            state = LineState(
                next_step=record.step,
                head=record.parent,
                attempt=record.attempt - 1 if claims else record.attempt,
                first_step=record.step - 1,
                released=claims and body_of(record, body, SessionResumed).over_release,
            )
        return SessionLine(record.session_id, nothing_known, state)


def _require_fork(line: SessionLine, record: LinePrefix, body: Body | None) -> None:
    """`record` must be a fork event that stands on the last event of `line`."""
    if record.kind != "session_forked":
        raise _broken(record, f"a record of another session follows {line.session_id!r}")
    fork = body_of(record, body, SessionForked)
    state = line.state
    if (
        fork.parent_session != line.session_id
        or fork.parent_step != state.next_step - 1
        or record.parent != state.head
    ):
        raise _broken(
            record,
            f"the fork stands on step {fork.parent_step} of {fork.parent_session!r}, but before it "
            f"came step {state.next_step - 1} of {line.session_id!r}, or another event there",
        )


def _broken(record: LinePrefix, message: str) -> LinkBrokenError:
    return LinkBrokenError(
        message,
        hint="run `steplog check` to see the session's records",
        session_id=record.session_id,
        step=record.step,
    )
