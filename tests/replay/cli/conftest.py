"""`steplog`: the command on a workspace of the test's own; `desk`: with a session in it."""

from pathlib import Path

import pytest

from tests.support.command import Command, record_desk


@pytest.fixture
def steplog(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Command:
    """The command on a workspace that is not there yet."""
    return Command(tmp_path / "ws", capsys)


@pytest.fixture
def desk(steplog: Command) -> Command:
    """The command on a workspace with the session `desk/1` (steps 0 to 11)."""
    with steplog.open() as ws:
        record_desk(ws)
    return steplog
