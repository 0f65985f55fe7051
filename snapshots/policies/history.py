"""A training's policy versions, folded from what its log says: which one is in use, what each is
called. Pure.

A version is a number; its checkpoint lies in a track of its own (`track_of_policies`). The version
in use is the one published last, or the one gone back to after that. What was published after the
set that a training was restored to belongs to a past that was given up: it stays listed, and stands
no more.
"""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from eventlog.errors import ConfigError
from eventlog.policy_order import label_parts, label_text
from eventlog.training_facts import TRAINING_STEP_MAX
from eventlog.whole_number import whole_number
from snapshots.checkpoints.manifest import CheckpointRef

VERSION_MAX: Final = TRAINING_STEP_MAX
"""A version is the training step of its checkpoint, in a track of its own."""


class Published(NamedTuple):
    """That a version was published: its label and checkpoint, and when (microseconds UTC).

    `standing`: a later restore did not give it up.
    """

    version: int
    label: str
    ref: CheckpointRef
    time: int
    standing: bool


class RolledBack(NamedTuple):
    """That an operator went back to a version, in a session of its own.

    `published` is how many publications of the training the log had then: clocks do not say what
    came first, as the operator's may be behind the trainer's.
    """

    ref: CheckpointRef
    reason: str
    time: int
    published: int


class PolicyVersion(NamedTuple):
    """A version as a training's log has it. `current`: it is the one in use.

    `ref` is its checkpoint in the training's track of policy versions. `reason` is that of the
    going back that made it the one in use; None otherwise.
    """

    version: int
    label: str
    ref: CheckpointRef
    time: int
    standing: bool
    current: bool
    reason: str | None = None


def policy_history(
    published: Sequence[Published], rolled_back: Iterable[RolledBack]
) -> list[PolicyVersion]:
    """Every version in the order of publication; at most one is current.

    `published` in the order of the training session, `rolled_back` in the log's. A publication that
    one who went back did not know of came after it; of several who went back counts the one who
    knew of most, then the last.
    """
    standing = [index for index, one in enumerate(published) if one.standing]
    last = standing[-1] if standing else -1
    back = max(
        enumerate(rolled_back),
        key=lambda pair: (pair[1].published, pair[1].time, pair[0]),
        default=(0, None),
    )[1]
    current, reason = published[last].ref if standing else None, None
    if back is not None and back.published > last:
        current, reason = back.ref, back.reason
    listed: dict[CheckpointRef, PolicyVersion] = {}
    for one in published:
        is_current = one.ref == current
        # Published again as it was, it is the same version, at the later time.
        listed[one.ref] = PolicyVersion(
            one.version,
            one.label,
            one.ref,
            one.time,
            one.standing,
            is_current,
            reason if is_current else None,
        )
    return list(listed.values())


def find_version(history: Sequence[PolicyVersion], name: int | str) -> PolicyVersion:
    """The version of this label, as sessions name it; or of this number, the last that stands.

    A number that was published once is the label too. Raises `ConfigError` where there is none.
    """
    if isinstance(name, str):
        found = [one for one in history if one.label == name]
    else:
        number = require_version(name)
        found = [one for one in history if one.version == number]
        found = [one for one in found if one.standing] or found
    if found:
        return found[-1]
    known = ", ".join(one.label for one in history[-8:]) or "none"
    raise ConfigError(
        f"no policy version {str(name)!r} was published",
        hint=f"the last ones are: {known}; `steplog policy list` has all",
    )


def label_of(published: Iterable[Published], version: int, manifest: str, attempt: int) -> str:
    """The label under which a version is published now, by the `attempt` of the training.

    It is the number, unless that was published before with another checkpoint: then `12~3`, with a
    number from the attempt on that no other has. Raises `ConfigError` for a version out of bounds.
    """
    require_version(version)
    same = [one for one in published if one.version == version]
    for one in same:
        if one.ref.digest == manifest:
            return one.label
    if not same:
        return label_text(version, 0)
    taken = [parts[1] for one in same if (parts := label_parts(one.label)) is not None]
    return label_text(version, max(attempt, 1 + max(taken)))


def require_version(version: object) -> int:
    """`version` as a number. Raises `ConfigError` where it is none of 0 to `VERSION_MAX`."""
    number = whole_number(version)
    if number is None or not 0 <= number <= VERSION_MAX:
        raise ConfigError(
            f"a policy version is a number of 0 to {VERSION_MAX}, not {version!r}",
            hint="count them: the training step does too",
        )
    return number
