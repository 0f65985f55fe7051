"""`SaveHandle`: one save of a checkpoint that may be under way, as its caller holds it.

Needs no torch. Made by the shard saver.
"""

from collections.abc import Callable
from concurrent.futures import Future
from typing import Final, NamedTuple

from snapshots.checkpoints.manifest import CheckpointRef, Manifest

Commit = Callable[[Manifest], CheckpointRef]
"""How rank 0 makes a checkpoint of a manifest, once all that it names is stored."""


def _nothing() -> None:
    pass


class SaveEnds(NamedTuple):
    """What rank 0 does when all is stored (None: commits it, and moves HEAD), and what where a save
    has failed."""

    commit: Commit | None = None
    give_up: Callable[[], None] = _nothing


AS_ALONE: Final = SaveEnds()
"""Of a checkpoint that belongs to nothing else."""


class SaveHandle:
    """One save under way."""

    def __init__(self, step: int, future: Future[CheckpointRef]) -> None:
        self._step = step
        self._future = future
        self._told = False

    @property
    def step(self) -> int:
        """The step in training that is saved."""
        return self._step

    @property
    def staged(self) -> bool:
        """Whether all values are copied, so that the state may change: from the start, here."""
        return True

    @classmethod
    def ended(cls, ref: CheckpointRef) -> "SaveHandle":
        """The handle of a save that is committed."""
        future: Future[CheckpointRef] = Future()
        future.set_result(ref)
        return cls(ref.training_step, future)

    @property
    def done(self) -> bool:
        """Whether the save has ended, well or not."""
        return self._future.done()

    @property
    def committed(self) -> CheckpointRef | None:
        """The checkpoint, None while the save is under way. Raises what it met."""
        return self.wait() if self._future.done() else None

    def guard(self) -> None:
        """Call it before `optimizer.step()`: raises what the save met so far, else returns at once.

        The values were copied before `save_async` returned, so there is nothing to wait for.
        """
        if self._future.done():
            self.wait()

    def wait(self, timeout_s: float | None = None) -> CheckpointRef:
        """The checkpoint, once it is committed. Raises what the save met (`CheckpointError`),
        `TimeoutError` where it is under way after `timeout_s` seconds."""
        error = self._future.exception(timeout_s)
        self._told = True
        if error is not None:
            raise error
        return self._future.result()

    def untold_error(self) -> BaseException | None:
        """The error that nobody was told of yet."""
        if self._told or not self._future.done() or self._future.cancelled():
            return None
        self._told = True
        return self._future.exception()
