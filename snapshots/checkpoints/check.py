"""Whether checkpoints hold what was saved: every part read, decoded and compared with its hash.

Used by `steplog checkpoint check`. What two checkpoints share is read once in one check.
"""

from collections import deque
from collections.abc import Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from enum import StrEnum
from typing import Final, NamedTuple

from eventlog.errors import CheckpointError, CheckpointIncompleteError
from snapshots.checkpoint_store import CheckpointStore
from snapshots.checkpoints.limits import THREADS
from snapshots.checkpoints.manifest import CheckpointRef, Part, TensorPart
from snapshots.checkpoints.parts import PartReader


class Soundness(StrEnum):
    """What a check found; the later, the worse."""

    OK = "ok"
    INCOMPLETE = "incomplete"
    """Something is missing, nothing else is wrong."""
    DAMAGED = "damaged"
    """Something is not what was saved, or may not be read."""


class CheckedCheckpoint(NamedTuple):
    """What was found. `bytes` are the raw bytes of all `parts`; `problems` name tensor and object.

    `track` None is the track without a name.
    """

    track: str | None
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
PENDING_PARTS_MAX: Final = 8
"""Parts that are read and not yet judged; each takes up to twice its raw bytes (16 MiB)."""


class CheckpointChecker:
    """Checks checkpoints one after the other, and remembers which parts were sound."""

    def __init__(self, advance: Callable[[int], None]) -> None:
        """`advance` is told of raw bytes that were compared, in the caller's thread."""
        self._advance = advance
        # A difference is read each time: what it rests on may be another checkpoint's.
        self._sound: set[tuple[Part, int]] = set()

    def check(self, store: CheckpointStore, ref: CheckpointRef) -> CheckedCheckpoint:
        """Read the whole checkpoint; never raises for what is wrong with it."""
        try:
            reader = PartReader(store, store.read_manifest(ref))
        except CheckpointError as error:
            return CheckedCheckpoint(store.track, ref.training_step, ref.id, 0, 0, (error,))
        parts = read_bytes = 0
        problems: list[CheckpointError] = []
        with closing(self._judged(reader)) as judged:
            for part, problem in judged:
                parts += 1
                read_bytes += part.raw_bytes
                self._advance(part.raw_bytes)
                if problem is not None:
                    problems.append(problem)
                if len(problems) == PROBLEMS_MAX:
                    break
        return CheckedCheckpoint(
            store.track, ref.training_step, ref.id, parts, read_bytes, tuple(problems)
        )

    def _judged(
        self, reader: PartReader
    ) -> Generator[tuple[Part, CheckpointError | None], None, None]:
        """Every part in the manifest's order, and what is wrong with it."""
        pending: deque[tuple[TensorPart, Future[CheckpointError | None] | None]] = deque()
        pool = ThreadPoolExecutor(THREADS)
        try:
            for asked in reader.manifest.parts():
                known = (asked.part, asked.item_bytes) in self._sound
                pending.append((asked, None if known else pool.submit(_problem_of, reader, asked)))
                if len(pending) == PENDING_PARTS_MAX:
                    yield self._answer(*pending.popleft())
            while pending:
                yield self._answer(*pending.popleft())
        finally:
            pool.shutdown(cancel_futures=True)

    def _answer(
        self, asked: TensorPart, future: "Future[CheckpointError | None] | None"
    ) -> tuple[Part, CheckpointError | None]:
        problem = None if future is None else future.result()
        if problem is None and asked.part.base is None:
            self._sound.add((asked.part, asked.item_bytes))
        return asked.part, problem


def _problem_of(reader: PartReader, asked: TensorPart) -> CheckpointError | None:
    try:
        reader.read_part(*asked)
    except CheckpointError as error:
        return error
    return None
