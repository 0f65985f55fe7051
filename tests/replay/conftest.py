"""A workspace for each test, and recorded sessions with the truth about them."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from replay.workspace import Workspace, open_workspace
from tests.support.desk import Desk, Told

Play = Callable[..., Told]


@pytest.fixture
def ws(tmp_path: Path) -> Iterator[Workspace]:
    """A workspace in a folder of its own."""
    with open_workspace(tmp_path / "ws") as ws:
        yield ws


@pytest.fixture
def play(ws: Workspace) -> Play:
    """Record a desk's session of so many calls; what is true of it comes back."""

    def play(name: str = "s", calls: int = 10, *, seed: int = 0, **options: object) -> Told:
        desk = Desk(seed)
        told = Told(desk)
        with ws.record(name, environment="desk", state=lambda: desk.state, **options) as session:  # type: ignore[arg-type]
            told.play(session, calls)
        told.note(session)
        ws.replay(name)  # waits for the snapshots that were due
        return told

    return play
