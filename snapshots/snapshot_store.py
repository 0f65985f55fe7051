"""`SnapshotStore`: snapshots kept by session and step, and the one that keeps them in a folder.

A snapshot never changes: its file is named by the SHA-256 of its bytes, so putting one again is
harmless, and a file that is cut, altered, renamed or moved is a `SnapshotError` that names it and
never a wrong state. Listing passes over what it cannot read and reports it. Used by whoever takes
snapshots, by replay (which falls back to an older one, or the log) and by `check`.
"""

import errno
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Final, NamedTuple

from eventlog.durable_file import hint_of, sync_folder, write_whole
from eventlog.errors import LogUnavailableError, SnapshotError
from snapshots.snapshot import (
    ID_PREFIX_BYTES,
    SNAPSHOT_BYTES_MAX,
    Snapshot,
    SnapshotRecord,
    decode_record,
    decode_session_id,
    encode_snapshot,
    restore_snapshot,
)
from snapshots.snapshot_folder import (
    Report,
    damaged,
    files_in,
    folders_in,
    read_file,
    read_front,
    refuse_links,
    size_of,
)

CHAIN_MAX: Final = 16
"""Most deltas between a snapshot and the full one it rests on."""

_FAN_NAME: Final = re.compile(r"[0-9a-f]{2}")
_FOLDER_NAME: Final = re.compile(r"[0-9a-f]{64}")
_FILE_NAME: Final = re.compile(r"([0-9]{12})-([0-9a-f]{32})\.snap")
_HALF_NAME: Final = re.compile(r"\..*\.tmp")
_IN_THE_WAY: Final = frozenset((errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ELOOP))


class SnapshotRef(NamedTuple):
    """Where a snapshot is kept: session, step, its name there, and its size in bytes as kept."""

    session_id: str
    step: int
    name: str
    stored_bytes: int


def pass_over(_damage: SnapshotError) -> None:
    """Report to nobody."""


class SnapshotStore(ABC):
    """Keeps immutable snapshots. Thread-safe; pickling carries only the place."""

    @abstractmethod
    def put_snapshot(self, snapshot: Snapshot) -> SnapshotRef:
        """Keep `snapshot`; return where only when it is durable.

        Idempotent: an equal snapshot is kept once, a damaged copy is replaced. Raises
        `SnapshotError` where a field or the state's digest is wrong, `LogUnavailableError` naming
        the place where it cannot be written (full, read-only); then nothing was kept.
        """

    @abstractmethod
    def nearest_snapshots(
        self, session_id: str, step: int, *, report: Report = pass_over
    ) -> Iterator[SnapshotRef]:
        """The session's own snapshots of steps <= `step`, newest step first; none is opened yet.

        There may be several of one step: of lines that were rewound. What cannot be listed goes
        to `report`; nothing is raised.
        """

    @abstractmethod
    def get_snapshot(self, ref: SnapshotRef) -> Snapshot:
        """The snapshot, its bytes, its state and all it rests on re-hashed.

        Raises `SnapshotError` naming the place where it is missing, damaged, another one, of a
        newer format, or rests on more than `CHAIN_MAX` deltas.
        """

    @abstractmethod
    def list_snapshots(
        self, session_id: str | None = None, *, report: Report = pass_over
    ) -> Iterator[SnapshotRef]:
        """The snapshots kept for one session, or for all: by session, then by step upwards.

        Does not re-hash. What cannot be listed goes to `report`; nothing is raised.
        """

    def find_damage(self, session_id: str | None = None) -> Iterator[SnapshotError]:
        """Re-hash the snapshots of one session, or of all, and say what is wrong with which."""
        damage: list[SnapshotError] = []
        for ref in self.list_snapshots(session_id, report=damage.append):
            try:
                self.get_snapshot(ref)
            except SnapshotError as error:
                damage.append(error)
            yield from damage
            damage.clear()
        yield from damage


