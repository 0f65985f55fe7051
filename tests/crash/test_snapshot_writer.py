"""A process is killed while it puts snapshots: those it was told of are kept, all are whole."""

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

from eventlog.errors import SnapshotError
from snapshots.snapshot_store import LocalSnapshotStore
from tests.support.scale import scaled
from tests.support.snapshots import make_snapshot

ROOT = Path(__file__).resolve().parents[2]

_WRITER = """
import sys
from snapshots.snapshot_store import LocalSnapshotStore
from tests.crash.test_snapshot_writer import state_of
from tests.support.snapshots import make_snapshot
store = LocalSnapshotStore(sys.argv[1])
for step in range(1_000_000):
    ref = store.put_snapshot(make_snapshot(state_of(step), step=step))
    print(ref.name, flush=True)
"""


def state_of(step: int) -> bytes:
    """A state that no other step has, and that does not compress to nothing."""
    return random.Random(step).randbytes(60_000)


def test_a_killed_writer_leaves_only_whole_snapshots(tmp_path: Path) -> None:
    source = random.Random(5)
    for number in range(scaled(6, 60)):
        store = LocalSnapshotStore(tmp_path / str(number))
        writer = subprocess.Popen(
            [sys.executable, "-c", _WRITER, str(store.folder)],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert writer.stdout is not None
        told = [writer.stdout.readline().strip()]
        time.sleep(source.uniform(0, 0.05))
        writer.send_signal(signal.SIGKILL)
        told += [line.strip() for line in writer.stdout if line.endswith("\n")]
        writer.wait()
        writer.stdout.close()

        reports: list[SnapshotError] = []
        refs = list(store.list_snapshots(report=reports.append))
        assert reports == []
        assert [ref.name for ref in refs][: len(told)] == told
        assert len(refs) <= len(told) + 1
        for ref in refs:
            assert store.get_snapshot(ref) == make_snapshot(state_of(ref.step), step=ref.step)
