"""How much of a long test to run: a seeded part by default, the whole under STEPLOG_FULL=1."""

import os

FULL = os.environ.get("STEPLOG_FULL") == "1"


def scaled(default: int, full: int) -> int:
    """`full` when the whole suite is asked for, else `default`."""
    return full if FULL else default