class LocalSnapshotStore(SnapshotStore):
    """Snapshots as files `<folder>/<2 hex>/<64 hex>/<step, 12 digits>-<32 hex>.snap`.

    The 64 hex are the SHA-256 of the session id, so no id can lead out of the folder; the 32 hex
    are the front of the SHA-256 of the file. Nothing below `folder` is reached through a link.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        """`folder` is made when the first snapshot is put; opening touches no file."""
        self._folder = Path(folder).absolute()

    @property
    def folder(self) -> Path:
        """Where the snapshots lie."""
        return self._folder

    def __reduce__(self) -> tuple[type["LocalSnapshotStore"], tuple[str]]:
        return (type(self), (str(self._folder),))

    def put_snapshot(self, snapshot: Snapshot) -> SnapshotRef:
        """Keep `snapshot`; return where when the file and its folder entry are synced."""
        data = encode_snapshot(snapshot)
        name = f"{snapshot.step:012d}-{_short_digest(data)}.snap"
        path = self._session_folder(snapshot.session_id) / name
        try:
            self._make_folder(path.parent)
            write_whole(path, data)
            sync_folder(path.parent)
        except OSError as error:
            raise _not_written(path, error) from error
        return SnapshotRef(snapshot.session_id, snapshot.step, name, len(data))

    def nearest_snapshots(
        self, session_id: str, step: int, *, report: Report = pass_over
    ) -> Iterator[SnapshotRef]:
        """The session's snapshot files of steps <= `step`, newest step first."""
        files = _snapshot_files(self._session_folder(session_id), report)
        return self._refs(session_id, ((at, name) for at, name in reversed(files) if at <= step))

    def get_snapshot(self, ref: SnapshotRef) -> Snapshot:
        """The snapshot in a file; its bytes, state and bases re-hashed."""
        try:
            return self._restore(ref, _record_in(self.path_of(ref), ref), CHAIN_MAX, set())
        except SnapshotError as error:
            error.session_id, error.step = ref.session_id, ref.step
            raise

    def list_snapshots(
        self, session_id: str | None = None, *, report: Report = pass_over
    ) -> Iterator[SnapshotRef]:
        """The snapshot files of one session, or of all: in order of folder, then of step."""
        if session_id is not None:
            files = _snapshot_files(self._session_folder(session_id), report)
            yield from self._refs(session_id, files)
            return
        for fan in folders_in(self._folder, _FAN_NAME, report):
            for folder in folders_in(fan, _FOLDER_NAME, report):
                found = _owner_of(folder, report)
                if found is not None:
                    yield from self._refs(found, _snapshot_files(folder, report))

    def path_of(self, ref: SnapshotRef) -> Path:
        """The file a reference stands for, whether or not it is there. Raises `SnapshotError`."""
        path = self._session_folder(ref.session_id) / ref.name
        matched = _FILE_NAME.fullmatch(ref.name)
        if matched is None or int(matched[1]) != ref.step:
            raise damaged(path, f"no snapshot of step {ref.step} has that name")
        return path

    def _session_folder(self, session_id: str) -> Path:
        name = sha256(session_id.encode("utf-8", "surrogatepass")).hexdigest()
        return self._folder / name[:2] / name

    def _make_folder(self, folder: Path) -> None:
        """Make what is missing of the path to `folder`, and make its entries durable."""
        refuse_links(folder)
        made = [folder, folder.parent]
        while not made[-1].parent.is_dir():
            made.append(made[-1].parent)
        folder.mkdir(parents=True, exist_ok=True)
        # Also those another process made: it may not have come to its sync yet.
        for each in reversed(made):
            sync_folder(each.parent)

    def _refs(self, session_id: str, files: Iterable[tuple[int, str]]) -> Iterator[SnapshotRef]:
        folder = self._session_folder(session_id)
        for step, name in files:
            size = size_of(folder / name)
            if size is not None:
                yield SnapshotRef(session_id, step, name, size)

    def _restore(
        self, ref: SnapshotRef, record: SnapshotRecord, deltas_left: int, failed: set[str]
    ) -> Snapshot:
        """The snapshot of a file's record. `failed` names the files already tried in vain."""
        path = self.path_of(ref)
        try:
            base_state = None
            if record.base_step is not None:
                if deltas_left == 0:
                    raise damaged(path, f"it rests on more than {CHAIN_MAX} deltas")
                base_state = self._base_state(path, record, deltas_left - 1, failed)
            return _restored(path, record, base_state)
        except SnapshotError:
            failed.add(ref.name)
            raise

    def _base_state(
        self, path: Path, record: SnapshotRecord, deltas_left: int, failed: set[str]
    ) -> bytes:
        """The state a delta stands on, from any sound snapshot of that step and digest."""
        why = "there is none"
        files = _snapshot_files(path.parent, pass_over)
        candidates = [
            (step, name) for step, name in files if step == record.base_step and name not in failed
        ]
        for ref in self._refs(record.session_id, candidates):
            try:
                base = _record_in(self.path_of(ref), ref)
                if base.state_digest == record.base:
                    return self._restore(ref, base, deltas_left, failed).state
            except SnapshotError as error:
                why = error.message
        raise damaged(path, f"its base of step {record.base_step} cannot be used: {why}")


