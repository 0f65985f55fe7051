"""Capture: CPU of one step of a 2.5 MB state, from the live value to what its event carries."""

import json
import os
from copy import deepcopy
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from benchmarks.harness import Row, measure_cpu, report
from eventlog.canonical import digest_of, encode
from eventlog.encoded_state import EncodedState

DATA: Final = Path(os.environ.get("STEPLOG_TEST_DATA", "../shared/data"))
TABLES: Final = ("flights", "reservations", "users")
BAR_CHANGED_MS: Final = 30.0
BAR_UNCHANGED_MS: Final = 8.0
STEPS: Final = 25


def airline_state() -> Any:
    """The three tables of the airline environment: 2.5 MB of records."""
    folder = DATA / "states" / "tau_bench_airline"
    return {
        table: json.loads((folder / f"{table}.json").read_text(encoding="utf-8"))
        for table in TABLES
    }


def one_record_changed(state: Any, step: int) -> None:
    """What a tool call does to the live state: one reservation is updated."""
    reservations = state["reservations"]
    record = reservations[sorted(reservations)[step * 37 % len(reservations)]]
    record["status"] = f"changed at {step}"
    record["payment_history"].append({"payment_id": f"certificate_{step}", "amount": -step})


def peer_step(state: Any) -> bytes:
    """What environments do today: a deep copy to keep, and a hash of sorted JSON."""
    kept = deepcopy(state)
    return sha256(json.dumps(kept, sort_keys=True).encode()).digest()


def changed_step(state: Any, before: EncodedState) -> tuple[bytes, bytes, EncodedState]:
    """The patch, the digest, and the state that the next step is compared with."""
    data = encode(state)
    patch, following = before.patch_to(data)
    return patch, digest_of(data), following


def main() -> None:
    """Print the figures: the first step (which reads the state once), the others, and no change."""
    state = airline_state()
    peer_ms = measure_cpu(lambda: peer_step(state), 5).best_cpu_s * 1e3
    first = encode(state)
    one_record_changed(state, 0)
    first_ms = measure_cpu(lambda: changed_step(state, EncodedState(first)), 5).best_cpu_s * 1e3
    _, _, before = changed_step(state, EncodedState(first))
    changed_ms, patch_bytes = [], []
    for step in range(1, STEPS):
        one_record_changed(state, step)
        measured = measure_cpu(partial(changed_step, state, before), 1)
        changed_ms.append(measured.best_cpu_s * 1e3)
        patch, _, before = changed_step(state, before)
        patch_bytes.append(len(patch))
    unchanged = measure_cpu(lambda: encode(state) == before.data, STEPS).best_cpu_s * 1e3
    ours = sorted(changed_ms)[len(changed_ms) // 2]
    peer = f"deepcopy + sorted JSON + SHA-256 {peer_ms:.0f} ms"
    size = f"patch {max(patch_bytes)} B"
    bar, none = f"<= {BAR_CHANGED_MS:.0f} ms", f"<= {BAR_UNCHANGED_MS:.0f} ms"
    report(
        [
            Row(
                "capture of 2.5 MB, one record changed",
                bar,
                peer,
                f"{ours:.1f} ms, {size}",
                ours <= BAR_CHANGED_MS,
            ),
            Row(
                "the same, first step of a session",
                bar,
                peer,
                f"{first_ms:.1f} ms",
                first_ms <= BAR_CHANGED_MS,
            ),
            Row(
                "capture of 2.5 MB, nothing changed",
                none,
                peer,
                f"{unchanged:.1f} ms",
                unchanged <= BAR_UNCHANGED_MS,
            ),
        ]
    )


if __name__ == "__main__":
    main()
