"""What every test runs under: reproducible properties, and skips that nobody can overlook."""

import platform
from collections import Counter

import pytest
from hypothesis import HealthCheck, settings

from tests.support.data import DATA
from tests.support.scale import FULL
from tests.support.second_python import find_second_python

pytest_plugins = ["tests.support.broker_plugin"]

# Derandomized: the same examples on every machine and in every run, so a red run can be repeated.
# No deadline: times are measured in benchmarks/, never asserted here.
settings.register_profile(
    "steplog",
    derandomize=True,
    deadline=None,
    database=None,
    print_blob=True,
    max_examples=1000 if FULL else 100,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("steplog")


def pytest_report_header() -> list[str]:
    """Name what decides which tests run."""
    found = find_second_python()
    return [
        f"second Python: {found.version} at {found.path}"
        if found.path
        else f"second Python: none ({found.problem})",
        f"main Python: {platform.python_version()}; test data: "
        f"{DATA if DATA.exists() else f'MISSING at {DATA}'}; scale: {'full' if FULL else 'seeded'}",
    ]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """List what was skipped and why: a skipped test proves nothing."""
    skipped = terminalreporter.stats.get("skipped", [])
    reasons = Counter(_reason(report) for report in skipped)
    if reasons:
        terminalreporter.section(
            f"{len(skipped)} SKIPPED: not shown to work here", sep="!", red=True
        )
        for reason, count in reasons.most_common():
            terminalreporter.line(f"{count:5} x {reason}")


def _reason(report: pytest.TestReport) -> str:
    # A skip's report holds (file, line, reason).
    return str(report.longrepr[2]) if isinstance(report.longrepr, tuple) else str(report.longrepr)
