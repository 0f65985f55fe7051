"""Replay: folding, the state at any step, forks, listing a history, and memory.

One session of 100,000 steps with a small captured state: every other event changes it, every digest
and every link is checked. `--quick` takes a tenth of it; `--full` also opens one of 10,000 sessions
in a workspace of 10 million events (some minutes and gigabytes) instead of 1 million.
"""

import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from benchmarks._sessions import build_session, build_workspace, directory_bytes
from benchmarks.harness import NOT_INSTALLED, Row, measure_cpu, peer_installed, percentile, report
from replay.workspace import Workspace, open_workspace

QUICK: Final = "--quick" in sys.argv
FULL: Final = "--full" in sys.argv
STEPS: Final = 10_000 if QUICK else 100_000
SNAPSHOT_EVERY: Final = 256
MEMORY_EVENTS: Final = 100_000 if QUICK else 1_000_000
OPEN_SESSIONS: Final = 1_000 if QUICK else 10_000
OPEN_EVENTS: Final = 100_000 if QUICK else 10_000_000 if FULL else 1_000_000
SAMPLES: Final = 400
FORKS: Final = 200
PEER_EVENTS: Final = 20_000

FOLD_BAR_PER_S: Final = 100_000
ANY_STEP_BAR_MS: Final = (8.0, 25.0)
NO_SNAPSHOT_BAR_S: Final = 1.0
FORK_BAR_MS: Final = 5.0
FORK_BAR_BYTES: Final = 2_048
LIST_BAR_PER_S: Final = 100_000
MEMORY_BAR_MB: Final = 200
OPEN_BAR_MS: Final = 20.0

MEASURES_MEMORY: Final = """
import resource, sys
from replay.workspace import open_workspace
with open_workspace(sys.argv[1]) as ws:
    begun_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    replayed = ws.replay("s", use_snapshots=False)
    print(replayed.folded, begun_kib, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def wall_ms(fn: Callable[[], object]) -> float:
    """How long one call takes by the wall clock."""
    start = time.perf_counter()
    fn()
    return (time.perf_counter() - start) * 1e3


def fold_rows(ws: Workspace) -> list[Row]:
    """The whole session folded from its seed."""
    measured = measure_cpu(lambda: ws.replay("s", use_snapshots=False), repeat=3)
    rate = STEPS / measured.best_cpu_s
    return [
        Row(
            f"fold of {STEPS:,} events, digests and parents checked, CPU",
            f">= {FOLD_BAR_PER_S:,} ev/s",
            peer_fold(),
            f"{rate:,.0f} ev/s",
            rate >= FOLD_BAR_PER_S,
        ),
        Row(
            f"state at the last of {STEPS:,} steps, no snapshot, wall",
            f"<= {NO_SNAPSHOT_BAR_S:.1f} s",
            "eventsourcing 3.3 s (research)",
            f"{measured.best_wall_s:.2f} s",
            None if QUICK else measured.best_wall_s <= NO_SNAPSHOT_BAR_S,
        ),
    ]


def peer_fold() -> str:
    """eventsourcing: an aggregate of so many events brought back from its SQLite store."""
    if not peer_installed("eventsourcing"):
        return NOT_INSTALLED
    from eventsourcing.application import Application
    from eventsourcing.domain import Aggregate, event

    class Desk(Aggregate):
        def __init__(self) -> None:
            self.count = 0
            self.orders: dict[str, int] = {}

        @event("Refunded")
        def refund(self, order: str) -> None:
            """One more."""
            self.count += 1
            self.orders[order] = self.orders.get(order, 0) + 1

    with tempfile.TemporaryDirectory() as folder:
        store = {"PERSISTENCE_MODULE": "eventsourcing.sqlite", "SQLITE_DBNAME": f"{folder}/log.db"}
        app: Any = Application(env=store)
        desk: Any = Desk()
        for number in range(PEER_EVENTS):
            desk.refund(f"o{number % 4}")
        app.save(desk)
        measured = measure_cpu(lambda: app.repository.get(desk.id), repeat=3)
        app.close()
    return f"eventsourcing {PEER_EVENTS / measured.best_cpu_s:,.0f} ev/s, nothing checked"


def any_step_row(ws: Workspace, log_bytes: int) -> Row:
    """Random steps, each replayed from the nearest snapshot."""
    snapshot_bytes = directory_bytes(ws.folder / "snapshots")
    rng = random.Random(1)
    taken: dict[str, list[float]] = {"all": [], "first": [], "last": []}
    for _ in range(SAMPLES):
        step = rng.randrange(STEPS)
        ms = wall_ms(lambda step=step: ws.replay("s", step))  # type: ignore[misc]
        taken["all"].append(ms)
        if step < STEPS // 10:
            taken["first"].append(ms)
        elif step >= STEPS - STEPS // 10:
            taken["last"].append(ms)
    p50, p99 = statistics.median(taken["all"]), percentile(taken["all"], 99)
    ends = [statistics.median(taken[end]) for end in ("first", "last")]
    share = snapshot_bytes / log_bytes
    met = p50 <= ANY_STEP_BAR_MS[0] and p99 <= ANY_STEP_BAR_MS[1] and share <= 0.01
    return Row(
        f"state at any of {STEPS:,} steps, snapshots {share:.1%} of the log's bytes, wall",
        f"p50 <= {ANY_STEP_BAR_MS[0]:.0f} ms, p99 <= {ANY_STEP_BAR_MS[1]:.0f} ms",
        "eventsourcing 15 ms at 20k steps (research)",
        f"p50 {p50:.1f}, p99 {p99:.1f} ms (first tenth {ends[0]:.1f}, last {ends[1]:.1f})",
        met,
    )


def fork_rows(ws: Workspace) -> list[Row]:
    """Forks at random steps: time, and what each adds to the log's file."""
    rng = random.Random(2)
    ws.log.close()
    with open_workspace(ws.folder) as again:
        before = (again.folder / "log.db").stat().st_size
        cpu_start = time.process_time()
        taken = [
            wall_ms(lambda: again.fork("s", rng.randrange(STEPS), name=f"b{number}"))  # noqa: B023
            for number in range(FORKS)
        ]
        cpu_ms = (time.process_time() - cpu_start) / FORKS * 1e3
    grown = ((ws.folder / "log.db").stat().st_size - before) / FORKS
    p50 = statistics.median(taken)
    return [
        Row(
            f"fork at any of {STEPS:,} steps, durable, wall",
            f"<= {FORK_BAR_MS:.0f} ms",
            "LangGraph 3-11 ms and growing (research)",
            f"p50 {p50:.1f} ms ({cpu_ms:.2f} ms CPU)",
            p50 <= FORK_BAR_MS,
        ),
        Row(
            "  what a fork adds to the log's file",
            f"<= {FORK_BAR_BYTES:,} B",
            "DBOS copies rows (research)",
            f"{grown:,.0f} B",
            grown <= FORK_BAR_BYTES,
        ),
    ]


