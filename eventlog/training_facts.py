"""`TrainingFacts`: what a session's standing events tell of the training it belongs to.

Kept in every session's summary, so that the sessions of a bad policy version are found without
reading events. Bounded: of a session that names more than `POLICIES_KEPT_MAX` versions the rest is
only known to be there, and `facts_of` reads them all. Pure.
"""

from collections.abc import Iterable, Mapping, Sequence
from types import NoneType
from typing import Any, Final, NamedTuple

from eventlog.errors import ConfigError
from eventlog.event import (
    Annotated,
    Event,
    MessageAdded,
    SessionForked,
    SessionSeeded,
    ToolCalled,
    session_id_problem,
)
from eventlog.log import POLICIES_KEPT_MAX
from eventlog.stored_fields import require_types

SESSION_VOIDED: Final = "session_voided"
"""The name of the annotation that takes a session out of what is trained on."""

FORKED_FOR: Final = "training_session"
"""The entry of a fork's `changes` that names the training its branch belongs to."""

TRAINING_STEP_MAX: Final = 10**12 - 1
"""The largest step of a training: a checkpoint's folder has room for 12 digits."""


def require_training(training: object, training_step: int | None) -> None:
    """Raise `ConfigError` where this names no training session, or no step of one."""
    if training is not None:
        if not isinstance(training, str):
            raise TypeError(f"a training is named by its session's id, a str, not {training!r}")
        problem = session_id_problem(training)
        if problem is not None:
            raise ConfigError(
                f"the training session's id {problem}",
                hint="training= is the name that ws.training was given",
            )
    if training_step is not None and not 0 <= training_step <= TRAINING_STEP_MAX:
        raise ConfigError(
            f"a training step is 0 to {TRAINING_STEP_MAX}, not {training_step}",
            hint="give the step that the sampled policy stood at",
        )


class TrainingFacts(NamedTuple):
    """The training and its step that the seed names, and the policy versions that were used.

    `policies` are the distinct versions that the seed, calls and messages name, in that order;
    `policies_more`: there are others. `voided` is the step of the first `session_voided`.
    """

    training_session: str | None = None
    training_step: int | None = None
    policies: tuple[str, ...] = ()
    policies_more: bool = False
    voided: int | None = None

    @classmethod
    def of_seed(cls, seed: SessionSeeded) -> "TrainingFacts":
        """What the seed tells."""
        policies = () if seed.policy is None else (seed.policy,)
        return cls(seed.training_session, seed.training_step, policies)

    def naming(self, policy: str | None) -> "TrainingFacts":
        """After a call or message that names this version, if it names one."""
        if policy is None or policy in self.policies:
            return self
        if len(self.policies) < POLICIES_KEPT_MAX:
            return self._replace(policies=(*self.policies, policy))
        return self if self.policies_more else self._replace(policies_more=True)

    def branching(self, changes: Mapping[str, str]) -> "TrainingFacts":
        """Of a branch, which is a session of a training only if its fork says so.

        Somebody's trial beside a training must not be taken for a part of it.
        """
        return self._replace(training_session=changes.get(FORKED_FOR), training_step=None)

    def voiding(self, step: int) -> "TrainingFacts":
        """After a `session_voided` at this step."""
        return self if self.voided is not None else self._replace(voided=step)

    def to_value(self) -> list[object]:
        """A flat list of plain values for storage. See `from_value`."""
        return [self[0], self[1], list(self[2]), self[3], self[4]]

    @classmethod
    def from_value(cls, value: Sequence[Any]) -> "TrainingFacts":
        """The facts that `to_value` gave. Raises `TypeError` or `ValueError`."""
        training, step, policies, more, voided = require_types(value, _STORED_TYPES)
        require_types(policies, (str,) * len(policies))
        if len(policies) > POLICIES_KEPT_MAX or (more and len(policies) < POLICIES_KEPT_MAX):
            raise ValueError(f"{len(policies)} policy versions, more: {more}")
        return cls(training, step, tuple(policies), more, voided)


_STORED_TYPES: Final = (
    (str, NoneType),
    (int, NoneType),
    (list, tuple),
    bool,
    (int, NoneType),
)


def facts_of(events: Iterable[Event]) -> TrainingFacts:
    """The facts of a whole standing line, with every version however many there are."""
    facts = TrainingFacts()
    policies: dict[str | None, None] = {}
    for event in events:
        body = event.body
        if isinstance(body, SessionSeeded):
            facts = TrainingFacts.of_seed(body)
            policies[body.policy] = None
        elif isinstance(body, SessionForked):
            facts = facts.branching(body.changes)
        elif isinstance(body, ToolCalled):
            policies[body.policy] = None
        elif isinstance(body, MessageAdded):
            policies[body.policy_first] = policies[body.policy_last] = None
        elif isinstance(body, Annotated) and body.name == SESSION_VOIDED:
            facts = facts.voiding(event.step)
    return facts._replace(policies=tuple(name for name in policies if name is not None))
