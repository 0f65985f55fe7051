"""Bringing the sessions of a checkpoint set back to where they stood, in the log.

A claim per session, under the training's own attempt: of two trainers that restore at once the
older gives up. Each is released again, so that whichever process runs its environment resumes it
without fencing anyone; that process then sees the open calls. Used by trainings; needs no torch.
"""

from contextlib import suppress
from typing import Final

from eventlog.errors import CheckpointError, FencedError
from eventlog.event import FIRST_ATTEMPT, LineHead, Restore
from eventlog.ids import mint_session_id
from eventlog.log import EventLog
from eventlog.recording.event_batch import append_fork
from eventlog.recording.session_writer import wall_clock_us
from eventlog.training_facts import FORKED_FOR
from snapshots.checkpoints.set_entry import SetEntry
from snapshots.sets.journal import ACTOR
from snapshots.sets.positions import misplaced_sessions

REASON: Final = "restore"
"""The reason of a claim that brings a session back."""


def require_same_log(log: EventLog, set_id: str, entry: SetEntry) -> None:
    """Raise `CheckpointError` naming a session that this log does not have as the set has it.

    A set restored over another log would tie weights to events they never came from.
    """
    for session_id, step, why, error in misplaced_sessions(log, entry):
        raise CheckpointError(
            f"set {set_id} is not of this log: session {session_id!r} at step {step}: {why}",
            hint="open the workspace that the set was made in",
            session_id=session_id,
            step=step,
        ) from error


def rewind_sessions(log: EventLog, entry: SetEntry, attempt: int) -> None:
    """Take every session of the set back to its place, and release it.

    `attempt` is the training's claim under which this is done. Raises `FencedError` where a later
    restore of the training has claimed one; then none is changed in a local log.
    """
    if not entry.sessions:
        return
    log.take_over(
        list(entry.sessions),
        stands_on={name: one.event_digest for name, one in entry.sessions.items()},
        reason=REASON,
        restore=Restore(entry.training, attempt),
    )
    for name in entry.sessions:
        # Its own process may have taken it up already, where it was rewound to. Another restore
        # has claimed the training before: this one's next note in the training session fails.
        with suppress(FencedError):
            log.release(name)


def fork_sessions(log: EventLog, entry: SetEntry, training: str) -> dict[str, str]:
    """Begin a branch of every session of the set where it stood, for another training.

    The sessions themselves go on undisturbed. Returns each branch's id by its session's.
    """
    return {
        name: _fork(log, name, one.step, one.event_digest, training)
        for name, one in entry.sessions.items()
    }


def _fork(log: EventLog, session_id: str, step: int, digest: bytes, training: str) -> str:
    branch_id = mint_session_id()
    at = LineHead(branch_id, step, FIRST_ATTEMPT, digest)
    append_fork(log, at, session_id, {FORKED_FOR: training}, ACTOR, wall_clock_us)
    return branch_id
