"""The conformance suite runs on every keeper of `tests/support/keepers.py`."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from eventlog.log import EventLog
from tests.support.keepers import KEEPERS, Keeper


@pytest.fixture(params=sorted(KEEPERS))
def keeper(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Keeper]:
    """A fresh, empty log of each kind."""
    with ExitStack() as stack:
        yield Keeper(KEEPERS[request.param](tmp_path), stack)


@pytest.fixture
def log(keeper: Keeper) -> EventLog:
    """The first handle on a fresh, empty log of each kind."""
    return keeper.log
