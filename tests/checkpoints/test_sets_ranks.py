"""Checkpoint sets of several ranks, as real processes with gloo; tests/support/set_ranks.py."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.processes import ROOT

pytest.importorskip("torch", reason="torch is not installed: checkpoint sets not shown")

DEADLINE_S = 300


def run_scenarios(names: str, folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.set_ranks", names, str(folder)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith("done\n")


def test_one_ranks_failure_and_a_lost_claim_are_told_to_all(tmp_path: Path) -> None:
    """No rank waits for one that failed (pytorch #157781)."""
    run_scenarios("one_rank_fails,full_disk,rank_dies,fenced", tmp_path)


def test_a_set_of_four_ranks_is_restored_by_others_bit_for_bit(tmp_path: Path) -> None:
    """FSDP2 and AdamW; where random states cannot be exact, that is said, or asked for."""
    run_scenarios("reshard", tmp_path)


def test_wrapped_and_gathered_models(tmp_path: Path) -> None:
    run_scenarios("gathered,wrapped", tmp_path)


def test_each_rank_goes_on_with_its_own_random_state(tmp_path: Path) -> None:
    """Megatron-LM #6858, Automodel #3437, Megatron-Bridge #5257, torchtitan #647."""
    run_scenarios("own_random", tmp_path)


def test_stopped_three_times_it_is_as_if_it_never_had_been(tmp_path: Path) -> None:
    """52 steps of 2 ranks under DDP with dropout; every sample once an epoch (torchdata #1437)."""
    run_scenarios("resumed", tmp_path)
