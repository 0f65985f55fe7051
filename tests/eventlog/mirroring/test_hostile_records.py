"""Records that no keeper would write, as another program may: the mirror goes on past them."""

from collections.abc import Callable

import pytest

from eventlog.codec import EVENT_BYTES_MAX, EncodedEvent
from eventlog.content import OCTET_STREAM, Content
from eventlog.event import LineHead
from eventlog.mirror import Mirror
from eventlog.session_line import ATTEMPT_MAX, STEP_MAX
from tests.support.events import EventChain
from tests.support.mirror_truth import read_line
from tests.support.topic import FakeTopic


def write_session(topic: FakeTopic, name: str) -> EventChain:
    """A session of four events."""
    chain = EventChain(name)
    chain.seed(writer="w")
    for _ in range(3):
        chain.call()
    topic.write([(name, each.data) for each in chain.events])
    return chain


def forged_claim(chain: EventChain, attempt: int) -> EncodedEvent:
    """A claim on the chain's head that the chain knows nothing of."""
    other = EventChain(chain.session_id)
    other.head = chain.head
    return other.resumed(attempt=attempt, writer="forger")


@pytest.mark.parametrize("step", [STEP_MAX + 1, 2**62, 2**63 - 1])
def test_a_fork_of_a_step_beyond_all_numbers_is_unreadable_and_nothing_stops(
    topic: FakeTopic, mirror: Mirror, step: int
) -> None:
    chain = write_session(topic, "s")
    branch = EventChain("s2")
    seed = branch.forked(LineHead("parent", step - 1, 1, b"p" * 32), writer="w")
    topic.write([("s2", seed.data)])
    mirror.refresh()
    topic.write([("s", chain.call().data)])
    mirror.refresh()
    assert len(read_line(mirror, "s")) == 5
    found = [finding.detail for finding in mirror.find_damage()]
    assert len(found) == 1
    assert f"step {step} is not between" in found[0]


@pytest.mark.parametrize("state", ["committed", "aborted", "open"])
def test_a_forged_claim_above_the_highest_attempt_leaves_the_next_ones_free(
    topic: FakeTopic, mirror: Mirror, state: str
) -> None:
    chain = write_session(topic, "s")
    part = topic.part_of("s")
    mirror.refresh()
    topic.write([("s", forged_claim(chain, ATTEMPT_MAX + 1).data)], state)
    assert mirror.highest_attempt("s", part) == 1
    if state == "open":
        return
    topic.write([("s", chain.resumed(writer="w2").data)])
    mirror.refresh()
    assert mirror.highest_attempt("s", part) == 2
    assert mirror.reader.line_of("s").writer == "w2"
    details = [finding.detail for finding in mirror.find_damage()]
    assert ["attempt" in each for each in details] == [True] * (state == "committed")


def test_a_forged_claim_of_the_highest_attempt_is_believed(
    topic: FakeTopic, mirror: Mirror
) -> None:
    chain = write_session(topic, "s")
    topic.write([("s", forged_claim(chain, ATTEMPT_MAX).data)])
    mirror.refresh()
    assert mirror.highest_attempt("s", topic.part_of("s")) == ATTEMPT_MAX
    assert mirror.reader.line_of("s").writer == "forger"


def test_a_value_larger_than_any_event_is_told_and_not_kept(
    topic: FakeTopic, mirror: Mirror, open_mirror: Callable[..., Mirror]
) -> None:
    chain = write_session(topic, "s")
    large = chain.call(arguments=Content(OCTET_STREAM, bytes(EVENT_BYTES_MAX)))
    part = topic.part_of("s")
    chain.events.pop()
    chain.head = chain.head._replace(step=3, digest=chain.events[-1].digest)
    transaction = topic.begin()
    for value in (large.data, bytes(4 * 1024 * 1024), b"x" * EVENT_BYTES_MAX):
        transaction.send(part, b"s", value)
    transaction.end("committed")
    mirror.refresh()
    assert sum(path.stat().st_size for path in mirror.folder.iterdir()) < 2**20
    details = [finding.detail for finding in mirror.find_damage()]
    assert [f"{EVENT_BYTES_MAX} at most" in each for each in details] == [True, True, False]
    # Another handle finds the last record to be the one that was mirrored, by its digest.
    topic.write([("s", bytes(EVENT_BYTES_MAX + 1))])
    mirror.refresh()
    topic.write([("s", chain.call().data)])
    open_mirror().refresh()
    assert len(read_line(mirror, "s")) == 5
