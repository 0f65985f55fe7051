"""`Recorded`: what is recorded at one place, as it is read: sessions, events, calls, states.

The reading half of a `Workspace`, which says what it has and writes. It decides nothing: a log
lists and reads, a replayer folds, this decodes.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from eventlog.call_view import CallRow, pair_calls
from eventlog.content import Content, read_content
from eventlog.errors import SessionNotFoundError
from eventlog.event import Event
from eventlog.keeping.kept_records import decode_record
from eventlog.log import EventLog, LogRecord, SessionFilter, SessionInfo
from eventlog.whole_number import whole_number
from replay.difference import Difference
from replay.replayer import Replayed, Replayer
from replay.session_difference import compare_places
from replay.snapshot_taker import SnapshotTaker


class Recorded:
    """A log and what its events refer to, to be read."""

    log: EventLog
    _replayer: Replayer
    _taker: SnapshotTaker

    def sessions(self, where: SessionFilter | None = None) -> Iterator[SessionInfo]:
        """Sessions that pass the filter, in the order they began; reads no events."""
        return self.log.list_sessions(None if where is None else where.in_range())

    def session(self, session: str) -> SessionInfo:
        """One session. Raises `SessionNotFoundError`."""
        return self.log.session_info(session)

    def events(
        self, session: str, start_step: int = 0, end_step: int | None = None
    ) -> Iterator[Event]:
        """The standing events of steps [start_step, end_step), a branch's prefix included.

        Read as they are asked for; a session or step that is not there is raised at once.
        """
        records = self.log.read_session(session, start_step, end_step)
        return (decode_record(record) for record in records)

    def event_of(self, record: LogRecord) -> Event:
        """The event that a record of the log holds: of `ws.log.tail_events(cut)`, say."""
        return decode_record(record)

    def calls(self, session: str) -> Iterator[CallRow]:
        """One row per tool call: the call and its return together."""
        return pair_calls(self.events(session))

    def read_content(self, content: Content) -> bytes:
        """A content's exact bytes, fetched from the blob store where they stand there."""
        return self._replayer.fetch(content)

    def read_value(self, content: Content) -> object:
        """What a content holds: a call's arguments, a result, a message.

        A str for text, `JsonText` for JSON text (as it was given: `json.loads` reads it), any other
        value as it was recorded. Raises `CodecMissingError` for types not registered here.
        """
        return read_content(content.media_type, self._replayer.fetch(content))

    def replay(
        self,
        session: str,
        step: int | None = None,
        *,
        use_snapshots: bool = True,
        reducer: str | None = None,
    ) -> Replayed:
        """The state after `step` (default: the last), proven against the recorded digests."""
        target = None if step is None else step_number(step)
        self._taker.wait()
        with _step_in_the_id_hinted(session):
            return self._replayer.replay_to(
                session, target, use_snapshots=use_snapshots, reducer=reducer
            )

    def diff(self, first: str | tuple[str, int], second: str | tuple[str, int]) -> Difference:
        """Compare two states, each `(session, step)`, or two whole sessions (first difference).

        A session given without a step beside one with a step means its last step.
        """
        return compare_places(first, second, self.events, self.replay)


def step_number(step: object) -> int:
    """A step as it was given, where it is a whole number (also of numpy). Raises `TypeError`."""
    number = whole_number(step)
    if number is None:
        raise TypeError(f"a step is an int, not {step!r}")
    return number


@contextmanager
def _step_in_the_id_hinted(session: str) -> Iterator[None]:
    # `replay("task@3")` is how the command names a step; here the id is the id.
    try:
        yield
    except SessionNotFoundError as error:
        found = re.fullmatch(r"(.+)@([0-9]+)", session, re.DOTALL)
        if found is not None:
            error.hint = f"the step is an argument of its own: {found[1]!r}, step={found[2]}"
        raise
