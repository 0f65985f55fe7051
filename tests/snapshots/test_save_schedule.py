"""When a checkpoint is due: grids of steps, in phases, whatever was saved before."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventlog.errors import ConfigError
from snapshots.save_schedule import SaveSchedule

PHASES = st.lists(
    st.tuples(st.integers(0, 60), st.integers(1, 25)),
    min_size=1,
    max_size=4,
    unique_by=lambda p: p[0],
).map(lambda phases: [(0, phases[0][1]), *sorted(p for p in phases[1:] if p[0] > 0)])


def saved(schedule: SaveSchedule, last_step: int, *, first: int = 0) -> list[int]:
    """The steps that a training saves, asked at every step after `first`, where it began."""
    steps: list[int] = []
    last = first or None
    for step in range(first + 1, last_step + 1):
        if schedule.is_due(step, last):
            steps.append(step)
            last = step
    return steps


@pytest.mark.parametrize(
    ("interval", "steps"),
    [
        (3, [3, 6, 9, 12]),
        (1, list(range(1, 15))),
        (20, []),
        ([(0, 2), (6, 4)], [2, 4, 6, 10, 14]),
        ([[0, 4], [6, 3]], [4, 9, 12]),
        ([(0, 100), (5, 2)], [7, 9, 11, 13]),
    ],
)
def test_which_steps_are_saved(interval: Any, steps: list[int]) -> None:
    assert saved(SaveSchedule(interval), 14) == steps


def test_a_step_that_was_passed_over_is_made_up_for() -> None:
    schedule = SaveSchedule(100)
    assert schedule.is_due(250, 100)
    assert not schedule.is_due(299, 250)
    assert schedule.is_due(300, 250)
    assert not schedule.is_due(250, 250)
    assert not schedule.is_due(100, 300)
    assert not schedule.is_due(0)


@given(PHASES, st.integers(0, 80))
def test_a_resumed_training_saves_at_the_same_steps(phases: Any, stop: int) -> None:
    schedule = SaveSchedule(phases)
    whole = saved(schedule, 120)
    before = [step for step in whole if step <= stop]
    assert before + saved(schedule, 120, first=before[-1] if before else 0) == whole
    for step in range(100):
        assert schedule.next_due(step) == min(
            [s for s in saved(schedule, 400) if s > step], default=None
        )


@pytest.mark.parametrize(
    "interval",
    [0, -1, True, 2.0, "5", None, [], [(0, 0)], [(1, 5)], [(0, 5), (0, 6)],
     [(0, 5), (9, 5), (7, 1)], [(0,)], [0, 5], [(0, True)], {0: 5}],
)  # fmt: skip
def test_what_is_no_schedule(interval: Any) -> None:
    with pytest.raises(ConfigError):
        SaveSchedule(interval)


def test_a_schedule_is_a_value() -> None:
    assert SaveSchedule([[0, 5]]) == SaveSchedule(5) == SaveSchedule([(0, 5)])
    assert hash(SaveSchedule(5)) == hash(SaveSchedule([(0, 5)]))
