"""`CheckpointStore`: checkpoints in a folder, committed whole or not at all.

    objects/ab/<sha256>                            immutable bytes, shared by all checkpoints
    sets/<step, 12 digits>-<id>/manifest.json      written last; manifest.sha256 beside it before
    HEAD, pins/<name>                              pointers: a folder in sets/, its manifest's hash

A folder in sets/ without its manifest.json is no checkpoint: what a save that was killed left
behind. HEAD moves only after what the manifest names was found in place. Nothing here needs torch.
Used by the shard writer and reader, by retention and by `checkpoint` of the command.
"""

import fcntl
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import Final, NoReturn, TypeAlias

from eventlog.durable_file import sync_folder, write_whole
from eventlog.errors import CheckpointError, CheckpointIncompleteError
from eventlog.untrusted_file import UnfitFile, read_whole
from snapshots.checkpoint_manifest import (
    MANIFEST_BYTES_MAX,
    CheckpointRef,
    Manifest,
    check_id,
    decode_manifest,
    encode_manifest,
)
from snapshots.object_folder import ObjectFolder, unusable, writing_to

STEP_MAX: Final = 10**12 - 1
"""Largest training step: it stands in a folder's name with 12 digits."""

_POINTER: Final = re.compile(r"([0-9]{12})-([a-z0-9][a-z0-9_-]{0,63}) ([0-9a-f]{64})\n")
_SET_NAME: Final = re.compile(r"([0-9]{12})-([a-z0-9][a-z0-9_-]{0,63})")
_SUM: Final = re.compile(r"([0-9a-f]{64})  manifest\.json\n")
_POINTER_BYTES_MAX: Final = 256

Report: TypeAlias = Callable[[CheckpointError], None]


def pass_over(_damage: CheckpointError) -> None:
    """Report to nobody."""


