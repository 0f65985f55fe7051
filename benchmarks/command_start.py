"""How long a person waits for `steplog --help`, and for the cheapest verb's help.

Wall time of a new process each time: start of Python, imports, and printing. The peer is the
smallest command that typer itself can make.
"""

import subprocess
import sys
import time
from pathlib import Path

from benchmarks.harness import Row, percentile, report

ROOT = Path(__file__).resolve().parent.parent
RUNS = 15
HELP_S_MAX = 0.35

SMALLEST = """
import typer
app = typer.Typer(rich_markup_mode=None)
@app.command()
def main(): "Nothing."
app()
"""


def waits(arguments: list[str]) -> list[float]:
    """Wall seconds of each run of Python with these arguments; the first run is not counted."""
    taken_s = []
    for _ in range(RUNS + 1):
        start = time.perf_counter()
        done = subprocess.run(
            [sys.executable, *arguments], cwd=ROOT, stdout=subprocess.DEVNULL, check=False
        )
        taken_s.append(time.perf_counter() - start)
        if done.returncode != 0:
            raise SystemExit(f"{arguments} failed with {done.returncode}")
    return taken_s[1:]


def main() -> None:
    """Measure and print."""
    peer = percentile(waits(["-c", SMALLEST, "--help"]), 50)
    rows = []
    for what, limit_s in ((["--help"], HELP_S_MAX), (["doctor", "--help"], None)):
        taken_s = waits(["-m", "replay.cli", *what])
        p50, p95 = percentile(taken_s, 50), percentile(taken_s, 95)
        rows.append(
            Row(
                f"steplog {' '.join(what)}, wall p50 (p95)",
                "-" if limit_s is None else f"< {limit_s} s",
                f"{peer:.3f} s",
                f"{p50:.3f} s ({p95:.3f} s)",
                None if limit_s is None else p50 < limit_s,
            )
        )
    report(rows)


if __name__ == "__main__":
    main()
