"""What is met once a checkpoint is committed: told as that, never as a save that failed.

Old ones that cannot be taken away are no fault of the save: the training goes on, and a warning
says what is in the way. Used by the shard saver and by what keeps a training's sets.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from eventlog.errors import CheckpointError, SteplogError
from snapshots.checkpoints.manifest import CheckpointRef

_logger: Final = logging.getLogger("steplog.checkpoints")


@contextmanager
def committed_all_the_same(ref: CheckpointRef, what: str, then: str) -> Iterator[None]:
    """Let whatever is raised say that the checkpoint is committed, but `what`.

    `then` says what that leaves. Raises `CheckpointError`.
    """
    try:
        yield
    except Exception as error:
        why, hint = _told(error)
        raise CheckpointError(
            f"set {ref.id} is committed, but {what}: {why}",
            hint=f"{hint}; {then}",
            step=ref.training_step,
        ) from error


class RetentionFaults:
    """What retention met after the commits of one saver. Not thread-safe."""

    def __init__(self) -> None:
        self._warned: set[str] = set()

    @contextmanager
    def warned(self, ref: CheckpointRef) -> Iterator[None]:
        """Warn of what stops retention: once each text, until it has ended well again."""
        try:
            yield
        except Exception as error:
            why, hint = _told(error)
            if why not in self._warned:
                self._warned.add(why)
                trace = None if isinstance(error, SteplogError) else error
                _logger.warning(
                    "checkpoint %s is committed, but older ones could not be taken away, and are "
                    "not until this is mended: %s (%s)",
                    *(ref.id, why, hint),
                    exc_info=trace,
                )
        else:
            self._warned.clear()


def _told(error: Exception) -> tuple[str, str]:
    if isinstance(error, SteplogError):
        return error.message, error.hint
    return f"{type(error).__name__}: {error}", "see the cause"
