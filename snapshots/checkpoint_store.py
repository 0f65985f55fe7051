"""`CheckpointStore`: checkpoints in a folder, committed whole or not at all.

    objects/ab/<sha256>                            immutable bytes, shared by all checkpoints
    sets/<step, 12 digits>-<id>/manifest.json      written last; manifest.sha256 beside it before
    HEAD, pins/<name>                              pointers: a folder in sets/, its manifest's hash
    tracks/<track>/sets, HEAD, pins                the same for another track, over the same objects

A folder in sets/ without its manifest.json is no checkpoint: what a save that was killed left
behind. HEAD moves only after what the manifest names was found in place. Nothing here needs torch.
Used by the shard writer and reader, by retention and by `checkpoint` of the command.
"""

import os
import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from hashlib import sha256
from pathlib import Path
from typing import NoReturn, TypeAlias

from eventlog.durable_file import sync_folder, write_whole
from eventlog.errors import CheckpointError, CheckpointIncompleteError
from snapshots.checkpoints.file_faults import (
    GONE_MEANWHILE,
    damaged,
    is_there,
    names_in,
    os_errors_told,
    read_file,
)
from snapshots.checkpoints.fit_to_read import encode_readable
from snapshots.checkpoints.folder_lock import hold_lock
from snapshots.checkpoints.manifest import (
    MANIFEST_BYTES_MAX,
    CheckpointRef,
    Manifest,
    check_id,
    decode_manifest,
)
from snapshots.checkpoints.object_folder import ObjectFolder
from snapshots.checkpoints.pointers import (
    read_pointer,
    read_ref,
    set_folders,
    set_name,
    write_pointer,
    write_sum,
)
from snapshots.checkpoints.saved_again import saved_last
from snapshots.checkpoints.tracks import check_track, is_of_training, is_track

Report: TypeAlias = Callable[[CheckpointError], None]


def pass_over(_damage: CheckpointError) -> None:
    """Report to nobody."""


