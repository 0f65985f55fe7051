"""Train twice, once undisturbed and once killed again and again, and show that both end alike.

    python kill_training.py [--folder DIR] [--steps 60] [--kills 4] [--seed 1]

Runs examples/train_policy.py. Which process gets SIGKILL, a rank or the launcher, and after which
step, follows from the seed. The exit code is 0 where the two are identical.
"""

import argparse
import os
import random
import re
import shlex
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import steplog

PROGRAM = Path(__file__).with_name("train_policy.py")
VICTIMS = ("rank 0", "rank 1", "the launcher")
TASKS = 24  # In an epoch of the program.
STEPS_BETWEEN_KILLS = (4, 16)  # The program saves every 5 steps.


class Ending(NamedTuple):
    """How a run of the program ended, and what it printed."""

    code: int
    lines: list[str]
    killed: bool

    def said(self, what: str) -> str | None:
        """The rest of the first line that begins so."""
        return next((line[len(what) :] for line in self.lines if line.startswith(what)), None)

    @property
    def last_step(self) -> int:
        """The last update that was made; 0 before any."""
        return max(
            (int(line.split()[1][:-1]) for line in self.lines if line[:5] == "step "), default=0
        )


def run(place: Path, steps: int, victim: str | None = None, after_steps: int = 0) -> Ending:
    """Run the program, and kill `victim` once so many updates were made."""
    command = [sys.executable, str(PROGRAM), "--workspace", str(place), "--steps", str(steps)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as launcher:
        assert launcher.stdout is not None
        processes = {"the launcher": launcher.pid}
        lines, killed = [], False
        # Ends when the ranks have ended too: they hold the other end.
        for line in launcher.stdout:
            lines.append(line.rstrip("\n"))
            began = re.match(r"(rank \d+) is process (\d+)", line)
            if began:
                processes[began[1]] = int(began[2])
            elif line.startswith("step "):
                after_steps -= 1
                # A launcher that is held up may tell of a rank after that rank's first steps.
                if after_steps <= 0 and victim in processes and not killed:
                    os.kill(processes[victim], signal.SIGKILL)
                    killed = True
    return Ending(launcher.returncode, lines, killed)


class Trained(NamedTuple):
    """What was trained on one sample: when its session began, how it went, and how it stands."""

    training_step: int | None
    sample: str
    closed: bool
    reward: float | None
    state: str
    calls: list[tuple[object, ...]]


def history(place: Path) -> list[Trained]:
    """What was trained on, in its order, as the log has it."""
    found = []
    with steplog.open_workspace(place, create=False) as ws:
        for info in ws.sessions(steplog.SessionFilter(environment="desk", voided=False)):
            state = ws.replay(info.session_id).state_digest.hex()
            calls = [
                (call.tool, ws.read_value(call.arguments), call.policy, call.status, call.reward)
                for call in ws.calls(info.session_id)
            ]
            closed = info.status == "closed"
            begun = (info.training_step, str(info.sample_id))
            found.append(Trained(*begun, closed, info.reward, state, calls))
    return sorted(found)


def samples(told: list[Trained]) -> tuple[int, int, int]:
    """Of what `history` told: samples, those left out of epochs that are over, and those twice."""
    ids = Counter(one.sample for one in told)
    epochs = Counter(name.split("/")[0] for name in ids)
    over = [name for name in epochs if int(name.split("-")[1]) < len(epochs) - 1]
    skipped = sum(TASKS - epochs[name] for name in over)
    return len(ids), skipped, sum(count - 1 for count in ids.values())


def train_and_kill(place: Path, steps: int, kills: int, seed: int) -> Ending:
    """Run the program until it is through, killing it so many times before."""
    chance = random.Random(seed)
    for number in range(1, kills + 1):
        victim = VICTIMS[number - 1] if number <= len(VICTIMS) else chance.choice(VICTIMS)
        ending = run(place, steps, victim, chance.randint(*STEPS_BETWEEN_KILLS))
        tell_restored(ending)
        if not ending.killed:
            print("   it ended before the kill", flush=True)
            return ending
        print(f"   kill {number}: SIGKILL to {victim} after step {ending.last_step}", flush=True)
    ending = run(place, steps)
    tell_restored(ending)
    return ending


def tell_restored(ending: Ending) -> None:
    """Which set a run went on from."""
    restored = ending.said("restored ")
    print(f"   {'from the start' if restored is None else f'restored {restored}'}", flush=True)


def show(place: Path, *lines: str) -> None:
    """Run command lines of steplog, and show how their output begins."""
    for line in lines:
        print(f"\n$ steplog {line}")
        command = [sys.executable, "-m", "replay.cli", "--workspace", str(place), *line.split()]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
        shown = done.stdout.splitlines()
        print("\n".join(shown[:6]))
        if len(shown) > 6:
            print(f"... {len(shown) - 6} more lines", flush=True)


def compare(folder: Path, steps: int, kills: int, seed: int) -> bool:
    """Tell the story; whether both trainings ended alike."""
    print(f"1. {steps} updates by 2 ranks, undisturbed.", flush=True)
    calm = run(folder / "undisturbed", steps)
    rewards = [line.split()[-1] for line in calm.lines if line.startswith("step ")]
    print(
        f"   reward of the first updates {' '.join(rewards[:5])}, the last {' '.join(rewards[-5:])}"
    )
    print(f"\n2. The same with {kills} kills, each time run again.", flush=True)
    killed = train_and_kill(folder / "killed", steps, kills, seed)
    told = [history(folder / name) for name in ("undisturbed", "killed")]
    print("\n3. How both ended.")
    same = told[0] == told[1] and calm.code == killed.code == 0
    for what in ("weights", "optimizer"):
        ends = [ending.said(f"{what} ") for ending in (calm, killed)]
        same = same and ends[0] is not None and ends[0] == ends[1]
        for name, digest in zip(("undisturbed", "killed"), ends, strict=True):
            print(f"   {what:9} {name:11} {digest}")
    for name, one in zip(("undisturbed", "killed"), told, strict=True):
        count, skipped, twice = samples(one)
        calls = sum(len(session.calls) for session in one)
        print(
            f"   log       {name:11} {count} samples, {skipped} skipped, {twice} twice; "
            f"{calls} calls"
        )
        same = same and not skipped and not twice
    print(f"\n{'identical' if same else 'NOT identical'}", flush=True)
    show(folder / "killed", "sessions --environment desk", "checkpoint list", "policy list")
    return same


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--folder", type=Path, help="where both workspaces stay; a new folder")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--kills", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    if given.folder is not None:
        if given.folder.exists() and any(given.folder.iterdir()):
            parser.error(f"{given.folder} is there and not empty: name a new folder")
        same = compare(given.folder, given.steps, given.kills, given.seed)
        print(f"\nLook around: steplog --workspace {shlex.quote(str(given.folder / 'killed'))} ...")
        return 0 if same else 1
    with tempfile.TemporaryDirectory(prefix="steplog-train-") as folder:
        return 0 if compare(Path(folder), given.steps, given.kills, given.seed) else 1


if __name__ == "__main__":
    sys.exit(main())
