"""`RestoredSet`: what a training that goes on from a set is told of it, and `RestoreInto`: what it
gives to be loaded into. Needs no torch."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypedDict

from snapshots.checkpoints.manifest import Manifest
from snapshots.checkpoints.set_entry import SetEntry
from snapshots.random_state import restore_random
from snapshots.training_state import TrainingState


class RestoreInto(TypedDict, total=False):
    """What a set is loaded into, as `TrainingRun.checkpoint` takes it; what is left out is left
    alone. `reseed` is for another number of ranks, and for the random states of a branch."""

    model: object
    optimizer: object
    scheduler: object
    data: object
    extra: Mapping[str, Any] | None
    generators: Mapping[str, object] | None
    reseed: int | None


class SessionsBack(NamedTuple):
    """What became of a training's sessions: see the attributes of `RestoredSet`."""

    sessions: Mapping[str, str]
    later_sessions: tuple[str, ...]
    unvoided_sessions: tuple[str, ...] = ()


class RestoredSet:
    """A set that a training goes on from."""

    def __init__(
        self,
        manifest: Manifest,
        entry: SetEntry,
        back: SessionsBack,
        parts: frozenset[str],
        progress: Any,
        states: Sequence[TrainingState],
        random: Any,
        generators: Mapping[str, object],
    ) -> None:
        self.step = manifest.training_step
        """The step in training after which it was saved."""
        self.set_id = manifest.id
        """Its id; also the checkpoint's."""
        self.entry = entry
        """Its place in the log, as its manifest has it."""
        self.sessions = back.sessions
        """Ids of the sessions to resume, each by the id of the session in the set: themselves, or
        the branches that were made of them."""
        self.later_sessions = back.later_sessions
        """The training's sessions that are left as they are: begun after the set's cut, or open or
        released now and not in the set, whichever attempt recorded them. In a training that
        branches, those it has already, as from a branching that was broken off."""
        self.unvoided_sessions = back.unvoided_sessions
        """Of `sessions` those that were voided after the cut: they are back as they were before."""
        self.progress = progress
        """What `checkpoint(progress=...)` was given: by this rank, where as many ranks restore as
        saved; else by all, where they gave the same; else None."""
        self.policy = entry.policy
        """The label of the policy version that these weights go by: the training's `policy` then.
        In a branch it is a label of the training branched from."""
        self.adopted = None if entry.adopted is None else Path(entry.adopted.folder)
        """The adopted folder, its files compared; None for a set with weights of its own."""
        self.parts = parts
        """What it holds of `model`, `optimizer`, `extra`, `scheduler` and `data`."""
        self._states = states
        self._random = random
        self._generators = generators

    @property
    def progress_of_ranks(self) -> tuple[Any, ...]:
        """What each rank that saved gave as progress, by rank; copies. Every rank has all of it."""
        return tuple(state.progress for state in self._states)

    def restore_random(self) -> None:
        """Set the random states once more: after whatever drew from them since, as `iter(loader)`
        does."""
        restore_random(self._random, self._generators)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.set_id} after step {self.step}>"
