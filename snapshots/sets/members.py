"""`Members`: which sessions belong to a training, and where its live ones stood at a cut.

A trainer that starts anew may find open sessions of the attempt before: of environments that live
on in processes of their own, or of nobody any more, after a crash before the first set. The log
does not tell which; all are part of its sets, and those that nobody has gone on with are named in a
warning. Needs no torch.
"""

import logging
from collections.abc import Iterable, Iterator
from typing import Final

from eventlog.cut import Cut
from eventlog.errors import CheckpointError
from eventlog.event import FIRST_ATTEMPT
from eventlog.log import EventLog, SessionFilter, SessionInfo
from snapshots.checkpoints.set_entry import SessionPosition, SetEntry
from snapshots.sets.positions import LIVE, began_after, is_untouched_since, position_at

OWN_PREFIX: Final = "steplog."
"""Environments of steplog's own sessions begin so: a training is no session of itself."""

_logger: Final = logging.getLogger("steplog.training")


class Members:
    """The sessions of one training, as who claimed it finds them. Not thread-safe."""

    def __init__(self, log: EventLog, training: str) -> None:
        self._log = log
        self._training = training
        self._claimed_at = Cut.empty()
        self._ended: dict[str, bytes] = {}
        """Sessions that had ended by an earlier cut, each with its head then: not read again."""
        self._looked_at: set[str] = set()

    def remember_claim(self, attempt: int) -> None:
        """The training was claimed just now, under `attempt`: keep in mind where the log ends.

        Only of a training that had a trainer before can sessions be left over.
        """
        if attempt > FIRST_ATTEMPT:
            self._claimed_at = self._log.end_cut()

    def positions_at(
        self, cut: Cut, session_ids: Iterable[str] | None
    ) -> dict[str, SessionPosition]:
        """Where each session stood at the cut, of those that had begun and not ended by then.

        `session_ids` None: those that were recorded as this training's. Each call's cut covers the
        one before. Raises `SessionNotFoundError`;
        `CheckpointError` for a named session that was not live at the cut, or is steplog's own.
        """
        if session_ids is not None:
            return {name: _named_position(self._log, name, cut) for name in session_ids}
        positions: dict[str, SessionPosition] = {}
        for info in members_of(self._log, self._training):
            name, head = info.session_id, info.head.digest
            if self._ended.get(name) == head:
                continue
            position = position_at(self._log, info, cut)
            if position is None:
                if info.status == "closed" and not began_after(self._log, name, cut):
                    self._ended[name] = head
            else:
                positions[name] = position
                self._warn_if_left(info)
        return positions

    def _warn_if_left(self, info: SessionInfo) -> None:
        name = info.session_id
        if name in self._looked_at:
            return
        self._looked_at.add(name)
        if is_untouched_since(self._log, info, self._claimed_at):
            _logger.warning(
                "session %r was left open by an earlier attempt of training %r, and nobody has "
                "gone on with it since: it is in the checkpoint set; void or close it if its "
                "environment is gone, or name the sessions with sessions=",
                name,
                self._training,
            )


def is_own(environment: str) -> bool:
    """Whether sessions of this environment hold steplog's own books."""
    return environment.startswith(OWN_PREFIX)


def named_sessions(session_ids: Iterable[str]) -> list[str]:
    """The ids as a caller gave them. Raises `TypeError` for what are none."""
    if isinstance(session_ids, str):
        raise TypeError(f"sessions= takes ids, in a list, not the text {session_ids!r}")
    names = list(session_ids)
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"sessions= takes ids, not {name!r}")
    return names


def joined_sessions(by_rank: list[list[str] | None]) -> list[str] | None:
    """The ids that the ranks name, all together; None where none names any.

    Raises `CheckpointError` where some do and others leave it open.
    """
    named = [names for names in by_rank if names is not None]
    if named and len(named) < len(by_rank):
        raise CheckpointError(
            "some ranks name the sessions of the set, and others do not",
            hint="pass sessions= on every rank, also an empty list, or on none",
        )
    return list(dict.fromkeys(name for names in named for name in names)) if named else None


def members_of(log: EventLog, training: str) -> Iterator[SessionInfo]:
    """The training's sessions, steplog's own left out, in the order they began."""
    for info in log.list_sessions(SessionFilter(training_session=training)):
        if not is_own(info.environment):
            yield info


def members_beside(log: EventLog, entry: SetEntry) -> Iterator[str]:
    """The training's sessions that a restore of the set leaves as they are.

    Those that began after its cut, and those that are live now and not in it.
    """
    for info in members_of(log, entry.training):
        name = info.session_id
        if name in entry.sessions:
            continue
        if info.status in LIVE or began_after(log, name, entry.cut):
            yield name


def unvoided_by(log: EventLog, entry: SetEntry) -> Iterator[str]:
    """The set's sessions that were voided after its cut: going back sets that aside too."""
    for name, position in entry.sessions.items():
        voided = log.session_info(name).voided
        if voided is not None and voided > position.step:
            yield name


def _named_position(log: EventLog, name: str, cut: Cut) -> SessionPosition:
    info = log.session_info(name)
    if is_own(info.environment):
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
    return position
