"""Snapshots: CPU to take one per MB of state, and what it takes to put, find and read one."""

import json
import os
import pickle
import tempfile
import zlib
from hashlib import sha256
from pathlib import Path
from typing import Final

from benchmarks.harness import Row, measure_cpu, report
from eventlog.canonical import encode
from snapshots.snapshot import Snapshot, encode_delta, encode_snapshot
from snapshots.snapshot_store import LocalSnapshotStore

DATA: Final = Path(os.environ.get("STEPLOG_TEST_DATA", "../shared/data"))
BAR_MS_PER_MB: Final = 2.0
TEXT_STATE_BYTES: Final = 419_000
REPEAT: Final = 15


def airline_state() -> object:
    """The three tables of the airline environment: 2.5 MB of records."""
    folder = DATA / "states" / "tau_bench_airline"
    return {
        path.stem: json.loads(path.read_text(encoding="utf-8")) for path in folder.glob("*.json")
    }


def text_state() -> object:
    """A transcript of so many bytes, as agents hold it: messages, calls, long results."""
    path = DATA / "traces" / "tau_bench_airline" / "gpt-4o-airline.trial0.jsonl"
    messages: list[object] = []
    size = 0
    for line in path.read_text(encoding="utf-8").splitlines():
        messages.append(json.loads(line))
        size += len(encode(messages[-1]))
        if size >= TEXT_STATE_BYTES:
            break
    return {"messages": messages}


def snapshot_of(state: bytes, step: int) -> Snapshot:
    """A snapshot of these canonical bytes."""
    return Snapshot("bench", step, bytes(32), sha256(state).digest(), "captured", "1", state)


def with_one_record_changed(state: bytes) -> bytes:
    """The state after a step that touched one place in its middle."""
    middle = len(state) // 2
    return state[:middle] + b"another value" + state[middle + 13 :]


def rows_of(what: str, value: object, store: LocalSnapshotStore) -> list[Row]:
    """The figures of one state."""
    state = encode(value)
    megabytes = len(state) / 1e6
    before = snapshot_of(state, 0)
    changed = with_one_record_changed(state)
    after = snapshot_of(changed, 1)
    label = f"{what} ({megabytes:.2f} MB)"

    full = encode_snapshot(before)
    take_ms = measure_cpu(lambda: encode_snapshot(before), REPEAT).best_cpu_s * 1e3
    peer_ms = (
        measure_cpu(lambda: zlib.compress(pickle.dumps(value)), max(3, REPEAT // 5)).best_cpu_s
        * 1e3
    )
    delta = encode_delta(after, before)
    delta_ms = measure_cpu(lambda: encode_delta(after, before), REPEAT).best_cpu_s * 1e3
    put = measure_cpu(lambda: store.put_snapshot(before), REPEAT)
    ref = store.put_snapshot(before)
    get = measure_cpu(lambda: store.get_snapshot(ref), REPEAT)
    return [
        Row(
            f"take a snapshot, {label}: CPU per MB of state",
            f"<= {BAR_MS_PER_MB:.0f} ms",
            f"{peer_ms / megabytes:.1f} ms (pickle + zlib)",
            f"{take_ms / megabytes:.2f} ms, {len(full) / 1e3:.1f} kB",
            take_ms / megabytes <= BAR_MS_PER_MB,
        ),
        Row(
            f"the same as a delta, one record changed, {label}",
            "-",
            "-",
            f"{delta_ms / megabytes:.2f} ms, {len(delta)} B",
            None,
        ),
        Row(
            f"put it in the store, {label}",
            "-",
            "-",
            f"{put.best_cpu_s * 1e3 / megabytes:.2f} ms CPU per MB, "
            f"{put.best_wall_s * 1e3:.1f} ms wall",
            None,
        ),
        Row(
            f"get it from the store, {label}",
            "-",
            "-",
            f"{get.best_cpu_s * 1e3 / megabytes:.2f} ms CPU per MB",
            None,
        ),
    ]


def nearest_row(store: LocalSnapshotStore) -> Row:
    """Finding the nearest among many: what it adds to a replay."""
    kept = 400
    for step in range(kept):
        store.put_snapshot(
            snapshot_of(b"\xc6" + step.to_bytes(8, "big"), step)._replace(session_id="many")
        )
    found = measure_cpu(lambda: next(store.nearest_snapshots("many", kept // 2)), REPEAT)
    return Row(
        f"find the nearest of {kept} snapshots", "-", "-", f"{found.best_cpu_s * 1e3:.2f} ms", None
    )


def main() -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory() as folder:
        store = LocalSnapshotStore(Path(folder) / "snapshots")
        report(
            [
                *rows_of("airline records", airline_state(), store),
                *rows_of("transcript", text_state(), store),
                nearest_row(store),
            ]
        )


if __name__ == "__main__":
    main()
