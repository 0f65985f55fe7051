"""Loading what ranks saved, in one call each, as a restore does it in two."""

from collections.abc import Sequence

from snapshots.training_state import (
    TrainingState,
    data_for_rank,
    load_state,
    scheduler_for_rank,
)


def restore_scheduler(
    states: Sequence[TrainingState], rank: int, world_size: int, scheduler: object
) -> None:
    """Load into the scheduler what this rank goes on with."""
    load_state(scheduler, scheduler_for_rank(states, rank, world_size, scheduler), "scheduler")


def restore_data(
    states: Sequence[TrainingState],
    rank: int,
    world_size: int,
    data: object,
    *,
    reseed: int | None = None,
) -> None:
    """Load into the data source where this rank goes on."""
    load_state(data, data_for_rank(states, rank, world_size, data, reseed=reseed), "data")
