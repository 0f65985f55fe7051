"""Branches whose parents lie in other partitions: whatever is read first, all is listed alike."""

import itertools
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from eventlog.codec import EncodedEvent
from eventlog.event import LineHead
from eventlog.memory_log import MemoryLog
from eventlog.mirror import Mirror
from tests.support.events import EventChain
from tests.support.mirror_truth import read_line
from tests.support.recorded import append_all
from tests.support.topic import FakeTopic

OpenMirror = Callable[..., Mirror]
PARTITIONS = 4


def named_for(topic: FakeTopic, part: int, stem: str) -> str:
    """A session's name that falls into a partition."""
    return next(f"{stem}{n}" for n in range(999) if topic.part_of(f"{stem}{n}") == part)


def head_of(encoded: EncodedEvent) -> LineHead:
    """The line's head after an event."""
    event = encoded.event
    return LineHead(event.session_id, event.step, event.attempt, encoded.digest)


def family(topic: FakeTopic) -> list[EventChain]:
    """A session, its branch, that one's branch, and a branch forked from the first one's prefix."""
    root = EventChain(named_for(topic, 0, "root"))
    root.seed(task_id="t-1", writer="w")
    for number in range(300):
        root.call()
        root.returned(reward=0.25 if number % 3 else None)
    branch = EventChain(named_for(topic, 1, "branch"))
    branch.forked(head_of(root.events[520]), writer="w")
    for _ in range(130):
        branch.call()
        branch.returned(reward=1.5)
    twig = EventChain(named_for(topic, 2, "twig"))
    twig.forked(head_of(branch.events[200]), writer="w")
    twig.verified(0.75)
    early = EventChain(named_for(topic, 3, "early"))
    early.forked(LineHead(branch.session_id, 7, 1, root.events[7].digest), writer="w")
    early.call()
    base = early.events[0]
    early.resumed(head_of(base), writer="w")
    early.call()
    return [root, branch, twig, early]


@pytest.mark.parametrize("order", list(itertools.permutations(range(PARTITIONS))))
def test_any_order_of_partitions_lists_the_same(order: tuple[int, ...], tmp_path: Path) -> None:
    topic = FakeTopic(PARTITIONS)
    chains = family(topic)
    with MemoryLog() as log:
        rng = random.Random(str(order))
        for chain in chains:
            kinds = [each.event.kind for each in chain.events]
            claim = kinds.index("session_resumed") if "session_resumed" in kinds else len(kinds)
            for batch in filter(None, (chain.events[:claim], chain.events[claim:])):
                append_all_as(log, batch)
                topic.write([(chain.session_id, each.data) for each in batch])
        right = sorted(log.list_sessions())
        with Mirror(tmp_path / "m", topic.client(rng.choice((7, 100, 1_000)))) as mirror:
            for part in order:
                mirror.refresh({part})
            found = sorted(mirror.reader.list_sessions(None))
            assert found == right
            for chain in chains:
                name = chain.session_id
                assert [e.data for e in read_line(mirror, name)] == [
                    e.data for e in log.read_session(name)
                ]
            assert list(mirror.find_damage()) == []


def append_all_as(log: MemoryLog, batch: list[EncodedEvent]) -> None:
    """Append as the writer that the events name: a memory log asks for its own."""
    log._writer_id = "w"
    append_all(log, batch)


def test_a_branch_whose_parent_never_comes_is_listed_by_its_own_events(
    topic: FakeTopic, mirror: Mirror, open_mirror: OpenMirror
) -> None:
    branch = EventChain("branch")
    branch.forked(LineHead("nowhere", 3, 1, bytes(32)), writer="w")
    branch.verified(0.5)
    topic.write([("branch", each.data) for each in branch.events])
    mirror.refresh()
    info = mirror.reader.session_info("branch")
    assert (info.step_count, info.reward, info.parent_session) == (6, 0.5, "nowhere")
    assert any(each.error == "LinkBrokenError" for each in mirror.find_damage(["branch"]))
    # What it waits for begins, but never had such an event: it goes on waiting.
    other = EventChain("nowhere")
    other.seed(writer="w")
    topic.write([("nowhere", other.events[0].data)])
    open_mirror().refresh()
    assert mirror.reader.session_info("branch") == info
