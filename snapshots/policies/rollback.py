"""`roll_back`: an earlier policy version is in use again, for the log and for HEAD of its track.

The log is told first, HEAD follows it: killed in between, HEAD is behind and the log is right. So
the same call again completes it, and `settle_head` does for whoever publishes next.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from eventlog.errors import CheckpointError, ConfigError
from snapshots.checkpoint_store import CheckpointStore
from snapshots.policies.history import PolicyVersion, find_version
from snapshots.policies.notes import PolicyNotes, record_rollback

TRIES_MAX: Final = 16
"""How often HEAD is moved after a log in which others publish and go back meanwhile."""


class WentBack(NamedTuple):
    """What `roll_back` did: the version in use, the session that says so (None where the log said
    so before), and whether HEAD was moved.
    """

    version: PolicyVersion
    session: str | None
    moved: bool


def roll_back(
    notes: PolicyNotes,
    store: CheckpointStore,
    name: int | str,
    reason: str,
    *,
    clock_us: Callable[[], int],
) -> WentBack:
    """Go back to the version of this label, or number; `store` is the training's policy track.

    Its checkpoint is verified in place before anything is written. Idempotent: what is in use
    already is not recorded twice. Raises `ConfigError` for an unknown version or no reason,
    `CheckpointError` where its checkpoint is not there or another one, what the log raises.
    """
    if not reason.strip():
        raise ConfigError("no reason is given", hint="say why: whoever looks later reads it")
    target = find_version(notes.history(), name)
    store.verify_in_place(store.read_manifest(target.ref))
    session = None
    if not target.current:
        session = record_rollback(notes, target, reason, clock_us=clock_us)
    current, moved = settle_head(notes, store)
    if current is None or current.ref != target.ref:
        raise CheckpointError(
            f"version {target.label} was gone back to, and another published meanwhile: "
            f"{'none' if current is None else current.label} is in use",
            hint="stop the trainer that publishes, or go back once more",
            step=target.ref.training_step,
        )
    return WentBack(current, session, moved)


def settle_head(notes: PolicyNotes, store: CheckpointStore) -> tuple[PolicyVersion | None, bool]:
    """Move HEAD of the policy track to the version that the log says is in use, and read it again.

    The version, None before any was published, and whether HEAD had to be moved. Idempotent; for
    who publishes too, once the log has the publication. Raises `CheckpointError`.
    """
    moved = False
    for _ in range(TRIES_MAX):
        current = next((one for one in notes.history() if one.current), None)
        if current is None or store.head() == current.ref:
            return current, moved
        # Whoever publishes or goes back meanwhile tells the log first: so it is read once more.
        store.move_head(current.ref)
        moved = True
    raise CheckpointError(
        "the version in use changes all the while: HEAD was not settled",
        hint="see who publishes: one trainer at a time does",
    )
