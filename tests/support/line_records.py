"""Records for tests of the reader's rule: as events have them, with digests from their own content.

`LineKeeper` does what any keeper does around a `SessionLine`: it holds what was accepted, by digest
and by (attempt, step), and what was skipped.
"""

import hashlib
from dataclasses import dataclass, field

from eventlog.event import (
    KIND_OF_BODY,
    NO_PARENT,
    Body,
    SessionForked,
    SessionResumed,
    SessionSeeded,
)
from eventlog.line_state import Claim, KnownEvent, LineState, Verdict, VerdictKind
from eventlog.session_line import SessionLine
from eventlog.standing_line import standing_ranges


@dataclass(frozen=True)
class Record:
    """An event as far as the rule reads it. `digest` is over all else; `nonce` tells records apart.

    Equal records have equal digests, as equal events have.
    """

    session_id: str
    step: int
    attempt: int
    kind: str
    parent: bytes
    body: Body
    nonce: int
    digest: bytes = field(init=False)

    def __post_init__(self) -> None:
        facts = (self.session_id, self.step, self.attempt, self.parent, self.body, self.nonce)
        object.__setattr__(self, "digest", hashlib.sha256(repr(facts).encode()).digest())


def record_of(
    body: Body, *, step: int, attempt: int, parent: bytes, session_id: str = "s", nonce: int = 0
) -> Record:
    """A record of the kind of `body`."""
    return Record(session_id, step, attempt, KIND_OF_BODY[type(body)], parent, body, nonce)


def seed_record(writer: str | None = "w1", nonce: int = 0) -> Record:
    """The first record of a session."""
    return record_of(
        SessionSeeded("desk", writer=writer), step=0, attempt=1, parent=NO_PARENT, nonce=nonce
    )


def fork_record(
    parent_step: int, parent: bytes, writer: str | None = None, nonce: int = 0
) -> Record:
    """The first record of a branch."""
    body = SessionForked("parent", parent_step, writer)
    return record_of(body, step=parent_step + 1, attempt=1, parent=parent, nonce=nonce)


def claim_record(
    onto: Record, attempt: int, *, over_release: bool = False, writer: str = "w", nonce: int = 0
) -> Record:
    """A claim by which the line goes on after `onto`."""
    body = SessionResumed(onto.step, "test", writer, over_release)
    return record_of(body, step=onto.step + 1, attempt=attempt, parent=onto.digest, nonce=nonce)


class LineKeeper:
    """Gives records to a `SessionLine` and keeps what a keeper must.

    `stores_skipped`: it answers `skipped` from stored verdicts, as a mirror does; else the line
    remembers by itself. `restart` drops the line and goes on from its stored state.
    """

    def __init__(self, session_id: str = "s", *, stores_skipped: bool = False) -> None:
        self.session_id = session_id
        self.stores_skipped = stores_skipped
        self.events: dict[bytes, Record] = {}
        self.places: dict[tuple[int, int], Record] = {}
        self.skipped: dict[bytes, VerdictKind] = {}
        self.claims: list[Claim] = []
        self.verdicts: list[Verdict] = []
        self.known_asked = 0
        self.line = self._line_from(LineState())

    def accept(self, record: Record, offset: int | None = None) -> Verdict:
        """Judge one record, and keep it as its verdict says."""
        digest = record.digest
        verdict = self.line.accept(record, digest, offset=offset)
        self.verdicts.append(verdict)
        if verdict.kind is VerdictKind.ACCEPTED:
            place = (record.attempt, record.step)
            assert place not in self.places, "UNIQUE(session, attempt, step)"
            self.events[digest] = self.places[place] = record
            if verdict.claim is not None:
                self.claims.append(verdict.claim)
        elif verdict.kind in (VerdictKind.LOST_CLAIM, VerdictKind.CONFLICT):
            self.skipped[digest] = verdict.kind
        return verdict

    def restart(self) -> None:
        """Store the line's state, forget the line, and build one from what was stored."""
        stored = self.line.state.to_value()
        self.line = self._line_from(LineState.from_value(stored))

    def standing(self) -> list[Record]:
        """The standing line, read by its ranges as a keeper reads it."""
        state = self.line.state
        if not state.begun:
            return []
        ranges = standing_ranges(self.claims, state.attempt, state.next_step - 1)
        return [
            self.places[part.attempt, step]
            for part in ranges
            for step in range(part.first_step, part.end_step)
        ]

    def _line_from(self, state: LineState) -> SessionLine:
        skipped = self.skipped.get if self.stores_skipped else None
        return SessionLine(self.session_id, self._known, state, skipped=skipped)

    def _known(self, digest: bytes) -> KnownEvent | None:
        self.known_asked += 1
        event = self.events.get(digest)
        return None if event is None else KnownEvent(event.step, event.attempt)
