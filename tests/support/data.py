"""Where the recorded sessions and vectors lie; tests without them are skipped, loudly."""

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DATA = Path(os.environ.get("STEPLOG_TEST_DATA", ROOT.parent / "shared" / "data"))


def data_path(*parts: str) -> Path:
    """A file or folder of the test data, or a skip that names the missing path."""
    path = DATA.joinpath(*parts)
    if not path.exists():
        pytest.skip(f"test data missing: {path} (set STEPLOG_TEST_DATA)")
    return path
