"""`OwnedLines`: the lines whose claim one writer holds, as far as it knows. Pure.

An append that plainly follows is judged here, without asking anyone: nobody else can have added to
the line without fencing this writer first, and then nothing of its transaction is committed. What
is not plain (a retry, a claim, a conflict) is judged by the mirror, which has read to the end.
"""

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Final

from eventlog.codec import EncodedEvent
from eventlog.event import SessionForked, SessionResumed, SessionSeeded
from eventlog.keeping.append_rule import Append, plain_line
from eventlog.keeping.kept_rows import RECENT_EVENTS
from eventlog.keeping.recent_ids import RecentIds
from eventlog.line_state import KnownEvent, LineState, VerdictKind
from eventlog.session_line import SessionLine

LINES_KEPT_MAX: Final = 2_048
"""Lines remembered, each with at most 33 KiB of event ids; of others the mirror is asked."""

CLAIM_BODIES: Final = (SessionSeeded, SessionForked, SessionResumed)


class OwnedLine:
    """One line, and the ids of its last events."""

    __slots__ = ("line", "recent")

    def __init__(self, line: LineState, recent: RecentIds) -> None:
        self.line = line
        self.recent = recent


class OwnedLines:
    """The lines of one writer by session, the least recently used forgotten first."""

    def __init__(self, writer_id: str) -> None:
        self._writer_id = writer_id
        self._lines: OrderedDict[str, OwnedLine] = OrderedDict()

    def __contains__(self, session_id: str) -> bool:
        return session_id in self._lines

    def sessions(self) -> list[str]:
        """The sessions remembered."""
        return list(self._lines)

    def line_of(self, session_id: str) -> LineState | None:
        """The line as this writer knows it; None where it does not."""
        owned = self._lines.get(session_id)
        return None if owned is None else owned.line

    def hold(self, session_id: str, line: LineState, event_ids: Sequence[bytes]) -> None:
        """Remember a line that this writer owns; `event_ids` are those of its last events."""
        recent = RecentIds(RECENT_EVENTS, line.next_step - len(event_ids))
        recent.note(event_ids, line.attempt)
        self._lines[session_id] = OwnedLine(line, recent)
        self._lines.move_to_end(session_id)
        while len(self._lines) > LINES_KEPT_MAX:
            self._lines.popitem(last=False)

    def drop(self, session_id: str) -> None:
        """Forget a line: it is another's now, or not known any more."""
        self._lines.pop(session_id, None)

    def advance(self, append: Append, line: LineState) -> None:
        """The append is committed, and `line` is the line after it."""
        if line.writer != self._writer_id or line.released:
            self.drop(append.session_id)
            return
        ids = [encoded.event.event_id for encoded in append.events]
        owned = self._lines.get(append.session_id)
        begins = append.events[0].event.step == line.first_step
        if owned is None or isinstance(append.events[0].event.body, SessionResumed):
            # After a claim other events may stand before it: only the mirror knows their ids.
            if begins:
                self.hold(append.session_id, line, ids)
            else:
                self.drop(append.session_id)
            return
        owned.line = line
        owned.recent.note(ids, line.attempt)
        self._lines.move_to_end(append.session_id)

    def judge(
        self, append: Append, line: LineState, staged_ids: Iterable[bytes]
    ) -> LineState | None:
        """The line after an append that plainly follows `line`; None where it does not.

        `line` is the session's, with what the same transaction holds already, whose event ids are
        `staged_ids`. None says nothing of the append but that the mirror must be asked.
        """
        owned = self._lines.get(append.session_id)
        first = append.events[0].event
        if (
            owned is None
            or isinstance(first.body, CLAIM_BODIES)
            or append.head is not None
            or append.expected_step != line.next_step - 1
            or first.attempt != line.attempt
        ):
            return None
        ids = [encoded.event.event_id for encoded in append.events]
        if owned.recent.find(ids, owned.line.next_step) is not None:
            return None
        if not set(staged_ids).isdisjoint(ids):
            return None
        plain = plain_line(append, line)
        return line_after(append.session_id, append.events, line) if plain is None else plain


def line_after(
    session_id: str, events: Sequence[EncodedEvent], line: LineState | None
) -> LineState | None:
    """The line after events that all stand by the reader's rule; None where one does not."""
    judged: dict[bytes, KnownEvent] = {}
    rule = SessionLine(session_id, judged.get, line)
    for event, _, digest in events:
        if rule.accept(event, digest).kind is not VerdictKind.ACCEPTED:
            return None
        judged[digest] = KnownEvent(event.step, event.attempt)
    return rule.state
