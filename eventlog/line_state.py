"""`LineState` and `Verdict`: the words of the reader's rule, and what of a line is stored.

The rule itself is `session_line.SessionLine`. Pure values: named tuples of numbers, strings, bytes.
"""

from collections.abc import Sequence
from enum import StrEnum
from types import NoneType
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from eventlog.errors import EventCorruptError, IntegrityError, LinkBrokenError, StepGapError
from eventlog.event import (
    NO_PARENT,
    Body,
    LineHead,
)
from eventlog.stored_fields import require_types

BodyT = TypeVar("BodyT", bound=Body)

KINDS_WITH_BODY: Final = frozenset(
    {
        "session_seeded",
        "session_forked",
        "session_resumed",
        "session_released",
        "session_closed",
        "session_lost",
    }
)


def needs_body(kind: str) -> bool:
    """Whether `SessionLine.accept` needs the event's body for this kind, not its prefix alone."""
    return kind in KINDS_WITH_BODY


class LinePrefix(Protocol):
    """What the rule reads of an event: an `Event` and an `EventPrefix` both have it."""

    @property
    def session_id(self) -> str: ...
    @property
    def step(self) -> int: ...
    @property
    def attempt(self) -> int: ...
    @property
    def kind(self) -> str: ...
    @property
    def parent(self) -> bytes: ...


def body_of(record: LinePrefix, body: Body | None, kind: type[BodyT]) -> BodyT:
    """The body given with a record, or the one it has. Raises `TypeError` if it is not a `kind`."""
    found = getattr(record, "body", None) if body is None else body
    if not isinstance(found, kind):
        raise TypeError(f"a {record.kind} is judged with its body, got {type(found).__name__}")
    return found


class VerdictKind(StrEnum):
    """What becomes of a record. Only `ACCEPTED` ones stand; the others change no state.

    `DUPLICATE`, `LOST_CLAIM` and `SUPERSEDED` are normal; `CONFLICT` is listed; `STOPPED` means
    that this record broke the line (the verdict's rule is not 5) or came after one that did (rule
    5). `JUDGED` is a record at an offset judged before: nothing is done, nothing counted.
    """

    ACCEPTED = "accepted"
    DUPLICATE = "duplicate"
    LOST_CLAIM = "lost_claim"
    SUPERSEDED = "superseded"
    CONFLICT = "conflict"
    STOPPED = "stopped"
    JUDGED = "judged"


class KnownEvent(NamedTuple):
    """An event accepted in this session before: where it was put and under which attempt."""

    step: int
    attempt: int


class LineError(NamedTuple):
    """What stopped a line: an error's class name, its message, the step of the record."""

    name: str
    message: str
    step: int

    def as_error(self, session_id: str) -> IntegrityError:
        """The error itself, to raise."""
        kind = StepGapError if self.name == "StepGapError" else LinkBrokenError
        return kind(
            self.message,
            hint="run `steplog check` to see the records; a claim may go on from an earlier step",
            session_id=session_id,
            step=self.step,
        )

    def __str__(self) -> str:
        return f"{self.name}: {self.message}"


class Claim(NamedTuple):
    """An accepted claim: steps from `first_step` on are written under `attempt`.

    They stand on the event at `first_step - 1` of `parent_attempt`: 0 for the first claim.
    """

    attempt: int
    first_step: int
    parent_attempt: int


class Verdict(NamedTuple):
    """What the rule says of one record.

    `rule` is the number in docs/formats.md (0: not a record of this session, or judged before).
    `error` is set for `STOPPED` only: what this record broke, or the first error of the line. It
    is kept apart from raising: a checker goes on. `claim` is set where a claim was accepted.
    `after_close`: accepted, but outside the root of the session's close.
    """

    kind: VerdictKind
    rule: int
    error: LineError | None = None
    claim: Claim | None = None
    after_close: bool = False


class LineCounts(NamedTuple):
    """How many records were skipped, by verdict; `after_close` counts accepted ones."""

    duplicates: int = 0
    lost_claims: int = 0
    superseded: int = 0
    conflicts: int = 0
    stopped: int = 0
    after_close: int = 0


