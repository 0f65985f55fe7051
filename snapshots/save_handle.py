"""`SaveHandle`: one save of a checkpoint that may be under way, as its caller holds it.

What it met is raised; where nobody is left who could be told, it is logged. Needs no torch. Made by
the shard saver.
"""

import logging
import os
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from threading import TIMEOUT_MAX
from typing import Final, NamedTuple

from snapshots.checkpoints.manifest import CheckpointRef, Manifest

_logger: Final = logging.getLogger("steplog.checkpoints")

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
        # Called when nobody holds the handle any more, or the program ends; detached when told.
        self._last_word = weakref.finalize(self, _log_lost, step, future, os.getpid())

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
        `TimeoutError` where it is under way after `timeout_s` seconds; `ValueError` where these are
        no number from 0 on."""
        if timeout_s is not None:
            is_number = isinstance(timeout_s, int | float) and not isinstance(timeout_s, bool)
            if not is_number or not timeout_s >= 0:
                raise ValueError(f"timeout_s must be 0 or more seconds, or None, not {timeout_s!r}")
            timeout_s = min(timeout_s, TIMEOUT_MAX)
        try:
            error = self._future.exception(timeout_s)
        except TimeoutError:
            raise TimeoutError(
                f"the save of step {self._step} is still under way after {timeout_s:g} s"
            ) from None
        self._last_word.detach()
        if error is not None:
            raise error
        return self._future.result()

    def untold_error(self) -> BaseException | None:
        """The error that nobody was told of yet."""
        if not self._future.done() or self._future.cancelled() or not self._last_word.detach():
            return None
        return self._future.exception()

    def log_untold_error(self) -> None:
        """Log the error that nobody was told of yet: who was to be is told of another."""
        self._last_word()


def _log_lost(step: int, future: Future[CheckpointRef], process: int) -> None:
    """Log what a save met; or that it is lost, where the program ends before it."""
    if process != os.getpid() or future.cancelled():  # in a child it is its parent's
        return
    if not future.done():
        _logger.warning("the save of step %d is lost: the program ended before it", step)
    elif (error := future.exception()) is not None:
        _logger.warning(
            "the save of step %d in the background failed, and nobody asked its handle: %s",
            step,
            error,
        )
