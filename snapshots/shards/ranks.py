"""`Ranks`: the processes of one training, and what rank 0 does for all of them.

Over a gloo group of its own, so that nothing here waits for, or takes the place of, the training's
collectives. Without an initialised process group there is one rank, and nothing is sent. Imports
torch, which steplog itself never needs.
"""

from collections.abc import Callable
from datetime import timedelta
from typing import TypeVar

import torch.distributed as dist
from torch.distributed.checkpoint.api import CheckpointException

from eventlog.errors import CheckpointError, SteplogError
from snapshots.checkpoints.limits import COLLECTIVE_TIMEOUT_S

T = TypeVar("T")
Group = dist.ProcessGroup | None
"""Where ranks meet; None where there is one rank, by itself."""


class Ranks:
    """Rank and world size, and questions that all ranks answer together. Not thread-safe."""

    def __init__(self, timeout_s: float = COLLECTIVE_TIMEOUT_S) -> None:
        """In a process group this is a collective: all its ranks make theirs together."""
        self._timeout_s = timeout_s
        self.group = _new_group(timeout_s)
        self.rank = 0 if self.group is None else dist.get_rank()
        self.world_size = 1 if self.group is None else dist.get_world_size()

    def ask(self, answer: Callable[[], T]) -> T:
        """What `answer()` gives on rank 0, where alone it runs; a collective.

        What it raises is raised in all ranks: a `SteplogError` as it is, anything else as it is on
        rank 0 and as `CheckpointError` on the others.
        """
        if self.group is None:
            return answer()
        told: list[tuple[T | None, SteplogError | None]] = [(None, None)]
        raised: BaseException | None = None
        if self.rank == 0:
            try:
                told = [(answer(), None)]
            except SteplogError as error:
                told, raised = [(None, error)], error
            except BaseException as error:  # noqa: BLE001  (the others must not wait for it)
                told, raised = [(None, _failure(0, error))], error
        self._send(told)
        if raised is not None:
            raise raised
        value, failure = told[0]
        if failure is not None:
            raise failure
        return value  # type: ignore[return-value]  # rank 0's own, which is a T

    def agree(self, act: Callable[[], T]) -> T:
        """What `act()` gives on this rank, once it has ended well on all; a collective.

        Where it raises on any rank, all raise: each its own error, or else the first rank's.
        """
        if self.group is None:
            return act()
        mine: BaseException | None = None
        try:
            value = act()
        except BaseException as error:  # noqa: BLE001  (the others must not wait for it)
            mine = error
        told = None if mine is None else _as_ours(self.rank, mine)
        failures = self.gather(told)
        if mine is not None:
            raise mine
        first = next((one for one in failures if one is not None), None)
        if first is not None:
            raise first
        return value

    def gather(self, value: T) -> list[T]:
        """Every rank's value, by rank; a collective."""
        if self.group is None:
            return [value]
        found: list[T] = [value] * self.world_size
        try:
            dist.all_gather_object(found, value, group=self.group)
        except RuntimeError as error:
            raise _silence(error) from error
        return found

    def another_group(self) -> Group:
        """A group of the same ranks for a thread that talks while another does; a collective."""
        return None if self.group is None else _new_group(self._timeout_s)

    def _send(self, told: list[tuple[T | None, SteplogError | None]]) -> None:
        try:
            dist.broadcast_object_list(told, src=0, group=self.group)
        except RuntimeError as error:
            raise _silence(error) from error


def _new_group(timeout_s: float) -> Group:
    if not (dist.is_available() and dist.is_initialized()):
        return None
    try:
        group = dist.new_group(backend="gloo", timeout=timedelta(seconds=timeout_s))
    except RuntimeError as error:
        raise _silence(error) from error
    return group if isinstance(group, dist.ProcessGroup) else None


def pass_interrupt_on(error: CheckpointException, rank: int) -> None:
    """Raise what ends this rank's program, where torch has wrapped it as a failure of the rank's.

    That is Ctrl-C, or the `SystemExit` of a signal handler: none of it is for an `except` that
    waits for errors. The other ranks are told that this one failed.
    """
    failure = error.failures.get(rank)
    if failure is not None and not isinstance(failure[0], Exception):
        raise failure[0]


def _as_ours(rank: int, error: BaseException) -> SteplogError:
    return error if isinstance(error, SteplogError) else _failure(rank, error)


def _failure(rank: int, error: BaseException) -> CheckpointError:
    return CheckpointError(
        f"rank {rank} failed: {type(error).__name__}: {error}",
        hint="see what that rank says; then start all ranks again",
    )


def _silence(error: RuntimeError) -> CheckpointError:
    return CheckpointError(
        f"a rank is gone, or did not answer: {error}", hint="start all ranks again"
    )
