"""Workspaces for the tests of checkpoint sets."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from replay.workspace import Workspace, open_workspace


@pytest.fixture
def ws(tmp_path: Path) -> Iterator[Workspace]:
    """A workspace that holds nothing yet."""
    with open_workspace(tmp_path / "ws") as opened:
        yield opened


@pytest.fixture
def other(tmp_path: Path, ws: Workspace) -> Iterator[Workspace]:
    """The same workspace as another process has it."""
    with open_workspace(tmp_path / "ws") as opened:
        yield opened
