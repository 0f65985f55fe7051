"""`MemoryLog`: the contract kept in dicts and lists, for tests and for logs nobody needs later.

It stores what the SQLite keeper stores, and the shared rules work on it in the same way; it is as
durable as the process. In a forked child it is a copy, under a writer id of its own.
"""

import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from functools import partial

from eventlog.codec import EncodedEvent
from eventlog.cut import Cut
from eventlog.errors import LogError, SessionNotFoundError, SteplogError
from eventlog.event import LineHead, Restore
from eventlog.ids import mint_event_id, mint_writer_id
from eventlog.keeping.append_rule import Append, require_whole_batch
from eventlog.keeping.claims import Claimant, Takeover
from eventlog.keeping.kept_records import checked_record, read_kept
from eventlog.keeping.kept_rows import (
    PARTITION,
    RECENT_EVENTS,
    KeptSession,
    Mark,
    StoredEvent,
    blob_digests,
    require_group_name,
)
from eventlog.keeping.line_checking import BlobUse, check_session
from eventlog.keeping.line_growth import read_line
from eventlog.keeping.line_plan import plan_line
from eventlog.keeping.line_reading import read_plan
from eventlog.keeping.line_writing import append_events, release, take_over
from eventlog.keeping.session_match import passes
from eventlog.line_state import Claim, KnownEvent
from eventlog.log import EventLog, Finding, LogRecord, Receipt, SessionFilter, SessionInfo
from eventlog.session_summary import describe_session
from eventlog.standing_line import standing_ranges
from eventlog.training_facts import TrainingFacts, facts_of


def wall_clock_us() -> int:
    """Microseconds since 1970 UTC."""
    return time.time_ns() // 1_000


class MemoryLog(EventLog):
    """An event log in this process's memory. Thread-safe; cannot be pickled."""

    def __init__(self, *, clock: Callable[[], int] = wall_clock_us) -> None:
        """`clock` gives microseconds since 1970 UTC, for the events the log makes itself."""
        self._begin(_MemoryRows(), {}, threading.RLock(), clock)

    def open_again(self) -> "MemoryLog":
        """Another handle on the same events, with a writer id of its own."""
        handle = MemoryLog.__new__(MemoryLog)
        handle._begin(self._rows, self._cuts, self._lock, self._clock)
        return handle

    def _begin(
        self,
        rows: "_MemoryRows",
        cuts: dict[str, Cut],
        lock: threading.RLock,
        clock: Callable[[], int],
    ) -> None:
        self._clock = clock
        self._rows = rows
        self._cuts = cuts
        self._lock = lock
        self._pid = os.getpid()
        self._writer_id = mint_writer_id()
        self._closed = False

    @property
    def writer_id(self) -> str:
        """The id under which this handle claims sessions."""
        if os.getpid() != self._pid:
            self._pid, self._writer_id = os.getpid(), mint_writer_id()
            self._lock = threading.RLock()
        return self._writer_id

    def submit_events(
        self,
        session_id: str,
        events: Sequence[EncodedEvent],
        *,
        expected_step: int,
        head: LineHead | None = None,
    ) -> Future[Receipt]:
        """Append at once; the future is done when it comes back."""
        append = Append(session_id, tuple(events), expected_step, self.writer_id, head)
        require_whole_batch(append)
        answer: Future[Receipt] = Future()
        with self._lock:
            self._require_open()
            try:
                answer.set_result(append_events(self._rows, append))
            except SteplogError as error:
                answer.set_exception(error)
        return answer

    def take_over(
        self,
        session_ids: Sequence[str],
        *,
        stands_on: Mapping[str, bytes],
        reason: str,
        heads: Mapping[str, LineHead] | None = None,
        restore: Restore | None = None,
    ) -> dict[str, int]:
        """Claim sessions for this handle."""
        wish = Takeover(tuple(session_ids), dict(stands_on), reason, dict(heads or {}), restore)
        claimant = self._claimant()
        with self._lock:
            self._require_open()
            return take_over(self._rows, wish, claimant)

    def release(self, session_id: str, to_writer: str | None = None) -> Receipt:
        """Give this handle's claim up."""
        claimant = self._claimant()
        with self._lock:
            self._require_open()
            return release(self._rows, session_id, to_writer, claimant)

    def settle(self) -> None:
        """Nothing to wait for: an append is made before its answer is given."""

    def reconcile(self, session_id: str) -> Receipt | None:  # noqa: ARG002
        """None: an append here is never uncertain."""
        return None

    def read_session(
        self,
        session_id: str,
        start_step: int = 0,
        end_step: int | None = None,
        *,
        through: bytes | None = None,
    ) -> Iterator[LogRecord]:
        """The standing line's records, or those of the chain that ends in `through`."""
        with self._lock:
            plan = plan_line(self._rows, session_id, through)
        return read_plan(self._rows, plan, start_step, end_step)

    def read_records(self, session_id: str) -> Iterator[LogRecord]:
        """Every record kept for the session's own line, in log order."""
        return read_kept(self._rows, self._require_session(session_id))

    def tail_events(self, cut: Cut) -> Iterator[LogRecord]:
        """Every record from `cut` to the present end."""
        events = self._rows.events
        return (
            checked_record(events[offset], None)
            for offset in range(cut.end(PARTITION), len(events))
        )

    def end_cut(self) -> Cut:
        """The cut that covers every event acknowledged so far."""
        return Cut({PARTITION: len(self._rows.events)})

    def commit_cut(self, group: str, cut: Cut) -> None:
        """Remember how far `group` has come."""
        require_group_name(group)
        with self._lock:
            self._require_open()
            self._cuts[group] = self._cuts.get(group, Cut.empty()).merge(cut)

    def committed_cut(self, group: str) -> Cut:
        """The last cut committed by `group`."""
        return self._cuts.get(group, Cut.empty())

    def list_sessions(self, where: SessionFilter | None = None) -> Iterator[SessionInfo]:
        """Sessions that pass the filter, in the order they began."""
        with self._lock:
            found = list(self._rows.sessions.values())
        infos = ((kept, _describe(kept)) for kept in found)
        return (info for kept, info in infos if passes(info, where, partial(self._facts_of, kept)))

    def _facts_of(self, kept: KeptSession) -> TrainingFacts:
        return facts_of(read_line(self._rows, kept))

    def session_info(self, session_id: str) -> SessionInfo:
        """One session."""
        return _describe(self._require_session(session_id))

    def find_damage(self, session_ids: Sequence[str] | None = None) -> Iterator[Finding]:
        """Run every session's rule and summary again."""
        wanted = list(self._rows.sessions) if session_ids is None else session_ids
        for session_id in wanted:
            yield from check_session(self._rows, self._require_session(session_id))

    def close(self) -> None:
        """Take no more appends; reading stays possible."""
        self._closed = True

    def __reduce__(self) -> tuple[object, ...]:
        raise TypeError("a memory log lives in one process and cannot be pickled")

    def _claimant(self) -> Claimant:
        return Claimant(self.writer_id, self._clock, mint_event_id)

    def _require_open(self) -> None:
        if self._closed:
            raise LogError("this log handle is closed", hint="open the log again")

    def _require_session(self, session_id: str) -> KeptSession:
        kept = self._rows.find_session(session_id)
        if kept is None:
            raise SessionNotFoundError(
                f"no session {session_id!r} in the log",
                hint="`steplog sessions` lists what is there",
                session_id=session_id,
            )
        return kept


