"""`EventLog`: the contract that every keeper of events obeys.

One conformance suite (`tests/conformance/`) runs on each keeper. Ranges are half-open; "after step
N" is inclusive. A *record* is what a log keeps: an event's exact bytes at an offset.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import Final, NamedTuple, Self

from eventlog.codec import EncodedEvent, EventPrefix
from eventlog.cut import Cut
from eventlog.errors import SessionNotFoundError
from eventlog.event import LineHead, Restore
from eventlog.policy_order import policy_text

POLICIES_KEPT_MAX: Final = 64
"""So many policy versions that one session names are kept beside it: about 300 bytes."""


class Receipt(NamedTuple):
    """Proof that an append is durable: the steps written, and the last one's digest and offset."""

    session_id: str
    first_step: int
    last_step: int
    attempt: int
    event_digest: bytes
    offset: int


class LogRecord(NamedTuple):
    """One kept event: its offset, the SHA-256 of its bytes (computed when read), the bytes, and
    their decoded prefix (so that a fold decodes each event once). `partition` is where the offset
    counts: always 0 in a log without partitions.
    """

    offset: int
    digest: bytes
    data: bytes
    prefix: EventPrefix
    partition: int = 0


class SessionInfo(NamedTuple):
    """What a log knows of a session without reading its events. Times in microseconds UTC.

    `status` is open, closed, lost or released; `reward_from` verified, steps or None.
    `error` names what stopped the line (an error's class name and message), None when sound.

    `training_session` and `training_step` are as the seed names them. `policies` are the distinct
    policy versions that the seed, calls and messages name, in that order, at most
    `POLICIES_KEPT_MAX`; `policies_more`: there may be others. `voided` is the step of the first
    standing `session_voided`.
    """

    session_id: str
    environment: str
    task_id: str
    sample_id: str | None
    group_id: str | None
    policy: str | None
    reducer: str
    reducer_version: str
    state_coverage: str
    step_count: int
    attempt: int
    status: str
    writer: str | None
    reward: float | None
    reward_from: str | None
    first_time: int
    last_time: int
    head: LineHead
    parent_session: str | None
    parent_step: int | None
    error: str | None
    training_session: str | None = None
    training_step: int | None = None
    policies: tuple[str, ...] = ()
    policies_more: bool = False
    voided: int | None = None

    @property
    def training_known(self) -> bool:
        """False where an older steplog wrote the session and nothing was added to it since.

        Then `training_session`, `training_step` and `voided` are None, and `policies` has the
        seed's alone, whatever the events say. Filters read the events of such a session.
        """
        return not self.policies_more or len(self.policies) >= POLICIES_KEPT_MAX

    @property
    def session(self) -> str:
        """The session's id, by the name that reports and rows have for it."""
        return self.session_id


class SessionFilter(NamedTuple):
    """Which sessions to list; None lets every value through. Times in microseconds UTC.

    `policy` is the seed's version exactly. A session is between `policy_min` and `policy_max` (both
    included, see `policy_order`) if any version that its seed, calls and messages name is.
    """

    environment: str | None = None
    status: str | None = None
    task_id: str | None = None
    sample_id: str | None = None
    group_id: str | None = None
    policy: str | None = None
    writer: str | None = None
    reward_min: float | None = None
    reward_max: float | None = None
    last_time_min: int | None = None
    last_time_max: int | None = None
    id_prefix: str | None = None
    training_session: str | None = None
    training_step_min: int | None = None
    training_step_max: int | None = None
    policy_min: str | int | None = None
    policy_max: str | int | None = None
    voided: bool | None = None

    @property
    def asks_of_training(self) -> bool:
        """Whether any of the bounds is on what `training_known` is about."""
        return self[_ASKS_OF_TRAINING] != _ASKS_NOTHING

    def in_range(self) -> "SessionFilter":
        """The same filter in numbers that every log can compare: rewards as floats, times and
        steps as longs, policy versions as texts.

        A bound beyond all of them is the furthest one, so it lets through what it always did.
        """
        return self._replace(
            reward_min=_float_bound(self.reward_min),
            reward_max=_float_bound(self.reward_max),
            last_time_min=_long_bound(self.last_time_min),
            last_time_max=_long_bound(self.last_time_max),
            training_step_min=_long_bound(self.training_step_min),
            training_step_max=_long_bound(self.training_step_max),
            policy_min=policy_text(self.policy_min),
            policy_max=policy_text(self.policy_max),
        )


_ASKS_OF_TRAINING: Final = slice(SessionFilter._fields.index("training_session"), None)
_ASKS_NOTHING: Final = SessionFilter()[_ASKS_OF_TRAINING]


def _float_bound(bound: float | None) -> float | None:
    if bound is None:
        return None
    try:
        return float(bound)
    except OverflowError:
        return math.inf if bound > 0 else -math.inf


def _long_bound(bound: int | None) -> int | None:
    return None if bound is None else max(-(2**63), min(bound, 2**63 - 1))


class Finding(NamedTuple):
    """Something wrong in what is stored: where, which error class names it, and what it is.

    `session_id` None: the damage could not be given to one session. `partition` is where the offset
    counts, None where the log has no partitions.
    """

    session_id: str | None
    step: int | None
    offset: int | None
    error: str
    detail: str
    partition: int | None = None


