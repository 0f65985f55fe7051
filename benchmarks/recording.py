"""Recording: what a call costs the environment, and what a list-like state adds to the log.

The overhead is everything a `with session.call(...)` does: both events, the state captured and
compared, the digests, the durable commit (CPU of all threads; the disk's wait is not ours to
shorten). The bar of 60 us is for the asynchronous mode, which is yet to come; here is its work.
"""

import os
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from benchmarks._sessions import directory_bytes
from benchmarks.harness import NOT_INSTALLED, Row, peer_installed, percentile, report
from eventlog.canonical import encode
from eventlog.recorder import SessionRecorder
from eventlog.recording.state_capture import StateCapture
from replay.workspace import Workspace, open_workspace

WARM: Final = 300
CALLS: Final = 2_000
RECORD_BYTES: Final = 321_000
CHANGE_BAR_BYTES: Final = 150
CHANGE_BAR_MS: Final = 5.0
CHANGES: Final = 60
GROWTH_STEPS: Final = 600
GROWTH_BAR: Final = 2.1
TEXT: Final = "a line of what was seen and done "


def small_state() -> dict[str, Any]:
    """Some 200 bytes: four orders and a counter."""
    orders = {f"o{number}": {"status": "new", "n": 0} for number in range(4)}
    return {"orders": orders, "count": 0, "last": None}


def timed(act: Callable[[int], object]) -> tuple[list[float], list[float]]:
    """CPU (all threads) and wall microseconds of each call of `act`."""
    for number in range(WARM):
        act(number)
    cpu, wall = [], []
    for number in range(CALLS):
        wall_start, cpu_start = time.perf_counter(), time.process_time()
        act(number)
        cpu.append((time.process_time() - cpu_start) * 1e6)
        wall.append((time.perf_counter() - wall_start) * 1e6)
    return cpu, wall


def figures(cpu: list[float], wall: list[float]) -> str:
    """Median and 99th percentile, as text."""
    return (
        f"CPU p50 {statistics.median(cpu):.0f} us, p99 {percentile(cpu, 99):.0f} us "
        f"(wall p50 {statistics.median(wall):.0f} us)"
    )


def overhead_rows(folder: Path) -> list[Row]:
    """`session.call` with a small state: changed by each call, and not."""
    with open_workspace(folder / "overhead") as ws:
        rows = []
        for what, changes in (("changed by each call", True), ("not changed", False)):
            state = small_state()
            session = ws.record(what, environment="bench", state=lambda: state)  # noqa: B023
            act = caller(session, state, changes)
            rows.append(
                Row(
                    f"session.call, durable return, small state {what}",
                    "-",
                    peer_overhead(folder / what) if changes else "-",
                    figures(*timed(act)),
                    None,
                )
            )
        return rows


def caller(
    session: SessionRecorder, state: dict[str, Any], changes: bool
) -> Callable[[int], object]:
    """One call of a tool that does nearly nothing."""

    def act(number: int) -> None:
        with session.call("refund", {"order": f"o{number % 4}"}, call_id="c") as call:
            if changes:
                state["orders"][f"o{number % 4}"]["n"] += 1
                state["count"] += 1
            call.result = "done"

    return act


def peer_overhead(folder: Path) -> str:
    """eventsourcing: two events of the same content saved to its SQLite store."""
    if not peer_installed("eventsourcing"):
        return NOT_INSTALLED
    from eventsourcing.application import Application
    from eventsourcing.domain import Aggregate

    class Session(Aggregate):
        class Called(Aggregate.Event):
            tool: str
            call_id: str
            arguments: object

        class Returned(Aggregate.Event):
            result: object
            state: object

    folder.mkdir(parents=True)
    store = {"PERSISTENCE_MODULE": "eventsourcing.sqlite", "SQLITE_DBNAME": f"{folder}/log.db"}
    app: Any = Application(env=store)
    session: Any = Session()
    state = small_state()

    def act(number: int) -> None:
        order = f"o{number % 4}"
        session.trigger_event(
            Session.Called, tool="refund", call_id="c", arguments={"order": order}
        )
        state["orders"][order]["n"] += 1
        session.trigger_event(Session.Returned, result="done", state=state)
        app.save(session)

    cpu, _ = timed(act)
    app.close()
    return f"eventsourcing CPU p50 {statistics.median(cpu):.0f} us; LangGraph 400 us (research)"


