"""A topic in memory, and mirrors of it that are closed at the end."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from eventlog.mirror import Mirror
from tests.support.topic import FakeTopic

OpenMirror = Callable[..., Mirror]


@pytest.fixture
def topic() -> FakeTopic:
    """A topic of three partitions."""
    return FakeTopic(3)


@pytest.fixture
def open_mirror(topic: FakeTopic, tmp_path: Path) -> Iterator[OpenMirror]:
    """Opens handles on one mirror of the topic: `records_max`, `folder`, `allow_truncated`."""
    opened: list[Mirror] = []

    def open_one(
        records_max: int = 500, *, folder: str = "mirror", allow_truncated: bool = False
    ) -> Mirror:
        client = topic.client(records_max)
        mirror = Mirror(tmp_path / folder, client, allow_truncated=allow_truncated)
        opened.append(mirror)
        return mirror

    yield open_one
    for each in opened:
        each.close()


@pytest.fixture
def mirror(open_mirror: OpenMirror) -> Mirror:
    """A handle on an empty mirror of the topic."""
    return open_mirror()
