"""What every keeper stores, and what the shared rules ask of it.

`append_rule`, `line_writing`, `line_reading` and `line_checking` hold the log's contract once for
all keepers; a keeper answers these small questions about its rows. `LineSource` is what reading
needs; `LineStore` adds what a writer does inside one transaction of the keeper's.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

from eventlog.codec import EncodedEvent
from eventlog.content import BlobRef, Content
from eventlog.errors import ConfigError
from eventlog.event import Event, StateChange, session_id_problem
from eventlog.line_state import Claim, KnownEvent, LineState
from eventlog.session_summary import SessionSummary

PARTITION = 0
"""The one partition of a log without partitions, in its cuts."""


def require_group_name(group: str) -> None:
    """Raise `ConfigError` where a consumer's name is not one that every keeper can store."""
    problem = session_id_problem(group)
    if problem is not None:
        raise ConfigError(
            f"the consumer's name {problem}", hint="name it as a session may be named"
        )


def blob_digests(event: Event) -> list[bytes]:
    """The digests of all blobs that the event refers to, in order of its fields."""
    found: list[bytes] = []
    change = event.state_change
    if type(change) is StateChange and type(change.patch.data) is BlobRef:
        found.append(change.patch.data.digest)
    for value in event.body:
        if type(value) is Content and type(value.data) is BlobRef:
            found.append(value.data.digest)
    return found


class KeptSession(NamedTuple):
    """What a keeper stores of one session. `last_offset` is that of its line's last own event.

    `number` is the keeper's own short name for the session, from 1, in the order sessions began.
    """

    number: int
    session_id: str
    line: LineState
    summary: SessionSummary
    last_offset: int


class StoredEvent(NamedTuple):
    """One event's row as it is stored; nothing of it is proven yet."""

    offset: int
    attempt: int
    step: int
    digest: bytes
    data: bytes


class Mark(NamedTuple):
    """The summary of a line up to and including the event (`attempt`, `step`)."""

    attempt: int
    step: int
    summary: SessionSummary


class LineSource(Protocol):
    """What reading a session asks of a keeper. Each answer is of one moment.

    Rows that disagree with each other or with their checksum raise an `IntegrityError`.
    """

    def find_session(self, session_id: str) -> KeptSession | None:
        """The session's row; None where the log holds nothing of the session."""
        ...

    def claims_of(self, session_id: str) -> Sequence[Claim]:
        """Every accepted claim of the session, ascending by attempt."""
        ...

    def event_at(self, number: int, attempt: int, step: int) -> StoredEvent | None:
        """The event that the session wrote as `step` under `attempt`."""
        ...

    def events_between(
        self, number: int, attempt: int, start_step: int, end_step: int
    ) -> Iterator[StoredEvent]:
        """Events of steps [start_step, end_step) under `attempt`, in order; missing ones left out.

        Read in bounded pages: an iterator that is not finished holds nothing open.
        """
        ...

    def find_digest(self, number: int, digest: bytes) -> KnownEvent | None:
        """Where the session wrote the event of this digest. May read all of the session's rows."""
        ...

    def mark_before(self, number: int, attempt: int, end_step: int) -> Mark | None:
        """The latest stored summary of `attempt` at a step below `end_step`."""
        ...


class RecordSource(LineSource, Protocol):
    """What reading all that was ever kept of a session asks of a keeper."""

    def all_events(self, number: int) -> Iterator[StoredEvent]:
        """Every row of the session, in log order."""
        ...


class JudgeSource(RecordSource, Protocol):
    """What judging an append asks of a keeper beside reading."""

    def recent_step_of(self, kept: KeptSession, event_ids: Sequence[bytes]) -> int | None:
        """The lowest step among the line's last own `RECENT_EVENTS` with one of these ids."""
        ...


class LineStore(JudgeSource, Protocol):
    """What a writer does, all inside one transaction; nothing is seen before it commits."""

    def next_number(self) -> int:
        """The number of the next session."""
        ...

    def put_events(self, number: int, events: Sequence[EncodedEvent]) -> int:
        """Store events at the end of the log, with their blob references; the last one's offset."""
        ...

    def put_session(self, kept: KeptSession) -> None:
        """Store the session's row, new or in place of the one of its number."""
        ...

    def put_claim(self, session_id: str, claim: Claim) -> None:
        """Store an accepted claim."""
        ...

    def put_mark(self, number: int, mark: Mark) -> None:
        """Store a summary to go on from."""
        ...


RECENT_EVENTS = 1_024
"""How many of a line's last standing events are searched for an event id alone."""