def tables() -> dict[str, Any]:
    """A workplace of 321 kB: mail, calendar, customers, tasks, as lists of records in tables."""
    rng = random.Random(8)
    state: dict[str, Any] = {name: {} for name in ("mail", "calendar", "customers", "tasks")}
    number = 0
    while number % 50 or len(encode(state)) < RECORD_BYTES:
        table = ("mail", "calendar", "customers", "tasks")[number % 4]
        state[table][f"{number:08}"] = {
            "subject": f"subject {rng.randrange(10_000)}",
            "body": TEXT * rng.randrange(1, 8),
            "from": f"user{rng.randrange(90)}@example.com",
            "status": rng.choice(("open", "done", "later")),
            "priority": rng.randrange(5),
        }
        number += 1
    return state


def change_row() -> Row:
    """One field of one record changes in each step."""
    state = tables()
    capture, _ = StateCapture.of_first(state)
    rng = random.Random(9)
    taken, sizes = [], []
    for number in range(CHANGES):
        table = state[rng.choice(list(state))]
        table[rng.choice(list(table))]["status"] = f"seen {number}"
        start = time.process_time()
        captured = capture.change_to(state)
        capture.adopt(captured)
        taken.append((time.process_time() - start) * 1e3)
        patch: Any = captured.change
        sizes.append(len(patch.patch.data))
    ms, size = statistics.median(taken), max(sizes)
    return Row(
        f"one-record change in a {len(capture.base) / 1e3:.0f} kB state: capture, CPU",
        f"<= {CHANGE_BAR_BYTES} B, <= {CHANGE_BAR_MS:.0f} ms",
        "full 40 kB (research)",
        f"patch <= {size} B, p50 {ms:.2f} ms, worst {max(taken):.2f} ms",
        size <= CHANGE_BAR_BYTES and ms <= CHANGE_BAR_MS,
    )


def grown_bytes(ws: Workspace, steps: int) -> int:
    """A session whose state is a list that each call adds a line to; the workspace's bytes."""
    state: dict[str, Any] = {"lines": []}
    rng = random.Random(10)
    with ws.record("s", environment="bench", state=lambda: state) as session:
        for number in range(steps):
            with session.call("look", {"n": number}) as call:
                state["lines"].append(f"{number}: {TEXT * 4}{rng.random()}")
                call.result = "ok"
    return steps


def growth_row(folder: Path) -> Row:
    """Twice the steps, and how many times the bytes."""
    sizes: dict[str, list[int]] = {"log": [], "all": []}
    for steps in (GROWTH_STEPS, 2 * GROWTH_STEPS):
        place = folder / f"growth-{steps}"
        with open_workspace(place) as ws:
            grown_bytes(ws, steps)
        sizes["log"].append((place / "log.db").stat().st_size + directory_bytes(place / "blobs"))
        sizes["all"].append(directory_bytes(place))
    ratio, with_snapshots = (sizes[of][1] / sizes[of][0] for of in ("log", "all"))
    return Row(
        f"growth bytes(2N)/bytes(N), list-like state, N = {GROWTH_STEPS} calls",
        f"<= {GROWTH_BAR}",
        "LangGraph 4.0 (research)",
        f"{ratio:.2f} ({sizes['log'][1] / 1e3:,.0f} kB); with snapshots {with_snapshots:.2f}",
        ratio <= GROWTH_BAR,
    )


def main() -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory(dir=os.environ.get("STEPLOG_BENCH_FOLDER")) as name:
        folder = Path(name)
        report([*overhead_rows(folder), change_row(), growth_row(folder)])


if __name__ == "__main__":
    main()
