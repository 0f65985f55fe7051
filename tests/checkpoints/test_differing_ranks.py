"""Ranks that differ or fail alone, as real processes; tests/support/differing_ranks.py."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.processes import ROOT

pytest.importorskip("torch", reason="torch is not installed: checkpoint sets not shown")

DEADLINE_S = 300


def run_scenario(name: str, folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.differing_ranks", name, str(folder)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith("done\n")


def test_what_fails_on_one_rank_is_told_to_all_at_once(tmp_path: Path) -> None:
    """The others waited the whole timeout, and no save after it could be made."""
    run_scenario("fails_alone", tmp_path)


def test_values_that_differ_by_rank_are_no_mix_of_ranks(tmp_path: Path) -> None:
    run_scenario("differ", tmp_path)


def test_data_that_is_of_all_ranks_beside_what_is_of_one(tmp_path: Path) -> None:
    """The set was committed, and no number of ranks could restore it."""
    run_scenario("mixed_data", tmp_path)
