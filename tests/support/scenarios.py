"""Running a scenario of tests/support/policy_ranks.py in a process tree of its own."""

import subprocess
import sys
from pathlib import Path

from tests.support.processes import ROOT

DEADLINE_S = 570


def run_scenario(name: str, folder: Path) -> None:
    """What ends well says so."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.policy_ranks", name, str(folder)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith("done\n")