class CheckpointStore:
    """One track of the checkpoints of a folder. Thread-safe; opening touches no file.

    All tracks of a folder share its objects and its lock. What a manifest names as its ancestor is
    a checkpoint of the same track.
    """

    def __init__(self, folder: str | os.PathLike[str], track: str | None = None) -> None:
        """`folder` is made when the first object is put. `track` None: the one in it directly.

        Raises `ValueError` where the track's name is not fit.
        """
        self._folder = Path(folder).absolute()
        self._track = None if track is None else check_track(track)
        self._track_folder = self._folder if track is None else self._folder / "tracks" / track
        self._sets = self._track_folder / "sets"
        self._objects = ObjectFolder(self._folder / "objects")

    @property
    def folder(self) -> Path:
        """Where the objects and all tracks lie."""
        return self._folder

    @property
    def track(self) -> str | None:
        """The track's name; None for the one that lies in the folder directly."""
        return self._track

    @property
    def track_folder(self) -> Path:
        """Where HEAD, sets and pins of this track lie."""
        return self._track_folder

    @property
    def objects(self) -> ObjectFolder:
        """What the parts of all tracks lie in."""
        return self._objects

    def tracks(self) -> "list[CheckpointStore]":
        """Every track of the folder that is there, the default one first, then by name.

        Raises `CheckpointError` where they cannot be listed.
        """
        names = [name for name in names_in(self._folder / "tracks") if is_track(name)]
        found = [CheckpointStore(self._folder, track) for track in [None, *names]]
        return [one for one in found if one.is_there()]

    def is_there(self) -> bool:
        """Whether anything was kept in this track. Raises `CheckpointError` where none can look."""
        return any(is_there(self._track_folder / name) for name in ("sets", "HEAD", "pins"))

    # Checkpoints

    def commit_checkpoint(
        self, manifest: Manifest, *, expected_head: CheckpointRef | None
    ) -> CheckpointRef:
        """Write the manifest, check that all it names is in place, and move HEAD to it.

        `expected_head` is the head that the save began from: where another stands there now, two
        writers save into one track; this checkpoint is kept and HEAD is left alone. Raises
        `CheckpointError` for that, and where anything cannot be written or is not in place.
        """
        ref, data = _make_place(self, manifest)
        with self.locked():
            _keep(self, ref, manifest, data)
            found = self.head()
            if found not in (expected_head, ref):
                raise CheckpointError(
                    f"checkpoint {ref.id} is kept, but is not the head: another writer committed "
                    f"checkpoint {found.id if found else 'none'} meanwhile",
                    hint="let one trainer at a time save into a folder",
                    step=ref.training_step,
                )
            write_pointer(self._track_folder / "HEAD", ref)
        return ref

    def begin_checkpoint(self, training_step: int, id_: str) -> bool:
        """Make the checkpoint's folder, so that a killed save is seen; whether it was not there.

        Raises `CheckpointError`.
        """
        folder = self._sets / set_name(training_step, check_id(id_, "an id"))
        with os_errors_told(folder):
            folder.parent.mkdir(parents=True, exist_ok=True)
            with suppress(FileExistsError):
                folder.mkdir()
                return True
        return False

    def abandon_checkpoint(self, training_step: int, id_: str) -> None:
        """Take away what `begin_checkpoint` made, for the save that it was made for: it has ended.

        A folder with a manifest is left alone: that is a checkpoint. Takes the folder's lock.
        Idempotent. Raises `CheckpointError`.
        """
        folder = self._sets / set_name(training_step, check_id(id_, "an id"))
        with self.locked(), os_errors_told(folder):
            if is_there(folder) and not is_there(folder / "manifest.json"):
                shutil.rmtree(folder)

    def keep_manifest(self, manifest: Manifest) -> CheckpointRef:
        """Write the manifest and check that all it names is in place; HEAD stays where it is.

        It is durable when this returns, and all that it names too. Takes the folder's lock. Raises
        `CheckpointError` where the id is taken, and where anything cannot be written or is not in
        place.
        """
        ref, data = _make_place(self, manifest)
        with self.locked():
            _keep(self, ref, manifest, data)
        return ref

    def has_manifest(self, training_step: int, id_: str) -> bool:
        """Whether the checkpoint's manifest is there. Raises `CheckpointError`."""
        path = self._sets / set_name(training_step, check_id(id_, "an id")) / "manifest.json"
        with os_errors_told(path):
            return is_there(path)

    def verify_in_place(self, manifest: Manifest) -> None:
        """Return where every object of the manifest is there with its size; re-hashes nothing."""
        for stored, tensor in manifest.objects().items():
            self._objects.verify_in_place(stored, tensor)

    def read_manifest(self, ref: CheckpointRef) -> Manifest:
        """The manifest of a checkpoint, its hash and every field checked.

        Raises `CheckpointIncompleteError` where it is missing, `CheckpointError` where it is not
        what was committed.
        """
        path = self.set_folder(ref) / "manifest.json"
        data = read_file(path, MANIFEST_BYTES_MAX)
        if sha256(data).hexdigest() != ref.digest:
            raise damaged(path, "its bytes do not have the hash they were committed with")
        manifest = decode_manifest(data)
        if (manifest.training_step, manifest.id) != (ref.training_step, ref.id):
            raise damaged(path, "it is the manifest of another checkpoint")
        return manifest

    def list_checkpoints(self, *, report: Report = pass_over) -> list[CheckpointRef]:
        """Every committed checkpoint, by step and id. What cannot be read goes to `report`."""
        found = []
        for folder in set_folders(self._track_folder):
            try:
                if is_there(folder / "manifest.json"):
                    found.append(read_ref(folder))
            except CheckpointError as error:
                report(error)
        return found

    def find_checkpoint(
        self, *, step: int | None = None, checkpoint: str | None = None
    ) -> CheckpointRef:
        """The checkpoint of this id, or of this step, or else the head.

        Of a step that was saved again HEAD where it is of this step, else what was saved last, as
        `saved_last` has it. Raises `CheckpointIncompleteError` where there is none.
        """
        if step is None and checkpoint is None:
            head = self.head()
            if head is None:
                _refuse_missing(self, "no checkpoint was committed yet")
            return head
        found = [
            ref
            for ref in self.list_checkpoints()
            if step in (None, ref.training_step) and checkpoint in (None, ref.id)
        ]
        if not found:
            asked = [f"step {step}"] if step is not None else []
            asked += [f"id {checkpoint!r}"] if checkpoint is not None else []
            _refuse_missing(self, f"no committed checkpoint has {' and '.join(asked)}")
        return found[0] if len(found) == 1 else _head_or_saved_last(self, found)

    # Pointers

    def head(self) -> CheckpointRef | None:
        """The checkpoint that loading takes by itself; None where none was committed.

        Raises `CheckpointError` where the pointer cannot be read.
        """
        return read_pointer(self._track_folder / "HEAD")

    def move_head(
        self,
        ref: CheckpointRef,
        *,
        still: Callable[[], bool] | None = None,
        told: Callable[[], object] | None = None,
    ) -> bool:
        """Point HEAD at a kept checkpoint, wherever it was; whether it was done.

        All of it under the folder's lock. First `still` is asked: where a log decides of the track,
        whoever may no longer speak for it leaves HEAD alone. Then the checkpoint must be in place,
        else `CheckpointError` is raised; and `told` is called: what it tells a log of the
        checkpoint is true, as nobody takes that away meanwhile. What it raises leaves HEAD alone.
        Idempotent.
        """
        with self.locked():
            if still is not None and not still():
                return False
            self.verify_in_place(self.read_manifest(ref))
            if told is not None:
                told()
            write_pointer(self._track_folder / "HEAD", ref)
        return True

    def pin(self, name: str, ref: CheckpointRef) -> None:
        """Keep a checkpoint under a name, which retention respects. Replaces an older pin."""
        check_id(name, "a pin's name")
        with self.locked():
            self.read_manifest(ref)
            write_pointer(self._track_folder / "pins" / name, ref)

    def unpin(self, name: str) -> None:
        """Take a pin away; harmless where there is none."""
        path = self._track_folder / "pins" / check_id(name, "a pin's name")
        with os_errors_told(path):
            if is_there(path):
                path.unlink(missing_ok=True)
                sync_folder(path.parent)

    def pins(self) -> dict[str, CheckpointRef]:
        """Every pin by name. Raises `CheckpointError` where they, or one, cannot be read."""
        folder = self._track_folder / "pins"
        names = [name for name in names_in(folder) if not name.startswith(".")]
        found = {name: read_pointer(folder / name) for name in names}
        return {name: ref for name, ref in found.items() if ref is not None}

    def locked(self) -> AbstractContextManager[None]:
        """Hold the folder's lock: nobody else moves a HEAD or removes anything meanwhile.

        It is one for all tracks. Not for a thread that holds it: that one would wait for itself.
        Raises `CheckpointError` where it is not free in time (`folder_lock`).
        """
        return hold_lock(self._folder / ".lock")

    def set_folder(self, ref: CheckpointRef) -> Path:
        """The folder of a checkpoint's manifest."""
        return self._sets / set_name(ref.training_step, ref.id)