class LineState(NamedTuple):
    """Where a session's line stands: all that is needed to store it and go on.

    `next_step` is the step the next event must have, `head` the digest of the last standing event,
    `attempt` that of the claim in force (0: nothing accepted yet), `writer` its writer.
    `first_step` is the step of the first own event: 0, or the fork step + 1 for a branch, whose
    fork event stands on the event `fork_parent` of `parent_session`. `closed` and `lost` hold the
    reason while they hold. `error` is the first error since the last claim. `accepted` counts own
    events ever accepted; `first_bad` is the step of the first conflict or error ever. `position` is
    the log position judged up to, exclusive. `skipped` is the memory for rule 4, oldest first.
    """

    next_step: int = 0
    head: bytes = NO_PARENT
    attempt: int = 0
    writer: str | None = None
    first_step: int = 0
    parent_session: str | None = None
    fork_parent: bytes = NO_PARENT
    closed: str | None = None
    lost: str | None = None
    released: bool = False
    released_to: str | None = None
    error: LineError | None = None
    accepted: int = 0
    counts: LineCounts = LineCounts()
    first_bad: int | None = None
    position: int = 0
    skipped: tuple[tuple[bytes, str], ...] = ()

    @property
    def begun(self) -> bool:
        """Whether a first event was accepted."""
        return self.attempt > 0

    @property
    def status(self) -> str:
        """`released`, `lost`, `closed` by the line; else `open`."""
        if self.released:
            return "released"
        if self.lost is not None:
            return "lost"
        return "open" if self.closed is None else "closed"

    @property
    def parent_step(self) -> int | None:
        """The fork step of a branch; None for a session of its own."""
        return None if self.parent_session is None else self.first_step - 1

    @property
    def superseded(self) -> int:
        """Own records that no longer stand: left by a rewind, or written by a fenced writer."""
        standing = self.next_step - self.first_step
        return self.accepted - standing + self.counts.superseded

    def line_head(self, session_id: str) -> LineHead:
        """What the next event stands on."""
        if not self.begun:
            return LineHead.before_seed(session_id)
        return LineHead(session_id, self.next_step - 1, self.attempt, self.head)

    def to_value(self) -> list[object]:
        """A plain list for storage (JSON has no bytes, canonical values have); see `from_value`."""
        error = None if self.error is None else list(self.error)
        skipped = [list(entry) for entry in self.skipped]
        flat: list[object] = list(self)
        names = self._fields
        flat[names.index("error")] = error
        flat[names.index("counts")] = list(self.counts)
        flat[names.index("skipped")] = skipped
        return flat

    @classmethod
    def from_value(cls, value: Sequence[Any]) -> "LineState":
        """The state that `to_value` gave. Raises `EventCorruptError` where it is not one."""
        try:
            flat = cls(*require_types(value, _STATE_TYPES))
            error = None
            if flat.error is not None:
                error = LineError(*require_types(flat.error, (str, str, int)))
            return flat._replace(
                error=error,
                counts=LineCounts(*require_types(flat.counts, (int,) * len(LineCounts._fields))),
                skipped=tuple(_skipped_entry(entry) for entry in flat.skipped),
            )
        except (TypeError, ValueError) as problem:
            raise EventCorruptError(
                f"a stored line state is not one: {problem}",
                hint="run `steplog check`; the state can be made again from the session's records",
            ) from problem


_TEXT_OR_NONE: Final = (str, NoneType)
_STATE_TYPES: Final = (
    int,
    bytes,
    int,
    _TEXT_OR_NONE,
    int,
    _TEXT_OR_NONE,
    bytes,
    _TEXT_OR_NONE,
    _TEXT_OR_NONE,
    bool,
    _TEXT_OR_NONE,
    (list, tuple, NoneType),
    int,
    (list, tuple),
    (int, NoneType),
    int,
    (list, tuple),
)


def _skipped_entry(entry: Sequence[Any]) -> tuple[bytes, str]:
    digest, kind = require_types(entry, (bytes, str))
    return digest, str(VerdictKind(kind))
