"""Durable appends to the SQLite log, beside the least a machine can do: raw write + fdatasync.

Stores take turns within each round, so that a busy disk hits all alike; the median ratio counts.
Events have about 1 KB and are encoded beforehand, as the recorder hands them over. eventsourcing
saves the same bytes through its SQLite store. Group commit: 16 threads, each waiting for its own
event, against one thread, in alternating slices.
"""

import gc
import os
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

from benchmarks.harness import NOT_INSTALLED, Row, peer_installed, percentile, report
from eventlog.codec import EncodedEvent, encode_event
from eventlog.content import TEXT_PLAIN, Content
from eventlog.event import Event, LineHead, MessageAdded, SessionSeeded
from eventlog.ids import mint_event_id
from eventlog.sqlite_log import SqliteLog

WARM_ROUNDS: Final = 400
"""So many commits fill the write-ahead log once; from then on it is written over, not extended."""
ROUNDS: Final = {1: 800, 100: 150}
BAR: Final = {1: 2.2, 100: 2.5}
WRITERS: Final = 16
SLICE_S: Final = 0.5
SLICES: Final = 8
GROUP_BAR: Final = 8.0
RATE_MAX: Final = 40_000
"""Events made ahead for a second of all writers together: more than any machine here takes."""
TEXT: Final = Content(TEXT_PLAIN, b"w" * 850)


class Feed:
    """Makes a session's events ahead of time, each standing on the one before."""

    def __init__(self, log: SqliteLog, session_id: str) -> None:
        self.log = log
        self.head = LineHead.before_seed(session_id)
        self._first = SessionSeeded("bench", writer=log.writer_id)
        self.append(self.make(1))

    def make(self, count: int) -> list[EncodedEvent]:
        """The next `count` events."""
        made = []
        for _ in range(count):
            body = MessageAdded("user", TEXT) if self.head.step >= 0 else self._first
            event = Event.following(
                self.head,
                body,
                event_id=mint_event_id(),
                time=time.time_ns() // 1_000,
                actor="agent",
            )
            encoded = encode_event(event)
            self.head = LineHead(event.session_id, event.step, event.attempt, encoded.digest)
            made.append(encoded)
        return made

    def append(self, events: list[EncodedEvent]) -> None:
        """Append them durably."""
        self.log.append_events(self.head.session_id, events, expected_step=events[0].event.step - 1)


class Store(NamedTuple):
    """One way of keeping events durably: `prepare` makes a batch, `keep` is what is timed."""

    name: str
    prepare: Callable[[int], Any]
    keep: Callable[[Any], object]


