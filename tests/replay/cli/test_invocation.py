"""Global options are taken from anywhere, and nothing else moves."""

import pytest

from replay.cli.invocation import hoist_global_options


@pytest.mark.parametrize(
    ("given", "hoisted"),
    [
        ([], []),
        (["show", "s@3"], ["show", "s@3"]),
        (["show", "--json", "s@3"], ["--json", "show", "s@3"]),
        (["show", "s", "-w", "dir", "--events"], ["-w", "dir", "show", "s", "--events"]),
        (["show", "-v", "s", "--workspace=d"], ["-v", "--workspace=d", "show", "s"]),
        (["show", "--workspace"], ["--workspace"]),  # so that its value is asked for
        (["--json", "show", "-w"], ["-w"]),
        (["show", "--", "--json"], ["show", "--", "--json"]),
    ],
)
def test_hoisting(given: list[str], hoisted: list[str]) -> None:
    assert hoist_global_options(given) == hoisted
