"""Another minor version of Python, for tests that compare what two versions make of one value.

`make test` makes `.venv-second` from the first other version it finds and names its interpreter in
STEPLOG_SECOND_PYTHON.
"""

import functools
import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[2]

_TRY_OUT = """
import fastavro, numpy, ormsgpack, pydantic, sys, zstandard
print("%d.%d" % sys.version_info[:2])
"""


class SecondPython(NamedTuple):
    """What was found: a path and its minor version, or the problem."""

    path: str | None
    version: str | None
    problem: str | None


@functools.cache
def find_second_python() -> SecondPython:
    """Try out the interpreter: it must be of another version and have our dependencies."""
    path = os.environ.get("STEPLOG_SECOND_PYTHON") or str(ROOT / ".venv-second/bin/python")
    if not Path(path).exists():
        return SecondPython(
            None, None, f"no {path}; `make test` makes it, or set STEPLOG_SECOND_PYTHON"
        )
    tried = subprocess.run([path, "-c", _TRY_OUT], capture_output=True, text=True, check=False)
    version = tried.stdout.strip()
    if tried.returncode != 0:
        return SecondPython(None, None, f"{path} fails: {tried.stderr.strip()[-200:]}")
    if version == f"{sys.version_info[0]}.{sys.version_info[1]}":
        return SecondPython(None, None, f"{path} is of the same version, {version}")
    return SecondPython(path, version, None)


def second_python() -> str:
    """The path of another minor version's interpreter that has our dependencies and numpy.

    Skips the calling test, saying why, where there is none. Run it from the root of the repository
    (or with that on PYTHONPATH), so that it imports this checkout.
    """
    found = find_second_python()
    if found.path is None:
        pytest.skip(f"no second Python version: {found.problem}")
    return found.path
