"""Where sessions stood at a cut, and the Merkle trees of the log below it: read from the log alone.

Recorders live in other processes and go on writing, so a caller never says where a session stands:
the cut does. What was appended after the cut is passed over, a later rewind too. Used by checkpoint
sets, and by whoever compares one with its log.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from eventlog.cut import Cut
from eventlog.errors import (
    CheckpointError,
    IntegrityError,
    SessionNotFoundError,
    SteplogError,
    StepNotFoundError,
)
from eventlog.event import SessionSeeded, StateChange, StateUnknown
from eventlog.keeping.kept_records import decode_record
from eventlog.line_state import KnownEvent, VerdictKind
from eventlog.log import EventLog, LogRecord, SessionInfo
from eventlog.merkle_root import MerkleRoot
from eventlog.session_line import SessionLine
from snapshots.checkpoints.set_entry import SessionPosition, SetEntry

LIVE: Final = ("open", "released")
"""The status of a session that goes on after the cut."""
STEPS_AT_ONCE: Final = 64
"""Steps read together on the way back to the last change of a state."""


class Misplaced(NamedTuple):
    """A session that the log does not have as a set has it: where it should stand, and why not."""

    session_id: str
    step: int
    why: str
    error: SteplogError | None = None
    """What reading raised, where it did."""


class _Standing(NamedTuple):
    """The last event of a line at a cut: its step and digest, and whether the session goes on."""

    step: int
    digest: bytes
    is_live: bool


def position_at(log: EventLog, info: SessionInfo, cut: Cut) -> SessionPosition | None:
    """Where the session stood at the cut; None where it had not begun, or had ended by then.

    A line that others add to meanwhile is read as it was. Raises `CheckpointError` where the cut
    covers a part of the line from which it could not be gone on, and what reading raises.
    """
    standing = _standing_at(log, info, cut)
    if standing is None or not standing.is_live:
        return None
    return SessionPosition(
        standing.step,
        standing.digest,
        _state_digest(log, info, standing),
        _fork_event(log, info, cut),
    )


def misplaced_sessions(log: EventLog, entry: SetEntry) -> Iterator[Misplaced]:
    """The training session and the set's sessions that the log does not have where the set has
    them, whatever their lines are now.

    Raises what reading raises where that says nothing of the set, as of a log that is unavailable.
    """
    places = [(entry.training, entry.step, entry.event_digest)]
    places += [(name, one.step, one.event_digest) for name, one in entry.sessions.items()]
    for name, step, digest in places:
        try:
            found = next(iter(log.read_session(name, step, step + 1, through=digest)), None)
        except (SessionNotFoundError, StepNotFoundError, IntegrityError) as error:
            yield Misplaced(name, step, error.message, error)
            continue
        if found is None or found.digest != digest or found.prefix.step != step:
            yield Misplaced(name, step, "another event stands there")


def began_after(log: EventLog, session_id: str, cut: Cut) -> bool:
    """Whether the session's first own record lies past the cut."""
    first = next(iter(log.read_records(session_id)))
    return not cut.holds(first.partition, first.offset)


def is_untouched_since(log: EventLog, info: SessionInfo, cut: Cut) -> bool:
    """Whether nothing that stands in the session lies past the cut."""
    step = info.head.step
    head = next(iter(log.read_session(info.session_id, step, step + 1)))
    return cut.holds(head.partition, head.offset)


def extended_trees(
    log: EventLog, trees: Mapping[int, MerkleRoot], covered: Cut, cut: Cut
) -> dict[int, MerkleRoot]:
    """The trees over every record below `cut`, from those below `covered`; neither is changed.

    Reads what lies between the two. Raises `CheckpointError` where the log has fewer records than
    the trees, and what reading raises.
    """
    grown = {number: tree.copy() for number, tree in trees.items()}
    for record in records_between(log, covered, cut):
        grown.setdefault(record.partition, MerkleRoot()).add(record.data)
    missing = set(cut.partitions()) - set(grown)
    if missing:
        raise CheckpointError(
            f"the log has no record of partition {min(missing)}, which the cut covers",
            hint="open the workspace that the set was made in",
        )
    return {number: grown[number] for number in cut.partitions()}


def records_between(log: EventLog, covered: Cut, cut: Cut) -> Iterator[LogRecord]:
    """Every record at or past `covered` and below `cut`, in log order."""
    left = {number for number in cut.partitions() if cut.end(number) > covered.end(number)}
    if not left:
        return
    for record in log.tail_events(covered):
        if cut.holds(record.partition, record.offset):
            yield record
        elif record.partition in left:
            # Of a partition all after this lies past the cut too.
            left.discard(record.partition)
            if not left:
                return


def _standing_at(log: EventLog, info: SessionInfo, cut: Cut) -> _Standing | None:
    head = info.head
    record = next(iter(log.read_session(info.session_id, head.step, head.step + 1)))
    if record.digest == head.digest and cut.holds(record.partition, record.offset):
        return _Standing(head.step, head.digest, info.status in LIVE)
    return _judged_to(cut, info.session_id, log.read_records(info.session_id))


def _judged_to(cut: Cut, session_id: str, records: Iterable[LogRecord]) -> _Standing | None:
    """The line as the reader's rule has it after the records below the cut."""
    known: dict[bytes, KnownEvent] = {}
    line = SessionLine(session_id, known.get)
    for record in records:
        if not cut.holds(record.partition, record.offset):
            continue
        event = decode_record(record)
        verdict = line.accept(record.prefix, record.digest, event.body)
        if verdict.kind is VerdictKind.ACCEPTED:
            known[record.digest] = KnownEvent(event.step, event.attempt)
    state = line.state
    if not known:
        return None
    if state.error is not None:
        raise CheckpointError(
            f"the line of session {session_id!r} has an error at the cut: {state.error.message}",
            hint="run `steplog check`; leave the session out of the set",
        )
    return _Standing(state.next_step - 1, state.head, state.status in LIVE)


def _state_digest(log: EventLog, info: SessionInfo, standing: _Standing) -> bytes | None:
    """The digest of the state after the line's last event, as the line recorded it."""
    if info.state_coverage == "none":
        return None
    end = standing.step + 1
    while end > 0:
        start = max(0, end - STEPS_AT_ONCE)
        through = log.read_session(info.session_id, start, end, through=standing.digest)
        for record in reversed(list(through)):
            change = record.prefix.state_change
            if isinstance(change, StateChange):
                return change.digest
            if isinstance(change, StateUnknown):
                return None
            if record.prefix.step == 0:
                return _initial_digest(record)
        end = start
    return None


def _initial_digest(record: LogRecord) -> bytes | None:
    body = decode_record(record).body
    initial = body.initial_state if isinstance(body, SessionSeeded) else None
    return None if initial is None else initial.digest


def _fork_event(log: EventLog, info: SessionInfo, cut: Cut) -> bytes | None:
    if info.parent_step is None:
        return None
    record = next(iter(log.read_records(info.session_id)))
    if not cut.holds(record.partition, record.offset):
        raise CheckpointError(
            f"the cut does not cover the fork of branch {info.session_id!r}",
            hint="make the set anew",
        )
    return record.digest