def listing_row(ws: Workspace) -> Row:
    """A session's history: step, kind, digest of each event; no body and no state is decoded."""
    measured = measure_cpu(
        lambda: [
            (record.prefix.step, record.prefix.kind, record.digest)
            for record in ws.log.read_session("s")
        ],
        repeat=3,
    )
    rate = STEPS / measured.best_cpu_s
    return Row(
        "history listing without state decode, each event re-hashed, CPU",
        f">= {LIST_BAR_PER_S:,}/s",
        "LangGraph 25k/s (research)",
        f"{rate:,.0f}/s",
        rate >= LIST_BAR_PER_S,
    )


def memory_row(folder: Path) -> Row:
    """What a process takes at most while it folds a long session."""
    build_session(folder, MEMORY_EVENTS)
    done = subprocess.run(
        [sys.executable, "-c", MEASURES_MEMORY, str(folder)],
        capture_output=True,
        text=True,
        check=True,
    )
    folded, begun, most = map(int, done.stdout.split())
    return Row(
        f"memory of replaying {folded + 1:,} events",
        f"<= {MEMORY_BAR_MB} MB",
        "-",
        f"{most / 1024:.0f} MB ({begun / 1024:.0f} before the replay)",
        None if QUICK else most / 1024 <= MEMORY_BAR_MB,
    )


def open_row(folder: Path) -> Row:
    """A workspace of many sessions opened, and one of them replayed to its end."""
    names = build_workspace(folder, OPEN_SESSIONS, OPEN_EVENTS)
    rng = random.Random(3)
    opened, replayed = [], []
    for _ in range(40):
        start = time.perf_counter()
        with open_workspace(folder) as ws:
            name = rng.choice(names)
            ws.session(name)
            opened.append((time.perf_counter() - start) * 1e3)
            ws.replay(name)
            replayed.append((time.perf_counter() - start) * 1e3)
    p50 = statistics.median(opened)
    return Row(
        f"open one of {OPEN_SESSIONS:,} sessions in {OPEN_EVENTS / 1e6:g}M events, wall",
        f"<= {OPEN_BAR_MS:.0f} ms",
        "-",
        f"p50 {p50:.1f}, worst {max(opened):.1f} ms; replayed to its end "
        f"{statistics.median(replayed):.1f} ms",
        p50 <= OPEN_BAR_MS,
    )


def main() -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory(dir=os.environ.get("STEPLOG_BENCH_FOLDER")) as name:
        folder = Path(name)
        build_session(folder / "long", STEPS, snapshot_every=SNAPSHOT_EVERY)
        log_bytes = (folder / "long" / "log.db").stat().st_size
        with open_workspace(folder / "long") as ws:
            rows = [*fold_rows(ws), any_step_row(ws, log_bytes), listing_row(ws), *fork_rows(ws)]
        rows += [memory_row(folder / "memory"), open_row(folder / "many")]
        report(rows)


if __name__ == "__main__":
    main()
