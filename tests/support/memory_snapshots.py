"""A snapshot store in a dict, for tests that take many."""

from collections.abc import Iterator

from eventlog.errors import SnapshotError
from snapshots.snapshot import Snapshot
from snapshots.snapshot_folder import Report
from snapshots.snapshot_store import SnapshotRef, SnapshotStore, pass_over


class MemorySnapshotStore(SnapshotStore):
    """Keeps snapshots as they are; there is nothing to damage."""

    def __init__(self) -> None:
        self._kept: dict[SnapshotRef, Snapshot] = {}

    def put_snapshot(self, snapshot: Snapshot) -> SnapshotRef:
        """Keep it."""
        name = f"{snapshot.event_digest.hex()}/{snapshot.reducer}"
        ref = SnapshotRef(snapshot.session_id, snapshot.step, name, len(snapshot.state))
        self._kept[ref] = snapshot
        return ref

    def nearest_snapshots(
        self, session_id: str, step: int, *, report: Report = pass_over
    ) -> Iterator[SnapshotRef]:
        """Newest step first."""
        del report
        found = [ref for ref in self._kept if ref.session_id == session_id and ref.step <= step]
        return iter(sorted(found, key=lambda ref: -ref.step))

    def get_snapshot(self, ref: SnapshotRef) -> Snapshot:
        """The snapshot."""
        if ref not in self._kept:
            raise SnapshotError("no such snapshot", hint="")
        return self._kept[ref]

    def list_snapshots(
        self, session_id: str | None = None, *, report: Report = pass_over
    ) -> Iterator[SnapshotRef]:
        """By session and step."""
        del report
        return iter(sorted(ref for ref in self._kept if session_id in (None, ref.session_id)))
