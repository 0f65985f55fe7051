"""Damage to any file of a workspace: never a wrong state.

Each fault is seeded. A damaged copy replays to the right state or refuses with an error of ours,
and `check` reports the damage, or the fault hit bytes that nothing reads. A snapshot only ever
costs time. Newest commits that are lost as a whole show against the receipts.
"""

import os
import random
import sqlite3
from collections import Counter
from pathlib import Path

import pytest

from replay.workspace import open_workspace
from tests.support.scale import scaled
from tests.support.workspace_truth import (
    Judged,
    Truth,
    copy_workspace,
    grow,
    judge,
    record_history,
    truth_of,
)

FLIPS = scaled(90, 700)
CUTS = scaled(32, 250)
DELETED_FILES = scaled(24, 120)
DELETED_ROWS = scaled(28, 200)
SNAPSHOT_FAULTS = scaled(30, 200)
KEYS = {
    "events": "offset",
    "head": "number",
    "claims": "session, attempt",
    "blob_refs": "session, attempt, step, blob",
    "log_end": "id",
}
"""What names a row of each table."""


class Recorded:
    """A workspace as it lies on disk: `closed`, and `crashed` with its write-ahead log."""

    def __init__(self, folder: Path) -> None:
        live = folder / "live"
        with open_workspace(live) as ws:
            states = record_history(ws)
        self.closed = copy_workspace(live, folder / "closed")
        with open_workspace(self.closed) as ws:
            self.truth: Truth = truth_of(ws, states)
        with open_workspace(live) as ws:
            later = states | {"growing": grow(ws, states["growing"])}
            self.later: Truth = truth_of(ws, later)
            self.crashed = copy_workspace(live, folder / "crashed")

    def copy(self, target: Path, *, crashed: bool) -> tuple[Path, Truth]:
        """A copy to damage, and what is true of it."""
        if crashed:
            return copy_workspace(self.crashed, target), self.later
        return copy_workspace(self.closed, target), self.truth


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    return Recorded(tmp_path_factory.mktemp("recorded"))


def files_of(folder: Path, pattern: str) -> list[Path]:
    return sorted(path for path in folder.glob(pattern) if path.is_file())


def report(faults: str, outcomes: list[tuple[str, Judged]]) -> None:
    """Print what was met; fail on any wrong answer."""
    wrong = [f"{fault}: {each}" for fault, outcome in outcomes for each in outcome.wrong]
    refused = sum((Counter(outcome.refused) for _, outcome in outcomes), Counter())
    right = sum(outcome.right for _, outcome in outcomes)
    reported = sum(outcome.reported for _, outcome in outcomes)
    print(f"{len(outcomes)} {faults}: {reported} reported, {right} right, refused {dict(refused)}")
    assert not wrong, "\n".join(wrong[:20])


def flip(path: Path, rng: random.Random) -> str:
    data = bytearray(path.read_bytes())
    # Where pages and files begin stands what the rest hangs on.
    place = rng.choice((rng.randrange(len(data)), rng.randrange(min(len(data), 400))))
    bit = rng.randrange(8)
    data[place] ^= 1 << bit
    path.write_bytes(data)
    return f"bit {bit} of byte {place} of {path.name}"


def test_an_undamaged_copy_is_right(recorded: Recorded, tmp_path: Path) -> None:
    for crashed in (False, True):
        folder, truth = recorded.copy(tmp_path / "ws", crashed=crashed)
        assert judge(folder, truth, random.Random(1)) == Judged(14, {}, [], False)


def test_a_flipped_bit_in_any_file(recorded: Recorded, tmp_path: Path) -> None:
    rng = random.Random(21)
    outcomes = []
    for number in range(FLIPS):
        crashed = number % 4 == 3
        folder, truth = recorded.copy(tmp_path / "ws", crashed=crashed)
        patterns = ("log.db", "log.db", "blobs/*/*", "snapshots/*/*/*")
        pattern = "log.db-wal" if crashed else rng.choice(patterns)
        fault = flip(rng.choice(files_of(folder, pattern)), rng)
        outcomes.append((fault, judge(folder, truth, rng, lost_newest=crashed)))
    report("flipped bits", outcomes)


