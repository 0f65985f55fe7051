"""`reread_line`: what became of a writer's line while its producer was lost. Pure.

The records are those of one session from where the line was known up to: the committed ones say
where it stands now, all that were sent say whether another writer began to claim it.
"""

from collections.abc import Sequence
from typing import NamedTuple

from eventlog.codec import EncodedEvent
from eventlog.line_state import KnownEvent, LineState, VerdictKind
from eventlog.session_line import SessionLine


class SeenEvent(NamedTuple):
    """One record of a session, decoded, with its offset."""

    offset: int
    encoded: EncodedEvent


class Reread(NamedTuple):
    """Where a line stands now; None where that cannot be told from these records.

    `stands` holds the offset of each event that was accepted, by digest.
    """

    line: LineState | None
    event_ids: tuple[bytes, ...]
    stands: dict[bytes, int]


def reread_line(session_id: str, line: LineState, committed: Sequence[SeenEvent]) -> Reread:
    """Run the rule over the committed records that came after `line` was known."""
    stands: dict[bytes, int] = {}
    known: dict[bytes, KnownEvent] = {}
    ids: list[bytes] = []
    rule = SessionLine(session_id, known.get, line)
    for offset, (event, _, digest) in committed:
        is_claim = event.kind == "session_resumed" and line.begun
        if is_claim and event.parent not in known and event.parent != rule.state.head:
            # It goes on from an event before these: whether it may is not known here.
            return Reread(None, (), stands)
        if rule.accept(event, digest).kind is VerdictKind.ACCEPTED:
            known[digest] = KnownEvent(event.step, event.attempt)
            stands[digest] = offset
            ids.append(event.event_id)
    return Reread(rule.state, tuple(ids), stands)


def claims_sent(sent: Sequence[SeenEvent]) -> list[tuple[int, bytes]]:
    """(attempt, digest) of every claim among records that were sent, committed or not."""
    return [
        (encoded.event.attempt, encoded.digest)
        for _, encoded in sent
        if encoded.event.kind == "session_resumed"
    ]
