"""`OwnedLines`: the lines whose claim one writer holds, as far as it knows. Pure.

An append that plainly follows is judged here, without asking anyone: nobody else can have added to
the line without fencing this writer first, and then nothing of its transaction is committed. What
is not plain (a retry, a claim, a conflict) is judged by the mirror, which has read to the end.
"""

from collections import OrderedDict
from collections.abc import Sequence, Set
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

_CLAIM_BODIES: Final = (SessionSeeded, SessionForked, SessionResumed)


class OwnedLine:
    """One line, the ids of its last events, and the offset in its partition it is known up to."""

    __slots__ = ("line", "position", "recent")

    def __init__(self, line: LineState, recent: RecentIds, position: int) -> None:
        self.line = line
        self.recent = recent
        self.position = position


class OwnedLines:
    """The lines of one writer by session, the least recently used forgotten first."""

    def __init__(self, writer_id: str) -> None:
        self._writer_id = writer_id
        self._lines: OrderedDict[str, OwnedLine] = OrderedDict()

    def items(self) -> list[tuple[str, OwnedLine]]:
        """What is remembered, by session."""
        return list(self._lines.items())

    def find(self, session_id: str) -> OwnedLine | None:
        """What is remembered of a session."""
        return self._lines.get(session_id)

    def hold(
        self, session_id: str, line: LineState, event_ids: Sequence[bytes], position: int
    ) -> None:
        """Remember a line that this writer owns; `event_ids` are those of its last events."""
        if line.writer != self._writer_id or line.released:
            self.drop(session_id)
            return
        recent = RecentIds(RECENT_EVENTS, line.next_step - len(event_ids))
        recent.note(event_ids, line.attempt)
        self._lines[session_id] = OwnedLine(line, recent, position)
        self._lines.move_to_end(session_id)
        while len(self._lines) > LINES_KEPT_MAX:
            self._lines.popitem(last=False)

    def move(self, session_id: str, line: LineState, event_ids: Sequence[bytes]) -> None:
        """The line was read anew, and these events were added to it under the same attempt."""
        owned = self._lines[session_id]
        if line.writer != self._writer_id or line.released:
            self.drop(session_id)
            return
        owned.line = line
        owned.recent.note(event_ids, line.attempt)

    def drop(self, session_id: str) -> None:
        """Forget a line: it is another's now, or not known any more."""
        self._lines.pop(session_id, None)

    def advance(self, append: Append, line: LineState, position: int) -> None:
        """The append is committed, `line` is the line after it, and `position` is past it."""
        ids = [event.event_id for event, _, _ in append.events]
        first = append.events[0].event
        if first.step == line.first_step:
            self.hold(append.session_id, line, ids, position)
            return
        owned = self._lines.get(append.session_id)
        if owned is None or isinstance(first.body, SessionResumed) or line.released:
            # Before a claim other events may stand than before: only the mirror knows their ids.
            self.drop(append.session_id)
            return
        owned.line = line
        owned.position = position
        owned.recent.note(ids, line.attempt)
        self._lines.move_to_end(append.session_id)

    def judge(self, append: Append, line: LineState, staged_ids: Set[bytes]) -> LineState | None:
        """The line after an append that plainly follows `line`; None where it does not.

        `line` is the session's, with what the same transaction holds already, whose event ids are
        `staged_ids`. None says nothing of the append but that the mirror must be asked.
        """
        owned = self._lines.get(append.session_id)
        first = append.events[0].event
        if (
            owned is None
            or isinstance(first.body, _CLAIM_BODIES)
            or append.head is not None
            or append.expected_step != line.next_step - 1
            or first.attempt != line.attempt
        ):
            return None
        ids = [event.event_id for event, _, _ in append.events]
        if owned.recent.find(ids, owned.line.next_step) is not None:
            return None
        if staged_ids and not staged_ids.isdisjoint(ids):
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
