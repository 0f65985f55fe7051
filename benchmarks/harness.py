"""What every benchmark shares: measuring, and printing bar, peer and ours side by side.

A benchmark is `benchmarks/NAME.py` with a `main()`, run from the root of the repository as
`python -m benchmarks.NAME` (never by path: a folder named `benchmarks` first on `sys.path` would
put its `snapshots.py` in front of the package). CPU seconds come first, because wall times on a
busy machine mean little; both sides of a ratio are measured in one run.
"""

import gc
import importlib.util
import json
import os
import platform
import sqlite3
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

ROWS_VARIABLE: Final = "STEPLOG_BENCH_ROWS"
"""Names a file to which `report` also appends its rows, one JSON object a line."""

NOT_INSTALLED: Final = "not installed"


class Row(NamedTuple):
    """One figure: what was measured, the bar, the peer's figure, ours, and whether ours meets it.

    Figures are texts with their unit. `met` None: the figure has no bar, or was not measured.
    """

    what: str
    bar: str
    peer: str
    ours: str
    met: bool | None

    @property
    def verdict(self) -> str:
        """The row's last column: `met`, `MISSED` or `-`."""
        return "-" if self.met is None else "met" if self.met else "MISSED"


class Measured(NamedTuple):
    """Repeated runs of one function: CPU and wall seconds of each run, in order.

    CPU is that of the whole process (all its threads), user and system.
    """

    cpu_s: tuple[float, ...]
    wall_s: tuple[float, ...]

    @property
    def best_cpu_s(self) -> float:
        """The fastest run: the one least disturbed by others on the machine."""
        return min(self.cpu_s)

    @property
    def median_cpu_s(self) -> float:
        """The median run."""
        return statistics.median(self.cpu_s)

    @property
    def best_wall_s(self) -> float:
        """The fastest run by the wall clock."""
        return min(self.wall_s)


def measure_cpu(fn: Callable[[], object], repeat: int = 5) -> Measured:
    """Run `fn` `repeat` times with the garbage collector off, after one run to warm up."""
    fn()
    cpu_s, wall_s = [], []
    for _ in range(repeat):
        gc.collect()
        gc.disable()
        try:
            wall_start, cpu_start = time.perf_counter(), time.process_time()
            fn()
            cpu_s.append(time.process_time() - cpu_start)
            wall_s.append(time.perf_counter() - wall_start)
        finally:
            gc.enable()
    return Measured(tuple(cpu_s), tuple(wall_s))


def percentile(samples: Sequence[float], percent: float) -> float:
    """The nearest-rank percentile of `samples`, 0 < `percent` <= 100."""
    ranked = sorted(samples)
    rank = -(-len(ranked) * percent // 100)
    return ranked[int(rank) - 1]


def peer_installed(*modules: str) -> bool:
    """Whether all these peers can be imported here; where not, print `NOT_INSTALLED` for them."""
    return all(importlib.util.find_spec(module) is not None for module in modules)


def machine() -> str:
    """One line on what the figures were measured on."""
    return (
        f"Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}, "
        f"{os.cpu_count()} cores ({_processor()}), {platform.system()} {platform.release()}, "
        f"load {os.getloadavg()[0]:.1f}"
    )


def report(rows: Iterable[Row]) -> None:
    """Print machine and rows; hand the rows to `make bench` where it asks for them."""
    rows = list(rows)
    print(machine())
    print(format_table(rows), flush=True)
    collected = os.environ.get(ROWS_VARIABLE)
    if collected is not None:
        with Path(collected).open("a", encoding="utf-8") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)


def format_table(rows: Iterable[Row]) -> str:
    """The rows as aligned text: what | bar | peer | ours | verdict."""
    lines = [["what", "bar", "peer", "ours", "verdict"]]
    lines += [[row.what, row.bar, row.peer, row.ours, row.verdict] for row in rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    lines.insert(1, ["-" * width for width in widths])
    return "\n".join(
        " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
