"""Which checkpoints may go, and taking them away without ever risking the ones that stay.

What stays is decided purely; then a checkpoint's manifest goes before its objects, and an object
only when no manifest that is left names it. A kill in between leaves files that nobody needs, which
`collect_garbage` takes. Used by the saver after each commit and by `checkpoint gc` of the command.
"""

import os
import shutil
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from eventlog.errors import CheckpointError
from snapshots.checkpoint_manifest import CheckpointRef, StoredObject
from snapshots.checkpoint_parts import line_of
from snapshots.checkpoint_store import CheckpointStore
from snapshots.object_folder import writing_to

KEEP_LAST_MIN: Final = 2
"""Fewest checkpoints that are kept: the newest may be the one that is found damaged."""
GRACE_S: Final = 24 * 3600.0
"""Files that no checkpoint names are spared for so long: a save may be about to name them."""


class Retention(NamedTuple):
    """What to keep: the newest `last_n`, and each whose step is a multiple of `every` (None: none).

    HEAD, pins, and what any kept one rests on are always kept.
    """

    last_n: int
    every: int | None = None

    def check(self) -> "Retention":
        """This. Raises `ValueError` where a number is out of range."""
        if self.last_n < KEEP_LAST_MIN:
            raise ValueError(f"last_n must be {KEEP_LAST_MIN} or more, not {self.last_n}")
        if self.every is not None and self.every < 1:
            raise ValueError(f"every must be 1 or more, not {self.every}")
        return self


class Removed(NamedTuple):
    """What was taken away."""

    checkpoints: tuple[CheckpointRef, ...]
    objects: int
    bytes: int


def kept_checkpoints(
    retention: Retention,
    lines: Mapping[CheckpointRef, Iterable[CheckpointRef]],
    pointed: Iterable[CheckpointRef],
) -> set[CheckpointRef]:
    """Of the checkpoints in `lines`, each with itself and what it rests on, those that stay.

    Pure. `pointed` are HEAD and the pins. Of one step that was saved again all count as one.
    """
    retention.check()
    steps = sorted({ref.training_step for ref in lines})
    recent = set(steps[-retention.last_n :])
    wanted = {
        ref
        for ref in lines
        if ref.training_step in recent
        or (retention.every is not None and ref.training_step % retention.every == 0)
    }
    wanted |= set(pointed) & lines.keys()
    return {above for ref in wanted for above in lines[ref]}


def apply_retention(store: CheckpointStore, retention: Retention) -> Removed:
    """Take away what `retention` does not keep; idempotent.

    Raises `CheckpointError` where any checkpoint cannot be read, and then takes nothing away:
    what it needs is not known. Also where HEAD is not in place.
    """
    retention.check()
    with store.locked():
        refs = _readable(store)
        lines = {ref: line_of(store, ref) for ref in refs}
        head = store.head()
        if head is None:
            return Removed((), 0, 0)
        store.verify_in_place(store.read_manifest(head))
        kept = kept_checkpoints(retention, lines, [head, *store.pins().values()])
        dropped = [ref for ref in refs if ref not in kept]
        needed = _objects_of(store, kept)
        candidates = _objects_of(store, dropped) - needed
        for ref in dropped:
            _remove_set(store.set_folder(ref))
        removed = sum(_remove_object(store, one) for one in sorted(candidates))
        return Removed(tuple(dropped), removed, sum(one.size for one in candidates))


def collect_garbage(store: CheckpointStore, *, grace_s: float = GRACE_S) -> Removed:
    """Take away what no checkpoint names, of saves that were killed, older than `grace_s` seconds.

    Raises `CheckpointError` where any checkpoint cannot be read, and then takes nothing away.
    """
    before = time.time() - grace_s
    with store.locked():
        needed = _objects_of(store, _readable(store))
        loose = [
            one
            for one in store.objects.list_objects()
            if one not in needed and _is_older(store.objects.object_path(one.digest), before)
        ]
        removed = sum(_remove_object(store, one) for one in loose)
        halves = [
            path
            for folder, pattern in ((store.objects.folder, ".*.tmp"), (store.folder / "sets", "*"))
            for path in folder.glob(pattern)
            if not (path / "manifest.json").exists() and _is_older(path, before)
        ]
        for path in halves:
            _remove_set(path)
        return Removed((), removed, sum(one.size for one in loose))


def _readable(store: CheckpointStore) -> list[CheckpointRef]:
    damage: list[CheckpointError] = []
    refs = store.list_checkpoints(report=damage.append)
    if damage:
        raise damage[0]
    return refs


def _objects_of(store: CheckpointStore, refs: Iterable[CheckpointRef]) -> set[StoredObject]:
    return {stored for ref in refs for stored in store.read_manifest(ref).objects()}


def _remove_set(path: Path) -> None:
    with writing_to(path):
        if not path.is_dir():
            path.unlink(missing_ok=True)
            return
        # The manifest first: a folder without it is no checkpoint, whatever else is left of it.
        (path / "manifest.json").unlink(missing_ok=True)
        shutil.rmtree(path)


def _remove_object(store: CheckpointStore, stored: StoredObject) -> int:
    path = store.objects.object_path(stored.digest)
    with writing_to(path), suppress(FileNotFoundError):
        os.unlink(path)
        return 1
    return 0


def _is_older(path: Path, before_s: float) -> bool:
    try:
        return os.lstat(path).st_mtime < before_s
    except OSError:
        return False
