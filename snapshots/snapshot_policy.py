"""`SnapshotPolicy`: when a snapshot of a session is due. Pure: who follows a session asks.

Policies are combined with `|`. `EveryN` looks at steps, `AtEnd` at the end of a session.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import NamedTuple


class Moment(NamedTuple):
    """Where a session stands: `step` is the one whose state would be kept.

    `snapshot_step` is the step of the newest snapshot on the standing line, None if there is none;
    `at_end`: the session ends with this step (closed, or the recorder lets go of it).
    """

    step: int
    snapshot_step: int | None = None
    at_end: bool = False


class SnapshotPolicy(ABC):
    """Says when a snapshot is due. Policies are values: equal, hashable, printable."""

    @abstractmethod
    def is_due(self, moment: Moment) -> bool:
        """Whether the state after `moment.step` should be kept now. Never twice for one step."""

    def __or__(self, other: "SnapshotPolicy") -> "SnapshotPolicy":
        """Due where either is."""
        return AnyOf((self, other))


@dataclass(frozen=True, slots=True)
class EveryN(SnapshotPolicy):
    """Due when `steps` steps or more were added since the last snapshot, or since the seed."""

    steps: int

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise ValueError(f"a snapshot every {self.steps} steps: must be at least 1")

    def is_due(self, moment: Moment) -> bool:
        """Whether the fold from the last snapshot (or the seed, step 0) is `steps` steps long."""
        return moment.step - (moment.snapshot_step or 0) >= self.steps


@dataclass(frozen=True, slots=True)
class AtEnd(SnapshotPolicy):
    """Due once when the session ends, so that its last state is found at once."""

    def is_due(self, moment: Moment) -> bool:
        """Whether the session ends here and this step has no snapshot yet."""
        return moment.at_end and moment.snapshot_step != moment.step


@dataclass(frozen=True, slots=True)
class AnyOf(SnapshotPolicy):
    """Due where one of `policies` says so; of none, never."""

    policies: tuple[SnapshotPolicy, ...]

    def is_due(self, moment: Moment) -> bool:
        """Whether any of the policies is due."""
        return any(policy.is_due(moment) for policy in self.policies)
