"""What the checkpoints of a folder need, asked before anything is taken away.

Whatever cannot be read, or is known and not there, may need any object: then nothing may go, and
the error says which one it is and the way out. What was put aside on purpose counts no more. Used
by retention, `gc` and failed saves, with the folder's lock held.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from shlex import quote
from typing import Final, NamedTuple, TypeAlias

from eventlog.errors import CheckpointError, CheckpointIncompleteError
from snapshots.checkpoint_store import CheckpointStore
from snapshots.checkpoints.file_faults import is_there, os_errors_told, read_file
from snapshots.checkpoints.manifest import MANIFEST_BYTES_MAX, CheckpointRef, StoredObject
from snapshots.checkpoints.parts import ancestry_of
from snapshots.checkpoints.pointers import read_ref, set_folders

KNOWN_MAX: Final = 4096
"""Manifests of which one process remembers which objects they need."""

InLog: TypeAlias = Callable[[str], bool]
"""Whether a log has the set of this id for committed."""


def in_no_log(_set_id: str) -> bool:
    """The `InLog` of a folder that belongs to no log."""
    return False


class Surveyed(NamedTuple):
    """What is asked of a manifest, and when it was written (ns since 1970)."""

    ancestor: CheckpointRef | None
    generation: int
    objects: frozenset[StoredObject]
    written_ns: int


_known: Final[dict[CheckpointRef, Surveyed]] = {}
"""What was asked of manifests before: a track may hold hundreds of versions."""


def survey(store: CheckpointStore) -> dict[CheckpointRef, Surveyed]:
    """Every checkpoint of a track.

    Raises `CheckpointError` where one cannot be read, or one that it rests on is not there: what
    that one needs is not known.
    """
    found: dict[CheckpointRef, Surveyed] = {}
    for folder in set_folders(store.track_folder):
        with _unread_told(store, folder):
            if is_there(folder / "manifest.json"):
                ref = read_ref(folder)
                found[ref] = _known_of(store, ref)
    for ref in found:
        with _unread_told(store, store.set_folder(ref)):
            chain_of(store, ref, found)
    return found


@contextmanager
def _unread_told(store: CheckpointStore, folder: Path) -> Iterator[None]:
    """Let an error about one checkpoint say what it stops, and the way out."""
    try:
        yield
    except CheckpointError as error:
        raise type(error)(
            f"nothing is taken away while checkpoint {_named(store, folder)} cannot be read: "
            f"{error.message}",
            hint=f"{error.hint}; or put it out of the way: {_way_out(store, folder)}",
            tensor=error.tensor,
            object_digest=error.object_digest,
            step=int(folder.name.partition("-")[0]),
        ) from error


def refuse_lost(tracks: Iterable[CheckpointStore], in_log: InLog) -> None:
    """Raise `CheckpointIncompleteError` where a set that the log has for committed lost its
    manifest: what it needs is not known.
    """
    for store in tracks:
        for folder in list_unfinished(store):
            if in_log(folder.name.partition("-")[2]):
                raise CheckpointIncompleteError(
                    f"nothing is taken away: the log has set {_named(store, folder)} for "
                    "committed, and its manifest.json is gone",
                    hint=f"restore the file from a copy; or put what is left out of the way: "
                    f"{_way_out(store, folder, ' --force')}",
                )


def refuse_pointers_to_nothing(
    surveyed: Mapping[CheckpointStore, Mapping[CheckpointRef, Surveyed]],
) -> None:
    """Raise `CheckpointIncompleteError` where HEAD or a pin names what is neither there nor put
    aside: what that needs is not known.
    """
    for store, known in surveyed.items():
        pointers = {"HEAD": store.head(), **store.pins()}
        for name, ref in pointers.items():
            if ref is None or ref in known:
                continue
            folder = store.set_folder(ref)
            if not is_there(store.track_folder / "aside" / folder.name):
                raise CheckpointIncompleteError(
                    f"nothing is taken away: {store.track or '.'}/{name} names checkpoint {ref.id} "
                    f"(step {ref.training_step}), which is not there",
                    hint="restore its manifest.json from a copy; or let go of it: `steplog "
                    "checkpoint unpin` a pin, and HEAD moves with the next save or `steplog "
                    "checkpoint head`",
                    step=ref.training_step,
                )


def _named(store: CheckpointStore, folder: Path) -> str:
    return f"{store.track or '.'}/{folder.name}"


def _way_out(store: CheckpointStore, folder: Path, more: str = "") -> str:
    return (
        f"`steplog checkpoint set-aside {_named(store, folder)} --folder "
        f"{quote(str(store.folder))}{more}`; what it alone needs goes with a later gc"
    )


def _known_of(store: CheckpointStore, ref: CheckpointRef) -> Surveyed:
    path = store.set_folder(ref) / "manifest.json"
    with os_errors_told(path):
        written_ns = path.stat().st_mtime_ns
    known = _known.get(ref)
    # Its bytes are read and hashed each time, and only once taken apart.
    if known is not None and sha256(read_file(path, MANIFEST_BYTES_MAX)).hexdigest() == ref.digest:
        return known._replace(written_ns=written_ns)
    manifest = store.read_manifest(ref)
    if len(_known) >= KNOWN_MAX:
        _known.clear()
    known = Surveyed(
        manifest.ancestor, manifest.generation, frozenset(manifest.objects()), written_ns
    )
    _known[ref] = known
    return known


def chain_of(
    store: CheckpointStore, ref: CheckpointRef, surveyed: Mapping[CheckpointRef, Surveyed]
) -> list[CheckpointRef]:
    """As `ancestry_of`, from what was read already."""
    chain = [ref]
    while (above := surveyed[chain[-1]].ancestor) is not None:
        known = surveyed.get(above)
        if known is None or known.generation >= surveyed[chain[-1]].generation:
            return ancestry_of(store, ref)  # It raises, and says what is wrong.
        chain.append(above)
    return chain


def needed_by(surveyed: Iterable[Surveyed]) -> set[str]:
    """The SHA-256, in hex, of all objects that these name."""
    # By digest alone: whatever size a manifest gives an object, it needs that file.
    return {stored.digest for known in surveyed for stored in known.objects}


def list_unfinished(store: CheckpointStore) -> list[Path]:
    """The folders in sets/ without a manifest: saves that were killed, or are under way.

    Raises `CheckpointError` where they cannot be listed.
    """
    folders = set_folders(store.track_folder)
    return [folder for folder in folders if not is_there(folder / "manifest.json")]
