"""Bytes on disk for events of about 1 KB in the SQLite log, and what stays flat as it grows.

300 sessions are appended to in turn, as environments do; the file is measured after a close
(indexes included, write-ahead log folded in) against the bytes of the events alone. eventsourcing
stores the same texts where it is installed. Opening: a fresh handle, one session's info and last
event, in a log of 10,000 sessions; listing: all sessions, without reading an event.
"""

import os
import random
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from benchmarks.harness import NOT_INSTALLED, Row, measure_cpu, peer_installed, report
from eventlog.codec import EncodedEvent, encode_event
from eventlog.content import TEXT_PLAIN, Content
from eventlog.event import Body, Event, LineHead, MessageAdded, SessionSeeded
from eventlog.ids import mint_event_id, mint_session_id
from eventlog.sqlite_log import SqliteLog

SESSIONS: Final = 300
EVENTS: Final = 60_000
TURN: Final = 4
"""Events in one append."""
SIZE_BAR: Final = 1.25
LISTED: Final = 10_000
EVENTS_EACH: Final = 100
LIST_BAR_PER_S: Final = 100_000
OPEN_BAR_MS: Final = 20.0
OPENS: Final = 40


class Session:
    """One session being written."""

    def __init__(self, log: SqliteLog, text_bytes: int) -> None:
        self._log = log
        self._text_bytes = text_bytes
        self._rng = random.Random(5)
        self.head = LineHead.before_seed(mint_session_id())
        self.raw_bytes = 0
        self.waiting = [self._next(SessionSeeded("bench", task_id="17", writer=log.writer_id))]

    def write(self, count: int) -> list[Any]:
        """Submit the next `count` events as one append; its future."""
        batch = [*self.waiting, *(self._next(self._message()) for _ in range(count))]
        self.waiting.clear()
        first = batch[0].event.step
        return [self._log.submit_events(self.head.session_id, batch, expected_step=first - 1)]

    def _message(self) -> MessageAdded:
        return MessageAdded("user", Content(TEXT_PLAIN, self._rng.randbytes(self._text_bytes)))

    def _next(self, body: Body) -> EncodedEvent:
        event = Event.following(
            self.head,
            body,
            event_id=mint_event_id(),
            time=time.time_ns() // 1_000,
            actor="agent",
        )
        encoded = encode_event(event)
        self.head = LineHead(event.session_id, event.step, event.attempt, encoded.digest)
        self.raw_bytes += len(encoded.data)
        return encoded


def fill(path: Path, sessions: int, events: int, turn: int, text_bytes: int) -> list[Session]:
    """A log of so many sessions and events, written in turns; then closed."""
    with SqliteLog(path) as log:
        every = [Session(log, text_bytes) for _ in range(sessions)]
        futures: list[Any] = []
        for _ in range(events // sessions // turn):
            for session in every:
                futures += session.write(turn)
            for future in futures:
                future.result()
            futures.clear()
    return every


def size_rows(folder: Path) -> list[Row]:
    """Bytes on disk against bytes of events."""
    sessions = fill(folder / "size.db", SESSIONS, EVENTS, TURN, 850)
    raw = sum(session.raw_bytes for session in sessions)
    count = sum(session.head.step + 1 for session in sessions)
    stored = (folder / "size.db").stat().st_size
    ratio = stored / raw
    return [
        Row(
            f"bytes per event of {raw / count:,.0f} B on disk, index included",
            f"<= {SIZE_BAR}x raw",
            peer_size(folder),
            f"{ratio:.3f}x ({stored / count:,.0f} B)",
            ratio <= SIZE_BAR,
        )
    ]


def peer_size(folder: Path) -> str:
    """eventsourcing's SQLite store, the same texts."""
    if not peer_installed("eventsourcing"):
        return NOT_INSTALLED
    from eventsourcing.application import Application
    from eventsourcing.domain import Aggregate

    class PeerSession(Aggregate):
        class Said(Aggregate.Event):
            text: str

    path = folder / "peer.db"
    app: Any = Application(
        env={"PERSISTENCE_MODULE": "eventsourcing.sqlite", "SQLITE_DBNAME": str(path)}
    )
    rng = random.Random(5)
    sessions: list[Any] = [PeerSession() for _ in range(60)]
    for _ in range(6_000 // 60 // TURN):
        for session in sessions:
            for _ in range(TURN):
                session.trigger_event(PeerSession.Said, text="".join(rng.choices("abcdef ", k=850)))
            app.save(session)
    app.close()
    return f"eventsourcing {path.stat().st_size / 6_000:,.0f} B"


def growth_rows(folder: Path) -> list[Row]:
    """Opening and listing in a log of many sessions."""
    path = folder / "many.db"
    sessions = fill(path, LISTED, LISTED * EVENTS_EACH, 50, 60)
    rng = random.Random(6)
    samples = []
    for session in rng.sample(sessions, OPENS):
        start = time.perf_counter()
        with SqliteLog(path) as log:
            info = log.session_info(session.head.session_id)
            last = next(log.read_session(info.session_id, info.step_count - 1))
            samples.append(time.perf_counter() - start)
        assert last.digest == session.head.digest
    opened_ms = statistics.median(samples) * 1e3
    with SqliteLog(path) as log:
        listed_s = measure_cpu(lambda: sum(1 for _ in log.list_sessions()), 3).best_cpu_s
    rate = LISTED / listed_s
    return [
        Row(
            f"open, one of {LISTED:,} sessions in {LISTED * EVENTS_EACH / 1e6:.0f}M events, p50",
            f"<= {OPEN_BAR_MS:.0f} ms",
            "none",
            f"{opened_ms:.1f} ms (worst {max(samples) * 1e3:.1f} ms)",
            opened_ms <= OPEN_BAR_MS,
        ),
        Row(
            "history listing without state decode, CPU",
            f">= {LIST_BAR_PER_S:,}/s",
            "LangGraph 25k/s (research)",
            f"{rate:,.0f}/s",
            rate >= LIST_BAR_PER_S,
        ),
    ]


def main() -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory(dir=os.environ.get("STEPLOG_BENCH_FOLDER")) as name:
        folder = Path(name)
        report([*size_rows(folder), *growth_rows(folder)])


if __name__ == "__main__":
    main()