def raw_store(folder: Path) -> Store:
    """Bytes at the end of a file, and fdatasync."""
    file = os.open(folder / "raw", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    payload = b"x" * 1_000

    def keep(data: bytes) -> None:
        os.write(file, data)
        os.fdatasync(file)

    return Store("raw", lambda count: payload * count, keep)


def our_store(log: SqliteLog) -> Store:
    """One session of the SQLite log."""
    feed = Feed(log, "timed")
    return Store("ours", feed.make, feed.append)


@contextmanager
def peer_stores(folder: Path) -> Iterator[list[Store]]:
    """eventsourcing's application with its SQLite store, where it is installed."""
    if not peer_installed("eventsourcing"):
        yield []
        return
    from eventsourcing.application import Application
    from eventsourcing.domain import Aggregate

    class Session(Aggregate):
        class Said(Aggregate.Event):
            text: str

    app: Any = Application(
        env={
            "PERSISTENCE_MODULE": "eventsourcing.sqlite",
            "SQLITE_DBNAME": str(folder / "peer.db"),
        }
    )
    session: Any = Session()
    app.save(session)
    text = "w" * 850

    def prepare(count: int) -> object:
        for _ in range(count):
            session.trigger_event(Session.Said, text=text)
        return session

    yield [Store("peer", prepare, app.save)]
    app.close()


def rounds_of(stores: list[Store], count: int, rounds: int) -> dict[str, list[float]]:
    """Wall seconds of each store in each round."""
    taken: dict[str, list[float]] = {store.name: [] for store in stores}
    for _ in range(rounds):
        for store in stores:
            batch = store.prepare(count)
            start = time.perf_counter()
            store.keep(batch)
            taken[store.name].append(time.perf_counter() - start)
    return taken


def durable_rows(folder: Path) -> list[Row]:
    """One event, and a hundred, against raw write + fdatasync."""
    rows = []
    with SqliteLog(folder / "log.db") as log, peer_stores(folder) as peers:
        stores = [raw_store(folder), our_store(log), *peers]
        first = rounds_of(stores[:2], 1, WARM_ROUNDS)
        rows.append(ratio_row("  the same, while the write-ahead log still grows", 1, first, None))
        for count, rounds in ROUNDS.items():
            taken = rounds_of(stores, count, rounds)
            what = f"durable append of {count} event{'s' * (count > 1)} of ~1 KB, p50"
            rows.insert(len(rows) - 1, ratio_row(what, count, taken, BAR[count]))
    return rows


def ratio_row(what: str, count: int, taken: dict[str, list[float]], bar: float | None) -> Row:
    """Median times as ratios to raw."""
    raw = statistics.median(taken["raw"])
    ratio = statistics.median(taken["ours"]) / raw
    peer = NOT_INSTALLED
    if "peer" in taken:
        peer = f"eventsourcing {statistics.median(taken['peer']) / raw:.2f}x"
    p99 = percentile(taken["ours"], 99) * 1e6
    ours_us = statistics.median(taken["ours"]) * 1e6
    return Row(
        what,
        "-" if bar is None else f"<= {bar}x raw",
        f"raw {raw * 1e6:.0f} us; {peer}",
        f"{ratio:.2f}x ({ours_us:.0f} us, p99 {p99:.0f} us, {count / ours_us * 1e6:,.0f} ev/s)",
        None if bar is None else ratio <= bar,
    )


def rate_of(feeds: list[Feed], seconds: float) -> float:
    """Events per second, each thread appending one at a time to its own session."""
    counts = [0] * len(feeds)
    each = int(RATE_MAX * seconds / len(feeds))
    prepared = [feed.make(each) for feed in feeds]
    gc.collect()
    gc.freeze()
    barrier = threading.Barrier(len(feeds) + 1)
    stop = threading.Event()

    def write(place: int) -> None:
        feed, events = feeds[place], prepared[place]
        barrier.wait()
        for event in events:
            if stop.is_set():
                break
            feed.append([event])
            counts[place] += 1
        # What was made and not appended is not part of the line.
        last = events[counts[place] - 1].event if counts[place] else None
        if last is not None:
            digest = events[counts[place] - 1].digest
            feed.head = LineHead(last.session_id, last.step, last.attempt, digest)

    threads = [threading.Thread(target=write, args=(place,)) for place in range(len(feeds))]
    for thread in threads:
        thread.start()
    barrier.wait()
    start = time.perf_counter()
    time.sleep(seconds)
    stop.set()
    for thread in threads:
        thread.join()
    gc.unfreeze()
    return sum(counts) / (time.perf_counter() - start)


def group_row(folder: Path) -> Row:
    """16 writers against one."""
    with SqliteLog(folder / "group.db") as log:
        alone = Feed(log, "alone")
        together = [Feed(log, f"writer-{number}") for number in range(WRITERS)]
        rate_of([alone], SLICE_S)
        rate_of(together, SLICE_S)
        one, many = [], []
        for _ in range(SLICES):
            one.append(rate_of([alone], SLICE_S))
            many.append(rate_of(together, SLICE_S))
    ratio = statistics.median(many) / statistics.median(one)
    return Row(
        f"{WRITERS} writers, each waiting for its own event",
        f">= {GROUP_BAR:.0f}x one writer",
        f"one writer {statistics.median(one):,.0f} ev/s",
        f"{ratio:.1f}x ({statistics.median(many):,.0f} ev/s)",
        ratio >= GROUP_BAR,
    )


def main() -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory(dir=os.environ.get("STEPLOG_BENCH_FOLDER")) as name:
        folder = Path(name)
        report([*durable_rows(folder), group_row(folder)])


if __name__ == "__main__":
    main()
