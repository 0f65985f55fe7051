"""`ClaimMaker`: claims as they may be made now, judged by a mirror that has read to the end."""

import time
from collections.abc import Sequence
from typing import Final, NamedTuple

from eventlog.codec import decode_event
from eventlog.errors import FencedError
from eventlog.event import SessionResumed
from eventlog.kafka.errors import faults_as_ours
from eventlog.kafka.mirrored_lines import MirroredLines
from eventlog.kafka.partitioning import partition_of
from eventlog.kafka.sent_records import sent_events_of
from eventlog.kafka.topic_writer import require_session_name
from eventlog.keeping.append_rule import Accepted, Append, judge_append
from eventlog.keeping.claims import Claimant, Takeover, claim_append, require_session
from eventlog.keeping.kept_records import missing_event
from eventlog.keeping.kept_rows import KeptSession
from eventlog.log import Receipt
from eventlog.mirror import Mirror

LEAST_S: Final = 0.1
"""A question is given so long at least, also at the end of the deadline."""


class LineMovedError(Exception):
    """Another added to the line, or claimed it, between reading and claiming."""


class PreparedClaim(NamedTuple):
    """A claim that may be made: the session as it was read, and the events that claim it."""

    kept: KeptSession
    append: Append


class ClaimMaker:
    """Makes the claims of one writer, one at a time; each has a deadline."""

    def __init__(self, mirror: Mirror, claimant: Claimant) -> None:
        self.mirrored = MirroredLines(mirror)
        self._mirror = mirror
        self._claimant = claimant
        self._deadline = 0.0

    def begin(self, deadline: float) -> None:
        """From now on a claim is made that must be through by then, on the monotonic clock."""
        self._deadline = deadline

    def left_s(self) -> float:
        """How much of the claim's time is left, in seconds; negative when it is over."""
        return self._deadline - time.monotonic()

    def read_to_end(self, session_ids: Sequence[str]) -> None:
        """Have the mirror read these sessions' partitions to their end. Raises as a refresh."""
        partitions = {self.partition_of_session(session_id) for session_id in session_ids}
        with faults_as_ours():
            self._mirror.refresh(partitions, timeout_s=max(LEAST_S, self.left_s()))

    def partition_of_session(self, session_id: str) -> int:
        """The session's partition. Raises `SessionNotFoundError` for an id that none can have."""
        require_session_name(session_id)
        return partition_of(session_id, self._mirror.partition_count(max(LEAST_S, self.left_s())))

    def highest_attempt(self, session_id: str, timeout_s: float) -> int:
        """The highest attempt that was ever sent for the session."""
        with faults_as_ours():
            partition = self.partition_of_session(session_id)
            return self._mirror.highest_attempt(session_id, partition, timeout_s=timeout_s)

    def highest_attempt_in_time(self, session_id: str) -> int:
        """As `highest_attempt`, within the claim's own time."""
        return self.highest_attempt(session_id, max(LEAST_S, self.left_s()))

    def claim_of(self, session_id: str, wish: Takeover) -> PreparedClaim:
        """The claim that the wish asks for on one session. Raises as `claim_append`."""
        kept = require_session(self.mirrored, session_id)
        highest = self.highest_attempt_in_time(session_id)
        if wish.stands_on.get(session_id) == kept.line.head:
            wish = wish._replace(stands_on={session_id: self.foot_of(kept)})
        append = claim_append(self.mirrored, kept, wish, self._claimant, highest_attempt=highest)
        judged = judge_append(append, kept, self.mirrored)
        assert isinstance(judged, Accepted), "a minted event id stands already"
        return PreparedClaim(kept, append)

    def foot_of(self, kept: KeptSession) -> bytes:
        """The event that a claim on the whole line stands on: its head, or the release before it.

        A reader of uncommitted records believes a claim over the release that was never committed,
        and so not a later one that was. Claiming once more, on the release itself and under a
        higher attempt, has both readers agree; nothing is set aside by it but the claim.
        """
        line = kept.line
        step, claim = line.next_step - 1, self.mirrored.claims_of(kept.session_id)[-1]
        if claim.first_step != step or claim.parent_attempt == 0:
            return line.head
        stored = self.mirrored.event_at(kept.number, claim.attempt, step)
        released = self.mirrored.event_at(kept.number, claim.parent_attempt, step - 1)
        if stored is None or released is None:
            return line.head
        body = decode_event(stored.data).body
        if not (isinstance(body, SessionResumed) and body.over_release):
            return line.head
        partition, offset = self._mirror.place_of(released.offset)
        is_settled = not self._mirror.aborted_claims(
            kept.session_id, partition, offset, timeout_s=max(LEAST_S, self.left_s())
        )
        return line.head if is_settled else released.digest

    def standing(self, claims: Sequence[PreparedClaim]) -> list[Receipt] | None:
        """The claims' receipts, where they were accepted; they are so all, or none."""
        receipts = []
        for claim in claims:
            first, last = claim.append.events[0].event, claim.append.events[-1]
            receipt = self.mirrored.standing_receipt(
                claim.kept.session_id,
                first.step,
                last.event.step,
                last.event.attempt,
                last.digest,
            )
            if receipt is None:
                return None
            receipts.append(receipt)
        return receipts

    def still_right(
        self, claims: Sequence[PreparedClaim], wish: Takeover | None, *, was_sent: bool
    ) -> list[PreparedClaim]:
        """The claims, if every line still stands where it was read; of a higher attempt if need be.

        Raises `LineMovedError`, `FencedError`.
        """
        ready = []
        for claim in claims:
            session_id = claim.kept.session_id
            kept = require_session(self.mirrored, session_id)
            require_same_line(kept, claim.kept)
            first = claim.append.events[0]
            highest = self.highest_attempt_in_time(session_id)
            if first.event.attempt > highest:
                ready.append(claim)
            elif wish is not None:
                ready.append(self.claim_of(session_id, wish))
            elif was_sent and first.event.attempt == highest and not self.is_contested(claim):
                ready.append(claim)
            else:
                raise FencedError(
                    f"attempt {first.event.attempt} was used by another claim already",
                    hint="read the session again; the attempt of a claim is `next_attempt`",
                    session_id=session_id,
                    step=first.event.step,
                )
        return ready

    def is_contested(self, claim: PreparedClaim) -> bool:
        """Whether another event of the session was sent under the claim's attempt.

        Even of a claim that was sent it is not sure that brokers took it: whoever fenced its
        producer may have used the attempt. Read from the line's head on, uncommitted.
        """
        kept, own = claim.kept, {encoded.digest for encoded in claim.append.events}
        stored = self.mirrored.event_at(kept.number, kept.line.attempt, kept.line.next_step - 1)
        if stored is None:
            raise missing_event(kept.session_id, kept.line.next_step - 1)
        partition, offset = self._mirror.place_of(stored.offset)
        with faults_as_ours():
            sent = sent_events_of(
                self._mirror.client, kept.session_id, partition, offset, self._deadline
            )
        attempt = claim.append.events[0].event.attempt
        return any(each.event.attempt == attempt and each.digest not in own for _, each in sent)


def require_same_line(now: KeptSession, then: KeptSession) -> None:
    """Raise `LineMovedError` unless the line stands where it stood, and belongs to whom it did."""
    if (now.line.head, now.line.writer, now.line.released) != (
        then.line.head,
        then.line.writer,
        then.line.released,
    ):
        raise LineMovedError