def _record_in(path: Path, ref: SnapshotRef) -> SnapshotRecord:
    data = read_file(path, bytes_max=SNAPSHOT_BYTES_MAX)
    if not ref.name.endswith(f"-{_short_digest(data)}.snap"):
        raise damaged(path, f"its {len(data)} bytes do not have the SHA-256 in its name")
    try:
        record = decode_record(data)
    except SnapshotError as error:
        raise damaged(path, error.message) from error
    if (record.session_id, record.step) != (ref.session_id, ref.step):
        raise damaged(path, f"it is of session {record.session_id!r}, step {record.step}")
    return record


def _restored(path: Path, record: SnapshotRecord, base_state: bytes | None) -> Snapshot:
    try:
        return restore_snapshot(record, base_state)
    except SnapshotError as error:
        raise damaged(path, error.message) from error


def _snapshot_files(folder: Path, report: Report) -> list[tuple[int, str]]:
    """Step and name of the files named as snapshots are, by step upwards; all else is reported."""
    found = []
    for name in files_in(folder, report):
        matched = _FILE_NAME.fullmatch(name)
        if matched is not None:
            found.append((int(matched[1]), name))
        elif _HALF_NAME.fullmatch(name) is None:  # a half-written file may be another's, now
            report(damaged(folder / name, "it is not named as a snapshot is"))
    return found  # steps have 12 digits, so the order of names is that of steps


def _owner_of(folder: Path, report: Report) -> str | None:
    """The session whose folder this is, as its files have it; the name must be the id's hash."""
    problems: list[SnapshotError] = []
    files = _snapshot_files(folder, problems.append)
    for _step, name in files:
        path = folder / name
        try:
            session_id = decode_session_id(read_front(path, front_bytes=ID_PREFIX_BYTES))
        except SnapshotError as error:
            problems.append(damaged(path, error.message))
            continue
        if sha256(session_id.encode()).hexdigest() == folder.name:
            return session_id  # what else lies there is reported when it is listed, or read
        problems.append(damaged(path, f"it is of session {session_id!r}, in another one's folder"))
    if files:
        problems.append(damaged(folder, "no file in it says whose snapshots these are"))
    for problem in problems:
        report(problem)
    return None


def _short_digest(data: bytes) -> str:
    return sha256(data).hexdigest()[:32]


def _not_written(path: Path, error: OSError) -> SnapshotError | LogUnavailableError:
    reason = error.strerror or str(error)
    if error.errno in _IN_THE_WAY:
        return damaged(path, f"something else stands where it belongs: {reason}")
    return LogUnavailableError(f"snapshot {path} cannot be written: {reason}", hint=hint_of(error))
