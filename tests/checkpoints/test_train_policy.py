"""The example's training ends the same, bit for bit, however often and wherever it was killed.

Bar: resumed 3 times against never stopped, for >= 50 steps; 0 samples skipped, 0 twice.
"""

import io
import os
import random
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.processes import ROOT
from tests.support.scale import FULL, scaled

pytest.importorskip("torch", reason="torch is not installed: no policy is trained")

import steplog
from examples import train_policy
from examples.kill_training import TASKS, Ending, history, samples
from snapshots.checkpoint_store import CheckpointStore
from snapshots.checkpoints.tracks import track_of_training
from snapshots.policies.notes import PolicyNotes
from tests.support.killed_trainings import POINTS

STEPS = 60
DEADLINE_S = 570
AGAIN = "run the same command again"

SAVING = (
    *("begin", "begun", "object", "objects", "manifest", "commit", "committed", "head"),
    *("publish", "published"),
)
RESTORING = ("restore", "loaded", "rewind", "rewound", "void", "voided", "resumed")
OF_ALL_RANKS = ("object", "objects", "restore", "loaded", "resumed")
"""Points that rank 1 comes to as well; the others are what rank 0 does for all."""
CALLS_OF_A_RUN = 150_000
"""So many calls of functions of ours a rank makes in one run, at least."""


def start(arguments: list[str]) -> Ending:
    """Run Python from the repository; what it printed."""
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return Ending(done.returncode, done.stdout.splitlines(), killed=False)


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Ending]:
    """What the demo left behind, and what it said."""
    folder = tmp_path_factory.mktemp("trained") / "demo"
    arguments = ["--folder", str(folder), "--steps", str(STEPS), "--kills", "3", "--seed", "1"]
    return folder, start(["examples/kill_training.py", *arguments])


def weights_of(demo: Ending, which: str) -> list[str]:
    """The hashes of weights and optimizer that the demo told."""
    lines = [line.split() for line in demo.lines]
    return [words[2] for words in lines if words[:1] in (["weights"], ["optimizer"])
            and words[1] == which]  # fmt: skip


def run_killed(folder: Path, kills: list[str]) -> list[list[str]]:
    """The training with these kills, and then until it is through; the lines of each run of it."""
    folder.mkdir()
    start(["-m", "tests.support.killed_trainings", str(folder), str(STEPS), *kills])
    printed = (folder / "printed").read_text()
    runs = [one.splitlines() for one in re.split(r"^run\b", printed, flags=re.MULTILINE)[1:]]
    for kill, lines in zip(kills, runs[:-1], strict=False):
        ends = [line for line in lines if " ended with " in line]
        told = [] if "launcher" in kill else [f"rank {kill[0]} ended with -9: {AGAIN}"]
        assert ends == told, (kill, lines)
    return runs


