"""The conformance suite runs on every keeper of `tests/support/keepers.py`."""

from collections.abc import Iterator

import pytest

from eventlog.log import EventLog
from tests.support.keepers import KEEPERS, Keeper, open_keeper


@pytest.fixture(params=KEEPERS)
def keeper(request: pytest.FixtureRequest) -> Iterator[Keeper]:
    """A fresh, empty log of each kind."""
    with open_keeper(request) as opened:
        yield opened


@pytest.fixture
def log(keeper: Keeper) -> EventLog:
    """The first handle on a fresh, empty log of each kind."""
    return keeper.log
