"""Which checkpoints may go, and taking them away without ever risking the ones that stay.

What stays is decided purely; then a checkpoint goes before the ones it rests on, its manifest
before its objects, and an object only when no manifest that is left names it. A kill in between
leaves files that nobody needs, which `collect_garbage` takes. Used by the saver after each commit
and by `checkpoint gc` of the command.
"""

import logging
import os
import re
import shutil
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from secrets import token_hex
from typing import Final, NamedTuple

from eventlog.durable_file import sync_folder
from eventlog.errors import CheckpointError
from snapshots.checkpoint_store import CheckpointStore
from snapshots.checkpoints.added_objects import AddedObjects
from snapshots.checkpoints.file_faults import is_there, names_in, os_errors_told
from snapshots.checkpoints.manifest import CheckpointRef, StoredObject
from snapshots.checkpoints.survey import (
    InLog,
    chain_of,
    in_no_log,
    list_unfinished,
    needed_by,
    refuse_lost,
    refuse_pointers_to_nothing,
    survey,
)

KEEP_LAST_MIN: Final = 2
"""Fewest checkpoints that are kept: the newest may be the one that is found damaged."""
GRACE_S: Final = 24 * 3600.0
"""Files that no checkpoint names are spared for so long: a save may be about to name them."""
# As `durable_file` and `object_folder` name what they have not renamed yet.
_UNFINISHED: Final = re.compile(r"\.([^/]*\.)?[0-9a-f]{16}\.tmp")


_logger: Final = logging.getLogger("steplog.checkpoints")


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
    """What was taken away, or would be. `unfinished`: what killed saves had not made whole."""

    checkpoints: tuple[CheckpointRef, ...]
    objects: int
    bytes: int
    unfinished: tuple[Path, ...] = ()


def kept_checkpoints(
    retention: Retention,
    chains: Mapping[CheckpointRef, Iterable[CheckpointRef]],
    head: CheckpointRef,
    pinned: Iterable[CheckpointRef] = (),
    counted: Collection[str] | None = None,
) -> set[CheckpointRef]:
    """Of the checkpoints in `chains`, each with itself and what it rests on, those that stay.

    Pure. The newest are those of the last steps up to HEAD's, and of the last of all: after
    training went back, what it left behind is no reason to drop what it saves. Of one step that was
    saved again all count as one. `counted`: only those with these ids
    are kept for being new, or for their step; of the others those from HEAD's step on, which may
    be about to count. None: all count.
    """
    retention.check()
    counting = [ref for ref in chains if counted is None or ref.id in counted]
    steps = sorted({ref.training_step for ref in counting})
    up_to_head = [step for step in steps if step <= head.training_step]
    recent = {*steps[-retention.last_n :], *up_to_head[-retention.last_n :]}
    wanted = {
        ref
        for ref in counting
        if ref.training_step in recent
        or (retention.every is not None and ref.training_step % retention.every == 0)
    }
    waiting = chains.keys() - set(counting)
    wanted |= {ref for ref in waiting if ref.training_step >= head.training_step}
    wanted |= {head, *pinned} & chains.keys()
    return {above for ref in wanted for above in chains[ref]}


def apply_retention(
    store: CheckpointStore,
    retention: Retention,
    *,
    counted: Collection[str] | None = None,
    still: Callable[[], bool] = lambda: True,
    in_log: InLog = in_no_log,
) -> Removed:
    """Take away what `retention` does not keep of the store's own track; idempotent.

    `counted`: the ids of those that count (`kept_checkpoints`), as the log says which sets are
    committed. `still`: asked under the lock; where it says no, another has the track by now, and
    nothing is taken away. What any track needs stays. Raises `CheckpointError` where one of any
    track cannot be read, and then takes nothing away: what it needs is not known. Also where HEAD
    is not in place. `in_log` as for `collect_garbage`.
    """
    retention.check()
    with store.locked():
        head = store.head()
        if head is None or not still():
            return Removed((), 0, 0)
        surveyed = survey(store)
        others = [one for one in store.tracks() if one.track != store.track]
        refuse_lost([store, *others], in_log)
        needed = needed_by(known for one in others for known in survey(one).values())
        chains = {ref: chain_of(store, ref, surveyed) for ref in surveyed}
        for one in chains.get(head, [head]):
            store.verify_in_place(store.read_manifest(one))
        kept = kept_checkpoints(retention, chains, head, store.pins().values(), counted)
        needed |= needed_by(surveyed[ref] for ref in kept)
        dropped = {ref: known for ref, known in surveyed.items() if ref not in kept}
        candidates: dict[StoredObject, int] = {}
        for known in dropped.values():
            for stored in known.objects:
                candidates[stored] = max(known.written_ns, candidates.get(stored, 0))
        # Each before what it rests on: a kill in between leaves none that cannot be read.
        for ref in sorted(dropped, key=lambda one: dropped[one].generation, reverse=True):
            _remove_set(store.set_folder(ref))
        removed = [
            stored
            for stored, named_ns in sorted(candidates.items())
            if stored.digest not in needed and _remove(store, stored, named_ns)
        ]
        return Removed(tuple(dropped), len(removed), sum(one.size for one in removed))


