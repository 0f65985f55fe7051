"""Eight processes with eight sessions each, all appending to one SQLite log: how long anyone waits.

Every session appends one event at a time and waits for it. Beside ours: SQLite's own
busy handler with eight processes, each with one connection and a transaction for each row.
"""

import json
import os
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Final

from benchmarks.harness import Row, percentile, report
from benchmarks.sqlite_append import Feed
from eventlog.sqlite_log import SqliteLog

PROCESSES: Final = 8
SESSIONS: Final = 8
APPENDS: Final = 60
BAR_S: Final = 1.0


def record_ours(path: str, name: str) -> list[float]:
    """Seconds that each append of this process's sessions took."""
    waits: list[float] = []
    with SqliteLog(path) as log:

        def record(number: int) -> None:
            feed = Feed(log, f"{name}/{number}")
            for _ in range(APPENDS):
                event = feed.make(1)
                begun = time.perf_counter()
                feed.append(event)
                waits.append(time.perf_counter() - begun)

        threads = [threading.Thread(target=record, args=(each,)) for each in range(SESSIONS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    return waits


def record_plain(path: str, name: str) -> list[float]:
    """The same number of rows by one connection, waiting in SQLite's busy handler."""
    db = sqlite3.connect(path, isolation_level=None, timeout=120)
    db.execute("PRAGMA synchronous=FULL")
    waits = []
    for number in range(SESSIONS * APPENDS // 4):
        begun = time.perf_counter()
        db.execute("BEGIN IMMEDIATE")
        db.execute("INSERT INTO rows VALUES(?, ?)", (f"{name}/{number}", b"x" * 1_000))
        db.execute("COMMIT")
        waits.append(time.perf_counter() - begun)
    db.close()
    return waits


def all_waits(way: str, path: Path) -> list[float]:
    """Start the processes, let them go together, gather their waits."""
    code = (
        "import json, sys; from benchmarks import sqlite_fairness as f; sys.stdin.readline(); "
        "print(json.dumps(getattr(f, 'record_' + sys.argv[1])(sys.argv[2], sys.argv[3])))"
    )
    crowd = [
        subprocess.Popen(
            [sys.executable, "-c", code, way, str(path), str(number)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(PROCESSES)
    ]
    time.sleep(1.0)
    waits: list[float] = []
    for process in crowd:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    for process in crowd:
        out, _ = process.communicate()
        waits += json.loads(out)
    return waits


def main() -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory(dir=os.environ.get("STEPLOG_BENCH_FOLDER")) as name:
        ours_path, plain_path = Path(name) / "log.db", Path(name) / "plain.db"
        SqliteLog(ours_path).close()
        db = sqlite3.connect(plain_path)
        db.execute("PRAGMA journal_mode=WAL")
        db.execute("CREATE TABLE rows(name TEXT, data BLOB)")
        db.close()
        ours, plain = all_waits("ours", ours_path), all_waits("plain", plain_path)
    worst = max(ours)
    report(
        [
            Row(
                f"{PROCESSES} processes x {SESSIONS} sessions at once, longest wait",
                f"<= {BAR_S:.0f} s",
                f"busy handler alone {max(plain):.2f} s (p99 {percentile(plain, 99) * 1e3:.0f} ms)",
                f"{worst * 1e3:.0f} ms (p99 {percentile(ours, 99) * 1e3:.0f} ms)",
                worst <= BAR_S,
            )
        ]
    )


if __name__ == "__main__":
    main()
