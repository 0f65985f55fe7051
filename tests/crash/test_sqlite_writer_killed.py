"""A writing process killed at any moment: every acknowledged event is there, once, in order.

A child appends to random sessions (seeds, appends, batches, take-overs, forks, closes, commits of
cuts) from several threads, and writes each acknowledgement to a pipe, which outlives it. The parent
kills it (SIGKILL) at a seeded random moment, opens the log again and compares; the next child goes
on with the same log.
"""

import json
import os
import random
import select
import signal
import time
from pathlib import Path
from typing import NamedTuple

from eventlog.cut import Cut
from eventlog.sqlite_log import SqliteLog
from tests.support.processes import python_script
from tests.support.scale import scaled

KILLS = scaled(25, 200)
LIFE_S = (0.0, 0.3)
"""How long a child writes before it is killed: from and to."""
EARLY_S = (0.1, 0.4)
"""Every fifth is killed so long after its start: while it opens, or makes, the log."""

CHILD = """
import json, os, random, sys, threading
from eventlog.content import OCTET_STREAM, Content
from eventlog.event import LineHead
from eventlog.sqlite_log import SqliteLog
from tests.support.events import EventChain
from tests.support.recorded import append_all

path, seed = sys.argv[1], sys.argv[2]
log = SqliteLog(path)
told = threading.Lock()

def tell(session, events):
    # One write of less than a pipe's atomic size: never half a line, even when killed.
    line = json.dumps([session, [[each.event.step, each.digest.hex()] for each in events]])
    with told:
        os.write(1, line.encode() + b"\\n")

def record(thread):
    rng = random.Random(f"{seed}/{thread}")
    chains = []
    for number in range(100_000):
        if not chains or rng.random() < 0.05:
            chain = EventChain(f"{seed}/{thread}/{number}", seed=number)
            batch = [chain.seed(writer=log.writer_id)]
            chains = [*chains[-4:], chain]
        elif rng.random() < 0.05:
            parent = rng.choice(chains)
            chain = EventChain(f"{seed}/{thread}/{number}/branch", seed=number)
            batch = [chain.forked(parent.head, writer=log.writer_id)]
            chains = [*chains[-4:], chain]
        else:
            chain = rng.choice(chains)
            if rng.random() < 0.1:
                base = rng.choice(chain.events)
                head = LineHead(chain.session_id, base.event.step, base.event.attempt, base.digest)
                batch = [chain.resumed(head, writer=log.writer_id)]
            else:
                large = Content(OCTET_STREAM, rng.randbytes(rng.choice((10, 900, 20_000))))
                batch = [chain.call(arguments=large) for _ in range(rng.choice((1, 1, 1, 4, 12)))]
        append_all(log, batch)
        tell(chain.session_id, batch)
        if rng.random() < 0.05:
            log.commit_cut("follower", log.end_cut())

threads = [threading.Thread(target=record, args=(number,)) for number in range(3)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""


class Acknowledged(NamedTuple):
    """One receipt: the session, and step and digest of each event."""

    session_id: str
    events: list[tuple[int, str]]


def run_and_kill(path: Path, seed: int, rng: random.Random) -> list[Acknowledged]:
    """Start a child, kill it some time after its start or first receipt; all receipts it had."""
    early = seed % 5 == 0
    kill_at = time.monotonic() + rng.uniform(*EARLY_S)
    process = python_script(CHILD, path, str(seed))
    assert process.stdout is not None
    pipe = process.stdout.fileno()
    told = b""
    deadline = time.monotonic() + 300
    while not early and b"\n" not in told:
        assert time.monotonic() < deadline, "the child never wrote an event"
        assert process.poll() is None, process.communicate()
        if select.select([pipe], [], [], 0.5)[0]:
            told += os.read(pipe, 65_536)
    if not early:
        kill_at = time.monotonic() + rng.uniform(*LIFE_S)
    while (left := kill_at - time.monotonic()) > 0:
        if select.select([pipe], [], [], left)[0]:
            told += os.read(pipe, 65_536)
    os.kill(process.pid, signal.SIGKILL)
    while part := os.read(pipe, 65_536):
        told += part
    process.wait()
    process.communicate()
    return [
        Acknowledged(session_id, [(step, digest) for step, digest in events])
        for session_id, events in map(json.loads, told.splitlines())
    ]


def test_every_acknowledged_event_is_there_once_and_in_order(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    rng = random.Random(31)
    every: list[Acknowledged] = []
    for kill in range(KILLS):
        receipts = run_and_kill(path, kill, rng)
        every += receipts
        with SqliteLog(path) as log:
            compare(log, receipts)
            if kill % 10 == 9:
                assert list(log.find_damage()) == []
    with SqliteLog(path) as log:
        compare(log, every)
        assert list(log.find_damage()) == []
        events = log.end_cut().end(0)
    acknowledged = sum(len(receipt.events) for receipt in every)
    print(f"{KILLS} kills: {acknowledged} events acknowledged, {events} in the log, 0 lost")


def compare(log: SqliteLog, receipts: list[Acknowledged]) -> None:
    """Every acknowledged event is kept once, in its session's order, and whole batches are."""
    by_session: dict[str, list[str]] = {}
    for receipt in receipts:
        by_session.setdefault(receipt.session_id, []).extend(d for _, d in receipt.events)
    for session_id, digests in by_session.items():
        kept = [record.digest.hex() for record in log.read_records(session_id)]
        # What was in flight when the child died may be there too, at the end, as one whole batch.
        assert kept[: len(digests)] == digests, session_id
        assert len(set(kept)) == len(kept)
        line = [record.prefix.step for record in log.read_session(session_id)]
        assert line == list(range(len(line)))
    assert log.end_cut().covers(log.committed_cut("follower"))
    offsets = [record.offset for record in log.tail_events(Cut.empty())]
    assert offsets == list(range(len(offsets)))
