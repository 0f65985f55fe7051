"""`SaveRules`: what would make a checkpoint set something other than its caller believes.

A fresh model saved over a training that has sets, what a restore that failed has left behind, a
step that goes back, an optimizer that was left out: each is committed without an error, and found
when it is restored.
"""

import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

from eventlog.errors import CheckpointError, ConfigError, FencedError
from eventlog.training_facts import TRAINING_STEP_MAX
from eventlog.whole_number import whole_number
from snapshots.checkpoints.set_entry import AdoptedFolder
from snapshots.sample_order import SampleOrder

_logger: Final = logging.getLogger("steplog.training")

SET: Final = "set"
POLICY_VERSION: Final = "policy version"
"""What is put into a training's objects."""


def require_step(step: object) -> int:
    """A training step as a number. Raises `TypeError`; `ConfigError` where it is out of bounds."""
    number = whole_number(step)
    if number is None:
        raise TypeError(f"a training step is an int, not {step!r}")
    if not 0 <= number <= TRAINING_STEP_MAX:
        raise ConfigError(
            f"a training step is 0 to {TRAINING_STEP_MAX}, not {number}", hint="count them from 0"
        )
    return number


class SetRequest(NamedTuple):
    """A set that is to be saved: what of it needs no torch. `parts`: which of `model`, `optimizer`,
    `extra`, `scheduler` and `data` it holds.
    """

    step: int
    sessions: Iterable[str] | None
    parts: frozenset[str]
    adopted: AdoptedFolder | None
    policy: str | None
    in_background: bool


class SaveRules:
    """What the saves of one claim of a training must keep to."""

    def __init__(self, training: str, *, fresh: bool) -> None:
        """`fresh`: the training begins anew, whatever sets it has."""
        self._training = training
        self._is_begun = fresh
        self._last_step: int | None = None
        self._parts: frozenset[str] = frozenset()
        self._has_warned = False
        self._failed: dict[str, str] = {}
        """What was not put in whole, and why: a `SET`, or a `POLICY_VERSION`."""

    @property
    def is_begun(self) -> bool:
        """Whether it is settled what the training goes on from."""
        return self._is_begun

    @property
    def last_step(self) -> int | None:
        """The step that was saved or restored last; None before."""
        return self._last_step

    def go_on_from(self, step: int, parts: frozenset[str]) -> None:
        """A set was restored, or saved: its step, and what it holds."""
        self._is_begun, self._last_step, self._parts = True, step, parts

    @contextmanager
    def putting_in(self, kind: str, name: str) -> Iterator[None]:
        """While a set or a policy version changes what is in memory: where that fails, nothing is
        saved of it until a set has been put in whole, or of policy versions one."""
        what = f"{kind} {name} was not put in whole"
        self._failed[kind] = f"{what}: it was broken off"
        try:
            yield
        except FencedError:
            # Nothing more is saved under this claim: the log says so, at each save.
            del self._failed[kind]
            raise
        except BaseException as error:
            self._failed[kind] = f"{what} ({type(error).__name__}: {error})"
            raise
        if kind == SET:
            self._failed.clear()
        else:
            del self._failed[kind]

    def require_whole(self) -> None:
        """Raise `CheckpointError` where what is in memory may be of two trainings."""
        for failure in self._failed.values():
            raise CheckpointError(
                f"training {self._training!r} may hold a mix of two trainings, of which nothing is "
                f"saved: {failure}",
                hint="call restore_latest (or restore, branch_from) again; or start this process "
                "anew",
            )

    def begin(self, newest: tuple[str, int] | None) -> None:
        """Settle that the training begins with nothing; `newest` is the id and step of its newest
        set. Raises `CheckpointError` where there is one."""
        if newest is not None:
            raise CheckpointError(
                f"training {self._training!r} has sets, the newest {newest[0]} after step "
                f"{newest[1]}, and goes on from none of them",
                hint="call restore_latest first; or begin anew: ws.training(..., fresh=True)",
                step=newest[1],
            )
        self._is_begun = True

    def warn_of_shares(self, data: object, world_size: int) -> None:
        """Warn, once, where every rank takes whole batches, and so each sample comes to all."""
        if isinstance(data, SampleOrder) and data.world_size == 1 < world_size:
            if not self._has_warned:
                _logger.warning(
                    "training %r: SampleOrder was made for one rank and there are %d: each takes "
                    "every sample; give it rank= and world_size=, or ignore this if that is meant",
                    self._training,
                    world_size,
                )
            self._has_warned = True

    def check(self, step: int, parts: frozenset[str]) -> None:
        """Raises `CheckpointError` where the step goes back; warns of what is left out."""
        last = self._last_step
        if last is not None and step < last:
            raise CheckpointError(
                f"training {self._training!r} stands at step {last}: a set of step {step} would "
                "be taken for the newest",
                hint="restore an earlier set to go back; count the steps on from restored.step",
                step=step,
            )
        missing = self._parts - parts
        if missing:
            _logger.warning(
                "training %r: this set lacks %s, which the set before it has",
                self._training,
                ", ".join(sorted(missing)),
            )
