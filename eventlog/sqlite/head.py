"""The row of `head`: a session's line and summary as columns, sealed, and back.

What a line has beside its columns (its first error, counts of what was skipped) only the reader of
somebody else's log ever meets. Where there is some, it is kept behind the summary in the same blob.
"""

import math
import struct
from typing import Any, Final

from eventlog.canonical import decode, encode
from eventlog.event import LineHead, session_id_problem
from eventlog.keeping.kept_rows import KeptSession
from eventlog.line_state import LineCounts, LineState
from eventlog.log import SessionInfo
from eventlog.session_summary import SessionSummary, facts_to_show, training_of
from eventlog.sqlite.seal import damaged, require_seal, seal_of
from eventlog.training_facts import TrainingFacts

HEAD_FIELDS: Final = (
    *("number", "session", "step_count", "attempt", "digest", "writer", "first_step"),
    *("parent_session", "fork_parent", "closed", "lost", "released", "released_to", "accepted"),
    *("last_offset", "status", "environment", "task_id", "sample_id", "group_id", "policy"),
    *("reducer", "reducer_version", "state_coverage", "reward_bits", "reward_from"),
    *("first_time", "last_time", "summary", "seal", "reward"),
)
SELECT_HEAD: Final = f"SELECT {', '.join(HEAD_FIELDS)} FROM head"
_SEALED_HEAD: Final = slice(0, HEAD_FIELDS.index("seal"))
_NO_COUNTS: Final = LineCounts()
_PAIR_HEADER: Final = encode([None, None])[:1]
"""The first byte of an array of two: a summary alone has more fields than one byte can say."""
_NO_FACTS: Final = TrainingFacts()
_NO_FACTS_END: Final = encode(_NO_FACTS.to_value())
"""What a summary ends with of which there are none: such a row need not be decoded for them."""


def head_values(kept: KeptSession, *, with_trouble: bool = False) -> tuple[Any, ...]:
    """The row of `head` for a session, in the order of `HEAD_FIELDS`.

    `with_trouble`: also what has no column of its own.
    """
    line, summary = kept.line, kept.summary
    value: list[object] = summary.to_value()
    if with_trouble and has_trouble(line):
        value = [value, line._replace(position=0, skipped=()).to_value()]
    reward = summary.reward
    row = (
        kept.number,
        kept.session_id,
        line.next_step,
        line.attempt,
        line.head,
        line.writer,
        line.first_step,
        line.parent_session,
        line.fork_parent,
        line.closed,
        line.lost,
        int(line.released),
        line.released_to,
        line.accepted,
        kept.last_offset,
        line.status,
        *summary.seed,
        None if reward is None else struct.pack(">d", reward),
        summary.reward_from,
        summary.first_time,
        summary.last_time,
        encode(value),
    )
    return (*row, seal_of(row), reward)


def checked_head(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """A row of `head`, its seal checked."""
    # A damaged row may hold a value of any type where the id was: then it names no session.
    usable = type(row[1]) is str and session_id_problem(row[1]) is None
    name = row[1] if usable else None
    require_seal(row[_SEALED_HEAD.stop], row[_SEALED_HEAD], "a session", session_id=name)
    reward = row[-1]
    if row[24] is not None:
        # SQLite keeps NaN as NULL and the sign of zero not at all; the bits are the reward.
        exact = struct.unpack(">d", row[24])[0]
        if not (exact == reward or (math.isnan(exact) and reward is None)):
            raise damaged("the reward of a session is not what was written", session_id=row[1])
    return row


def info_of(row: tuple[Any, ...]) -> SessionInfo:
    """A checked row of `head` as what a listing shows."""
    return SessionInfo(
        row[1],
        row[16],
        row[17],
        row[18],
        row[19],
        row[20],
        row[21],
        row[22],
        row[23],
        row[2],
        row[3],
        row[15],
        row[5],
        None if row[24] is None else struct.unpack(">d", row[24])[0],
        row[25],
        row[26],
        row[27],
        LineHead(row[1], row[2] - 1, row[3], row[4]),
        row[7],
        None if row[7] is None else row[6] - 1,
        _error_in(row[28]),
        *_training_in(row),
    )


def kept_of(row: tuple[Any, ...]) -> KeptSession:
    """A checked row of `head` as what a writer goes on from."""
    line = LineState(
        next_step=row[2],
        head=row[4],
        attempt=row[3],
        writer=row[5],
        first_step=row[6],
        parent_session=row[7],
        fork_parent=row[8],
        closed=row[9],
        lost=row[10],
        released=bool(row[11]),
        released_to=row[12],
        accepted=row[13],
    )
    value, whole = _parts_of(row[28])
    if whole is not None:
        line = line._replace(error=whole.error, counts=whole.counts, first_bad=whole.first_bad)
    return KeptSession(row[0], row[1], line, SessionSummary.from_value(value), row[14])


def has_trouble(line: LineState) -> bool:
    """Whether a record of the session was ever skipped, or stopped its line."""
    return line.counts != _NO_COUNTS or line.error is not None or line.first_bad is not None


def summary_of(data: bytes) -> SessionSummary:
    """A stored summary. Raises `EventCorruptError` where it is not one."""
    return SessionSummary.from_value(_list_in(data))


def _error_in(data: bytes) -> str | None:
    """The error that stopped the line, in words; most rows need not be decoded for that."""
    if data[:1] != _PAIR_HEADER:
        return None
    whole = _parts_of(data)[1]
    return None if whole is None or whole.error is None else str(whole.error)


def _training_in(row: tuple[Any, ...]) -> TrainingFacts:
    """What the row's summary tells of training, as a listing shows it."""
    data: bytes = row[28]
    if data.endswith(_NO_FACTS_END):
        return _NO_FACTS
    try:
        return facts_to_show(training_of(_parts_of(data)[0]), row[20])
    except (TypeError, ValueError) as error:
        raise damaged(f"a stored session summary is not one: {error}") from error


def _parts_of(data: bytes) -> tuple[list[Any], LineState | None]:
    """The summary's value, and the whole line where it has trouble."""
    value = _list_in(data)
    if data[:1] != _PAIR_HEADER:
        return value, None
    summary, line = value
    if not isinstance(summary, list) or not isinstance(line, list):
        raise damaged("a stored session summary is not one")
    return summary, LineState.from_value(line)


def _list_in(data: bytes) -> list[Any]:
    value = decode(data)
    if not isinstance(value, list):
        raise damaged("a stored session summary is not one")
    return value
