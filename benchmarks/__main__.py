"""Run every benchmark, or those named, and end with one table: `python -m benchmarks [NAME...]`.

Each runs in its own process, so that none is measured in a heap another has filled. A missed bar
is printed, not an error; a benchmark that fails is.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.harness import ROWS_VARIABLE, Row, format_table, machine

HERE = Path(__file__).resolve().parent
NOT_BENCHMARKS = {"__main__", "harness"}


def names() -> list[str]:
    """The benchmarks there are; a module whose name begins with `_` only helps others."""
    stems = {path.stem for path in HERE.glob("[!_]*.py")}
    return sorted(stems - NOT_BENCHMARKS)


def run(chosen: list[str]) -> tuple[list[Row], list[str]]:
    """Run these; their rows, and the names of those that failed."""
    rows: list[Row] = []
    failed: list[str] = []
    for name in chosen:
        print(f"\n== {name}", flush=True)
        with tempfile.NamedTemporaryFile("r", encoding="utf-8") as collected:
            done = subprocess.run(
                [sys.executable, "-m", f"benchmarks.{name}"],
                cwd=HERE.parent,
                env=os.environ | {ROWS_VARIABLE: collected.name},
                check=False,
            )
            rows += [Row(*json.loads(line)) for line in collected]
        if done.returncode != 0:
            failed.append(name)
    return rows, failed


def main() -> int:
    """The exit code: 0, 1 where a benchmark failed, 2 for an unknown name."""
    chosen = sys.argv[1:] or names()
    unknown = sorted(set(chosen) - set(names()))
    if unknown:
        print(f"no such benchmark: {', '.join(unknown)}; there are {', '.join(names())}")
        return 2
    rows, failed = run(chosen)
    missed = sum(row.met is False for row in rows)
    print(f"\n== all, on {machine()}\n{format_table(rows)}")
    print(f"\n{len(rows)} figures, {missed} bars missed, {len(failed)} benchmarks failed", *failed)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
