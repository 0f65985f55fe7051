"""The row of `head`: a session's line and summary as columns, sealed, and back."""

import math
import struct
from typing import Any, Final

from eventlog.canonical import decode, encode
from eventlog.event import LineHead, session_id_problem
from eventlog.keeping.kept_rows import KeptSession
from eventlog.line_state import LineState
from eventlog.log import SessionInfo
from eventlog.session_summary import SessionSummary
from eventlog.sqlite.seal import damaged, require_seal, seal_of

HEAD_FIELDS: Final = (
    *("number", "session", "step_count", "attempt", "digest", "writer", "first_step"),
    *("parent_session", "fork_parent", "closed", "lost", "released", "released_to", "accepted"),
    *("last_offset", "status", "environment", "task_id", "sample_id", "group_id", "policy"),
    *("reducer", "reducer_version", "state_coverage", "reward_bits", "reward_from"),
    *("first_time", "last_time", "summary", "seal", "reward"),
)
SELECT_HEAD: Final = f"SELECT {', '.join(HEAD_FIELDS)} FROM head"
_SEALED_HEAD: Final = slice(0, HEAD_FIELDS.index("seal"))


def head_values(kept: KeptSession) -> tuple[Any, ...]:
    """The row of `head` for a session, in the order of `HEAD_FIELDS`."""
    line, summary = kept.line, kept.summary
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
        encode(summary.to_value()),
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
        None,
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
    return KeptSession(row[0], row[1], line, summary_of(row[28]), row[14])


def summary_of(data: bytes) -> SessionSummary:
    """A stored summary. Raises `EventCorruptError` where it is not one."""
    value = decode(data)
    if not isinstance(value, list):
        raise damaged("a stored session summary is not one")
    return SessionSummary.from_value(value)
