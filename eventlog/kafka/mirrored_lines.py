"""`MirroredLines`: the mirror as a writer asks it: what stands in the log, and where.

Reads only. What is answered is true as of the mirror's last refresh; who must know the end of the
log refreshes first.
"""

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Final

from eventlog.keeping.kept_records import checked_record, missing_event
from eventlog.keeping.kept_rows import RECENT_EVENTS, KeptSession, Mark, StoredEvent
from eventlog.line_state import Claim, KnownEvent
from eventlog.log import Receipt
from eventlog.mirror import Mirror
from eventlog.standing_line import standing_ranges

LINES_KEPT_MAX: Final = 64
"""Of so many lines the ids of the last events are remembered, each up to 50 KiB."""


class MirroredLines:
    """`kept_rows.JudgeSource` over a mirror, with offsets of Kafka in its receipts."""

    def __init__(self, mirror: Mirror) -> None:
        self._mirror = mirror
        self._reader = mirror.reader
        self._recent: OrderedDict[bytes, list[bytes]] = OrderedDict()
        """By the line's head, which fixes them: many appends that are refused ask for the same."""

    def find_session(self, session_id: str) -> KeptSession | None:
        """The session's row; None where the mirror holds nothing of the session."""
        return self._reader.find_session(session_id)

    def claims_of(self, session_id: str) -> Sequence[Claim]:
        """Every accepted claim of the session, ascending by attempt."""
        return self._reader.claims_of(session_id)

    def event_at(self, number: int, attempt: int, step: int) -> StoredEvent | None:
        """The accepted event that the session wrote as `step` under `attempt`."""
        return self._reader.event_at(number, attempt, step)

    def events_between(
        self, number: int, attempt: int, start_step: int, end_step: int
    ) -> Iterator[StoredEvent]:
        """Accepted events of steps [start_step, end_step) under `attempt`, in order."""
        return self._reader.events_between(number, attempt, start_step, end_step)

    def find_digest(self, number: int, digest: bytes) -> KnownEvent | None:
        """Where the session wrote the accepted event of this digest."""
        return self._reader.find_digest(number, digest)

    def mark_before(self, number: int, attempt: int, end_step: int) -> Mark | None:
        """The latest stored summary of `attempt` at a step below `end_step`."""
        return self._reader.mark_before(number, attempt, end_step)

    def all_events(self, number: int) -> Iterator[StoredEvent]:
        """Every accepted event of the session, in log order."""
        return self._reader.all_events(number)

    def recent_step_of(self, kept: KeptSession, event_ids: Sequence[bytes]) -> int | None:
        """The lowest step among the line's last own `RECENT_EVENTS` with one of these ids."""
        recent = self.recent_ids(kept)
        start = kept.line.next_step - len(recent)
        wanted = set(event_ids)
        found = (start + place for place, each in enumerate(recent) if each in wanted)
        return next(found, None)

    def recent_ids(self, kept: KeptSession) -> list[bytes]:
        """The ids of the line's last own `RECENT_EVENTS`, in step order."""
        recent = self._recent.get(kept.line.head)
        if recent is None:
            recent = self._recent[kept.line.head] = self._read_recent_ids(kept)
            while len(self._recent) > LINES_KEPT_MAX:
                self._recent.popitem(last=False)
        return recent

    def _read_recent_ids(self, kept: KeptSession) -> list[bytes]:
        line = kept.line
        oldest = max(line.first_step, line.next_step - RECENT_EVENTS)
        ranges = standing_ranges(self.claims_of(kept.session_id), line.attempt, line.next_step - 1)
        rows = chain.from_iterable(
            self.events_between(kept.number, part.attempt, start, part.end_step)
            for part in ranges
            if (start := max(oldest, part.first_step)) < part.end_step
        )
        ids = [checked_record(stored, kept.session_id).prefix.event_id for stored in rows]
        if len(ids) != line.next_step - oldest:
            raise missing_event(kept.session_id, oldest)
        return ids

    def aborted_claims(self, kept: KeptSession, timeout_s: float) -> int:
        """How many claims were sent for the session after the one in force, and never committed."""
        claim = self.claims_of(kept.session_id)[-1]
        stored = self.event_at(kept.number, claim.attempt, claim.first_step)
        if stored is None:
            raise missing_event(kept.session_id, claim.first_step)
        partition, offset = self._mirror.place_of(stored.offset)
        return self._mirror.aborted_claims(kept.session_id, partition, offset, timeout_s=timeout_s)

    def position(self, partition: int) -> int:
        """Up to which offset of a partition this is known."""
        return self._mirror.cut().end(partition)

    def placed(self, receipt: Receipt) -> Receipt:
        """A receipt made from the mirror's rows, with the event's offset in Kafka."""
        return receipt._replace(offset=self._mirror.place_of(receipt.offset)[1])

    def standing_receipt(
        self, session_id: str, first_step: int, step: int, attempt: int, digest: bytes
    ) -> Receipt | None:
        """The receipt of an append that ended in this event, if it was ever accepted."""
        kept = self.find_session(session_id)
        stored = None if kept is None else self.event_at(kept.number, attempt, step)
        if stored is None or stored.digest != digest:
            return None
        return self.placed(Receipt(session_id, first_step, step, attempt, digest, stored.offset))
