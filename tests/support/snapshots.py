"""Snapshots for tests: of given states, and files that the store reads but does not write."""

from hashlib import sha256
from pathlib import Path

from snapshots.snapshot import Snapshot, encode_delta
from snapshots.snapshot_store import LocalSnapshotStore, SnapshotRef


def make_snapshot(
    state: bytes = b"\x81\xa1n\x01", *, session_id: str = "task/1", step: int = 0
) -> Snapshot:
    """A snapshot whose digests fit; the event digest is made up from session and step."""
    return Snapshot(
        session_id,
        step,
        sha256(f"{session_id!r}@{step}".encode()).digest(),
        sha256(state).digest(),
        "captured",
        "1",
        state,
    )


def put_delta(store: LocalSnapshotStore, snapshot: Snapshot, base: Snapshot) -> SnapshotRef:
    """Put a delta's file where the format says, without going through the store."""
    return put_bytes(store, snapshot, encode_delta(snapshot, base))


def put_bytes(store: LocalSnapshotStore, snapshot: Snapshot, data: bytes) -> SnapshotRef:
    """Put any bytes as the file of a snapshot, rightly named for these bytes."""
    name = f"{snapshot.step:012d}-{sha256(data).hexdigest()[:32]}.snap"
    ref = SnapshotRef(snapshot.session_id, snapshot.step, name, len(data))
    path = file_of(store, ref)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return ref


def file_of(store: LocalSnapshotStore, ref: SnapshotRef) -> Path:
    """Where the format says a snapshot lies, worked out apart from the store."""
    owner = sha256(ref.session_id.encode()).hexdigest()
    return store.folder / owner[:2] / owner / ref.name
