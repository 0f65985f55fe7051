"""Running scenarios of a module of tests/support in a process tree of its own.

For what loads torch, forks ranks and is killed: `run_scenarios("torch_ranks", "reshard", folder)`.
"""

import subprocess
import sys
from pathlib import Path

from tests.support.processes import ROOT

DEADLINE_S = 570


def run_scenarios(module: str, names: str, folder: Path, *arguments: object) -> str:
    """Run those that `names` lists, with commas between them; what they printed.

    One that ends well says so in its last line.
    """
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            f"tests.support.{module}",
            names,
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
