"""When snapshots are due: every N steps, at the end, and both."""

import pickle

import pytest

from snapshots.snapshot_policy import AnyOf, AtEnd, EveryN, Moment, SnapshotPolicy


def taken(policy: SnapshotPolicy, last_step: int) -> list[int]:
    """The steps at which a session of this length is kept."""
    steps: list[int] = []
    for step in range(last_step + 1):
        kept = steps[-1] if steps else None
        if policy.is_due(Moment(step, kept, at_end=step == last_step)):
            steps.append(step)
    return steps


@pytest.mark.parametrize(
    ("policy", "last_step", "steps"),
    [
        (EveryN(1), 3, [1, 2, 3]),
        (EveryN(3), 10, [3, 6, 9]),
        (EveryN(3), 2, []),
        (AtEnd(), 5, [5]),
        (AtEnd(), 0, [0]),
        (EveryN(3) | AtEnd(), 7, [3, 6, 7]),
        (EveryN(3) | AtEnd(), 6, [3, 6]),
        (AnyOf(()), 6, []),
    ],
)
def test_which_steps_are_kept(policy: SnapshotPolicy, last_step: int, steps: list[int]) -> None:
    assert taken(policy, last_step) == steps


def test_steps_that_came_in_one_batch_are_not_missed() -> None:
    """A batch may jump over a multiple of N: the distance counts, not the step number."""
    assert not EveryN(10).is_due(Moment(9))
    assert EveryN(10).is_due(Moment(13))
    assert not EveryN(10).is_due(Moment(20, 13))
    assert EveryN(10).is_due(Moment(23, 13))


def test_a_step_is_never_due_twice() -> None:
    for policy in (EveryN(1), AtEnd(), EveryN(1) | AtEnd()):
        assert not policy.is_due(Moment(4, 4, at_end=True))


@pytest.mark.parametrize("steps", [0, -1])
def test_an_interval_below_one_is_refused(steps: int) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        EveryN(steps)


def test_policies_are_values() -> None:
    both = EveryN(256) | AtEnd()
    assert both == AnyOf((EveryN(256), AtEnd()))
    assert len({both, EveryN(256) | AtEnd()}) == 1
    assert pickle.loads(pickle.dumps(both)) == both
    assert "EveryN(steps=256)" in repr(both)
