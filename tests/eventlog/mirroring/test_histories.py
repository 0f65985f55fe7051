"""Random histories of a topic, read by a mirror in any portions, against the model in memory."""

import random
from collections import Counter
from pathlib import Path

import pytest

from eventlog.errors import LogUnavailableError
from eventlog.mirror import Mirror
from tests.support.mirror_truth import require_true
from tests.support.scale import scaled
from tests.support.topic import FakeTopic
from tests.support.topic_histories import TopicHistory

SEEDS = scaled(24, 400)


class Run:
    """One topic and its mirror, which is opened anew now and then."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.rng = random.Random(seed)
        self.topic = FakeTopic(self.rng.choice((1, 2, 5)))
        self.history = TopicHistory(self.rng, self.topic, self.rng.choice((1, 3, 8)))
        self.folder = folder
        self.mirrors = [self.open(), self.open()]

    def open(self) -> Mirror:
        """A handle that reads in portions of some size."""
        return Mirror(self.folder, self.topic.client(self.rng.choice((1, 3, 10, 100))))

    def pick(self) -> Mirror:
        """One of two handles on the same file; it may have been closed and opened before."""
        place = self.rng.randrange(2)
        if self.rng.random() < 0.2:
            self.mirrors[place].close()
            self.mirrors[place] = self.open()
        return self.mirrors[place]

    def require_attempts(self, mirror: Mirror, name: str) -> None:
        """The highest attempt is that of all that was sent, whatever has become of it."""
        sent = self.history.sent[name]
        highest = max((event.attempt for event in sent), default=0)
        assert mirror.highest_attempt(name, self.topic.part_of(name)) == highest, name

    def refresh(self, mirror: Mirror) -> None:
        """Read on; an open transaction may hold it back."""
        parts = None
        if self.rng.random() < 0.3:
            parts = {self.rng.randrange(len(self.topic.parts))}
        wanted = range(len(self.topic.parts)) if parts is None else parts
        is_open = any(self.topic.stable_end(part) < self.topic.end(part) for part in wanted)
        try:
            cut = mirror.refresh(parts, timeout_s=0.0 if is_open else 30.0)
        except LogUnavailableError:
            assert is_open
        else:
            assert all(cut.end(part) == self.topic.end(part) for part in wanted)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_mirror_makes_of_a_topic_what_the_rule_says(seed: int, tmp_path: Path) -> None:
    run = Run(tmp_path / "mirror", seed)
    while not run.history.is_over:
        run.history.write_some(run.rng.choice((1, 4, 20)))
        mirror = run.pick()
        run.refresh(mirror)
        if run.rng.random() < 0.1:
            require_true(mirror, run.topic)
        if run.rng.random() < 0.3:
            run.require_attempts(run.pick(), run.rng.choice(run.history.names))
    mirror = run.pick()
    mirror.refresh()
    model = require_true(mirror, run.topic)
    for name in run.history.names:
        run.require_attempts(mirror, name)
        part = run.topic.part_of(name)
        found = [(each.offset, each.attempt) for each in mirror.reader.aborted(name, part)]
        assert found == run.history.aborted(name), name
    verdicts = Counter(
        str(kind) for each in model.sessions.values() for kind in each.verdicts.values()
    )
    print(dict(verdicts), len(model.unreadable), "unreadable")


def test_the_same_histories_read_at_once_or_record_by_record_are_the_same(tmp_path: Path) -> None:
    rng = random.Random(5)
    topic = FakeTopic(2)
    TopicHistory(rng, topic, 12).finish()
    with (
        Mirror(tmp_path / "a", topic.client(1)) as by_one,
        Mirror(tmp_path / "b", topic.client(100_000)) as at_once,
    ):
        by_one.refresh()
        at_once.refresh()
        require_true(by_one, topic)
        require_true(at_once, topic)
        infos = [list(each.reader.list_sessions(None)) for each in (by_one, at_once)]
    assert sorted(infos[0]) == sorted(infos[1])
