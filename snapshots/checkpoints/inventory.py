"""What lies in the tracks of a checkpoint folder, and finding one by what people call it.

Nothing that is damaged hides what is not: it is listed as what it is. Used by `steplog checkpoint`.
"""

from collections.abc import Iterable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import Final, NamedTuple

from eventlog.errors import CheckpointError, CheckpointIncompleteError
from snapshots.checkpoint_store import CheckpointStore, Report
from snapshots.checkpoints.file_faults import is_there, names_in
from snapshots.checkpoints.manifest import CheckpointRef, Manifest
from snapshots.checkpoints.pointers import SET_NAME, read_ref, set_folders
from snapshots.checkpoints.tracks import is_of_policies

HEAD: Final = "HEAD"


class Status(StrEnum):
    """What can be said of a checkpoint without reading its parts."""

    COMMITTED = "committed"
    INCOMPLETE = "incomplete"
    """It has no manifest: a save that was killed, or is under way; or the file was taken away."""
    DAMAGED = "damaged"
    """Its manifest cannot be read."""


class ListedCheckpoint(NamedTuple):
    """A checkpoint of a track. `ref` and `manifest` are there where it is committed.

    `track` None is the track without a name. `problem` says what is wrong with a damaged one.
    """

    track: str | None
    training_step: int
    id: str
    status: Status
    ref: CheckpointRef | None = None
    manifest: Manifest | None = None
    is_head: bool = False
    pins: tuple[str, ...] = ()
    problem: CheckpointError | None = None

    @property
    def kind(self) -> str | None:
        """`set`, `policy version` or `checkpoint`; None where that cannot be known."""
        if self.manifest is None:
            return None
        if self.manifest.set is not None:
            return "set"
        return "policy version" if is_of_policies(self.track) else "checkpoint"


def list_track(store: CheckpointStore, report: Report) -> Iterator[ListedCheckpoint]:
    """Every checkpoint of a track by step and id, whatever its state.

    What is wrong with HEAD and pins goes to `report`. Raises `CheckpointError` where the folder
    cannot be listed.
    """
    head, pins = read_pointers(store, report)
    listed: set[CheckpointRef] = set()
    for folder in set_folders(store.track_folder):
        one = _look_at(store, folder)
        if one.ref is not None:
            listed.add(one.ref)
            names = tuple(pin for pin, ref in pins.items() if ref == one.ref)
            one = one._replace(is_head=one.ref == head, pins=names)
        yield one
    for what, ref in [(HEAD, head), *((f"the pin {name!r}", ref) for name, ref in pins.items())]:
        if ref is not None and ref not in listed:
            report(_dangling(what, ref, store))


def checkpoints_in_place(store: CheckpointStore) -> Iterator[CheckpointRef]:
    """Those whose manifest can be read and all of whose objects are there with their size.

    The last step comes first. Re-hashes nothing.
    """
    for ref in reversed(store.list_checkpoints()):
        try:
            store.verify_in_place(store.read_manifest(ref))
        except CheckpointError:
            continue
        yield ref


def strangers(store: CheckpointStore) -> list[str]:
    """Names in sets/ that no checkpoint has; nothing is ever done to them."""
    return [
        name
        for name in names_in(store.track_folder / "sets")
        if SET_NAME.fullmatch(name) is None and not name.startswith(".")
    ]


def read_pointers(
    store: CheckpointStore, report: Report
) -> tuple[CheckpointRef | None, dict[str, CheckpointRef]]:
    """HEAD and pins; those that cannot be read go to `report`."""
    head: CheckpointRef | None = None
    pins: dict[str, CheckpointRef] = {}
    try:
        head = store.head()
    except CheckpointError as error:
        report(error)
    try:
        pins = store.pins()
    except CheckpointError as error:
        report(error)
    return head, pins


def find_in_track(store: CheckpointStore, name: str) -> CheckpointRef | None:
    """The checkpoint of a track under an id, `HEAD`, `pin:<name>` or `step:<number>`.

    Of a step that was saved again the newest. None where it has none. Raises `ValueError` for a
    step that is no number, `CheckpointIncompleteError` for a save that was not committed, and
    `CheckpointError` where what was named is damaged.
    """
    if name == HEAD:
        return store.head()
    kind, _, rest = name.partition(":")
    if kind == "pin":
        return store.pins().get(rest)
    if kind == "step" and not (rest.isascii() and rest.isdigit()):
        raise ValueError(f"write step:<number>, not {name!r}")
    step = int(rest) if kind == "step" else None
    damage: list[CheckpointError] = []
    named = [
        ref
        for ref in store.list_checkpoints(report=damage.append)
        if (ref.training_step == step if step is not None else ref.id == name)
    ]
    if named:
        return store.find_checkpoint(step=step, checkpoint=None if step is not None else name)
    for folder in set_folders(store.track_folder):
        found, _, id_ = folder.name.partition("-")
        if int(found) == step if step is not None else id_ == name:
            one = _look_at(store, folder)
            raise one.problem or no_manifest(one)
    return None


def no_manifest(one: ListedCheckpoint) -> CheckpointError:
    """The error for a folder of a checkpoint without its manifest."""
    return CheckpointIncompleteError(
        f"checkpoint {one.id} has no manifest.json: it was not committed (its save was killed, or "
        "is under way), or the file was taken away",
        hint="use another one; `steplog checkpoint check` asks the log of a set which it is, and "
        "`steplog checkpoint gc` takes away what a killed save left",
        step=one.training_step,
    )


def tracks_with(
    stores: Iterable[CheckpointStore], name: str
) -> list[tuple[CheckpointStore, CheckpointRef]]:
    """Every track that has a checkpoint of this name, and which. Raises as `find_in_track`.

    A track where it is damaged or incomplete counts only where no other has it.
    """
    found: list[tuple[CheckpointStore, CheckpointRef]] = []
    failure: CheckpointError | None = None
    for store in stores:
        try:
            ref = find_in_track(store, name)
        except CheckpointError as error:
            failure = failure or error
            continue
        if ref is not None:
            found.append((store, ref))
    if not found and failure is not None:
        raise failure
    return found


def _look_at(store: CheckpointStore, folder: Path) -> ListedCheckpoint:
    step, _, id_ = folder.name.partition("-")
    one = ListedCheckpoint(store.track, int(step), id_, Status.INCOMPLETE)
    try:
        if not is_there(folder / "manifest.json"):
            return one
        ref = read_ref(folder)
        return one._replace(status=Status.COMMITTED, ref=ref, manifest=store.read_manifest(ref))
    except CheckpointError as error:
        return one._replace(status=Status.DAMAGED, problem=error)


def _dangling(what: str, ref: CheckpointRef, store: CheckpointStore) -> CheckpointError:
    return CheckpointIncompleteError(
        f"{what} names checkpoint {ref.id} of step {ref.training_step}, which is not in "
        f"{store.track_folder}, or is damaged",
        hint="restore its folder from a copy, or name another one",
        step=ref.training_step,
    )
