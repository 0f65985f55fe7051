"""`TrainingPolicies`: the part of a training's face that publishes policy versions, and goes back.

`TrainingRun` has it; every rank calls the same methods. What needs torch is behind `KeptPolicies`.
"""

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

from eventlog.recorder import SessionRecorder
from snapshots.policies.history import PolicyVersion
from snapshots.sets.save_rules import POLICY_VERSION, SaveRules
from snapshots.training_block import TrainingBlock


class KeptPolicies(Protocol):
    """What stores and loads versions for all ranks, as `PolicyKeeper` does."""

    def publish(self, version: int, model: object, recorder: SessionRecorder | None) -> str:
        """Keep the model as this version; its label."""

    def restore(
        self, name: int | str, model: object, putting_in: AbstractContextManager[None]
    ) -> PolicyVersion:
        """Load a version into the model, which is changed in `putting_in` alone."""

    def go_back(self, name: int | str, reason: str) -> PolicyVersion:
        """Make a version the one in use."""

    def label_in_use(self) -> str | None:
        """The version that the log says is in use; HEAD of the track follows it."""


class TrainingPolicies(TrainingBlock, ABC):
    """Publishing, loading and going back to policy versions. Not thread-safe."""

    _rules: SaveRules
    _recorder: SessionRecorder | None = None
    _policy: str | None = None

    @abstractmethod
    def _policy_keeper(self) -> KeptPolicies:
        """What stores this training's versions. Raises `ConfigError` outside of the block."""

    @property
    def policy(self) -> str | None:
        """The label of the policy version that this trainer's weights go by; None before any.

        That is the one it published last, the set's after a restore, the one it went back to with
        its model. An operator who goes back changes `policy_in_use`, and no weights of a trainer.
        """
        self._require_entered()
        return self._policy

    def policy_in_use(self) -> str | None:
        """The label of the version in use, as the log says now: published last, or gone back to
        since, by anyone; None before any. A collective."""
        return self._policy_keeper().label_in_use()

    def publish_policy(self, version: int, model: object) -> str:
        """Keep the model as a policy version, as what changed since an earlier one; a collective.

        Returns its label, by which calls name it (`ws.record(policy=...)`, `session.policy`): the
        number, or `12~3` where version 12 was published before with other weights, as a training
        that went back may do. Raises `CheckpointError` where a `checkpoint` would, as nothing was
        restored; `FencedError` where another trainer has claimed the training.
        """
        self._policy = self._policy_keeper().publish(version, model, self._recorder)
        return self._policy

    def restore_policy(self, version: int | str, model: object) -> str:
        """Load the weights of a published version into any model; its label. A collective.

        A text is the label; a number the version, of several labels the last that stands. `policy`
        stays: the model may be another one than is trained. Raises `CheckpointError` where it does
        not load; only where the model's own `load_state_dict` refuses it, may that be a mix then.
        """
        return self._policy_keeper().restore(version, model, nullcontext()).label

    def roll_back_policy(self, version: int | str, *, reason: str, model: object = None) -> str:
        """Make an earlier version the one in use, load it into `model` if given; its label.

        A collective. `policy` is that label only if the weights are: where `model` is given. Of one
        that does not load whole nothing is saved or published.
        """
        found = self._policy_keeper().go_back(version, reason)
        if model is not None:
            putting_in = self._rules.putting_in(POLICY_VERSION, found.label)
            self._policy_keeper().restore(found.label, model, putting_in)
            self._policy = found.label
        return found.label
