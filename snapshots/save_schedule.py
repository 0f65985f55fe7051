"""`SaveSchedule`: at which training steps a checkpoint is due. Pure: the trainer asks.

    SaveSchedule(500)                       500, 1000, 1500, ...
    SaveSchedule([(0, 100), (1000, 500)])   100, 200, ..., 1000, 1500, 2000, ...

The steps are a grid that each phase lays out from its first step on; it does not depend on when
was saved before, so a training that was resumed saves at the same steps as one that never stopped.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from eventlog.errors import ConfigError

_HINT = "give an int, or phases as [(from_step, interval), ...], the first from step 0"


@dataclass(frozen=True, slots=True, init=False)
class SaveSchedule:
    """A checkpoint every `interval` steps, in phases of `(from_step, interval)`.

    A phase ends with the step in which the next begins. Step 0 is never due.
    """

    phases: tuple[tuple[int, int], ...]

    def __init__(self, interval: int | Sequence[Sequence[int]]) -> None:
        """One interval, or phases. Raises `ConfigError`."""
        given = ((0, interval),) if isinstance(interval, int) else interval
        if not isinstance(given, list | tuple) or not given:
            raise ConfigError(f"the interval of saves is {interval!r}", hint=_HINT)
        phases: list[tuple[int, int]] = []
        for phase in given:
            if not isinstance(phase, list | tuple) or len(phase) != 2:
                raise ConfigError(f"{phase!r} is not a phase of saves", hint=_HINT)
            start, steps = phase
            if type(start) is not int or type(steps) is not int or steps < 1:
                raise ConfigError(
                    f"the interval of saves from step {start!r} on is {steps!r}", hint=_HINT
                )
            if start != 0 if not phases else start <= phases[-1][0]:
                raise ConfigError(f"the phase of saves from step {start} is misplaced", hint=_HINT)
            phases.append((start, steps))
        object.__setattr__(self, "phases", tuple(phases))

    def next_due(self, step: int) -> int:
        """The first step after `step` at which a checkpoint is due."""
        at = max(bisect_right(self.phases, step, key=lambda phase: phase[0]) - 1, 0)
        for number in range(at, len(self.phases)):
            start, interval = self.phases[number]
            passed = max(step - start, 0) // interval
            due = start + (passed + 1) * interval
            # A phase's own grid may leave out its end: the next one begins its own there.
            if number + 1 == len(self.phases) or due <= self.phases[number + 1][0]:
                return due
        raise AssertionError("the last phase has no end")

    def is_due(self, step: int, last_saved_step: int | None = None) -> bool:
        """Whether a step at which one is due was reached since the last save (None: none yet).

        True also where that step itself was passed over. Never for a step that was saved.
        """
        return step >= self.next_due(0 if last_saved_step is None else last_saved_step)
