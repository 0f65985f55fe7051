"""Forks: a branch shares its parent's events up to a step, costs one event, and copies nothing."""

from collections.abc import Callable, Mapping

from eventlog.errors import StepNotFoundError
from eventlog.event import FIRST_ATTEMPT, LineHead
from eventlog.ids import mint_session_id
from eventlog.log import EventLog
from eventlog.recording.event_batch import append_fork


def fork_session(
    log: EventLog,
    session_id: str,
    step: int,
    *,
    name: str | None = None,
    changes: Mapping[str, str] | None = None,
    clock_us: Callable[[], int],
) -> str:
    """Begin a branch after `step`; returns its id (`name`, or a new UUIDv7).

    Nobody owns the branch until its first resume. Raises `SessionNotFoundError`,
    `StepNotFoundError`, `SessionExistsError` where the name is taken.
    """
    last = log.session_info(session_id).head.step
    if not 0 <= step <= last:
        raise StepNotFoundError(
            f"the session's steps are 0 to {last}",
            hint="fork at one of these",
            session_id=session_id,
            step=step,
        )
    fork_point = next(log.read_session(session_id, step, step + 1))
    branch_id = mint_session_id() if name is None else name
    at = LineHead(branch_id, step, FIRST_ATTEMPT, fork_point.digest)
    append_fork(log, at, session_id, changes or {}, "system", clock_us)
    return branch_id