def collect_garbage(
    store: CheckpointStore,
    *,
    grace_s: float = GRACE_S,
    dry_run: bool = False,
    in_log: InLog = in_no_log,
) -> Removed:
    """Take away what no checkpoint of any track names, of killed saves, older than `grace_s` s.

    `dry_run`: only say what would go. `in_log`: whether a log has the set of this id for committed.
    Raises `CheckpointError` where any checkpoint cannot be read, `CheckpointIncompleteError` where
    one that is committed in the log has no manifest, and then takes nothing away.
    """
    before = time.time() - grace_s
    if not is_there(store.folder):
        return Removed((), 0, 0)
    with store.locked():
        tracks = store.tracks()
        refuse_lost(tracks, in_log)
        surveyed = {one: survey(one) for one in tracks}
        refuse_pointers_to_nothing(surveyed)
        needed = needed_by(known for each in surveyed.values() for known in each.values())
        unnamed = [
            one
            for one in store.objects.list_objects()
            if one.digest not in needed and _is_older(store.objects.object_path(one.digest), before)
        ]
        unfinished = [
            path
            for path in (
                *_unfinished_files(store, tracks),
                *(folder for one in tracks for folder in list_unfinished(one)),
            )
            if _is_older(path, before)
        ]
        if not dry_run:
            # Asked once more: a save may have written it again since, and be about to name it.
            unnamed = [one for one in unnamed if _remove(store, one, int(before * 1e9))]
            for path in unfinished:
                _remove_set(path)
        return Removed((), len(unnamed), sum(one.size for one in unnamed), tuple(unfinished))


def take_back(
    store: CheckpointStore, added: AddedObjects, is_kept: Callable[[], bool] = lambda: False
) -> None:
    """Take away what a failed save has added and no checkpoint of any track names.

    `is_kept`: asked under the lock; where its own manifest is there all the same, nothing goes. A
    full disk would else stay full of it. What somebody has written again since is left: a save
    of theirs is about to name it. Warns where it cannot: the save's own end is what is raised.
    """
    if not len(added):
        return
    try:
        with store.locked():
            if is_kept():
                return
            needed = needed_by(known for one in store.tracks() for known in survey(one).values())
            for stored in added:
                path = store.objects.object_path(stored.digest)
                if stored.digest not in needed and added.is_in_place(stored, path):
                    _remove(store, stored)
    except CheckpointError as error:
        _logger.warning(
            "what a failed save has stored stays; once no save is under way, "
            "`steplog checkpoint gc --grace 10m` takes it: %s",
            error,
        )


def _unfinished_files(store: CheckpointStore, tracks: Iterable[CheckpointStore]) -> Iterator[Path]:
    """Files that were not renamed yet when who wrote them was killed."""
    folders = [store.objects.folder]
    for track in tracks:
        folders += [track.track_folder / name for name in ("", "pins", "sets")]
        folders += [track.set_folder(ref) for ref in track.list_checkpoints()]
    for folder in folders:
        yield from (folder / name for name in names_in(folder) if _UNFINISHED.fullmatch(name))


def _remove_set(path: Path) -> None:
    with os_errors_told(path):
        if path.is_symlink() or not path.is_dir():
            path.unlink(missing_ok=True)
            return
        # Out of the way first, in one step: a set that the log has for committed whose folder has
        # no manifest is one that somebody has damaged, never one that was half taken away.
        gone = path
        if not _UNFINISHED.fullmatch(path.name):
            gone = path.with_name(f".{path.name}.{token_hex(8)}.tmp")
            os.rename(path, gone)
            sync_folder(path.parent)
        shutil.rmtree(gone)


def _remove(store: CheckpointStore, stored: StoredObject, named_ns: int | None = None) -> bool:
    """Take an object away, unless it was written after `named_ns`; whether it was.

    Whoever wrote it again since is about to name it, in a save of another track.
    """
    path = store.objects.object_path(stored.digest)
    with os_errors_told(path), suppress(FileNotFoundError):
        if named_ns is None or os.lstat(path).st_mtime_ns <= named_ns:
            os.unlink(path)
            return True
    return False


def _is_older(path: Path, before_s: float) -> bool:
    try:
        return os.lstat(path).st_mtime < before_s
    except OSError:
        return False
