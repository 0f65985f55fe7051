"""Sharded saves and loads by real processes with gloo: resharding, disagreement, failure, SIGKILL.

The scenarios are in tests/support/torch_ranks.py; each runs in a process tree of its own.
"""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.processes import ROOT
from tests.support.scale import scaled

pytest.importorskip("torch", reason="torch is not installed: torch checkpoints not shown")

DEADLINE_S = 540


def run_scenario(name: str, folder: Path, *arguments: int) -> str:
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "tests.support.torch_ranks",
            name,
            str(folder),
            *map(str, arguments),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith("done\n")
    return done.stdout


def test_saved_by_four_ranks_and_loaded_by_others_bit_for_bit(tmp_path: Path) -> None:
    """FSDP2, DTensors of every layout, AdamW, frozen and tied, and what each rank has alone."""
    run_scenario("reshard", tmp_path)


def test_ranks_that_fail_or_do_not_agree_commit_nothing(tmp_path: Path) -> None:
    """Also two trainers of one step: torch loads a mix of both (research page, section 3)."""
    run_scenario("disagree,one_rank_fails,two_writers", tmp_path)


def test_saves_in_the_background_and_each_ranks_own_state(tmp_path: Path) -> None:
    run_scenario("absent,background,own_states", tmp_path)


def test_killed_at_random_points_the_head_is_old_or_new(tmp_path: Path) -> None:
    run_scenario("killed", tmp_path, scaled(5, 50), 1)