def test_a_file_cut_short(recorded: Recorded, tmp_path: Path) -> None:
    rng = random.Random(22)
    outcomes = []
    for number in range(CUTS):
        crashed = number % 4 == 3
        folder, truth = recorded.copy(tmp_path / "ws", crashed=crashed)
        patterns = ("log.db", "blobs/*/*", "snapshots/*/*/*")
        path = rng.choice(files_of(folder, "log.db-wal" if crashed else rng.choice(patterns)))
        size = rng.randrange(path.stat().st_size)
        os.truncate(path, size)
        outcome = judge(folder, truth, rng, lost_newest=crashed)
        outcomes.append((f"{path.name} cut to {size}", outcome))
    report("cut files", outcomes)


def test_a_file_that_is_gone(recorded: Recorded, tmp_path: Path) -> None:
    rng = random.Random(23)
    outcomes = []
    for number in range(DELETED_FILES):
        crashed = number % 6 == 5
        folder, truth = recorded.copy(tmp_path / "ws", crashed=crashed)
        patterns = ("log.db", "blobs/*/*", "snapshots/*/*/*", "log.db.lock")
        path = rng.choice(
            files_of(folder, "log.db-wal" if crashed else patterns[number % len(patterns)])
        )
        path.unlink()
        outcome = judge(folder, truth, rng, lost_newest=crashed)
        # A snapshot or a lock file that is gone leaves nothing to see, and nothing is missing.
        silent = path.suffix in (".snap", ".lock")
        assert outcome.reported is not silent, path.name
        outcomes.append((f"{path.name} gone", outcome))
    report("deleted files", outcomes)


def test_rows_that_are_gone(recorded: Recorded, tmp_path: Path) -> None:
    rng = random.Random(24)
    outcomes = []
    for _ in range(DELETED_ROWS):
        folder = copy_workspace(recorded.closed, tmp_path / "ws")
        table = rng.choice(("events", "events", *KEYS))
        columns = KEYS[table]
        db = sqlite3.connect(folder / "log.db", isolation_level=None)
        rows = db.execute(f"SELECT {columns} FROM {table}").fetchall()
        picked = rng.choice(rows)
        where = " AND ".join(f"{name.strip()}=?" for name in columns.split(","))
        assert db.execute(f"DELETE FROM {table} WHERE {where}", picked).rowcount == 1
        db.close()
        outcome = judge(folder, recorded.truth, rng)
        assert outcome.reported, (table, picked)
        outcomes.append((f"row {picked} of {table} gone", outcome))
    report("deleted rows", outcomes)


def test_a_damaged_snapshot_only_costs_time(recorded: Recorded, tmp_path: Path) -> None:
    rng = random.Random(25)
    folder = copy_workspace(recorded.closed, tmp_path / "ws")
    files = files_of(folder, "snapshots/*/*/*.snap")
    assert len(files) > 10
    skipped = 0
    for number in range(SNAPSHOT_FAULTS):
        path = rng.choice(files)
        whole = path.read_bytes()
        if number % 5 == 4:
            path.write_bytes(rng.choice(files).read_bytes())
        elif number % 5 == 3:
            path.write_bytes(whole[: rng.randrange(len(whole))])
        else:
            flip(path, rng)
        damaged = path.read_bytes() != whole
        with open_workspace(folder) as ws:
            for session, states in recorded.truth.states.items():
                step = rng.randrange(len(states))
                for at in (step, len(states) - 1):
                    replayed = ws.replay(session, at)
                    assert replayed.state_bytes == states[at]
                    skipped += any(path.name in why for why in replayed.skipped)
            verdicts = {one.session: one.verdict for one in ws.check()}
        assert ("damaged" in verdicts.values()) is damaged
        path.write_bytes(whole)
    assert skipped > SNAPSHOT_FAULTS // 4
