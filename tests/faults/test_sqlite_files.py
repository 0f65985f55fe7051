"""Damage to the files of a SQLite log: never a wrong answer.

Each fault is seeded. A damaged copy answers every question rightly or refuses it as damage; what
it takes by an append is whole too. The one exception is by design: newest commits that are lost as
a whole (a write-ahead log cut or damaged after a crash) show only against a receipt.
"""

import random
import shutil
import sqlite3
from collections import Counter
from pathlib import Path

import pytest

from eventlog.errors import SteplogError
from eventlog.sqlite.schema import PAGE_BYTES
from eventlog.sqlite_log import SqliteLog
from tests.support.log_truth import (
    Answers,
    Outcome,
    ask_everything,
    copy_log,
    judge_copy,
    write_history,
)
from tests.support.recorded import append_all, data_of, seeded_chain
from tests.support.scale import scaled

FLIPS = scaled(110, 700)
CUTS = scaled(20, 120)
CHANGES_MADE = scaled(40, 240)
WAL_FAULTS = scaled(30, 160)


class Whole:
    """A whole log, closed, and what it answers."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "log.db"
        with SqliteLog(self.path) as log:
            write_history(log)
            self.truth: Answers = ask_everything(log)
            assert list(log.find_damage()) == []


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Whole:
    return Whole(tmp_path_factory.mktemp("whole"))


def report(faults: str, outcomes: list[Outcome]) -> None:
    """Print what was met, and fail on any wrong answer."""
    wrong = [line for outcome in outcomes for line in outcome.wrong]
    refused = sum((Counter(outcome.refused) for outcome in outcomes), Counter())
    noticed = sum(bool(outcome.found or outcome.refused) for outcome in outcomes)
    print(f"{len(outcomes)} {faults}: {noticed} noticed, refusals {dict(refused)}")
    assert not wrong, "\n".join(wrong[:20])


def test_an_undamaged_copy_answers_rightly(whole: Whole, tmp_path: Path) -> None:
    outcome = judge_copy(copy_log(whole.path, tmp_path), whole.truth)
    assert outcome == Outcome(len(whole.truth.questions), {}, [], 0)


def flipped_place(rng: random.Random, size: int) -> int:
    """A byte of the file: anywhere, or (more often than by chance) where pages keep their order."""
    page = rng.randrange(size // PAGE_BYTES) * PAGE_BYTES
    return rng.choice(
        (
            rng.randrange(size),
            page + rng.randrange(16),
            page + rng.randrange(400),
            rng.randrange(2_000),
        )
    )


def test_a_flipped_bit_anywhere(whole: Whole, tmp_path: Path) -> None:
    rng = random.Random(11)
    outcomes = []
    for _ in range(FLIPS):
        path = copy_log(whole.path, tmp_path)
        place = flipped_place(rng, path.stat().st_size)
        bit = rng.randrange(8)
        with path.open("rb+") as file:
            file.seek(place)
            (byte,) = file.read(1)
            file.seek(place)
            file.write(bytes([byte ^ 1 << bit]))
        outcome = judge_copy(path, whole.truth)
        named = [f"bit {bit} of byte {place}: {each}" for each in outcome.wrong]
        outcomes.append(outcome._replace(wrong=named))
    report("flipped bits", outcomes)


def test_a_file_cut_anywhere(whole: Whole, tmp_path: Path) -> None:
    rng = random.Random(12)
    outcomes = []
    for number in range(CUTS):
        path = copy_log(whole.path, tmp_path)
        size = path.stat().st_size
        pages = rng.randrange(size // PAGE_BYTES) * PAGE_BYTES
        with path.open("rb+") as file:
            file.truncate(rng.randrange(size) if number % 2 else pages)
        outcomes.append(judge_copy(path, whole.truth))
    report("cut files", outcomes)


PICK = "(SELECT count(*) FROM {0}) * ? / 1000"
CHANGES = {
    "an event": "DELETE FROM events WHERE offset=" + PICK.format("events"),
    "newest events": "DELETE FROM events WHERE offset>(SELECT max(offset) FROM events)-1-?/200",
    "a head": "DELETE FROM head WHERE number=1+" + PICK.format("head"),
    "last head": "DELETE FROM head WHERE number=(SELECT max(number) FROM head)",
    "a claim": (
        "DELETE FROM claims WHERE (session, attempt)=(SELECT session, attempt FROM claims "
        "LIMIT 1 OFFSET " + PICK.format("claims") + ")"
    ),
    "a claim in the middle": "DELETE FROM claims WHERE session='rewound' AND attempt=2+?/334",
    "log's end": "DELETE FROM log_end",
    "cursor": "UPDATE cursors SET next=next-1",
    "step": "UPDATE events SET step=step+1000 WHERE offset=(SELECT max(offset) FROM events)",
    "number": "UPDATE events SET session=session+7, attempt=40 WHERE offset="
    + PICK.format("events"),
    "swap": "UPDATE events SET data=(SELECT data FROM events WHERE offset=?) WHERE offset=1001",
    "attempt": "UPDATE claims SET parent_attempt=parent_attempt+1 WHERE session='rewound'",
    "reward": "UPDATE head SET reward=0.25, reward_bits=zeroblob(8) WHERE number=1",
    "status": "UPDATE head SET closed='done', status='closed' WHERE number=1",
    "marks": "UPDATE marks SET summary=(SELECT summary FROM marks ORDER BY step LIMIT 1)",
    "blob reference": "DELETE FROM blob_refs",
}
"""Statements by hand; `?` is a number below 1,000 that picks a row."""


def test_rows_deleted_or_changed_by_hand(whole: Whole, tmp_path: Path) -> None:
    rng = random.Random(13)
    outcomes = []
    for number in range(CHANGES_MADE):
        path = copy_log(whole.path, tmp_path)
        kind = list(CHANGES)[number % len(CHANGES)]
        db = sqlite3.connect(path, isolation_level=None)
        values = (rng.randrange(1_000),) if "?" in CHANGES[kind] else ()
        changed = db.execute(CHANGES[kind], values).rowcount
        db.close()
        assert changed > 0, kind
        outcome = judge_copy(path, whole.truth)
        assert outcome.found or outcome.refused, f"{kind}: not noticed"
        outcomes.append(outcome._replace(wrong=[f"{kind}: {each}" for each in outcome.wrong]))
    report("rows changed by hand", outcomes)


@pytest.fixture(scope="module")
def crashed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[list[bytes]]]:
    """The files of a log as a crash leaves them, and its line after each commit."""
    folder = tmp_path_factory.mktemp("crashed")
    lines: list[list[bytes]] = [[]]
    with SqliteLog(folder / "log.db") as log:
        chain = seeded_chain(log, "s")
        lines.append(data_of(log.read_session("s")))
        for _ in range(40):
            append_all(log, [chain.call(), chain.returned()])
            lines.append([encoded.data for encoded in chain.events])
        copy_log(log.path, folder / "copy")
    return folder / "copy" / "log.db", lines


@pytest.mark.parametrize("kind", ["flip", "cut", "gone"])
def test_a_damaged_write_ahead_log_gives_whole_commits_or_none(
    crashed: tuple[Path, list[list[bytes]]], tmp_path: Path, kind: str
) -> None:
    source, lines = crashed
    rng = random.Random(14)
    lost = 0
    for _ in range(1 if kind == "gone" else WAL_FAULTS):
        path = copy_log(source, tmp_path)
        wal = path.with_name("log.db-wal")
        data = bytearray(wal.read_bytes())
        if kind == "flip":
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        elif kind == "cut":
            del data[rng.randrange(len(data)) :]
        wal.unlink()
        if kind != "gone":
            wal.write_bytes(data)
        try:
            with SqliteLog(path) as log:
                listed = [info.session_id for info in log.list_sessions()]
                line = data_of(log.read_session("s")) if listed else []
                damage = list(log.find_damage())
        except SteplogError as error:
            assert error.exit_code == 4, error  # noqa: PT017 - refusing is as right
            continue
        assert line in lines
        assert not damage
        lost += line != lines[-1]
    assert lost > 0


def test_a_flipped_bit_in_a_write_ahead_log_in_use(
    crashed: tuple[Path, list[list[bytes]]], tmp_path: Path
) -> None:
    """SQLite does not check pages of a log whose index is built already: by us they are."""
    source, lines = crashed
    rng = random.Random(15)
    refused = 0
    for number in range(WAL_FAULTS):
        path = copy_log(source, tmp_path / str(number))
        keeps_it = sqlite3.connect(path)
        keeps_it.execute("SELECT count(*) FROM events").fetchone()
        wal = path.with_name("log.db-wal")
        with wal.open("rb+") as file:
            # The newest pages stand at the end; older copies of them are not read any more.
            place = wal.stat().st_size - 1 - rng.randrange(4 * PAGE_BYTES)
            file.seek(place)
            (byte,) = file.read(1)
            file.seek(place)
            file.write(bytes([byte ^ 1 << rng.randrange(8)]))
        try:
            with SqliteLog(path) as log:
                assert data_of(log.read_session("s")) == lines[-1]
        except SteplogError as error:
            assert error.exit_code == 4, error  # noqa: PT017 - refusing is as right
            refused += 1
        keeps_it.close()
        shutil.rmtree(tmp_path / str(number))
    print(f"{WAL_FAULTS} flips in a write-ahead log in use: {refused} refused")
    assert refused > 0