class EventLog(ABC):
    """Keeps sessions' events, durably and in order.

    Every handle mints its own `writer_id` when opened. A handle is thread-safe. After fork, spawn
    or pickling, a child gets its own connection and writer id on first use.
    """

    @property
    @abstractmethod
    def writer_id(self) -> str:
        """The id under which this handle claims sessions."""

    @abstractmethod
    def submit_events(
        self,
        session_id: str,
        events: Sequence[EncodedEvent],
        *,
        expected_step: int,
        head: LineHead | None = None,
    ) -> "Future[Receipt]":
        """Queue an atomic append; the future ends as `append_events` would.

        Events of one session are written in the order submitted. Blocks, with a deadline, while
        the bytes in flight are at their bound (`LogUnavailableError` at the deadline).
        """

    def append_events(
        self,
        session_id: str,
        events: Sequence[EncodedEvent],
        *,
        expected_step: int,
        head: LineHead | None = None,
    ) -> Receipt:
        """Append all of `events` or none; return only when they are durable.

        `expected_step` is the last step of the line that the events stand on: -1 for a new
        session, the parent step for a new branch. A batch that begins with a claim
        (`session_seeded`, `session_forked`, `session_resumed`) is judged by the reader's rule;
        any other needs this handle to own the session. `head`, where given, must be the line's
        head at that moment: a claim may go on from any event, and so set aside what its owner has
        written since the claimant looked.

        Idempotent by event id: if the standing events at `expected_step + 1`.. have exactly these
        ids, the first receipt comes back. Raises `StepConflictError`, `FencedError`,
        `EventTooLargeError` (before any I/O), `SessionExistsError`, `LogUnavailableError`
        (nothing written) or `AppendUncertainError` (then `reconcile`).
        """
        return self.submit_events(
            session_id, events, expected_step=expected_step, head=head
        ).result()

    @abstractmethod
    def take_over(
        self,
        session_ids: Sequence[str],
        *,
        stands_on: Mapping[str, bytes],
        reason: str,
        heads: Mapping[str, LineHead] | None = None,
        restore: Restore | None = None,
    ) -> dict[str, int]:
        """Claim sessions for this handle; each line goes on after the event of its digest.

        `stands_on[id]` is the digest of any event ever accepted in that session (or, at its fork
        step, its parent's): a later line is superseded. Appends one `session_resumed` per session,
        all in one atomic append (`over_release` where the session is released). Returns the new
        attempt of each.

        `heads[id]`, where given, must be the line's head at that moment: who claims what it has
        read does not set aside what the owner has written since. `restore`, where given, stands in
        each claim: a session that a restore of the same training under a higher attempt has claimed
        before is left to it. Raises `SessionNotFoundError`, `StepNotFoundError` (digest unknown),
        `StepConflictError` (another head), `FencedError` (a later restore).
        """

    def next_attempt(self, session_id: str) -> int:
        """The attempt that a claim made now must have: above every one that was ever sent.

        Raises `SessionNotFoundError`.
        """
        return self.session_info(session_id).attempt + 1

    @abstractmethod
    def release(self, session_id: str, to_writer: str | None = None) -> Receipt:
        """Give this handle's claim up by appending `session_released`. Raises `FencedError`."""

    @abstractmethod
    def reconcile(self, session_id: str) -> Receipt | None:
        """Resolve an uncertain append: its receipt if it was written, None if it was not."""

    @abstractmethod
    def settle(self) -> None:
        """Return once everything submitted through this handle so far is durable or has failed.

        Says nothing of which: each append's own answer does. Raises `LogUnavailableError` where
        that is not known in time.
        """

    @abstractmethod
    def read_session(
        self,
        session_id: str,
        start_step: int = 0,
        end_step: int | None = None,
        *,
        through: bytes | None = None,
    ) -> Iterator[LogRecord]:
        """The standing line's records of steps [start_step, end_step), a branch's prefix included.

        `through` reads the chain that ends in that event instead of the standing line. Raises
        `SessionNotFoundError`, `StepNotFoundError` (a bound past the line's end), and
        `IntegrityError`s where the stored rows are not a whole line.
        """

    @abstractmethod
    def read_records(self, session_id: str) -> Iterator[LogRecord]:
        """Every record kept for the session's own line, standing or not, in log order."""

    @abstractmethod
    def tail_events(self, cut: Cut) -> Iterator[LogRecord]:
        """Every record from `cut` to the present end, in log order."""

    @abstractmethod
    def end_cut(self) -> Cut:
        """The cut that covers every event acknowledged so far."""

    @abstractmethod
    def commit_cut(self, group: str, cut: Cut) -> None:
        """Remember how far consumer `group` has come. Idempotent; never moves backwards."""

    @abstractmethod
    def committed_cut(self, group: str) -> Cut:
        """The last cut committed by `group`; the empty cut if none."""

    @abstractmethod
    def list_sessions(self, where: SessionFilter | None = None) -> Iterator[SessionInfo]:
        """Sessions that pass the filter, in the order they began."""

    @abstractmethod
    def session_info(self, session_id: str) -> SessionInfo:
        """One session. Raises `SessionNotFoundError`, `IntegrityError` where rows disagree."""

    def holds_session(self, session_id: str) -> bool:
        """Whether there is a session of this id. Raises `IntegrityError` where rows disagree."""
        try:
            self.session_info(session_id)
        except SessionNotFoundError:
            return False
        return True

    def session_ids(self) -> Iterator[str]:
        """The ids of all sessions, in the order they began; those that are lost are passed over.

        For `check`, which must come to the sound ones too. Raises `IntegrityError` where the rest
        cannot be read at all.
        """
        return (info.session_id for info in self.list_sessions())

    @abstractmethod
    def find_damage(self, session_ids: Sequence[str] | None = None) -> Iterator[Finding]:
        """Re-hash and cross-check what is stored; None means everything in the log."""

    @abstractmethod
    def close(self) -> None:
        """Wait for what was submitted, then let go. Idempotent."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
