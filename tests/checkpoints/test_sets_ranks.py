"""Checkpoint sets of several ranks, as real processes with gloo; tests/support/set_ranks.py."""

from pathlib import Path

import pytest

from tests.support.scenarios import run_scenarios

pytest.importorskip("torch", reason="torch is not installed: checkpoint sets not shown")


def test_one_ranks_failure_and_a_lost_claim_are_told_to_all(tmp_path: Path) -> None:
    """No rank waits for one that failed (pytorch #157781)."""
    run_scenarios("set_ranks", "one_rank_fails,full_disk,rank_dies,fenced", tmp_path)


def test_ranks_that_do_not_see_one_folder_are_refused_at_entry(tmp_path: Path) -> None:
    """The first save called the other's objects missing: "restore from a copy"."""
    run_scenarios("set_ranks", "own_folders", tmp_path)


def test_a_rank_that_never_enters_is_told_by_the_deadline(tmp_path: Path) -> None:
    """It was torch's own DistNetworkError, or half an hour without a word."""
    run_scenarios("set_ranks", "never_entered", tmp_path)


def test_a_set_of_four_ranks_is_restored_by_others_bit_for_bit(tmp_path: Path) -> None:
    """FSDP2 and AdamW; where random states cannot be exact, that is said, or asked for."""
    run_scenarios("set_ranks", "reshard", tmp_path)


def test_a_version_is_published_while_a_set_is_saved(tmp_path: Path) -> None:
    """The ranks of a training met in five groups, and each save asked them twice."""
    run_scenarios("set_ranks", "beside", tmp_path)


def test_wrapped_and_gathered_models(tmp_path: Path) -> None:
    run_scenarios("set_ranks", "gathered,wrapped", tmp_path)


def test_each_rank_goes_on_with_its_own_random_state(tmp_path: Path) -> None:
    """Megatron-LM #6858, Automodel #3437, Megatron-Bridge #5257, torchtitan #647."""
    run_scenarios("set_ranks", "own_random", tmp_path)


def test_stopped_three_times_it_is_as_if_it_never_had_been(tmp_path: Path) -> None:
    """52 steps of 2 ranks under DDP with dropout; every sample once an epoch (torchdata #1437)."""
    run_scenarios("set_ranks", "resumed", tmp_path)
