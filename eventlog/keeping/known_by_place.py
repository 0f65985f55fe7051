"""Whether an event is known, asked by its place: what the reader's rule asks of a keeper.

A digest fixes session, step and attempt, so no keeper needs an index of digests: an index in their
order would touch a random page for each event.
"""

from typing import NamedTuple

from eventlog.event import Body, SessionResumed
from eventlog.keeping.kept_rows import LineSource, StoredEvent
from eventlog.line_state import KnownEvent, LinePrefix, VerdictKind

SKIPPED_KEPT_MAX = 65_536
"""Conflicts and lost claims of one session that are remembered, the oldest forgotten first."""


class SkippedEvent(NamedTuple):
    """An event that was not accepted: the verdict, and the place it would have had."""

    verdict: VerdictKind
    attempt: int
    step: int


class SkippedEvents:
    """The conflicts and lost claims among one session's records, by digest (rule 4)."""

    def __init__(self) -> None:
        self._found: dict[bytes, SkippedEvent] = {}

    def note(self, digest: bytes, skipped: SkippedEvent) -> None:
        """The next skipped record of the session; those of other verdicts are passed over."""
        if skipped.verdict not in (VerdictKind.LOST_CLAIM, VerdictKind.CONFLICT):
            return
        self._found.pop(digest, None)
        self._found[digest] = skipped
        if len(self._found) > SKIPPED_KEPT_MAX:
            del self._found[next(iter(self._found))]

    def find(self, digest: bytes) -> SkippedEvent | None:
        """The skipped event of this digest."""
        return self._found.get(digest)


class JudgedRecord(NamedTuple):
    """The record that the rule judges now."""

    record: LinePrefix
    digest: bytes
    body: Body | None


def stored_by_place(
    source: LineSource,
    number: int,
    judged: JudgedRecord,
    digest: bytes,
    skipped: SkippedEvent | None,
) -> StoredEvent | None:
    """The event `digest` that the rule asks for while it judges a record of the session.

    It asks for the record's own digest, and for its parent's. `skipped` is where the parent stands
    among the skipped events, if it does.
    """
    record = judged.record
    if digest == judged.digest:
        return _at(source, number, record.attempt, record.step, digest)
    if skipped is not None:
        return _at(source, number, skipped.attempt, skipped.step, digest)
    steps = {record.step - 1}
    if isinstance(judged.body, SessionResumed):
        steps.add(judged.body.from_step)
    for claim in reversed(source.claims_of(record.session_id)):
        for step in steps:
            if claim.first_step <= step:
                found = _at(source, number, claim.attempt, step, digest)
                if found is not None:
                    return found
    return None


def known_at_step(
    source: LineSource, number: int, session_id: str, step: int, digest: bytes
) -> KnownEvent | None:
    """The event `digest`, if the session accepted it as `step` under any claim, newest first."""
    for claim in reversed(source.claims_of(session_id)):
        if claim.first_step <= step:
            found = _at(source, number, claim.attempt, step, digest)
            if found is not None:
                return KnownEvent(step, claim.attempt)
    return None


def _at(
    source: LineSource, number: int, attempt: int, step: int, digest: bytes
) -> StoredEvent | None:
    stored = source.event_at(number, attempt, step)
    return None if stored is None or stored.digest != digest else stored
