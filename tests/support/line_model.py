"""A second reading of the reader's rule, to hold against `SessionLine`.

Written the other way round: it keeps every record it was ever given, with what it said of it, and
works everything out anew from that list for each record. It has no head, no flags and no counters.
"""

from typing import NamedTuple

from eventlog.event import SessionForked, SessionResumed
from tests.support.line_records import Record


class Judged(NamedTuple):
    """A record and what the model said: the verdict, the rule's number, an error's class name."""

    record: Record
    verdict: str
    rule: int
    error: str | None = None


class LineModel:
    """Judges the records of `session_id` in log order, by looking at all that came before."""

    def __init__(self, session_id: str) -> None:
        self.session_id = session_id
        self.history: list[Judged] = []

    def judge(self, record: Record) -> Judged:
        """What becomes of the next record."""
        verdict, rule, error = self._rule(record)
        judged = Judged(record, verdict, rule, error)
        self.history.append(judged)
        return judged

    def accepted(self) -> dict[bytes, Record]:
        """Every event ever accepted, in that order."""
        return {
            judged.record.digest: judged.record
            for judged in self.history
            if judged.verdict == "accepted"
        }

    def standing(self) -> list[Record]:
        """The line: from the last event accepted back from parent to parent, oldest first."""
        events = self.accepted()
        line: list[Record] = []
        digest = next(reversed(events)) if events else b""
        while digest in events:
            line.append(events[digest])
            digest = events[digest].parent
        return line[::-1]

    def under_claim(self) -> list[Record]:
        """The part of the line that the claim in force wrote, its claim first."""
        line = self.standing()
        claims = ("session_seeded", "session_forked", "session_resumed")
        first = max(i for i, record in enumerate(line) if record.kind in claims)
        return line[first:]

    def has(self, kind: str) -> bool:
        """Whether the claim in force wrote an event of this kind."""
        return any(record.kind == kind for record in self.under_claim())

    def released(self) -> bool:
        """Whether the claim in force was given up, or nobody ever held it."""
        claim = self.under_claim()[0].body
        unowned = isinstance(claim, SessionForked) and claim.writer is None
        return unowned or self.has("session_released")

    def error(self) -> str | None:
        """The first error after the last rewind or take-over."""
        found = None
        for judged in self.history:
            if judged.verdict == "accepted" and judged.rule == 3:
                found = None
            elif judged.verdict == "stopped" and found is None:
                found = judged.error
        return found

    def skipped_as(self, digest: bytes) -> str | None:
        """Conflict or lost claim, where the record of this digest was last skipped as such."""
        if digest in self.accepted():
            return None
        for judged in reversed(self.history):
            if judged.record.digest == digest and judged.verdict in ("conflict", "lost_claim"):
                return judged.verdict
        return None

    def _rule(self, record: Record) -> tuple[str, int, str | None]:
        if record.session_id != self.session_id:
            return "stopped", 0, "LinkBrokenError"
        events = self.accepted()
        line = self.standing()
        if not line:
            return _first(record)
        if record.digest in events:
            return "duplicate", 2, None
        head = line[-1]
        attempt = max(event.attempt for event in events.values())
        if isinstance(record.body, SessionResumed):
            return self._resumed(record, record.body, attempt)
        skipped_as = self.skipped_as(record.parent)
        if skipped_as is not None:
            return skipped_as, 4, None
        if record.attempt != attempt:
            late = record.attempt < attempt
            return ("superseded", 4, None) if late else ("stopped", 4, "LinkBrokenError")
        if self.error() is not None:
            return "stopped", 5, self.error()
        if record.kind.startswith("session_") and record.kind[8:] in ("seeded", "forked"):
            return "lost_claim", 6, None
        over = self.has("session_closed") or self.has("session_lost")
        if over and record.kind not in ("verified", "annotated", "subject_erased"):
            return "conflict", 6, None
        if self.released() or record.step <= head.step:
            return "conflict", 6, None
        if record.step == head.step + 1 and record.parent == head.digest:
            return "accepted", 7, None
        return "stopped", 7, "StepGapError" if record.step > head.step + 1 else "LinkBrokenError"

    def _resumed(
        self, record: Record, claim: SessionResumed, attempt: int
    ) -> tuple[str, int, str | None]:
        events, line = self.accepted(), self.standing()
        if record.attempt <= attempt:
            return "lost_claim", 3, None
        if claim.over_release and not (self.released() and record.parent == line[-1].digest):
            return "lost_claim", 3, None
        parent = events.get(record.parent)
        if parent and parent.step == claim.from_step and record.step == claim.from_step + 1:
            return "accepted", 3, None
        past_end = claim.from_step > line[-1].step
        return "stopped", 3, "StepGapError" if past_end else "LinkBrokenError"


def _first(record: Record) -> tuple[str, int, str | None]:
    seeds = record.kind == "session_seeded" and record.step == 0 and not any(record.parent)
    forks = isinstance(record.body, SessionForked) and record.step == record.body.parent_step + 1
    if record.attempt == 1 and (seeds or forks):
        return "accepted", 1, None
    return "stopped", 1, "StepGapError"