def _describe(kept: KeptSession) -> SessionInfo:
    return describe_session(kept.session_id, kept.line, kept.summary)


class _MemoryRows:
    """The rows, as `kept_rows.LineStore` and `line_checking.CheckSource` ask for them."""

    def __init__(self) -> None:
        self.sessions: dict[str, KeptSession] = {}
        self.events: list[StoredEvent] = []
        self._claims: dict[str, list[Claim]] = {}
        self._places: dict[tuple[int, int, int], StoredEvent] = {}
        self._own: dict[int, list[StoredEvent]] = {}
        self._digests: dict[tuple[int, bytes], KnownEvent] = {}
        self._ids: dict[tuple[int, bytes], list[KnownEvent]] = {}
        self._marks: dict[int, list[Mark]] = {}
        self._uses: dict[int, list[BlobUse]] = {}

    def find_session(self, session_id: str) -> KeptSession | None:
        return self.sessions.get(session_id)

    def claims_of(self, session_id: str) -> Sequence[Claim]:
        return tuple(self._claims.get(session_id, ()))

    def event_at(self, number: int, attempt: int, step: int) -> StoredEvent | None:
        return self._places.get((number, attempt, step))

    def events_between(
        self, number: int, attempt: int, start_step: int, end_step: int
    ) -> Iterator[StoredEvent]:
        for step in range(start_step, end_step):
            stored = self._places.get((number, attempt, step))
            if stored is not None:
                yield stored

    def find_digest(self, number: int, digest: bytes) -> KnownEvent | None:
        return self._digests.get((number, digest))

    def mark_before(self, number: int, attempt: int, end_step: int) -> Mark | None:
        for mark in reversed(self._marks.get(number, ())):
            if mark.attempt == attempt and mark.step < end_step:
                return mark
        return None

    def next_number(self) -> int:
        return len(self.sessions) + 1

    def put_events(self, number: int, events: Sequence[EncodedEvent]) -> int:
        for encoded in events:
            event = encoded.event
            stored = StoredEvent(
                len(self.events), event.attempt, event.step, encoded.digest, encoded.data
            )
            place = KnownEvent(event.step, event.attempt)
            self.events.append(stored)
            self._own.setdefault(number, []).append(stored)
            self._places[number, event.attempt, event.step] = stored
            self._digests[number, encoded.digest] = place
            self._ids.setdefault((number, event.event_id), []).append(place)
            self._uses.setdefault(number, []).extend(
                BlobUse(digest, event.attempt, event.step) for digest in blob_digests(event)
            )
        return len(self.events) - 1

    def put_session(self, kept: KeptSession) -> None:
        self.sessions[kept.session_id] = kept

    def put_claim(self, session_id: str, claim: Claim) -> None:
        self._claims.setdefault(session_id, []).append(claim)

    def put_mark(self, number: int, mark: Mark) -> None:
        self._marks.setdefault(number, []).append(mark)

    def recent_step_of(self, kept: KeptSession, event_ids: Sequence[bytes]) -> int | None:
        line = kept.line
        oldest = max(line.first_step, line.next_step - RECENT_EVENTS)
        ranges = standing_ranges(self.claims_of(kept.session_id), line.attempt, line.next_step - 1)
        steps = [
            place.step
            for event_id in event_ids
            for place in self._ids.get((kept.number, event_id), ())
            if place.step >= oldest
            and any(
                part.attempt == place.attempt and part.first_step <= place.step < part.end_step
                for part in ranges
            )
        ]
        return min(steps, default=None)

    def all_events(self, number: int) -> Iterator[StoredEvent]:
        return iter(tuple(self._own.get(number, ())))

    def marks_of(self, number: int) -> Sequence[Mark]:
        return tuple(self._marks.get(number, ()))

    def blob_uses(self, number: int) -> Sequence[BlobUse]:
        return tuple(self._uses.get(number, ()))
