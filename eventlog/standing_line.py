"""The standing line of a session as ranges of steps, one for each attempt that wrote a part of it.

A keeper that stores (attempt, step) with each accepted event reads the line by these ranges,
without walking parents: an attempt writes its claim at `first_step` and then each next step, so
every part of a line is one range of one attempt. Pure.
"""

from collections.abc import Iterable
from typing import NamedTuple

from eventlog.errors import LinkBrokenError
from eventlog.line_state import Claim


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
    while attempt > 0:
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
    ranges.reverse()
    return ranges