def require_same(told: tuple[Path, Ending], workspace: Path, last_lines: list[str]) -> None:
    """The training there ended as the one that was never disturbed, in every respect."""
    folder, demo = told
    last = Ending(0, last_lines, killed=False)
    ends = [last.said("weights "), last.said("optimizer ")]
    assert ends == weights_of(demo, "undisturbed")
    found = history(workspace)
    assert found == history(folder / "undisturbed")
    assert samples(found) == (STEPS // 2 * 4, 0, 0)
    with steplog.open_workspace(workspace, create=False) as ws:
        assert {report.verdict for report in ws.check()} == {"ok"}


def random_kills(seed: int) -> list[str]:
    """Of ranks and launcher alike: one in training, then in saves, in restores, and anywhere."""
    chance = random.Random(seed)
    places = [SAVING, SAVING, RESTORING, RESTORING, ("append", "call")]
    victims = ["0", "1", "0launcher"] * 2
    chance.shuffle(places)
    chance.shuffle(victims)
    kills = [f"{victims[-1]}:update:{chance.randint(6, 20)}"]
    for points, who in zip(places, victims, strict=False):
        if who == "1" and points in (SAVING, RESTORING):
            points = tuple(point for point in points if point in OF_ALL_RANKS)
        point = chance.choice(points)
        often = {"append": 100, "call": CALLS_OF_A_RUN // 4}.get(point, 1)
        kills.append(f"{who}:{point}:{chance.randint(1, often)}")
    return kills


def test_every_point_of_a_kill_is_there() -> None:
    """Some had moved, and the few seeds of every day came to none of them."""
    assert {*SAVING, *RESTORING, "append", "update"} == POINTS.keys()
    gone = [point for point, (owner, name, _before) in POINTS.items() if not hasattr(owner, name)]
    assert gone == []


def test_killed_from_outside_it_ends_the_same(told: tuple[Path, Ending]) -> None:
    """Both ranks and the launcher, one after the other: three times resumed."""
    folder, demo = told
    assert "identical" in demo.lines
    restored = [line for line in demo.lines if line.strip().startswith("restored ")]
    assert len(restored) == 3
    for process in ("rank 0", "rank 1", "the launcher"):
        assert sum(f"SIGKILL to {process} " in line for line in demo.lines) == 1
    assert weights_of(demo, "killed") == weights_of(demo, "undisturbed") != []
    assert history(folder / "killed") == history(folder / "undisturbed")


def test_it_learns(told: tuple[Path, Ending]) -> None:
    sessions = [one for one in history(told[0] / "undisturbed") if one.closed]
    early, late = (
        [call[4] for one in part for call in one.calls] for part in (sessions[:16], sessions[-16:])
    )
    assert sum(early) / len(early) < 0.6
    assert sum(late) / len(late) > 0.9


def test_a_set_holds_sessions_in_an_open_call_and_others(told: tuple[Path, Ending]) -> None:
    store = CheckpointStore(told[0] / "killed" / "checkpoints", track_of_training("desk-policy"))
    head = store.head()
    assert head is not None
    entry = store.read_manifest(head).set
    assert entry is not None
    with steplog.open_workspace(told[0] / "killed", create=False) as ws:
        last = [
            next(ws.events(name, one.step, one.step + 1)).kind
            for name, one in entry.sessions.items()
        ]
    assert 0 < last.count("tool_called") < len(last)


def test_every_call_names_a_version_that_was_published(told: tuple[Path, Ending]) -> None:
    named = {str(call[2]) for one in history(told[0] / "killed") for call in one.calls}
    with steplog.open_workspace(told[0] / "killed", create=False) as ws:
        published = {
            one.label for one in PolicyNotes(ws.log, "desk-policy").published() if one.standing
        }
    assert named <= published
    assert published == {str(version) for version in range(0, STEPS + 1, 5)}


def test_killed_at_points_of_a_seed_it_ends_the_same(
    told: tuple[Path, Ending], tmp_path: Path
) -> None:
    """In saves, in restores, and in between, in ranks and the launcher; then it goes through."""
    for seed in range(scaled(1, 25)):
        folder = tmp_path / str(seed)
        kills = random_kills(seed)
        runs = run_killed(folder, kills)
        assert len(runs) > 3
        require_same(told, folder / "workspace", runs[-1])


@pytest.mark.parametrize("point", [*SAVING, *RESTORING] if FULL else ["rewound"])
def test_killed_at_one_point_again_and_again(
    told: tuple[Path, Ending], tmp_path: Path, point: str
) -> None:
    """Begun with a kill before any set; a restore is killed until it is let through."""
    who = ("0", "1", "0launcher") if point in OF_ALL_RANKS else ("0", "0launcher")
    kills = [
        "1:update:12",
        *(f"{who[number % len(who)]}:{point}:1" for number in range(scaled(2, 10))),
    ]
    runs = run_killed(tmp_path / "trained", kills)
    assert len(runs) == len(kills) + 1
    require_same(told, tmp_path / "trained" / "workspace", runs[-1])


class Writes(io.RawIOBase):
    """What a process writes on a pipe, write by write."""

    def __init__(self) -> None:
        self.seen: list[bytes] = []

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self.seen.append(bytes(data))
        return len(self.seen[-1])


@pytest.mark.parametrize("unbuffered", [False, True])
def test_a_line_is_one_write_so_that_no_other_comes_into_it(
    monkeypatch: pytest.MonkeyPatch, unbuffered: bool
) -> None:
    """With PYTHONUNBUFFERED `print` writes a line and its end apart: two ranks' lines mixed."""
    written = Writes()
    stdout = io.TextIOWrapper(
        written if unbuffered else io.BufferedWriter(written),  # type: ignore[arg-type]
        write_through=unbuffered,
    )
    monkeypatch.setattr(sys, "stdout", stdout)
    train_policy.tell("step 3: reward 0.50")
    train_policy.tell("step 4: reward 0.75")
    assert written.seen == [b"step 3: reward 0.50\n", b"step 4: reward 0.75\n"]


def test_the_program_prints_by_whole_lines_alone() -> None:
    assert "print(" not in (ROOT / "examples" / "train_policy.py").read_text()


def test_the_demo_knows_the_program() -> None:
    program = (ROOT / "examples" / "train_policy.py").read_text()
    assert re.search(rf"^TASKS = {TASKS}\b", program, re.MULTILINE)
    added = re.findall(r"  # (\d)$", program, re.MULTILINE)
    assert sorted(added) == ["1", "2", "3", "4", "5"]
