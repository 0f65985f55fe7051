"""Whether checkpoints hold what was saved: every part read, decoded and compared with its hash.

Used by `steplog checkpoint check`. What two checkpoints share is read once in one check.
"""

from collections.abc import Callable
from enum import StrEnum
from typing import Final, NamedTuple

from eventlog.errors import CheckpointError, CheckpointIncompleteError
from snapshots.checkpoint_manifest import ITEM_BYTES, CheckpointRef, Part
from snapshots.checkpoint_parts import PartReader
from snapshots.checkpoint_store import CheckpointStore


class Soundness(StrEnum):
    """What a check found; the later, the worse."""

    OK = "ok"
    INCOMPLETE = "incomplete"
    """Something is missing, nothing else is wrong."""
    DAMAGED = "damaged"


class CheckedCheckpoint(NamedTuple):
    """What was found. `bytes` are the raw bytes of all `parts`; `problems` name tensor and object.

    `line` None is the line without a name.
    """

    line: str | None
    training_step: int
    id: str
    parts: int
    bytes: int
    problems: tuple[CheckpointError, ...]

    @property
    def verdict(self) -> Soundness:
        """The worst of the problems."""
        if not self.problems:
            return Soundness.OK
        missing = all(isinstance(one, CheckpointIncompleteError) for one in self.problems)
        return Soundness.INCOMPLETE if missing else Soundness.DAMAGED


PROBLEMS_MAX: Final = 1000
"""Problems of one checkpoint that are told; reading goes no further then."""


class CheckpointChecker:
    """Checks checkpoints, and remembers which parts were sound."""

    def __init__(self, advance: Callable[[int], None]) -> None:
        """`advance` is told of raw bytes that were compared."""
        self._advance = advance
        # A difference is read each time: what it rests on may be another checkpoint's.
        self._sound: set[tuple[Part, int]] = set()

    def check(self, store: CheckpointStore, ref: CheckpointRef) -> CheckedCheckpoint:
        """Read the whole checkpoint; never raises for what is wrong with it."""
        problems: list[CheckpointError] = []
        parts = read_bytes = 0
        try:
            reader = PartReader(store, store.read_manifest(ref))
        except CheckpointError as error:
            return CheckedCheckpoint(store.line, ref.training_step, ref.id, 0, 0, (error,))
        for name, tensor in reader.manifest.tensors.items():
            for chunk in tensor.chunks:
                for part in chunk.parts:
                    parts += 1
                    read_bytes += part.raw_bytes
                    self._advance(part.raw_bytes)
                    problem = self._problem_of(reader, name, part, ITEM_BYTES[tensor.dtype])
                    if problem is not None:
                        problems.append(problem)
                    if len(problems) == PROBLEMS_MAX:
                        break
        return CheckedCheckpoint(
            store.line, ref.training_step, ref.id, parts, read_bytes, tuple(problems)
        )

    def _problem_of(
        self, reader: PartReader, name: str, part: Part, item_bytes: int
    ) -> CheckpointError | None:
        if (part, item_bytes) in self._sound:
            return None
        try:
            reader.read_part(name, part, item_bytes)
        except CheckpointError as error:
            return error
        if part.base is None:
            self._sound.add((part, item_bytes))
        return None