class CheckpointStore:
    """The checkpoints of one folder. Thread-safe; opening touches no file."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        """`folder` is made when the first object is put."""
        self._folder = Path(folder).absolute()
        self._objects = ObjectFolder(self._folder / "objects")

    @property
    def folder(self) -> Path:
        """Where the checkpoints lie."""
        return self._folder

    @property
    def objects(self) -> ObjectFolder:
        """What their parts lie in."""
        return self._objects

    # Checkpoints

    def commit_checkpoint(
        self, manifest: Manifest, *, expected_head: CheckpointRef | None
    ) -> CheckpointRef:
        """Write the manifest, check that all it names is in place, and move HEAD to it.

        `expected_head` is the head that the save began from: where another stands there now, two
        writers save into one folder; this checkpoint is kept and HEAD is left alone. Raises
        `CheckpointError` for that, and where anything cannot be written or is not in place.
        """
        data = encode_manifest(manifest)
        digest = sha256(data).hexdigest()
        ref = CheckpointRef(manifest.training_step, manifest.id, digest)
        folder = self._set_folder(ref)
        with writing_to(folder):
            self._objects.folder.mkdir(parents=True, exist_ok=True)
            folder.parent.mkdir(exist_ok=True)
            folder.mkdir()
            write_whole(folder / "manifest.sha256", f"{digest}  manifest.json\n".encode())
            # All that the manifest names is durable before the manifest is there.
            for made in (self._objects.folder, folder, folder.parent, self._folder):
                sync_folder(made)
            write_whole(folder / "manifest.json", data)
            sync_folder(folder)
        self.verify_in_place(self.read_manifest(ref))
        with self.locked():
            found = self.head()
            if found != expected_head:
                raise CheckpointError(
                    f"checkpoint {ref.id} is kept, but is not the head: another writer committed "
                    f"checkpoint {found.id if found else 'none'} meanwhile",
                    hint="let one trainer at a time save into a folder",
                    step=ref.training_step,
                )
            self._point(self._folder / "HEAD", ref)
        return ref

    def verify_in_place(self, manifest: Manifest) -> None:
        """Return where every object of the manifest is there with its size; re-hashes nothing."""
        for stored, tensor in manifest.objects().items():
            self._objects.verify_in_place(stored, tensor)

    def read_manifest(self, ref: CheckpointRef) -> Manifest:
        """The manifest of a checkpoint, its hash and every field checked.

        Raises `CheckpointIncompleteError` where it is missing, `CheckpointError` where it is not
        what was committed.
        """
        path = self._set_folder(ref) / "manifest.json"
        data = self._read(path, MANIFEST_BYTES_MAX)
        if sha256(data).hexdigest() != ref.digest:
            raise _damaged(path, "its bytes do not have the hash they were committed with")
        manifest = decode_manifest(data)
        if (manifest.training_step, manifest.id) != (ref.training_step, ref.id):
            raise _damaged(path, "it is the manifest of another checkpoint")
        return manifest

    def list_checkpoints(self, *, report: Report = pass_over) -> list[CheckpointRef]:
        """Every committed checkpoint, by step and id. What cannot be read goes to `report`."""
        found = []
        try:
            names = sorted(os.listdir(self._folder / "sets"))
        except FileNotFoundError:
            return []
        except OSError as error:
            raise unusable(self._folder / "sets", error) from error
        for name in names:
            if (
                _SET_NAME.fullmatch(name)
                and (self._folder / "sets" / name / "manifest.json").exists()
            ):
                try:
                    found.append(self._ref_of_set(name))
                except CheckpointError as error:
                    report(error)
        return found

    def find_checkpoint(
        self, *, step: int | None = None, checkpoint: str | None = None
    ) -> CheckpointRef:
        """The checkpoint of this id, or of this step (the newest of it), or else the head.

        Raises `CheckpointIncompleteError` where there is none.
        """
        if step is None and checkpoint is None:
            head = self.head()
            if head is None:
                self._refuse_missing("no checkpoint was committed yet")
            return head
        found = [
            ref
            for ref in self.list_checkpoints()
            if step in (None, ref.training_step) and checkpoint in (None, ref.id)
        ]
        if not found:
            asked = [f"step {step}"] if step is not None else []
            asked += [f"id {checkpoint!r}"] if checkpoint is not None else []
            self._refuse_missing(f"no committed checkpoint has {' and '.join(asked)}")
        if len(found) == 1:
            return found[0]
        # After training went back, a step is saved again: the later one is the one that counts.
        return max(found, key=lambda ref: (self.read_manifest(ref).created_ns, ref.id))

    # Pointers

    def head(self) -> CheckpointRef | None:
        """The checkpoint that loading takes by itself; None where none was committed.

        Raises `CheckpointError` where the pointer cannot be read.
        """
        return self._follow(self._folder / "HEAD")

    def move_head(self, ref: CheckpointRef) -> None:
        """Point HEAD at a committed checkpoint, as for going back, after it was verified."""
        self.verify_in_place(self.read_manifest(ref))
        with self.locked():
            self._point(self._folder / "HEAD", ref)

    def pin(self, name: str, ref: CheckpointRef) -> None:
        """Keep a checkpoint under a name, which retention respects. Replaces an older pin."""
        check_id(name, "a pin's name")
        self.read_manifest(ref)
        with self.locked():
            self._point(self._folder / "pins" / name, ref)

    def unpin(self, name: str) -> None:
        """Take a pin away; harmless where there is none."""
        path = self._folder / "pins" / check_id(name, "a pin's name")
        with writing_to(path), suppress(FileNotFoundError):
            path.unlink()
            sync_folder(path.parent)

    def pins(self) -> dict[str, CheckpointRef]:
        """Every pin by name. Raises `CheckpointError` where one cannot be read."""
        folder = self._folder / "pins"
        names = sorted(os.listdir(folder)) if folder.is_dir() else []
        found = {name: self._follow(folder / name) for name in names if not name.startswith(".")}
        return {name: ref for name, ref in found.items() if ref is not None}

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the folder's lock: no other process moves HEAD or removes anything meanwhile."""
        path = self._folder / ".lock"
        with writing_to(path):
            self._folder.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            with writing_to(path):
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def set_folder(self, ref: CheckpointRef) -> Path:
        """The folder of a checkpoint's manifest."""
        return self._set_folder(ref)

    def _set_folder(self, ref: CheckpointRef) -> Path:
        return self._folder / "sets" / f"{ref.training_step:012}-{ref.id}"

    def _ref_of_set(self, name: str) -> CheckpointRef:
        path = self._folder / "sets" / name / "manifest.sha256"
        found = _SUM.fullmatch(self._read(path, _POINTER_BYTES_MAX).decode("ascii", "replace"))
        if found is None:
            raise _damaged(path, "it is no line of sha256sum")
        step, _, id_ = name.partition("-")
        return CheckpointRef(int(step), id_, found[1])

    def _point(self, path: Path, ref: CheckpointRef) -> None:
        with writing_to(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(path, f"{ref.training_step:012}-{ref.id} {ref.digest}\n".encode())
            sync_folder(path.parent)

    def _follow(self, path: Path) -> CheckpointRef | None:
        try:
            data = read_whole(path, bytes_max=_POINTER_BYTES_MAX)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except UnfitFile as error:
            raise _damaged(path, str(error)) from None
        except OSError as error:
            raise unusable(path, error) from error
        found = _POINTER.fullmatch(data.decode("ascii", "replace"))
        if found is None:
            raise _damaged(path, "it names no checkpoint")
        return CheckpointRef(int(found[1]), found[2], found[3])

    def _read(self, path: Path, bytes_max: int) -> bytes:
        try:
            return read_whole(path, bytes_max=bytes_max)
        except (FileNotFoundError, NotADirectoryError):
            raise CheckpointIncompleteError(
                f"{path} is missing", hint="the checkpoint was removed; load another one"
            ) from None
        except UnfitFile as error:
            raise _damaged(path, str(error)) from None
        except OSError as error:
            raise unusable(path, error) from error

    def _refuse_missing(self, what: str) -> NoReturn:
        raise CheckpointIncompleteError(
            f"{what} in {self._folder}",
            hint="look at the folder's name; begin from nothing only where that is meant",
        )


def _damaged(path: Path, what: str) -> CheckpointError:
    return CheckpointError(
        f"{path} is damaged: {what}",
        hint="load another checkpoint by its id; `CheckpointStore.move_head` mends a damaged HEAD",
    )
