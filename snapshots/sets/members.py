"""Which sessions belong to a training, and where its live ones stood at a cut. Needs no torch."""

from collections.abc import Iterable, Iterator, MutableMapping

from eventlog.cut import Cut
from eventlog.errors import CheckpointError
from eventlog.log import EventLog, SessionFilter, SessionInfo
from snapshots.sets.positions import began_after, position_at
from snapshots.sets.record import SessionPosition

OWN_PREFIX = "steplog."
"""Environments of steplog's own sessions begin so: a training is no session of itself."""


Ended = MutableMapping[str, bytes]
"""Sessions that had ended by an earlier cut, each with its head then: not read again."""


def live_positions(
    log: EventLog, training: str, session_ids: Iterable[str] | None, cut: Cut, ended: Ended
) -> dict[str, SessionPosition]:
    """Where each session stood at the cut, of those that had begun and not ended by then.

    `session_ids` None: those that were recorded as this training's. `ended` is what earlier calls
    have found, for later cuts only. Raises `SessionNotFoundError`; `CheckpointError` for a named
    session that was not live at the cut, or is steplog's own.
    """
    positions: dict[str, SessionPosition] = {}
    if session_ids is None:
        for info in members_of(log, training):
            name, head = info.session_id, info.head.digest
            if ended.get(name) == head:
                continue
            position = position_at(log, info, cut)
            if position is not None:
                positions[name] = position
            elif info.status == "closed" and not began_after(log, name, cut):
                ended[name] = head
        return positions
    for name in session_ids:
        info = log.session_info(name)
        if info.environment.startswith(OWN_PREFIX):
            raise CheckpointError(
                f"session {name!r} is one of steplog's own ({info.environment}): a restore would "
                "take it from whoever trains",
                hint="name sessions of environments",
                session_id=name,
            )
        position = position_at(log, info, cut)
        if position is None:
            raise CheckpointError(
                f"session {name!r} is {info.status}: it has no part in a checkpoint set",
                hint="name sessions that are recorded and go on",
                session_id=name,
            )
        positions[name] = position
    return positions


def members_of(log: EventLog, training: str) -> Iterator[SessionInfo]:
    """The training's sessions, steplog's own left out, in the order they began."""
    for info in log.list_sessions(SessionFilter(training_session=training)):
        if not info.environment.startswith(OWN_PREFIX):
            yield info