def _make_place(store: CheckpointStore, manifest: Manifest) -> tuple[CheckpointRef, bytes]:
    """Make the folder of a manifest, and what it names durable; its checkpoint and bytes."""
    data = encode_readable(manifest)
    ref = CheckpointRef(manifest.training_step, manifest.id, sha256(data).hexdigest())
    folder = store.set_folder(ref)
    with os_errors_told(folder):
        store.objects.folder.mkdir(parents=True, exist_ok=True)
        folder.mkdir(parents=True, exist_ok=True)
        # All that the manifest names is durable before the manifest is there.
        sync_folder(store.objects.folder)
        for made in (folder, *folder.parents):
            sync_folder(made)
            if made == store.folder:
                break
    return ref, data


def _keep(store: CheckpointStore, ref: CheckpointRef, manifest: Manifest, data: bytes) -> None:
    """Write the manifest; with the lock held.

    Another track's retention may have judged by now that nobody needs an object of it. Under the
    lock it sees the manifest, or what it took away is missed here.
    """
    folder = store.set_folder(ref)
    if is_there(folder / "manifest.json"):
        raise CheckpointError(
            f"{folder} holds a checkpoint already", hint="give each save an id of its own"
        )
    try:
        store.verify_in_place(manifest)
        above = manifest.ancestor
        while above is not None:  # what it rests on may be gone by now too
            above = store.read_manifest(above).ancestor
    except CheckpointIncompleteError as error:
        # It was there when it was saved: a copy of it is nowhere.
        raise CheckpointIncompleteError(
            error.message,
            hint=GONE_MEANWHILE,
            tensor=error.tensor,
            object_digest=error.object_digest,
        ) from error
    with os_errors_told(folder):
        write_sum(folder, ref.digest)
        sync_folder(folder)
        write_whole(folder / "manifest.json", data)
        sync_folder(folder)
    store.read_manifest(ref)


def _head_or_saved_last(store: CheckpointStore, found: list[CheckpointRef]) -> CheckpointRef:
    with suppress(CheckpointError):  # a damaged HEAD hides no checkpoint
        if (head := store.head()) in found:
            return head
    manifests = {ref: store.read_manifest(ref) for ref in found}
    above: dict[CheckpointRef, Manifest] = {}
    waiting = [one.ancestor for one in manifests.values()]
    while waiting:
        ref = waiting.pop()
        if ref is None or ref in above or ref in manifests:
            continue
        with suppress(CheckpointError):  # where it is gone, the clock decides
            above[ref] = store.read_manifest(ref)
            waiting.append(above[ref].ancestor)
    return saved_last(manifests, above)


def _refuse_missing(store: CheckpointStore, what: str) -> NoReturn:
    where = str(store.track_folder)
    if not store.is_there():
        of_training = is_of_training(store.track)
        where += ": no training of this name has kept a set" if of_training else ": it holds none"
    raise CheckpointIncompleteError(
        f"{what} in {where}",
        hint="`steplog checkpoint list` has the trainings and their sets (`--folder` where it "
        "is no workspace's); begin from nothing only where that is meant",
    )
