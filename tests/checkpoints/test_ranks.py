"""Sharded saves and loads by real processes with gloo: resharding, disagreement, failure, SIGKILL.

The scenarios are in tests/support/torch_ranks.py; each runs in a process tree of its own.
"""

from pathlib import Path

import pytest

from tests.support.scale import scaled
from tests.support.scenarios import run_scenarios

pytest.importorskip("torch", reason="torch is not installed: torch checkpoints not shown")


def test_saved_by_four_ranks_and_loaded_by_others_bit_for_bit(tmp_path: Path) -> None:
    """FSDP2, DTensors of every layout, AdamW, frozen and tied, and what each rank has alone."""
    run_scenarios("torch_ranks", "reshard", tmp_path)


def test_ranks_that_fail_or_do_not_agree_commit_nothing(tmp_path: Path) -> None:
    """Also two trainers of one step: torch loads a mix of both (research page, section 3)."""
    run_scenarios("torch_ranks", "disagree,one_rank_fails,two_writers", tmp_path)


def test_saves_in_the_background_and_each_ranks_own_state(tmp_path: Path) -> None:
    run_scenarios("torch_ranks", "absent,background,own_states", tmp_path)


def test_killed_at_random_points_the_head_is_old_or_new(tmp_path: Path) -> None:
    run_scenarios("torch_ranks", "killed", tmp_path, scaled(5, 50), 1)
